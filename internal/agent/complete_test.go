package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// memo is update_working_checkpoint.
type memo struct{ set func(string) }

func (memo) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: checkpointTool, Description: "keeps key info", Parameters: llm.RawJSON(`{"type":"object"}`)}
}

func (m memo) Run(_ context.Context, c tool.Call) tool.Result {
	var args struct {
		KeyInfo string `json:"key_info"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tool.Failure("%v", err)
	}
	m.set(args.KeyInfo)
	return tool.Result{Text: "noted"}
}

func TestHowARoundEnds(t *testing.T) {
	empty, text := llmtest.Text(""), llmtest.Text
	for _, tc := range []struct {
		name     string
		mode     agentdef.Completion
		replies  []llmtest.Reply
		want     round.Outcome
		kind     string
		requests int
	}{
		{name: "by the tool", replies: []llmtest.Reply{llmtest.Done("r")},
			want: round.Outcome{Reason: round.Completed, Result: "r", CompletedBy: "tool"}, requests: 1},
		{name: "an empty result is an error", replies: []llmtest.Reply{llmtest.Done(" \n"), llmtest.Call("attempt_completion", `{}`), llmtest.Done("r")},
			want: round.Outcome{Reason: round.Completed, Result: "r", CompletedBy: "tool"}, requests: 3},
		{name: "a result that is no text", replies: []llmtest.Reply{llmtest.Call("attempt_completion", `{"result": {"n": 1}}`)},
			want: round.Outcome{Reason: round.Completed, Result: `{"n":1}`, CompletedBy: "tool"}, requests: 1},
		{name: "cut arguments", replies: []llmtest.Reply{llmtest.Call("attempt_completion", `{"result": "half`), llmtest.Done("r")},
			want: round.Outcome{Reason: round.Completed, Result: "r", CompletedBy: "tool"}, requests: 2},
		{name: "twice in one turn", replies: []llmtest.Reply{llmtest.Done("r").Call("attempt_completion", `{"result":"s"}`)},
			want: round.Outcome{Reason: round.Completed, Result: "r", CompletedBy: "tool"}, requests: 1},
		{name: "nudged to it", replies: []llmtest.Reply{text("a"), empty, text("b"), llmtest.Done("r")},
			want: round.Outcome{Reason: round.Completed, Result: "r", CompletedBy: "tool"}, requests: 4},
		{name: "first text after nudges", replies: []llmtest.Reply{empty, text("first"), text("b"), text("c")},
			want: round.Outcome{Reason: round.Completed, Result: "first", CompletedBy: "text"}, requests: 4},
		{name: "a call begins a new stretch", replies: []llmtest.Reply{text("old"), empty, empty, llmtest.Call("read", "{}"), text("new"), empty, empty, empty},
			want: round.Outcome{Reason: round.Completed, Result: "new", CompletedBy: "text"}, requests: 8},
		{name: "empty four times", replies: []llmtest.Reply{empty, text(" \n"), llmtest.Thinking("hm"), empty},
			want: round.Outcome{Reason: round.Failed}, kind: "no_answer", requests: 4},
		{name: "required and never called", mode: agentdef.CompletionRequired, replies: []llmtest.Reply{text("a"), text("b"), text("c"), text("d")},
			want: round.Outcome{Reason: round.Failed}, kind: "no_answer", requests: 4},
		{name: "text mode", mode: agentdef.CompletionText, replies: []llmtest.Reply{text("a")},
			want: round.Outcome{Reason: round.Completed, Result: "a", CompletedBy: "text"}, requests: 1},
		{name: "text mode with an empty turn", mode: agentdef.CompletionText, replies: []llmtest.Reply{llmtest.Call("read", "{}"), empty, text("a")},
			want: round.Outcome{Reason: round.Completed, Result: "a", CompletedBy: "text"}, requests: 3},
		{name: "text mode by the tool", mode: agentdef.CompletionText, replies: []llmtest.Reply{text("hm").Call("attempt_completion", `{"result":"r"}`)},
			want: round.Outcome{Reason: round.Completed, Result: "r", CompletedBy: "tool"}, requests: 1},
		{name: "text cut and continued", mode: agentdef.CompletionText, replies: []llmtest.Reply{text("one ").Finish("length"), text("two")},
			want: round.Outcome{Reason: round.Completed, Result: "one two", CompletedBy: "text"}, requests: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.replies...)
			w.def.Completion = tc.mode
			rec := &record{}
			out := w.run(w.input("x"), rec)
			kind := ""
			if out.Error != nil {
				kind, out.Error = out.Error.Kind, nil
			}
			if diff := cmp.Diff(tc.want, out); diff != "" || kind != tc.kind {
				t.Errorf("outcome (error %q): %s\n%s", kind, diff, rec)
			}
			if n := w.srv.Count(); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			for _, m := range rec.conv {
				if strings.TrimSpace(m.Content) == "" && len(m.ToolCalls) == 0 {
					t.Errorf("a blank message joined the conversation: %+v", m)
				}
			}
		})
	}
}

