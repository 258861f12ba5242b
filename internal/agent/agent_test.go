package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

func TestRound(t *testing.T) {
	w := newWorld(t,
		llmtest.Text("Let me look.").Call("read", `{"path":"a"}`).Call("write", `{"n":1}`).Usage(100, 10, 0),
		llmtest.Done("the answer").Usage(150, 5, 0))
	w.facts = Toolset{WorkDir: "/src/app", Facts: "Platform: linux", Instructions: "Use tabs."}
	in := w.input("count the files")
	in.Settings = round.Settings{InputFiles: map[string]string{"b": "/in/b", "a": "/in/a"}, Dependencies: []string{"needs x"}, AsText: []string{"x: 1"}}
	rec := &record{}
	out := w.run(in, rec)

	if diff := cmp.Diff(round.Outcome{Reason: round.Completed, Result: "the answer", CompletedBy: "tool"}, out); diff != "" {
		t.Fatalf("outcome: %s\n%s", diff, rec)
	}
	var kinds []string
	for _, e := range rec.events {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", e), "round."))
	}
	want := "HeadPrepared Appended TurnStarted TextStreamed Answered ToolBegun ToolEnded ToolBegun ToolEnded Appended " +
		"TurnStarted Answered ToolBegun ToolEnded Appended"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("events\n%s\nwant\n%s", got, want)
	}
	first := rec.conv[0].Content
	for _, text := range []string{"[supervisor]\ncount the files\n\n[daemon] Facts", "\nTask directory: /temp/t\n", "Working directory: /src/app",
		"/temp/t/subagent_plan.md", "- a: /in/a\n- b: /in/b", "needs x", "- x: 1", "Platform: linux", "Use tabs."} {
		if !strings.Contains(first, text) {
			t.Errorf("the first message lacks %q:\n%s", text, first)
		}
	}
	req := w.srv.Requests()[0]
	if req.System() != agentdef.General().Prompt {
		t.Errorf("system prompt: %.80q", req.System())
	}
	if diff := cmp.Diff([]string{"read", "write", "broken", "attempt_completion"}, req.ToolNames()); diff != "" {
		t.Errorf("tools: %s", diff)
	}
	if err := llmtest.CheckPrefixes(w.srv.Requests()); err != nil {
		t.Error(err)
	}
	if rec.spent.InputTokens != 250 || rec.spent.Requests != 2 || w.closed != 1 {
		t.Errorf("spent %+v, toolsets closed %d", rec.spent, w.closed)
	}
}

func TestNextRound(t *testing.T) {
	w := newWorld(t, llmtest.Done("one"), llmtest.Call("read", `{}`), llmtest.Done("one more"), llmtest.Done("two"))
	rec := &record{}
	w.run(w.input("first"), rec)
	rec.nextRound()
	rec.keyInfo = round.AddKeyInfo(rec.keyInfo, "port is 80")
	w.plan = "- [x] one\n- [ ] two\n"
	w.def.Prompt = "changed since"
	in := w.input("second")
	in.Round = 1
	if out := w.run(in, rec); out.Result != "two" || len(out.OpenPoints) != 1 {
		t.Fatalf("outcome %+v", out)
	}
	if err := llmtest.CheckPrefixes(w.srv.Requests()); err != nil {
		t.Error(err)
	}
	var reply string
	for _, m := range rec.conv {
		if strings.HasPrefix(m.Content, "[supervisor]\nsecond") {
			reply = m.Content
		}
	}
	if strings.Contains(reply, "Task directory") || !strings.Contains(reply, "port is 80") || !strings.Contains(reply, "1 of 2 done, continue at: two") {
		t.Errorf("reply message: %q", reply)
	}
}

func TestWrongNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  round.Settings
		def  func(*agentdef.Definition)
		kind string
		want []string
	}{
		{name: "agent", set: round.Settings{Agent: "ghost"}, want: []string{`key "agent"`, `"ghost"`, "there are: general"}},
		{name: "llm", set: round.Settings{LLM: "ghost"}, want: []string{`key "llm"`, `"ghost"`, "there are: default"}},
		{name: "agent's llm", def: func(d *agentdef.Definition) { d.LLM = "ghost" }, want: []string{`agent "general"`, `"ghost"`}},
		{name: "tools", set: round.Settings{ToolsGiven: true, Tools: []string{"read", "write"}},
			def:  func(d *agentdef.Definition) { d.Tools = []string{"read"} },
			want: []string{`key "tools"`, `"write"`, "it may use: read"}},
		{name: "disallowed", set: round.Settings{ToolsGiven: true, Tools: []string{"write"}},
			def:  func(d *agentdef.Definition) { d.DisallowedTools = []string{"write"} },
			want: []string{`key "tools"`, `"write"`}},
		{name: "price", set: round.Settings{MaxCostUSD: 1}, want: []string{`key "max_cost_usd"`, `"default"`, "price"}},
		{name: "input file", set: round.Settings{InputFiles: map[string]string{"spec": "/nowhere"}}, want: []string{`key "input_files"`, `"spec": /nowhere`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.files = map[string]time.Time{}
			if tc.def != nil {
				tc.def(&w.def)
			}
			in := w.input("x")
			in.Settings = tc.set
			out := w.run(in, &record{})
			if out.Reason != round.Failed || out.Error == nil || out.Error.Kind != "context" {
				t.Fatalf("outcome %+v", out)
			}
			for _, text := range tc.want {
				if !strings.Contains(out.Error.Message, text) {
					t.Errorf("the message lacks %q: %s", text, out.Error.Message)
				}
			}
			if n := w.srv.Count(); n != 0 {
				t.Errorf("%d requests were made", n)
			}
		})
	}
}

