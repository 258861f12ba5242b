package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/llm/openai"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// page is a tool that returns a page of text which its arguments tell apart.
func page(name string, bytes int) tool.Tool {
	return fn(name, func(_ context.Context, c tool.Call) tool.Result {
		line := name + " " + string(c.Args) + "\n"
		return tool.Result{Text: strings.Repeat(line, max(1, bytes/len(line)))}
	})
}

// countdown is a script that reads file 1, 2 and so on up to turns, then is done.
func countdown(turns int) llmtest.Script {
	n := 0
	return func(*llmtest.Request) llmtest.Reply {
		if n++; n > turns {
			return llmtest.Done("read it all")
		}
		return llmtest.Text(fmt.Sprintf("Reading %d.", n)).Call("read_file", fmt.Sprintf(`{"path":"/f%d"}`, n))
	}
}

func TestCompactAhead(t *testing.T) {
	const window = 16_000
	w := newScripted(t, countdown(60), llmtest.Window(window))
	w.model.ContextWindow = window
	w.tools = append(w.tools, page("read_file", 3900))
	in := w.input("read sixty files")
	in.KeyInfo = "[supervisor] the port is 80"
	in.Inbox = notes(map[int][]round.Note{3: {{Seq: 1, Kind: round.NoteKeyInfo, Text: "the key is red"}}, 30: {{Seq: 2, Kind: round.NoteIntervene, Text: "skip the index"}}})
	rec := &record{}
	out := w.run(in, rec)
	if out.Result != "read it all" {
		t.Fatalf("outcome %+v", out)
	}
	if n := w.srv.Count(); n != 61 {
		t.Errorf("%d requests: some were refused for their length", n)
	}
	rewritten := of[round.Rewritten](rec)
	if len(rewritten) < 2 || len(rewritten) > 10 {
		t.Fatalf("compacted %d times", len(rewritten))
	}
	for _, r := range rewritten {
		if !strings.HasPrefix(r.Cause, "compaction ahead") || !strings.Contains(r.Dropped, "shortened") {
			t.Errorf("cause %q, dropped %q", r.Cause, r.Dropped)
		}
		if err := history.Validate(r.Messages); err != nil {
			t.Error(err)
		}
	}
	// Between two compactions, each request begins with the one before.
	breaks := 0
	reqs := w.srv.Requests()
	for i := 1; i < len(reqs); i++ {
		if llmtest.CheckPrefixes(reqs[i-1:i+1]) != nil {
			breaks++
		}
	}
	if breaks != len(rewritten) {
		t.Errorf("the prefix broke %d times, and %d compactions are recorded", breaks, len(rewritten))
	}
	last := reqs[len(reqs)-1]
	for _, text := range []string{"[supervisor]\nread sixty files", "the port is 80", "the key is red", "skip the index", "/f60"} {
		if !last.Has(text) {
			t.Errorf("%q is gone", text)
		}
	}
	if last.System() != reqs[0].System() {
		t.Error("the system prompt changed")
	}
	// No two for the same reading: an answer lies between them.
	answered := true
	for _, e := range rec.events {
		switch e.(type) {
		case round.Answered:
			answered = true
		case round.Rewritten:
			if !answered {
				t.Error("compacted twice for one answer")
			}
			answered = false
		}
	}
}

// What the agent keeps in mind outlives the turns in which it was said.
func TestCompactionKeepsWhatCounts(t *testing.T) {
	const window = 16_000
	read := countdown(40)
	n := 0
	w := newScripted(t, func(r *llmtest.Request) llmtest.Reply {
		switch n++; n {
		case 1:
			return llmtest.Call("use_skill", `{"skill_name":"pdf"}`).Call(checkpointTool, `{"key_info":"the bug is in a.go"}`).Call("read_file", `{"path":"/x"}`)
		case 2:
			return llmtest.Done("early")
		}
		return read(r)
	}, llmtest.Window(window))
	w.model.ContextWindow = window
	w.tools = append(w.tools, page("read_file", 3900), page("use_skill", 2500))
	w.plan = "- [x] one\n- [ ] two\n"
	grant := w.cfg.Tools
	w.cfg.Tools = func(r ToolRequest) (Toolset, error) {
		w.tools = append(w.tools, memo{r.SetKeyInfo})
		return grant(r)
	}
	rec := &record{}
	out := w.run(w.input("go"), rec)
	if out.Result != "read it all" || len(out.OpenPoints) != 1 {
		t.Fatalf("outcome %+v", out)
	}
	if len(of[round.Rewritten](rec)) == 0 {
		t.Fatal("nothing was compacted")
	}
	reqs := w.srv.Requests()
	last := reqs[len(reqs)-1]
	for _, text := range []string{"the bug is in a.go", strings.Repeat(`use_skill {"skill_name":"pdf"}`+"\n", 50), "- [ ] two", saidMark + "\n- (plan)"} {
		if !last.Has(text) {
			t.Errorf("%.60q is gone", text)
		}
	}
	// A restart now knows that the plan was held against the completion already.
	var l ledger
	l.add(rec.conv[1:]...)
	if l.refused["plan"] != 1 {
		t.Errorf("after a restart refused is %v", l.refused)
	}
}

