package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// eventful is a round in which everything happens that a record can be cut in.
func eventful(t *testing.T) (*world, round.Input, *record) {
	w := newWorld(t,
		llmtest.Text("Looking.").Call("read", `{"a":1}`).Call("read", `{"a":2}`).Call("write", `{"w":1}`).Call("write", `{"w":2}`),
		llmtest.Text("Thinking aloud."),
		llmtest.Text(""),
		llmtest.Call("read", `{"a":`).Call("nonsense", "{}"),
		llmtest.Call("write", `{"w":3}`),
		llmtest.Text("cut").Call("write", `{"w":4`).Finish("length"),
		llmtest.Done("early").Call("read", "{}"),
		llmtest.Done("the end"))
	w.plan = "- [x] a\n- [ ] b\n"
	in := w.input("do it")
	in.Settings.OutputFiles = map[string]string{"o": "/o"}
	w.files = map[string]time.Time{"/o": time.Now()}
	rec := &record{}
	all := []struct {
		turn int
		note round.Note
	}{
		{1, round.Note{Seq: 1, Kind: round.NoteKeyInfo, Text: "note one"}},
		{4, round.Note{Seq: 2, Kind: round.NoteIntervene, Text: "note two"}},
		{8, round.Note{Seq: 3, Kind: round.NoteKeyInfo, Text: "note three"}},
	}
	in.Inbox = func(context.Context) (due []round.Note, _ error) {
		for _, n := range all {
			if rec.turn >= n.turn && !slices.Contains(rec.applied, n.note.Seq) {
				due = append(due, n.note)
			}
		}
		return due, nil
	}
	return w, in, rec
}

func TestResumeAnywhere(t *testing.T) {
	w, in, base := eventful(t)
	want := w.run(in, base)
	if want.Reason != round.Completed || want.Result != "the end" || len(want.OpenPoints) != 1 {
		t.Fatalf("without an interruption: %+v\n%s", want, base)
	}
	// die interrupts at event n, before or after it is stored.
	die := func(rec *record, n int, stored bool) {
		rec.before, rec.after = nil, nil
		dead := false
		hook := func(at int, e round.Event) error {
			if dead {
				t.Errorf("%T was reported after an error", e)
			}
			if at < n {
				return nil
			}
			dead = true
			return errKilled
		}
		if stored {
			rec.after = hook
		} else {
			rec.before = hook
		}
	}
	for n := range base.events {
		for _, stored := range []bool{false, true} {
			for _, again := range []int{-1, 0, 3} {
				if again >= 0 && n%3 != 0 {
					continue // a second death is tried at every third place
				}
				name := fmt.Sprintf("event %d %T stored %v, again %d", n, base.events[n], stored, again)
				w, in, rec := eventful(t)
				die(rec, n, stored)
				if out := w.run(in, rec); out.Reason != round.Interrupted || out.Error == nil || out.Error.Kind != "journal" {
					t.Fatalf("%s: outcome %+v", name, out)
				}
				requests := w.srv.Count()
				complete := n == len(base.events)-1 && stored
				// In the record a new life's events stand for themselves.
				firstLife := rec.events
				rec.events = nil
				if again >= 0 {
					die(rec, again, again%2 == 0)
					if out := w.resume(in, rec); out.Reason == round.Interrupted {
						rec.events = nil
					}
				}
				rec.before, rec.after = nil, nil
				out := w.resume(in, rec)
				if diff := cmp.Diff(want, out); diff != "" {
					t.Errorf("%s: outcome %s\n%s", name, diff, rec)
				}
				if complete && w.srv.Count() != requests {
					t.Errorf("%s: a completed round was asked on", name)
				}
				seen := map[string]bool{}
				for _, call := range w.ran {
					if seen[call] {
						t.Errorf("%s: ran twice: %s", name, call)
					}
					seen[call] = true
				}
				for _, text := range []string{"note one", "note two", "note three", "[supervisor]\ndo it"} {
					count := 0
					for _, m := range rec.conv {
						count += strings.Count(m.Content, text)
					}
					if count != 1 {
						t.Errorf("%s: %q stands in the conversation %d times", name, text, count)
					}
				}
				if len(of[round.HeadPrepared](&record{events: append(firstLife, rec.events...)})) > 1 {
					t.Errorf("%s: the head was prepared twice", name)
				}
				if t.Failed() {
					return
				}
			}
		}
	}
}

// resume runs a round on without holding its events against a turn's order: they
// begin in the middle of one.
func (w *world) resume(in round.Input, rec *record) round.Outcome {
	w.t.Helper()
	out := New(w.cfg).Run(context.Background(), rec.input(in), rec.emit)
	if bad := w.srv.Refusals(); len(bad) > 0 {
		w.t.Fatalf("the strict server refused: %v", bad)
	}
	return out
}

