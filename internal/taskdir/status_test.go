package taskdir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
)

// keysOf lists the keys of a JSON object in their order, those of objects in it
// too, each once.
func keysOf(t *testing.T, data []byte) []string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(data)))
	var keys []string
	var walk func(prefix string)
	walk = func(prefix string) {
		tok, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		delim, _ := tok.(json.Delim)
		switch delim {
		case '{':
			for dec.More() {
				key, err := dec.Token()
				if err != nil {
					t.Fatal(err)
				}
				if k := prefix + key.(string); !slices.Contains(keys, k) {
					keys = append(keys, k)
				}
				walk(prefix + key.(string) + ".")
			}
		case '[':
			for dec.More() {
				walk(prefix)
			}
		default:
			return
		}
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
	}
	walk("")
	return keys
}

const statusKeys = "task session state reason round turn agent llm model started_at updated_at reply_deadline output result completed_by " +
	"error error.kind error.message warnings latest_tool waiting waiting.since waiting.until waiting.why " +
	"messages messages.file messages.taken_at messages.bytes messages.sha256 messages.encoding messages.round messages.turn messages.outcome " +
	"usage usage.requests usage.tool_calls usage.input_tokens usage.output_tokens usage.cached_tokens usage.cost_usd usage.context_tokens " +
	"usage.context_window usage.context_percent usage.unreported_requests plan plan.done plan.total plan.current " +
	"open_points missing_outputs parent children"

func TestStatusKeys(t *testing.T) {
	s := NewStatus("x")
	s.Error = &round.Failure{Kind: "auth", Message: `no "key", {a: [b]}\\`}
	s.Waiting = &Waiting{Why: "rate limit"}
	s.AddMessage(Message{File: "input.txt"})
	s.AddMessage(Message{File: "reply.txt"})
	data, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		t.Fatal(err)
	}
	if want, err := marshal(s); err != nil || !bytes.Equal(compact.Bytes(), want) {
		t.Errorf("laid out it says %s, not %s", compact.Bytes(), want)
	}
	if got := keysOf(t, data); !slices.Equal(got, strings.Fields(statusKeys)) {
		t.Errorf("got  %q\nwant %q", got, strings.Fields(statusKeys))
	}
}

func TestStatusOfNothing(t *testing.T) {
	// Also without the constructor, lists are lists.
	for _, s := range []*Status{NewStatus("x"), {Task: "x", State: Queued}} {
		data, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		for _, key := range strings.Fields("reason agent llm model started_at updated_at reply_deadline output result completed_by error latest_tool waiting parent") {
			if v, ok := m[key]; !ok || v != nil {
				t.Errorf("%s is %v", key, v)
			}
		}
		for _, key := range strings.Fields("warnings messages open_points missing_outputs children") {
			if v, ok := m[key].([]any); !ok || len(v) != 0 {
				t.Errorf("%s is %v", key, m[key])
			}
		}
		usage := m["usage"].(map[string]any)
		for _, key := range strings.Fields("cost_usd context_tokens context_window context_percent") {
			if v, ok := usage[key]; !ok || v != nil {
				t.Errorf("usage.%s is %v", key, v)
			}
		}
	}
}