type policyError struct{}

func (policyError) Error() string       { return "context.json asks for /etc" }
func (policyError) FailureKind() string { return "policy" }

func TestToolsRefused(t *testing.T) {
	w := newWorld(t)
	w.cfg.Tools = func(ToolRequest) (Toolset, error) { return Toolset{}, fmt.Errorf("grant tools: %w", policyError{}) }
	out := w.run(w.input("x"), &record{})
	if out.Error == nil || out.Error.Kind != "policy" || w.srv.Count() != 0 {
		t.Fatalf("outcome %+v", out)
	}
}

// A missing input file ends the round, and a reply goes on with the task known.
func TestInputFileArrivesLater(t *testing.T) {
	w := newWorld(t, llmtest.Done("read it"))
	w.files = map[string]time.Time{}
	in := w.input("summarise spec")
	in.Settings.InputFiles = map[string]string{"spec": "/spec"}
	rec := &record{}
	if out := w.run(in, rec); out.Reason != round.Failed {
		t.Fatalf("outcome %+v", out)
	}
	rec.nextRound()
	w.files["/spec"] = time.Now()
	in.Message, in.Round = "it is there now", 1
	if out := w.run(in, rec); out.Result != "read it" {
		t.Fatalf("outcome %+v", out)
	}
	if !w.srv.Requests()[0].Has("summarise spec") {
		t.Error("the model was not told the task")
	}
}

func TestSettingsNarrowTools(t *testing.T) {
	w := newWorld(t, llmtest.Call("write", `{"n":1}`), llmtest.Done("x"))
	in := w.input("x")
	in.Settings = round.Settings{ToolsGiven: true, Tools: []string{"read", "attempt_completion"}}
	rec := &record{}
	w.run(in, rec)
	if diff := cmp.Diff([]string{"read", "attempt_completion"}, w.srv.Requests()[0].ToolNames()); diff != "" {
		t.Error(diff)
	}
	if len(w.ran) > 0 {
		t.Errorf("a tool ran that was not granted: %v", w.ran)
	}
	if got := rec.results()[0]; !strings.HasPrefix(got, "Error: ") || !strings.Contains(got, "read") || !strings.Contains(got, "attempt_completion") {
		t.Errorf("answer to the call: %q", got)
	}
	// An empty list is none at all.
	w = newWorld(t, llmtest.Done("x"))
	in.Settings = round.Settings{ToolsGiven: true}
	w.run(in, &record{})
	if diff := cmp.Diff([]string{"attempt_completion"}, w.srv.Requests()[0].ToolNames()); diff != "" {
		t.Error(diff)
	}
}

func TestCustomAgentPrompt(t *testing.T) {
	w := newWorld(t, llmtest.Done("x"))
	w.def = agentdef.Definition{Name: "reviewer", Kind: agentdef.KindCustom, Prompt: "You review.\n\n  Closely. \n", Model: "other"}
	w.facts = Toolset{Environment: "Platform: linux", Instructions: "for general agents only"}
	w.run(w.input("x"), &record{})
	req := w.srv.Requests()[0]
	if !strings.HasPrefix(req.System(), w.def.Prompt) || !strings.HasSuffix(req.System(), "Platform: linux") {
		t.Errorf("system prompt: %q", req.System())
	}
	if req.Has("general agents only") {
		t.Error("AGENTS.md was given to a custom agent")
	}
}

func TestStreaming(t *testing.T) {
	w := newWorld(t)
	w.client = clientFunc(func(_ context.Context, _ llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
		for range 200 {
			onDelta(llm.Delta{Text: "ab "})
		}
		onDelta(llm.Delta{Reasoning: "thinking"})
		onDelta(llm.Delta{Restarted: &llm.Error{Kind: llm.KindBrokenStream}})
		onDelta(llm.Delta{Text: "again"})
		return llm.Response{Message: llm.Message{Role: llm.Assistant, Content: "again"}}, nil
	})
	w.def.Completion = agentdef.CompletionText
	rec := &record{}
	if out := w.run(w.input("x"), rec); out.Result != "again" || out.CompletedBy != "text" {
		t.Fatalf("outcome %+v", out)
	}
	var shown strings.Builder
	for _, e := range rec.events {
		switch e := e.(type) {
		case round.TextStreamed:
			shown.WriteString(e.Text)
		case round.AnswerRestarted:
			shown.WriteString("|" + e.Reason + "|")
		}
	}
	if want := strings.Repeat("ab ", 200) + "|broken_stream|again"; shown.String() != want {
		t.Errorf("shown %q", shown.String())
	}
	if n := len(of[round.TextStreamed](rec)); n > 20 {
		t.Errorf("%d reports for 200 pieces that came at once", n)
	}
}
