package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/llm/openai"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// delegator is the task tool.
type delegator struct {
	run func(ctx context.Context, call string, d tool.Delegation) tool.Result
}

func (delegator) Spec() llm.ToolSpec { return fn(taskTool, nil).Spec() }

func (d delegator) Run(ctx context.Context, c tool.Call) tool.Result {
	return d.run(ctx, c.ID, tool.Delegation{Prompts: []string{"look into it"}, Mode: tool.All})
}

func (delegator) Changes() bool { return true }

// everything is a round of thirty turns with all that joins a conversation.
func everything(t *testing.T, opts ...llmtest.Option) (*world, round.Input) {
	n := 0
	w := newScripted(t, func(*llmtest.Request) llmtest.Reply {
		n++
		reply := llmtest.Text(fmt.Sprintf("turn %d <&> \u2028 日本", n)).Call("read", fmt.Sprintf(`{"n": %d}`, n)).Call("write", `{}`)
		switch n {
		case 4:
			reply = llmtest.Text("no call")
		case 5:
			reply = llmtest.Call("read", `{"cut`)
		case 6:
			reply = llmtest.Text("")
		case 7:
			reply = llmtest.Thinking("hm").Call("read_file", `{"path":"/a"}`).CallField("signature", `{"x":"&"}`)
		case 8, 9:
			reply = llmtest.Call("read_file", `{"path":"/a"}`)
		case 10:
			reply = llmtest.Call(checkpointTool, `{"key_info":"remember <this>"}`)
		case 11:
			reply = llmtest.Call(taskTool, `{}`).Text("a child")
		case 12:
			reply = llmtest.Text("cut text").Finish("length")
		case 13, 14, 15, 16, 17:
			reply = llmtest.Call("read", `{"the":"same"}`)
		case 18:
			reply = llmtest.Done("early").Call("broken", `{}`)
		case 19:
			reply = llmtest.Call("nonsense", `{}`).Call("", `[]`)
		case 30:
			reply = llmtest.Done("end")
		}
		return reply
	}, opts...)
	w.plan = "- [ ] [D] one\n- [ ] two\n"
	w.tools = append(w.tools, page("read_file", 3000))
	grant := w.cfg.Tools
	w.cfg.Tools = func(r ToolRequest) (Toolset, error) {
		w.tools = append(slices.Clip(w.tools), memo{r.SetKeyInfo}, delegator{r.Delegate})
		return grant(r)
	}
	in := w.input("go")
	in.KeyInfo = "[supervisor] from before"
	in.Spawn = func(_ context.Context, _ string, _ int, job round.Job) (func() (round.JobResult, error), error) {
		return func() (round.JobResult, error) {
			return round.JobResult{Task: "t.1", Outcome: round.Outcome{Reason: round.Completed, Result: "the child's result"}}, nil
		}, nil
	}
	in.Inbox = notes(map[int][]round.Note{
		2:  {{Seq: 1, Kind: round.NoteKeyInfo, Text: "port 80"}},
		7:  {{Seq: 2, Kind: round.NoteIntervene, Text: "faster"}, {Seq: 3, Kind: round.NoteKeyInfo, Text: "port 81"}},
		20: {{Seq: 4, Kind: round.NoteIntervene, Text: "nearly there?"}},
	})
	return w, in
}

func TestPrefix(t *testing.T) {
	w, in := everything(t)
	rec := &record{}
	out := w.run(in, rec)
	reqs := w.srv.Requests()
	if out.Result != "end" || len(reqs) != 30 {
		t.Fatalf("%d requests, outcome %+v: %v", len(reqs), out, out.Error)
	}
	if err := llmtest.CheckPrefixes(reqs); err != nil {
		t.Error(err)
	}
	last := reqs[29]
	for _, text := range []string{"from before", "port 80", "faster", "port 81", "nearly there?", "the current step: [D] one", "start one with task", "the child's result",
		unchanged, "same calls with the same results", "Go on exactly where it stopped", "(failed_call)", "there is no tool", emptyAnswer} {
		if !last.Has(text) {
			t.Errorf("%q is not in the last request", text)
		}
	}
	for _, a := range of[round.Answered](rec) {
		if a.Break != "" {
			t.Errorf("turn %d: %s", a.Turn, a.Break)
		}
	}

	// The session goes on, in another process with other definitions.
	rec.nextRound()
	b, err := json.Marshal(rec.prepared)
	if err == nil {
		rec.prepared = nil
		err = json.Unmarshal(b, &rec.prepared)
	}
	if err != nil {
		t.Fatal(err)
	}
	again := llmtest.NewServer(t, llmtest.Always(llmtest.Done("more")))
	w.client = openai.New(openai.Config{Name: "default", BaseURL: again.URL, Model: "test"})
	w.def.Prompt = "Another prompt."
	in.Message, in.Round = "and now?", 1
	in.Inbox = nil
	if out := w.run(in, rec); out.Result != "more" {
		t.Fatalf("the next round: %+v", out)
	}
	if err := llmtest.CheckPrefixes([]*llmtest.Request{last, again.Requests()[0]}); err != nil {
		t.Errorf("over a restart: %v", err)
	}
}

// Where a prefix breaks, the record says why.
func TestEveryBreakIsNamed(t *testing.T) {
	const window = 4500
	w, in := everything(t, llmtest.Window(window))
	w.model.ContextWindow = window
	rec := &record{}
	if out := w.run(in, rec); out.Result != "end" {
		t.Fatalf("outcome %+v: %v", out, out.Error)
	}
	// Every request was answered: none came too close to the window to be refused.
	reqs, answers := w.srv.Requests(), 0
	named := map[int]bool{} // by the number of the answer
	for _, e := range rec.events {
		switch e := e.(type) {
		case round.Rewritten:
			named[answers] = e.Cause != "" && e.Dropped != ""
		case round.Answered:
			if e.Break != "" {
				named[answers] = true
			}
			answers++
		}
	}
	if answers != len(reqs) {
		t.Fatalf("%d answers to %d requests", answers, len(reqs))
	}
	breaks := 0
	for i := 1; i < len(reqs); i++ {
		if err := llmtest.CheckPrefixes(reqs[i-1 : i+1]); err != nil {
			breaks++
			if !named[i] {
				t.Errorf("no cause is recorded for: %v", err)
			}
		}
	}
	if breaks == 0 || breaks != len(named) {
		t.Errorf("%d breaks, %d of them named", breaks, len(named))
	}
}
