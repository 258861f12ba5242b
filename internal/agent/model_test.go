package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/llm/openai"
	"github.com/gasupervisor/gasupervisor/internal/llm/pool"
	"github.com/gasupervisor/gasupervisor/internal/llm/texttools"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// A model without function calling goes through a whole round.
func TestToolsInTheText(t *testing.T) {
	block := func(name, args string) string { return `<tool name="` + name + "\">\n" + args + "\n</tool>" }
	w := newScripted(t, llmtest.ByTurn(
		llmtest.Text("I look.\n"+block("read", `{"n":1}`)+"\n"+block("write", `{"n":2}`)).Pieces(5),
		llmtest.Text("I would like to read now."),
		llmtest.Text(block("read", `{"n": "cut`)).Finish("length"),
		llmtest.Text(block("read", `{"n": oops}`)),
		llmtest.Text(block("nonsense", `{}`)).Call("write", `{"n":3}`), // natively all the same
		llmtest.Text(block("attempt_completion", `{"result":"done it"}`))))
	w.model.TextTools = true
	w.client = texttools.New(openai.New(openai.Config{Name: "default", BaseURL: w.srv.URL, Model: "test"}))
	rec := &record{}
	out := w.run(w.input("go"), rec)
	if out.Result != "done it" || out.CompletedBy != "tool" {
		t.Fatalf("outcome %+v\n%s", out, rec)
	}
	if got := strings.Join(w.ran, ";"); got != `write {"n":2};write {"n":3}` {
		t.Errorf("ran %s", got)
	}
	reqs := w.srv.Requests()
	if err := llmtest.CheckPrefixes(reqs); err != nil {
		t.Error(err)
	}
	last := reqs[len(reqs)-1]
	for _, text := range []string{"## attempt_completion\n", `<tool_result name="read">` + "\nread {\"n\":1}", "<tool name=\"NAME\">{...}</tool>", "cut off at the length limit in the middle of a tool call", "not JSON", "nonsense"} {
		if !last.Has(text) {
			t.Errorf("the last request lacks %q", text)
		}
	}
	for _, m := range last.Messages {
		if m.Role == llm.ToolRole || len(m.ToolCalls) > 0 {
			t.Errorf("a native message: %+v", m)
		}
	}
	var shown strings.Builder
	for _, e := range of[round.TextStreamed](rec) {
		shown.WriteString(e.Text)
	}
	if shown.String() != "I look.I would like to read now." {
		t.Errorf("shown %q", shown.String())
	}
}

// Reasoning goes back to models that want it and to no others, also when the answer
// comes from a journal.
func TestReasoningGoesBack(t *testing.T) {
	for _, tc := range []struct {
		model  string
		mode   string
		reply  llmtest.Reply
		wanted bool // the server refuses what does not have it; else what has it
		where  string
	}{
		{model: "deepseek-v3.2", reply: llmtest.Thinking("because"), wanted: true, where: "reasoning_content"},
		{model: "kimi-k2-thinking", reply: llmtest.Thinking("because"), wanted: true, where: "reasoning_content"},
		{model: "glm-4.6", reply: llmtest.Thinking("because"), wanted: true, where: "reasoning_content"},
		{model: "deepseek-r1", reply: llmtest.Thinking("because"), where: "reasoning_content"},
		{model: "gpt-5-mini", reply: llmtest.Thinking("because"), where: "reasoning_content"},
		{model: "gpt-5-mini", mode: "always", reply: llmtest.Thinking("because"), wanted: true, where: "reasoning_content"},
		{model: "glm-4.6", mode: "never", reply: llmtest.Thinking("because"), where: "reasoning_content"},
		{model: "qwen3-32b", reply: llmtest.Text("<think>because</think>\n\n"), wanted: true, where: "<think>"},
		{model: "other", reply: llmtest.Text("<think>because</think>\n\n"), where: "<think>"},
	} {
		t.Run(tc.model+" "+tc.mode, func(t *testing.T) {
			n := 0
			srv := llmtest.NewServer(t, func(r *llmtest.Request) llmtest.Reply {
				for i, m := range r.Messages {
					if m.Role == llm.Assistant && strings.Contains(string(r.Raw[i]), tc.where) != tc.wanted {
						return llmtest.Status(400, fmt.Sprintf("message %d: %s", i, r.Raw[i]))
					}
				}
				if n++; n == 4 {
					return tc.reply.Call("attempt_completion", `{"result":"r"}`)
				}
				return tc.reply.Call("read", fmt.Sprintf(`{"n":%d}`, n))
			})
			w := newWorld(t)
			w.model.ID = tc.model
			w.client = openai.New(openai.Config{Name: "default", BaseURL: srv.URL, Model: tc.model, ReasoningEcho: tc.mode})
			in := w.input("x")
			rec := &record{}
			rec.after = func(_ int, e round.Event) error {
				if a, ok := e.(round.Appended); ok && a.Turn == 2 {
					return errKilled
				}
				return nil
			}
			w.run(in, rec)
			rec.after, rec.events = nil, nil
			if out := w.resume(in, rec); out.Result != "r" {
				t.Fatalf("outcome %+v: %v", out, out.Error)
			}
			if err := llmtest.CheckPrefixes(srv.Requests()); err != nil {
				t.Error(err)
			}
			for _, m := range rec.conv {
				if strings.Contains(m.Content, "because") {
					t.Errorf("reasoning in the text: %+v", m)
				}
			}
		})
	}
}