func TestRefusedOnce(t *testing.T) {
	now := time.Now()
	const openPlan = "- [x] build\n- [ ] [VERIFY] run the tests\n- [ ] publish\n"
	for _, tc := range []struct {
		name    string
		plan    string
		outputs map[string]time.Time // by name; the zero time: missing
		replies []llmtest.Reply
		repair  func(w *world) // after the refusal
		refusal []string
		open    []string
		missing []string
	}{
		{name: "nothing against it", plan: "- [x] a\n- [SKIP] b\n", outputs: map[string]time.Time{"o": now},
			replies: []llmtest.Reply{llmtest.Done("r")}},
		{name: "open plan", plan: openPlan, replies: []llmtest.Reply{llmtest.Done("r"), llmtest.Done("r")},
			refusal: []string{"(plan) 2 plan steps are open", "[VERIFY] run the tests; publish", "(verify)"},
			open:    []string{"2 plan steps are open", "the plan's check was not done: run the tests"}},
		{name: "failed call beside it", replies: []llmtest.Reply{llmtest.Done("r").Call("broken", "{}"), llmtest.Done("r")},
			refusal: []string{"(failed_call)", "broken: no such file"}},
		{name: "failed call beside it, again", replies: []llmtest.Reply{llmtest.Done("r").Call("broken", "{}"), llmtest.Done("r").Call("broken", "{}")},
			refusal: []string{"(failed_call)"}, open: []string{"calls in the same turn failed: broken"}},
		{name: "missing and stale outputs", outputs: map[string]time.Time{"gone": {}, "old": now.Add(-time.Hour)},
			replies: []llmtest.Reply{llmtest.Done("r"), llmtest.Done("r")},
			refusal: []string{"(missing_outputs)", "gone: /gone", "(stale_outputs)", "old: /old"},
			open:    []string{"output files are not there: gone", "older than this task: old"}, missing: []string{"gone", "old"}},
		{name: "all together", plan: openPlan, outputs: map[string]time.Time{"gone": {}},
			replies: []llmtest.Reply{llmtest.Done("r").Call("broken", "{}"), llmtest.Done("r")},
			refusal: []string{"(failed_call)", "(plan)", "(verify)", "(missing_outputs)"},
			open:    []string{"plan steps", "check", "not there"}, missing: []string{"gone"}},
		{name: "put right", plan: openPlan, outputs: map[string]time.Time{"gone": {}},
			replies: []llmtest.Reply{llmtest.Done("r"), llmtest.Done("r")},
			repair: func(w *world) {
				w.plan = "- [x] build\n- [x] [VERIFY] run the tests\n- [SKIP] publish\n"
				w.files["/gone"] = now
			},
			refusal: []string{"(plan)", "(missing_outputs)"}},
	} {
		for _, mode := range []agentdef.Completion{agentdef.CompletionTool, agentdef.CompletionText} {
			if mode == agentdef.CompletionText && strings.HasPrefix(tc.name, "failed") {
				continue // there is no call beside a text
			}
			t.Run(tc.name+" "+string(mode), func(t *testing.T) {
				replies := tc.replies
				if mode == agentdef.CompletionText {
					replies = []llmtest.Reply{llmtest.Text("r"), llmtest.Text("r")}[:len(replies)]
				}
				w := newWorld(t, replies...)
				w.def.Completion = mode
				w.plan = tc.plan
				w.files = map[string]time.Time{}
				in := w.input("x")
				in.StartedAt = now
				in.Settings.OutputFiles = map[string]string{}
				for name, at := range tc.outputs {
					in.Settings.OutputFiles[name] = "/" + name
					if !at.IsZero() {
						w.files["/"+name] = at
					}
				}
				rec := &record{}
				rec.after = func(_ int, e round.Event) error {
					if e, ok := e.(round.Appended); ok && tc.repair != nil && strings.Contains(e.Messages[0].Content, refusalMark) {
						w.mu.Lock()
						defer w.mu.Unlock()
						tc.repair(w)
					}
					return nil
				}
				out := w.run(in, rec)
				if out.Reason != round.Completed || out.Result != "r" || w.srv.Count() != len(replies) {
					t.Fatalf("outcome %+v after %d requests\n%s", out, w.srv.Count(), rec)
				}
				var refused string
				for _, m := range rec.conv {
					if strings.Contains(m.Content, refusalMark) {
						refused += m.Content
					}
				}
				if (refused == "") != (len(tc.refusal) == 0) {
					t.Errorf("refusal: %q", refused)
				}
				for _, text := range tc.refusal {
					if mode == agentdef.CompletionText && text == "(failed_call)" {
						continue
					}
					if strings.Count(refused, text) != 1 {
						t.Errorf("the refusal lacks %q: %q", text, refused)
					}
				}
				if len(out.OpenPoints) != len(tc.open) {
					t.Fatalf("open points %q", out.OpenPoints)
				}
				for i, text := range tc.open {
					if !strings.Contains(out.OpenPoints[i], text) {
						t.Errorf("open point %q lacks %q", out.OpenPoints[i], text)
					}
				}
				if diff := cmp.Diff(tc.missing, out.MissingOutputs); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// A plan that an earlier round finished is history, whatever was left out in it.
func TestFinishedPlanIsHistory(t *testing.T) {
	w := newWorld(t, llmtest.Done("r"))
	w.plan = "- [x] a\n- [SKIP] [VERIFY] b\n"
	rec := &record{}
	if out := w.run(w.input("x"), rec); len(out.OpenPoints) > 0 || w.srv.Count() != 1 {
		t.Fatalf("outcome %+v", out)
	}
	if rec.has(llm.User, "Your plan:") {
		t.Error("the model was sent back to a finished plan")
	}
}

func TestPlanReminder(t *testing.T) {
	var replies []llmtest.Reply
	for i := range 10 {
		replies = append(replies, llmtest.Call("read", fmt.Sprintf(`{"i":%d}`, i)))
	}
	w := newWorld(t, append(replies, llmtest.Done("r"), llmtest.Done("r"))...)
	w.plan = "- [x] a\n- [ ] [D] b\n"
	rec := &record{}
	w.run(w.input("x"), rec)
	var at []int
	for _, e := range of[round.Appended](rec) {
		for _, m := range e.Messages {
			if strings.Contains(m.Content, "1 of 2 steps done; the current step: [D] b") {
				at = append(at, e.Turn)
			}
		}
	}
	if diff := cmp.Diff([]int{5, 10}, at); diff != "" {
		t.Errorf("reminded after turns %v", at)
	}
}

func TestInterventions(t *testing.T) {
	note := func(seq uint64, kind round.NoteKind, text string) round.Note {
		return round.Note{Seq: seq, Kind: kind, Text: text}
	}
	steer := []round.Note{note(7, round.NoteIntervene, "also count the lines")}
	for _, tc := range []struct {
		name     string
		mode     agentdef.Completion
		replies  []llmtest.Reply
		inbox    map[int][]round.Note
		requests int
		result   string
	}{
		{name: "after a turn", replies: []llmtest.Reply{llmtest.Call("read", "{}"), llmtest.Done("r")}, inbox: map[int][]round.Note{0: steer}, requests: 2, result: "r"},
		{name: "as it completes", replies: []llmtest.Reply{llmtest.Done("early"), llmtest.Done("r")}, inbox: map[int][]round.Note{0: steer}, requests: 2, result: "r"},
		{name: "at the last look", replies: []llmtest.Reply{llmtest.Done("early"), llmtest.Done("r")}, inbox: map[int][]round.Note{1: steer}, requests: 2, result: "r"},
		{name: "as a text completes", mode: agentdef.CompletionText, replies: []llmtest.Reply{llmtest.Text("early"), llmtest.Text("r")}, inbox: map[int][]round.Note{0: steer}, requests: 2, result: "r"},
		{name: "at the last look at a text", mode: agentdef.CompletionText, replies: []llmtest.Reply{llmtest.Text("early"), llmtest.Text("r")}, inbox: map[int][]round.Note{1: steer}, requests: 2, result: "r"},
		{name: "a new stretch for nudges", replies: []llmtest.Reply{llmtest.Text("a"), llmtest.Text("b"), llmtest.Text("c"), llmtest.Text("d"), llmtest.Text("e"), llmtest.Done("r")},
			inbox: map[int][]round.Note{2: steer}, requests: 6, result: "r"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.replies...)
			w.def.Completion = tc.mode
			in := w.input("x")
			in.Inbox = notes(tc.inbox)
			rec := &record{}
			out := w.run(in, rec)
			if out.Reason != round.Completed || out.Result != tc.result || w.srv.Count() != tc.requests {
				t.Fatalf("outcome %+v after %d requests\n%s", out, w.srv.Count(), rec)
			}
			if diff := cmp.Diff([]uint64{7}, rec.applied); diff != "" {
				t.Error(diff)
			}
			// It is a message of its own, and nothing comes after it.
			for _, r := range w.srv.Requests() {
				if r.Has("also count the lines") {
					if got, want := r.Last().Content, "[supervisor] while you work:\nalso count the lines"; got != want || r.Last().Role != llm.User {
						t.Errorf("last message %q, want %q", got, want)
					}
					break
				}
			}
		})
	}
}

func TestKeyInfo(t *testing.T) {
	w := newWorld(t, llmtest.Call(checkpointTool, `{"key_info":"mine"}`), llmtest.Call("read", "{}"), llmtest.Done("r"))
	in := w.input("x")
	in.KeyInfo = round.AddKeyInfo("", "before")
	w.tools = append(w.tools, fn(checkpointTool, nil))
	inner := w.cfg.Tools
	w.cfg.Tools = func(r ToolRequest) (Toolset, error) {
		w.tools[len(w.tools)-1] = memo{r.SetKeyInfo}
		return inner(r)
	}
	in.Inbox = notes(map[int][]round.Note{1: {{Seq: 3, Kind: round.NoteKeyInfo, Text: "port 80"}}, 2: {{Seq: 4, Kind: round.NoteKeyInfo, Text: "late"}}})
	rec := &record{}
	if out := w.run(in, rec); out.Result != "r" || w.srv.Count() != 3 {
		t.Fatalf("outcome %+v\n%s", out, rec)
	}
	if want := "mine\n[supervisor] before\n[supervisor] port 80\n[supervisor] late"; rec.keyInfo != want {
		t.Errorf("key info %q, want %q", rec.keyInfo, want)
	}
	if got := w.srv.Requests()[2].Last().Content; got != "[supervisor] keep this in mind:\nport 80" {
		t.Errorf("last message %q", got)
	}
	if !strings.Contains(rec.conv[0].Content, "before") {
		t.Errorf("the first message lacks the key info: %q", rec.conv[0].Content)
	}
	if diff := cmp.Diff([]uint64{3, 4}, rec.applied); diff != "" {
		t.Error(diff)
	}
}

// What a file says is no refusal: it must not use up the one that the daemon has.
func TestRefusalInAFile(t *testing.T) {
	var l ledger
	text := refusal([]reason{{"plan", "1 plan steps are open"}})
	for _, tc := range []struct {
		tool string
		want int
	}{{"read", 0}, {completionTool, 1}} {
		l.add(llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: tc.tool, Name: tc.tool, Arguments: `{"result":"r"}`}}},
			llm.Message{Role: llm.ToolRole, ToolCallID: tc.tool, Content: text})
		if got := l.refused["plan"]; got != tc.want {
			t.Errorf("after the result of %s the plan was held against it %d times, want %d", tc.tool, got, tc.want)
		}
	}
}