func TestResumedCalls(t *testing.T) {
	w := newWorld(t, llmtest.Call("write", `{"w":1}`).Call("read", `{"a":1}`).Call("write", `{"w":2}`), llmtest.Done("r"), llmtest.Done("r"))
	w.plan = "- [x] a\n- [ ] b\n"
	in := w.input("x")
	rec := &record{}
	rec.after = func(_ int, e round.Event) error {
		if _, ok := e.(round.Answered); ok {
			return errKilled
		}
		return nil
	}
	w.run(in, rec)
	rec.after = nil
	rec.events = nil
	if out := w.resume(in, rec); out.Result != "r" {
		t.Fatalf("outcome %+v", out)
	}
	if len(w.ran) > 0 {
		t.Errorf("calls ran that may have run before: %v", w.ran)
	}
	r := rec.results()
	for i, want := range []string{"Error: Interrupted, outcome unknown", "read {", "Error: Interrupted, outcome unknown"} {
		if !strings.HasPrefix(r[i], want) {
			t.Errorf("result %d: %q, want %q", i, r[i], want)
		}
	}
	if !rec.has(llm.User, "1 of 2 done, continue at: b") {
		t.Error("the model was not told where its plan stands")
	}
	if len(of[round.TurnStarted](rec)) != 2 {
		t.Errorf("turns: %s", rec)
	}
}

// An answer that the length limit cut is no less cut after a restart.
func TestResumedAfterACutAnswer(t *testing.T) {
	for _, tc := range []struct {
		name      string
		cut, next llmtest.Reply
		want      round.Outcome
		told      string
	}{
		{"text", llmtest.Text("one ").Finish("length"), llmtest.Text("two"),
			round.Outcome{Reason: round.Completed, Result: "one two", CompletedBy: "text"}, nudgeCutText},
		{"calls beside text", llmtest.Text("I write.").Call("write", `{"n":1}`).Finish("length"), llmtest.Done("r"),
			round.Outcome{Reason: round.Completed, Result: "r", CompletedBy: "tool"}, nudgeCutCall},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.cut, tc.next)
			w.def.Completion = agentdef.CompletionText
			in, rec := w.input("x"), &record{}
			rec.after = func(_ int, e round.Event) error {
				if _, ok := e.(round.Answered); ok {
					return errKilled
				}
				return nil
			}
			w.run(in, rec)
			rec.after, rec.events = nil, nil
			if diff := cmp.Diff(tc.want, w.resume(in, rec)); diff != "" {
				t.Errorf("outcome %s\n%s", diff, rec)
			}
			if got := w.srv.Count(); got != 2 {
				t.Fatalf("%d requests, want 2", got)
			}
			if got := w.srv.Requests()[1].Last().Content; !strings.Contains(got, tc.told) {
				t.Errorf("the model was told %q, want %q", got, tc.told)
			}
		})
	}
}

// What limits a round holds after a restart, too.
func TestResumedAtTheLimits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reply llmtest.Reply
		set   func(*round.Settings)
		def   agentdef.Completion
		want  round.Reason
	}{
		{name: "max turns", reply: llmtest.Call("read", `{}`), set: func(s *round.Settings) { s.MaxTurns = 3 }, want: round.MaxTurns},
		{name: "loop", reply: llmtest.Call("read", `{}`), want: round.Loop},
		{name: "no answer", reply: llmtest.Text("t"), def: agentdef.CompletionRequired, want: round.Failed},
		{name: "text", reply: llmtest.Text("t"), want: round.Completed},
		{name: "budget", reply: llmtest.Call("read", `{}`).Usage(10, 10, 0), set: func(s *round.Settings) { s.MaxTokens = 3000 }, want: round.Budget},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := func() (*world, round.Input) {
				w := newScripted(t, llmtest.Always(tc.reply))
				w.def.Completion, w.def.Prompt, w.model.ReplyReserve = tc.def, "Be brief.", 2800
				in := w.input("x")
				if tc.set != nil {
					tc.set(&in.Settings)
				}
				return w, in
			}
			w, in := start()
			base := &record{}
			want := w.run(in, base)
			if want.Reason != tc.want {
				t.Fatalf("outcome %+v", want)
			}
			requests := w.srv.Count()
			for n := range base.events {
				w, in := start()
				rec := &record{after: func(at int, _ round.Event) error {
					if at == n {
						return errKilled
					}
					return nil
				}}
				w.run(in, rec)
				rec.after = nil
				out := w.resume(in, rec)
				if diff := cmp.Diff(want, out); diff != "" {
					t.Fatalf("cut at %d: %s\n%s", n, diff, rec)
				}
				// A request that was under way may have to be made again.
				if got := w.srv.Count(); got > requests+1 {
					t.Errorf("cut at %d: %d requests instead of %d", n, got, requests)
				}
			}
		})
	}
}

func TestRoundStart(t *testing.T) {
	u := func(s string) llm.Message { return llm.Message{Role: llm.User, Content: s} }
	a := llm.Message{Role: llm.Assistant, Content: "a"}
	first, other := u(supervisorMark+"go on"), u(supervisorMark+"else")
	for _, tc := range []struct {
		name    string
		msgs    []llm.Message
		answers int
		want    int
	}{
		{"nothing", nil, 0, 0},
		{"first message only", []llm.Message{first}, 0, 0},
		{"not recorded after the same", []llm.Message{first, a}, 0, 2},
		{"recorded after the same", []llm.Message{first, a, first}, 0, 2},
		{"with answers", []llm.Message{first, a, first, a, u("x"), a}, 2, 2},
		{"an intervention of that text", []llm.Message{other, a, first, a, u(interventionMark + "go on"), a}, 2, 2},
		{"answers dropped", []llm.Message{other, first, u("notice"), a}, 9, 1},
		{"message dropped", []llm.Message{other, a, u("notice"), a}, 1, 2},
		{"history before", []llm.Message{u("h"), a}, 0, 2},
	} {
		if got := roundStart(tc.msgs, "go on", tc.answers); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