// The record names why a prefix broke where another LLM answered.
func TestFallbackIsNamed(t *testing.T) {
	down := true
	first := llmtest.NewServer(t, func(r *llmtest.Request) llmtest.Reply {
		if down {
			return llmtest.Status(402, "pay first")
		}
		return llmtest.Done("r")
	})
	w := newScripted(t, func(*llmtest.Request) llmtest.Reply {
		return llmtest.Call("write", `{}`)
	})
	llmOf := func(name, url string) *pool.LLM {
		return pool.New(pool.Config{Name: name, Client: openai.New(openai.Config{Name: name, BaseURL: url, Model: "test"})})
	}
	w.client = pool.WithFallback(llmOf("default", first.URL), llmOf("spare", w.srv.URL))
	in := w.input("x")
	in.Settings.MaxTurns = 3
	rec := &record{}
	w.run(in, rec)
	a := of[round.Answered](rec)
	if a[0].LLM != "spare" || a[0].Break != "" || a[1].Break != "" {
		t.Errorf("answers %+v", a)
	}
	// The next round begins on the first one again.
	down = false
	w.client = pool.WithFallback(llmOf("default", first.URL), llmOf("spare", w.srv.URL))
	rec.nextRound()
	rec.events = nil
	in.Message, in.Round = "again", 1
	w.run(in, rec)
	a = of[round.Answered](rec)
	if a[0].LLM != "default" || !strings.Contains(a[0].Break, "default answered, and not spare") {
		t.Errorf("answers of the next round %+v", a)
	}
}

// A server that wants a pause longer than a round is kept waiting for says until when.
func TestLongPauseIsNamed(t *testing.T) {
	w := newScripted(t, llmtest.Always(llmtest.Status(429, "daily quota").RetryAfter(24*time.Hour)))
	w.client = pool.New(pool.Config{Name: "default", Client: openai.New(openai.Config{Name: "default", BaseURL: w.srv.URL, Model: "test"})})
	w.cfg.Now = func() time.Time { return time.Date(2031, 2, 3, 4, 5, 6, 7, time.FixedZone("east", 3600)) }
	out := w.run(w.input("x"), &record{})
	if out.Error == nil {
		t.Fatalf("outcome %+v", out)
	}
	if want := "takes none before 2031-02-04T03:05:06Z: reply then"; !strings.Contains(out.Error.Message, want) {
		t.Errorf("a request for a pause of a day says %q", out.Error.Message)
	}
	if strings.Contains(out.Error.Message, "all attempts") {
		t.Errorf("one attempt is told as several: %q", out.Error.Message)
	}
}
