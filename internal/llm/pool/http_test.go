package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/llm/openai"
	"github.com/gasupervisor/gasupervisor/internal/llm/pool"
)

func newLLM(t *testing.T, s *llmtest.Server, change func(*pool.Config)) *pool.LLM {
	t.Helper()
	tr := openai.NewTransport()
	t.Cleanup(tr.CloseIdleConnections)
	cfg := pool.Config{
		Name: "a", MaxConcurrent: 16, BaseDelay: time.Millisecond,
		Client: openai.New(openai.Config{Name: "a", BaseURL: s.URL, Model: "m", Transport: tr, IdleTimeout: 20 * time.Second}),
	}
	if change != nil {
		change(&cfg)
	}
	return pool.New(cfg)
}

func request(text string) llm.Request {
	return llm.Request{Messages: []llm.Message{{Role: llm.User, Content: text}}}
}

// A broken answer is asked for again, and what was shown of it is voided.
func TestBrokenAnswersAreAskedAgain(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Queue(
		llmtest.Text("half an ans").Pieces(4).Cut(),
		llmtest.Call("f", `{"a":"half`).Pieces(4).Cut(),
		llmtest.NoChoices(),
		llmtest.Status(503, "busy"),
		llmtest.Text("whole").Usage(10, 2, 0)))
	var shown strings.Builder
	resp, err := newLLM(t, s, nil).Complete(t.Context(), request("hi"), func(d llm.Delta) {
		if d.Restarted != nil {
			fmt.Fprintf(&shown, "[%s]", d.Restarted.Kind)
		}
		shown.WriteString(d.Text)
	})
	if err != nil || resp.Message.Content != "whole" || len(resp.Message.ToolCalls) != 0 || shown.String() != "half an ans[broken_stream]whole" {
		t.Errorf("%+v, shown %q, %v", resp.Message, shown.String(), err)
	}
	// The two broken ones were cut before their usage; the refused one cost nothing.
	if u := resp.Spent; u.Requests != 5 || u.Unreported != 2 || u.OutputTokens < 2 {
		t.Errorf("spent %+v", u)
	}
	if err := llmtest.CheckPrefixes(s.Requests()); err != nil {
		t.Error(err)
	}
}

// Errors that the next request would meet again are told at once, and hold
// nobody else up.
func TestFinalErrors(t *testing.T) {
	for _, tc := range []struct {
		reply llmtest.Reply
		kind  llm.ErrorKind
		text  string
	}{
		{llmtest.Status(401, "Incorrect API key provided."), llm.KindAuth, "Incorrect API key"},
		{llmtest.Status(400, "unknown field"), llm.KindBadRequest, "unknown field"},
		{llmtest.Status(429, "You exceeded your current quota.").Code("insufficient_quota").RetryAfter(time.Hour), llm.KindQuota, "current quota"},
		{llmtest.Overflow(100, 200), llm.KindContextLength, "maximum context length"},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			s := llmtest.NewServer(t, llmtest.Route(llmtest.Task("bad", tc.reply), llmtest.Otherwise(llmtest.Always(llmtest.Text("ok")))))
			l := newLLM(t, s, nil)
			_, err := l.Complete(t.Context(), request("bad"), nil)
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tc.kind || !strings.Contains(e.Error(), tc.text) || s.Count() != 1 {
				t.Errorf("%v after %d requests", err, s.Count())
			}
			if st := l.State(); !st.PausedUntil.IsZero() || st.Allowed != 16 {
				t.Errorf("the gate is not open: %+v", st)
			}
			if _, err := l.Complete(t.Context(), request("good"), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// Twenty tasks at once on a provider that answers two and tells the others to
// come back in a second.
func TestRateLimit(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Always(llmtest.Text("ok").After(50*time.Millisecond)), llmtest.MaxInFlight(2, time.Second))
	l := newLLM(t, s, nil)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := l.Complete(t.Context(), request(fmt.Sprintf("task %d", i)), nil); err != nil {
				t.Errorf("task %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	refused := map[string]time.Time{}
	early := 0
	for _, r := range s.Requests() {
		task := r.FirstUser()
		// Arrival is a little before the answer, so the whole second lies between two.
		if at, ok := refused[task]; ok && r.At.Sub(at) < time.Second {
			early++
		}
		refused[task] = r.At
	}
	if early > 0 {
		t.Errorf("%d requests came back before their time", early)
	}
	// The first burst, and what it takes to learn: far from twenty at every turn.
	if n := s.Count(); n > 60 {
		t.Errorf("%d requests for 20 answers", n)
	}
	if st := l.State(); st.Allowed > 4 || st.InUse != 0 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

func TestCancelEndsAStalledAnswer(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Always(llmtest.Text("one two").Pieces(3).Stall()))
	l := newLLM(t, s, func(c *pool.Config) { c.MaxConcurrent = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := l.Complete(ctx, request("hi"), nil); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
	if err := s.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	wg.Wait()
	if n := s.Count(); n != 1 {
		t.Errorf("%d requests through a gate for one", n)
	}
}

func TestFallbackOverHTTP(t *testing.T) {
	a := llmtest.NewServer(t, llmtest.Always(llmtest.Status(500, "down")))
	b := llmtest.NewServer(t, llmtest.Always(llmtest.Text("ok")))
	c := pool.WithFallback(newLLM(t, a, func(c *pool.Config) { c.Attempts = 3 }), newLLM(t, b, func(c *pool.Config) { c.Name = "b" }))
	resp, err := c.Complete(t.Context(), request("hi"), nil)
	if err != nil || resp.LLM != "b" || resp.Spent.Requests != 4 || a.Count() != 3 {
		t.Errorf("%+v, %v", resp, err)
	}
	b.Close()
	_, err = c.Complete(t.Context(), request("hi"), nil)
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindNetwork || !strings.Contains(e.Error(), "is the server at") || e.Attempts != 6 {
		t.Errorf("%v", err)
	}
}