func TestWindowIsLearned(t *testing.T) {
	const window = 8000
	w := newScripted(t, countdown(30), llmtest.Window(window))
	w.tools = append(w.tools, page("read_file", 3900))
	var learned []int
	w.cfg.LearnWindow = func(name, model string, tokens int) {
		if name != "default" || model != "test" {
			t.Errorf("learned of %s, %s", name, model)
		}
		learned = append(learned, tokens)
	}
	rec := &record{}
	if out := w.run(w.input("go"), rec); out.Result != "read it all" {
		t.Fatalf("outcome %+v", out)
	}
	if len(learned) != 1 || learned[0] != window {
		t.Errorf("learned %v", learned)
	}
	if n := w.srv.Count(); n > 33 {
		t.Errorf("%d requests for 31 turns", n)
	}
	answers := of[round.Answered](rec)
	if a := answers[len(answers)-1]; a.Window != window {
		t.Errorf("the window is recorded as %d", a.Window)
	}
}

// Windows in which hardly anything fits.
func TestTinyWindows(t *testing.T) {
	for _, tc := range []struct {
		name      string
		window    int // of the server; the model is configured with configured
		known     int
		prompt    string
		completes bool
		requests  int
	}{
		{name: "4k and large results", window: 4000, known: 4000, prompt: "Be brief.", completes: true, requests: 12},
		{name: "4k, not known", window: 4000, prompt: "Be brief.", completes: true, requests: 14},
		{name: "results alone are too large", window: 900, known: 900, prompt: "Be brief.", completes: true, requests: 30},
		{name: "never fits", window: 300, known: 300, prompt: strings.Repeat("Be very brief. ", 200), requests: 4},
		{name: "never fits, not known", window: 300, prompt: strings.Repeat("Be very brief. ", 200), requests: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newScripted(t, countdown(8), llmtest.Window(tc.window))
			w.def.Prompt, w.model.ContextWindow = tc.prompt, tc.known
			w.tools = append(w.tools, page("read_file", 3900))
			rec := &record{}
			out := w.run(w.input("go"), rec)
			if tc.completes {
				if out.Result != "read it all" {
					t.Errorf("outcome %+v: %v", out, out.Error)
				}
			} else if out.Reason != round.Failed || out.Error.Kind != string(llm.KindContextLength) || !strings.Contains(out.Error.Message, "larger") {
				t.Errorf("outcome %+v", out)
			}
			if n := w.srv.Count(); n > tc.requests {
				t.Errorf("%d requests, want at most %d", n, tc.requests)
			}
			if err := history.Validate(rec.conv); tc.completes && err != nil {
				t.Error(err)
			}
		})
	}
}

// A round is taken up after a compaction as it is at any other point.
func TestResumeAroundCompaction(t *testing.T) {
	const window = 6000
	start := func() (*world, round.Input) {
		w := newScripted(t, func(r *llmtest.Request) llmtest.Reply {
			// What is to be read next is told by what was read last, which stays.
			n := 0
			for _, m := range r.Messages {
				for _, c := range m.ToolCalls {
					var args struct{ Path string }
					if json.Unmarshal([]byte(c.Arguments), &args) == nil {
						_, _ = fmt.Sscanf(args.Path, "/f%d", &n)
					}
				}
			}
			if n == 12 {
				return llmtest.Done("read it all")
			}
			return llmtest.Call("read_file", fmt.Sprintf(`{"path":"/f%d"}`, n+1))
		}, llmtest.Window(window))
		w.model.ContextWindow = window
		w.tools = append(w.tools, page("read_file", 3900))
		return w, w.input("go")
	}
	w, in := start()
	base := &record{}
	if out := w.run(in, base); out.Result != "read it all" {
		t.Fatalf("outcome %+v", out)
	}
	if len(of[round.Rewritten](base)) == 0 {
		t.Fatal("nothing was compacted")
	}
	near := func(n int) bool {
		for _, i := range []int{n - 1, n, n + 1} {
			if i >= 0 && i < len(base.events) {
				if _, ok := base.events[i].(round.Rewritten); ok {
					return true
				}
			}
		}
		return n%7 == 0
	}
	for n := range base.events {
		if !near(n) {
			continue
		}
		w, in := start()
		rec := &record{after: func(at int, _ round.Event) error {
			if at == n {
				return errKilled
			}
			return nil
		}}
		w.run(in, rec)
		rec.after = nil
		if out := w.resume(in, rec); out.Result != "read it all" {
			t.Fatalf("cut at %d, %T: outcome %+v\n%s", n, base.events[n], out, rec)
		}
		if got := w.srv.Count(); got > len(of[round.Answered](base))+2 {
			t.Errorf("cut at %d: %d requests", n, got)
		}
	}
}