func TestKeyInfoThatTheModelWasNotTold(t *testing.T) {
	keyInfo := "the bug is in \"a.go\"\n[supervisor] use tabs\n[supervisor] two\nlines"
	mine := llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "1", Name: checkpointTool, Arguments: `{"key_info":"the bug is in \"a.go\"\nand elsewhere"}`}}}
	for name, tc := range map[string]struct {
		msgs []llm.Message
		want string
	}{
		"nothing said": {nil, keyInfo},
		"all said":     {[]llm.Message{mine, userMessage(keyInfoNote("use tabs")), userMessage(keyInfoNote("two\nlines"))}, ""},
		"said again":   {[]llm.Message{userMessage(daemonMark + "Key info, to be kept in mind:\n" + keyInfo)}, ""},
		"in a file": {[]llm.Message{mine, {Role: llm.ToolRole, ToolCallID: "1", Content: "use tabs\ntwo\nlines"}},
			"[supervisor] use tabs\n[supervisor] two\nlines"},
		"written to a file": {[]llm.Message{{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "1", Name: "write", Arguments: `{"content":"use tabs\ntwo\nlines"}`}}}}, keyInfo},
		"part of a line": {[]llm.Message{mine, userMessage(supervisorMark + "do not use tabs\nuse tabs never\nnot two\nbut lines")},
			"[supervisor] use tabs\n[supervisor] two\nlines"},
	} {
		if got := unseen(keyInfo, tc.msgs); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestMaxTurns(t *testing.T) {
	always := llmtest.Route(
		llmtest.Rule{When: func(r *llmtest.Request) bool { return r.ToolChoice == "none" }, Script: llmtest.Always(llmtest.Text("half of it is done"))},
		llmtest.Otherwise(func(r *llmtest.Request) llmtest.Reply {
			return llmtest.Call("read", fmt.Sprintf(`{"turn":%d}`, r.Turn()))
		}))
	w := newScripted(t, always)
	in := w.input("x")
	in.Settings.MaxTurns = 5
	looks := 0
	in.Inbox = func(context.Context) ([]round.Note, error) { looks++; return nil, nil }
	rec := &record{}
	out := w.run(in, rec)
	if out.Reason != round.MaxTurns || out.Result != "half of it is done" || out.Error == nil || out.Error.Kind != "max_turns" {
		t.Fatalf("outcome %+v", out)
	}
	reqs := w.srv.Requests()
	if len(reqs) != 6 || !strings.Contains(reqs[5].Last().Content, "limit of 5 turns") || len(reqs[5].Tools) == 0 {
		t.Fatalf("%d requests; the last ends with %q", len(reqs), reqs[len(reqs)-1].Last().Content)
	}
	if err := llmtest.CheckPrefixes(reqs); err != nil {
		t.Error(err)
	}
	// What comes when no turn is left is the next round's.
	if looks != 4 {
		t.Errorf("the inbox was looked at %d times", looks)
	}

	// A model that calls on regardless gets nothing run.
	w = newScripted(t, func(r *llmtest.Request) llmtest.Reply {
		return llmtest.Call("write", fmt.Sprintf(`{"turn":%d}`, r.Turn()))
	})
	out = w.run(in, &record{})
	if out.Reason != round.MaxTurns || out.Result != "" || len(w.ran) != 5 {
		t.Errorf("outcome %+v, ran %v", out, w.ran)
	}
}

func TestTurnLimits(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  round.Settings
		def  agentdef.Definition
		lim  Limits
		want int
	}{
		{name: "general", def: agentdef.Definition{Kind: agentdef.KindGeneral}, want: 180},
		{name: "custom", def: agentdef.Definition{Kind: agentdef.KindCustom}, want: 30},
		{name: "fork", def: agentdef.Definition{Kind: agentdef.KindFork}, want: 60},
		{name: "configured", def: agentdef.Definition{Kind: agentdef.KindFork}, lim: Limits{MaxTurns: map[agentdef.Kind]int{agentdef.KindFork: 9}}, want: 9},
		{name: "agent", def: agentdef.Definition{Kind: agentdef.KindFork, MaxTurns: 8}, lim: Limits{MaxTurns: map[agentdef.Kind]int{agentdef.KindFork: 9}}, want: 8},
		{name: "settings", def: agentdef.Definition{MaxTurns: 8}, set: round.Settings{MaxTurns: 7}, want: 7},
	} {
		s := &state{cfg: &Config{Limits: tc.lim}, def: tc.def, in: round.Input{Settings: tc.set}}
		if got := s.turnLimit(); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestLoop(t *testing.T) {
	w := newScripted(t, llmtest.Always(llmtest.Call("read", `{"path":"a"}`)))
	rec := &record{}
	out := w.run(w.input("x"), rec)
	if out.Reason != round.Loop || out.Error == nil || out.Error.Kind != "loop" || w.srv.Count() != 8 {
		t.Errorf("outcome %+v after %d requests", out, w.srv.Count())
	}
	told := 0
	for _, m := range rec.conv {
		if strings.Contains(m.Content, "same calls with the same results 5 times") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the model was told %d times", told)
	}
}