func TestStatusRoundTrip(t *testing.T) {
	d := openTask(t)
	if _, err := ReadStatus(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.FixedZone("", 3600))
	s := NewStatus("audit")
	s.State, s.Reason, s.Session, s.Round, s.Turn = Ended, Text(round.Completed), 2, 1, 7
	s.StartedAt, s.Result = Time{at}, "a < b & c [ROUND END]"
	cost := 0.25
	s.Usage.CostUSD = &cost
	s.Usage.SetContext(12345, 100000)
	for i := range 150 {
		s.AddMessage(Message{File: "reply.txt", TakenAt: Time{at}, Bytes: int64(i)})
	}
	if err := d.WriteStatus(s, true); err != nil {
		t.Fatal(err)
	}
	text := read(t, d, StatusFile)
	for _, want := range []string{`"started_at": "2026-01-02T02:04:05.678Z"`, `"result": "a < b & c [ROUND END]"`, `"context_percent":12.3`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	got, err := ReadStatus(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if !got.StartedAt.Equal(at) || !got.UpdatedAt.IsZero() || got.State != Ended || got.Result != s.Result || *got.Usage.CostUSD != cost || *got.Usage.ContextTokens != 12345 {
		t.Errorf("got %+v", got)
	}
	if len(got.Messages) != MaxMessages || got.Messages[0].Bytes != 50 || got.Messages[99].Bytes != 149 {
		t.Errorf("%d messages, the first %+v", len(got.Messages), got.Messages[0])
	}
	s.Usage.SetContext(10, 0)
	if s.Usage.ContextWindow != nil || s.Usage.ContextPercent != nil || *s.Usage.ContextTokens != 10 {
		t.Error("a window that is not known is guessed")
	}
	write(t, d, StatusFile, "{half")
	if _, err := ReadStatus(d.Path()); err == nil || !strings.Contains(err.Error(), StatusFile) {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	d := openTask(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e, err := d.Events()
	if err != nil {
		t.Fatal(err)
	}
	type turn struct {
		Turn int    `json:"turn"`
		Text string `json:"text"`
	}
	for _, data := range []any{nil, turn{3, "a<b\n"}, map[string]any{}, (*turn)(nil)} {
		if err := e.Append(at, "turn", data); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Append(at, "turn", []int{1}); err == nil {
		t.Error("a list was taken for an object")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	head := `{"v":1,"time":"2026-01-02T03:04:05.000Z","event":"turn"`
	want := head + "}\n" + head + `,"turn":3,"text":"a<b\n"}` + "\n" + head + "}\n" + head + "}\n"
	if got := read(t, d, EventsFile); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	// A line that a crash tore does not spoil the next.
	appendTo(t, d.join(EventsFile), `{"v":1,"ti`)
	if e, err = d.Events(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Append(at, "turn", nil), e.Append(at, "turn", nil), e.Close()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, d, EventsFile); got != want+`{"v":1,"ti`+"\n"+head+"}\n"+head+"}\n" {
		t.Errorf("got %s", got)
	}
}

func TestPlanAndOthers(t *testing.T) {
	d := openTask(t)
	if text, err := d.ReadPlan(); text != "" || err != nil {
		t.Error(text, err)
	}
	if err := d.WritePlan("- [ ] 一\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := d.ReadPlan(); text != "- [ ] 一\n" || err != nil {
		t.Error(text, err)
	}
	if err := errors.Join(d.WriteHistory([]byte("[]")), d.WriteResult([]byte("{}")), d.Sweep()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, d, HistoryFile) + read(t, d, ResultFile); got != "[]{}" {
		t.Errorf("got %q", got)
	}
	if left := glob(t, d, ".*"); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
}

func BenchmarkWriteStatus(b *testing.B) {
	d := openTask(b)
	s := NewStatus("x")
	for i := range 20 {
		s.AddMessage(Message{File: "reply.txt", SHA256: strings.Repeat("a", 64), Encoding: UTF8, Outcome: Text(fmt.Sprint(i))})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.WriteStatus(s, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeStatus(b *testing.B) {
	s := NewStatus("x")
	for range 20 {
		s.AddMessage(Message{File: "reply.txt", SHA256: strings.Repeat("a", 64), Encoding: UTF8, Outcome: "round 1"})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestArchive(t *testing.T) {
	d := openTask(t)
	if n, err := d.Archive(1); n != 1 || err != nil || exists(t, d, "old") {
		t.Error("nothing to move:", n, err)
	}
	if err := d.MarkArchived(1); err != nil {
		t.Error(err)
	}
	stay := []string{"input.txt", "context.json", "_history.json", "reply.txt", "_stop", ".taken-1-reply.txt", "notes.md"}
	move := []string{"output.txt", "output1.txt", "status.json", "events.jsonl", "result.json", "history.json", "subagent_plan.md"}
	for _, name := range append(slices.Clone(stay), move...) {
		write(t, d, name, "of session 1")
	}
	running, err := d.ReopenOutput(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.Archive(1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for _, name := range stay {
		if !exists(t, d, name) {
			t.Errorf("%s was moved", name)
		}
	}
	for _, name := range move {
		if exists(t, d, name) || !exists(t, d, "old/1/"+name) {
			t.Errorf("%s was not moved", name)
		}
	}
	// The round in progress gets its marker there, and what it writes last joins its session.
	if err := errors.Join(running.End(), running.Close(), d.WriteStatus(NewStatus("later"), true)); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Archive(1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := read(t, d, "old/1/status.json"); !strings.Contains(got, "later") {
		t.Errorf("got %s", got)
	}
	if err := d.MarkArchived(1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"output.txt", "output1.txt"} {
		if got := read(t, d, "old/1/"+name); strings.Count(got, Marker) != 1 || !strings.HasSuffix(got, ending) {
			t.Errorf("%s is %q", name, got)
		}
	}
	// Another session's number is not used twice.
	write(t, d, "output.txt", "of session 2")
	write(t, d, "status.json", "of session 2")
	if n, err := d.Archive(1); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if got := read(t, d, "old/2/output.txt") + read(t, d, "old/2/status.json"); got != "of session 2of session 2" {
		t.Errorf("got %q", got)
	}
	if n, err := d.NextOld(); n != 3 || err != nil {
		t.Error(n, err)
	}
}

// Which earlier sessions lack a marker is found from the newest back.
func TestOwedOld(t *testing.T) {
	const done = "answer\n\n[ROUND END]\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []int
	}{
		{"no earlier session", nil, nil},
		{"all done", map[string]string{"1/output.txt": done, "2/output.txt": done}, nil},
		{"the newest", map[string]string{"1/output.txt": done, "2/output.txt": done, "2/output1.txt": "ans"}, []int{2}},
		{"several", map[string]string{"8/output.txt": done, "9/output.txt": "", "10/output.txt": "ans"}, []int{9, 10}},
		{"no further than a done one", map[string]string{"1/output.txt": "ans", "2/output.txt": done, "3/output.txt": "ans"}, []int{3}},
		{"past one without outputs", map[string]string{"1/output.txt": "ans", "3/status.json": "{}"}, []int{1}},
		{"past what is no directory", map[string]string{"1/output.txt": "ans", "2": "planted"}, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openTask(t)
			for name, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(d.join("old/"+name)), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, d, "old/"+name, text)
			}
			got, err := d.OwedOld()
			if err != nil || !slices.Equal(got, c.want) {
				t.Fatalf("got %v, %v, want %v", got, err, c.want)
			}
			for _, n := range got {
				if err := d.MarkArchived(n); err != nil {
					t.Error(err)
				}
			}
			if left, err := d.OwedOld(); err != nil || len(got) > 0 && slices.Contains(left, got[len(got)-1]) {
				t.Errorf("what was owed was marked, and %v is owed still, %v", left, err)
			}
			if err := d.MarkArchived(2); err != nil {
				t.Error(err)
			}
		})
	}
}

// A crash in the middle of moving.
func TestArchiveAgain(t *testing.T) {
	d := openTask(t)
	write(t, d, "output.txt", "0")
	if _, err := d.Archive(4); err != nil {
		t.Fatal(err)
	}
	write(t, d, "output1.txt", "1")
	write(t, d, "status.json", "{}")
	if n, err := d.Archive(4); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if got := read(t, d, "old/4/output.txt") + read(t, d, "old/4/output1.txt"); got != "01" {
		t.Errorf("got %q", got)
	}
}

func TestFinishedByOther(t *testing.T) {
	early, late := time.Unix(1000, 0), time.Unix(2000, 0)
	done := "answer\n\n[ROUND END]\n"
	type file struct {
		name, text string
		at         time.Time
	}
	for _, c := range []struct {
		name  string
		files []file
		want  bool
	}{
		{"nothing", nil, false},
		{"only an input", []file{{"input.txt", "x", early}}, false},
		{"done", []file{{"input.txt", "x", early}, {"output.txt", done, late}}, true},
		{"done in the same instant", []file{{"input.txt", "x", early}, {"output.txt", done, early}}, true},
		{"asked anew", []file{{"input.txt", "x", late}, {"output.txt", done, early}}, false},
		{"still running", []file{{"input.txt", "x", early}, {"output.txt", "ans", late}}, false},
		{"second round running", []file{{"input.txt", "x", early}, {"output.txt", done, early}, {"output1.txt", "ans", late}}, false},
		{"leftovers of an earlier run", []file{{"input.txt", "x", early}, {"output1.txt", "ans", time.Unix(10, 0)}, {"output.txt", done, late}}, true},
		{"on Windows", []file{{"input.txt", "x", early}, {"output.txt", "answer\r\n\r\n[ROUND END]\r\n", late}}, true},
		{"no input left", []file{{"output.txt", done, late}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openTask(t)
			for _, f := range c.files {
				write(t, d, f.name, f.text)
				if err := os.Chtimes(d.join(f.name), f.at, f.at); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := d.FinishedByOther(look(t, d)); got != c.want || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// However much an agent hands over, whoever reads status.json can.
func TestEndlessResultStaysReadable(t *testing.T) {
	d := openTask(t)
	s := NewStatus("task")
	s.Result = Text(strings.Repeat("\x01\u00e9", 5<<20))
	if err := d.WriteStatus(s, false); err != nil {
		t.Fatal(err)
	}
	back, err := ReadStatus(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(back.Result); n < maxResult-4 || n > maxResult+100 || !strings.HasSuffix(string(back.Result), "the output has all of them]") {
		t.Errorf("%d bytes of the result are there, the last %q", n, back.Result[max(0, n-80):])
	}
	if len(s.Result) != 15<<20 {
		t.Error("the caller's status was changed")
	}
}