func TestRepeatedReads(t *testing.T) {
	content := map[string]string{}
	set := func(path, s string) { content[path] = strings.Repeat(s+"\n", 100) }
	set("/a", "first")
	set("/b", "other")
	content["/short"] = "x"
	read := func(path string) llmtest.Reply { return llmtest.Call("read_file", `{"path":"`+path+`"}`) }
	w := newWorld(t,
		read("/a").Call("read_file", `{ "path": "/a" }`), // also within a turn
		read("/b"), read("/a"), read("/short"), read("/short"),
		llmtest.Call("write", `{}`), read("/a"), read("/a"), llmtest.Call("read", `{"n":1}`).Call("read", `{"n":1}`),
		llmtest.Done("r"))
	w.tools = append(w.tools, fn("read_file", func(_ context.Context, c tool.Call) tool.Result {
		var args struct{ Path string }
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return tool.Failure("%v", err)
		}
		if w.ran != nil {
			set("/a", "second")
		}
		return tool.Result{Text: content[args.Path], Summary: "read"}
	}))
	rec := &record{}
	if out := w.run(w.input("go"), rec); out.Result != "r" {
		t.Fatalf("outcome %+v", out)
	}
	var got []string
	for _, r := range rec.results() {
		first, _, _ := strings.Cut(r, "\n")
		first, _, _ = strings.Cut(first, ":")
		got = append(got, first)
	}
	want := "first Unchanged other Unchanged x x done {} second Unchanged"
	if s := strings.Join(got, " "); !strings.HasPrefix(s, want) {
		t.Errorf("results %s, want %s", s, want)
	}
	// The next round knows them too.
	rec.nextRound()
	in := w.input("again")
	in.Round = 1
	srv := llmtest.NewServer(t, llmtest.Queue(read("/b"), llmtest.Done("r")))
	w.client = openai.New(openai.Config{Name: "default", BaseURL: srv.URL, Model: "test"})
	w.run(in, rec)
	if r := rec.results(); r[len(r)-2] != unchanged {
		t.Errorf("in the next round: %.60q", r[len(r)-2])
	}
}

// The same read for ever is as much of a loop as any other call.
func TestLoopOfReads(t *testing.T) {
	w := newScripted(t, llmtest.Always(llmtest.Call("read_file", `{"path":"a"}`)))
	w.tools = append(w.tools, page("read_file", 3000))
	out := w.run(w.input("x"), &record{})
	if out.Reason != round.Loop || w.srv.Count() != 8 {
		t.Errorf("outcome %+v after %d requests", out, w.srv.Count())
	}
}

func TestReadRange(t *testing.T) {
	s := &state{tools: Toolset{WorkDir: "/w"}}
	for _, tc := range []struct {
		args, result string
		want         history.Range
		ok           bool
	}{
		{`{"path":"/a"}`, "/a, 3 lines\nx", history.Range{File: "/a", From: 1}, true},
		{`{"file_path":"./a/../b"}`, "x", history.Range{File: "/w/b", From: 1}, true},
		{`{"path":"/a","start_line":10,"line_count":5}`, "x", history.Range{File: "/a", From: 10, To: 14}, true},
		{`{"path":"/a"}`, "/a, lines 1-200 of 900; start_line 201 goes on\nx", history.Range{File: "/a", From: 1, To: 200}, true},
		{`{"path":"/a"}`, "lines 201-400 of 900; start_line 401 goes on\nx", history.Range{File: "/a", From: 201, To: 400}, true},
		{`{"path":"/a"}`, unchanged, history.Range{}, false},
		{`{"path":"/a"}`, "Error: no such file", history.Range{}, false},
		{`{}`, "x", history.Range{}, false},
	} {
		got, ok := s.readRange(llm.ToolCall{Name: readTool, Arguments: tc.args}, tc.result)
		if got != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v, %v", tc.args, got, ok)
		}
	}
}
