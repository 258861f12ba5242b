package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// fake is a client whose attempts are scripted; n counts them from 1.
type fake struct {
	mu   sync.Mutex
	at   []time.Time // when attempts began
	now  int
	peak int
	do   func(ctx context.Context, n int, onDelta func(llm.Delta)) (llm.Response, error)
	req  func(llm.Request)
}

func (f *fake) Complete(ctx context.Context, req llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
	f.mu.Lock()
	f.at = append(f.at, time.Now())
	n := len(f.at)
	f.now++
	f.peak = max(f.peak, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	if f.req != nil {
		f.req(req)
	}
	return f.do(ctx, n, onDelta)
}

func answer(text string) llm.Response {
	return llm.Response{Message: llm.Message{Role: llm.Assistant, Content: text}, FinishReason: llm.FinishStop, Spent: llm.Usage{Requests: 1, OutputTokens: 1}}
}

var broken = llm.Response{Spent: llm.Usage{Requests: 1, Unreported: 1}}

// failing fails the first attempts with the errors, and answers then.
func failing(errs ...*llm.Error) func(context.Context, int, func(llm.Delta)) (llm.Response, error) {
	return func(_ context.Context, n int, onDelta func(llm.Delta)) (llm.Response, error) {
		if n <= len(errs) {
			return broken, errs[n-1]
		}
		return answer("ok"), nil
	}
}

func kind(k llm.ErrorKind) *llm.Error { return &llm.Error{Kind: k, Message: "m"} }

func half() float64 { return 0.5 }

func newLLM(f *fake, change func(*Config)) *LLM {
	cfg := Config{Name: "a", Client: f, MaxConcurrent: 4, Rand: half}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func TestRetries(t *testing.T) {
	type gaps = []time.Duration
	const ms = time.Millisecond
	limited := func(d time.Duration) *llm.Error {
		return &llm.Error{Kind: llm.KindRateLimit, RetryAfter: d, Message: "m"}
	}
	six := []*llm.Error{}
	for range 6 {
		six = append(six, kind(llm.KindServer))
	}
	for _, tc := range []struct {
		name string
		errs []*llm.Error
		want llm.ErrorKind // "" for an answer
		gaps gaps          // between the attempts
	}{
		{"no failure", nil, "", gaps{}},
		{"broken, network, idle", []*llm.Error{kind(llm.KindBrokenStream), kind(llm.KindNetwork), kind(llm.KindIdle)}, "", gaps{375 * ms, 750 * ms, 1500 * ms}},
		{"used up", six, llm.KindServer, gaps{375 * ms, 750 * ms, 1500 * ms, 3000 * ms, 6000 * ms}},
		{"server wants a wait", []*llm.Error{{Kind: llm.KindServer, RetryAfter: 10 * time.Second}}, "", gaps{10*time.Second + 500*ms}},
		{"rate limit", []*llm.Error{limited(2 * time.Second)}, "", gaps{2*time.Second + 100*ms}},
		{"rate limit without a wish", []*llm.Error{limited(0), limited(0)}, "", gaps{1050 * ms, 2100 * ms}},
		{"rate limits do not use attempts up", []*llm.Error{limited(time.Second), limited(time.Second), limited(time.Second), limited(time.Second),
			limited(time.Second), limited(time.Second), limited(time.Second)}, "", gaps{1050 * ms, 1050 * ms, 1050 * ms, 1050 * ms, 1050 * ms, 1050 * ms, 1050 * ms}},
		{"a wait too long", []*llm.Error{limited(time.Hour)}, llm.KindRateLimit, gaps{}},
		{"a wait too long of the server", []*llm.Error{{Kind: llm.KindServer, RetryAfter: time.Hour}}, llm.KindServer, gaps{}},
		{"auth", []*llm.Error{kind(llm.KindAuth)}, llm.KindAuth, gaps{}},
		{"quota", []*llm.Error{{Kind: llm.KindQuota, Status: 429}}, llm.KindQuota, gaps{}},
		{"bad request", []*llm.Error{kind(llm.KindBadRequest)}, llm.KindBadRequest, gaps{}},
		{"context length", []*llm.Error{kind(llm.KindContextLength)}, llm.KindContextLength, gaps{}},
		{"final after transient", []*llm.Error{kind(llm.KindServer), kind(llm.KindAuth)}, llm.KindAuth, gaps{375 * ms}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{do: failing(tc.errs...)}
				l := newLLM(f, nil)
				resp, err := l.Complete(t.Context(), llm.Request{}, nil)
				var e *llm.Error
				if errors.As(err, &e); (err == nil) != (tc.want == "") || err != nil && (e.Kind != tc.want || e.LLM != "a" || e.Attempts != len(f.at)) {
					t.Errorf("%v", err)
				}
				if len(f.at) != len(tc.gaps)+1 {
					t.Fatalf("%d attempts, want %d", len(f.at), len(tc.gaps)+1)
				}
				for i, want := range tc.gaps {
					if got := f.at[i+1].Sub(f.at[i]); got != want {
						t.Errorf("wait %d: %v, want %v", i, got, want)
					}
				}
				if want := len(f.at); resp.Spent.Requests != want || resp.Spent.Unreported != min(want, len(tc.errs)) || resp.LLM != "a" {
					t.Errorf("spent %+v over %d attempts, LLM %q", resp.Spent, want, resp.LLM)
				}
				if s := l.State(); s.InUse != 0 || s.Waiting != 0 {
					t.Errorf("left behind: %+v", s)
				}
			})
		})
	}
}

// A request that no wait helps - more tokens than the account may send a minute -
// is refused with a rate limit each time. The others go on meanwhile.
func TestOneThatIsAlwaysRefusedDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		big := llm.Request{MaxTokens: 1 << 20}
		var last int
		f.req = func(req llm.Request) { last = req.MaxTokens }
		f.do = func(context.Context, int, func(llm.Delta)) (llm.Response, error) {
			if last == big.MaxTokens {
				return broken, kind(llm.KindRateLimit)
			}
			return answer("ok"), nil
		}
		l := newLLM(f, func(c *Config) { c.MaxConcurrent = 1 })
		begun := time.Now()
		var refused error
		var wg, others sync.WaitGroup
		wg.Go(func() { _, refused = l.Complete(t.Context(), big, nil) })
		synctest.Wait()
		for range 20 {
			others.Go(func() {
				if _, err := l.Complete(t.Context(), llm.Request{}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		others.Wait()
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("the others were answered after %v", took)
		}
		wg.Wait()
		var e *llm.Error
		if !errors.As(refused, &e) || e.Kind != llm.KindRateLimit {
			t.Errorf("%v", refused)
		}
	})
}

func TestTimeBoundsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(context.Context, int, func(llm.Delta)) (llm.Response, error) {
			time.Sleep(4 * time.Minute)
			return broken, kind(llm.KindIdle)
		}}
		start := time.Now()
		_, err := newLLM(f, nil).Complete(t.Context(), llm.Request{}, nil)
		if err == nil || len(f.at) != 4 || time.Since(start) > 17*time.Minute {
			t.Errorf("%d attempts in %v: %v", len(f.at), time.Since(start), err)
		}
	})
}

func TestRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.do = func(_ context.Context, n int, onDelta func(llm.Delta)) (llm.Response, error) {
			switch n {
			case 1: // nothing shown
				return broken, kind(llm.KindServer)
			case 2:
				onDelta(llm.Delta{Reasoning: "hm"})
				return broken, kind(llm.KindBrokenStream)
			case 3:
				onDelta(llm.Delta{Text: "half"})
				return broken, kind(llm.KindBrokenStream)
			}
			onDelta(llm.Delta{Text: "whole"})
			return answer("whole"), nil
		}
		var got []string
		_, err := newLLM(f, nil).Complete(t.Context(), llm.Request{}, func(d llm.Delta) {
			switch {
			case d.Restarted != nil:
				got = append(got, "restarted: "+string(d.Restarted.Kind))
			case d.Text != "":
				got = append(got, d.Text)
			}
		})
		if want := "half, restarted: broken_stream, whole"; err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("not when given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{do: func(_ context.Context, n int, onDelta func(llm.Delta)) (llm.Response, error) {
				onDelta(llm.Delta{Text: "half"})
				return broken, kind(llm.KindBrokenStream)
			}}
			restarts := 0
			_, err := newLLM(f, func(c *Config) { c.Attempts = 2 }).Complete(t.Context(), llm.Request{}, func(d llm.Delta) {
				if d.Restarted != nil {
					restarts++
				}
			})
			if err == nil || restarts != 1 {
				t.Errorf("%d restarts, %v", restarts, err)
			}
		})
	})
}

func TestCancelledWhileWaiting(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(context.Context, int, func(llm.Delta)) (llm.Response, error)
	}{
		{"for a retry", failing(kind(llm.KindServer), kind(llm.KindServer))},
		{"for a pause", failing(&llm.Error{Kind: llm.KindRateLimit, RetryAfter: time.Minute})},
		{"for an answer", func(ctx context.Context, _ int, _ func(llm.Delta)) (llm.Response, error) {
			<-ctx.Done()
			return broken, fmt.Errorf("ask: %w", ctx.Err())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLLM(&fake{do: tc.do}, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				start := time.Now()
				resp, err := l.Complete(ctx, llm.Request{}, nil)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 100*time.Millisecond || resp.Spent.Requests != 1 {
					t.Errorf("%v after %v, spent %+v", err, time.Since(start), resp.Spent)
				}
				synctest.Wait()
				if s := l.State(); s.InUse != 0 || s.Waiting != 0 {
					t.Errorf("left behind: %+v", s)
				}
			})
		})
	}
}

func TestFallback(t *testing.T) {
	serverErrors := func(onDelta func(llm.Delta)) (llm.Response, error) {
		if onDelta != nil {
			onDelta(llm.Delta{Text: "half"})
		}
		return broken, kind(llm.KindServer)
	}
	for _, tc := range []struct {
		name  string
		first func(context.Context, int, func(llm.Delta)) (llm.Response, error)
		llm   string // who answers
		kind  llm.ErrorKind
		calls [2]int
	}{
		{"not needed", failing(), "a", "", [2]int{1, 0}},
		{"used up", func(_ context.Context, _ int, d func(llm.Delta)) (llm.Response, error) { return serverErrors(d) }, "b", "", [2]int{6, 1}},
		{"auth", failing(kind(llm.KindAuth)), "b", "", [2]int{1, 1}},
		{"quota", failing(kind(llm.KindQuota)), "b", "", [2]int{1, 1}},
		{"long pause", failing(&llm.Error{Kind: llm.KindRateLimit, RetryAfter: time.Hour}), "b", "", [2]int{1, 1}},
		{"bad request", failing(kind(llm.KindBadRequest)), "", llm.KindBadRequest, [2]int{1, 0}},
		{"context length", failing(kind(llm.KindContextLength)), "", llm.KindContextLength, [2]int{1, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := &fake{do: tc.first}, &fake{do: func(context.Context, int, func(llm.Delta)) (llm.Response, error) {
					r := answer("ok")
					r.Message.Extra = map[string]llm.RawJSON{"sig": llm.RawJSON(`1`), "reasoning": llm.RawJSON(`"hm"`)}
					return r, nil
				}}
				var seen llm.Request
				b.req = func(r llm.Request) { seen = r }
				second := newLLM(b, func(c *Config) { c.Name = "b" })
				c := WithFallback(newLLM(a, nil), second)
				restarts := 0
				req := llm.Request{Messages: []llm.Message{{Role: llm.User, Content: "hi"}, {Role: llm.Assistant,
					Extra:     map[string]llm.RawJSON{"sig": llm.RawJSON(`2`)},
					ToolCalls: []llm.ToolCall{{ID: "1"}, {ID: "2", Extra: map[string]llm.RawJSON{"sig": llm.RawJSON(`3`)}}}}}}
				resp, err := c.Complete(t.Context(), req, func(d llm.Delta) {
					if d.Restarted != nil {
						restarts++
					}
				})
				var e *llm.Error
				errors.As(err, &e)
				if (tc.kind == "") != (err == nil) || e != nil && e.Kind != tc.kind {
					t.Errorf("%v", err)
				}
				if err == nil && resp.LLM != tc.llm {
					t.Errorf("answered by %q", resp.LLM)
				}
				if got := [2]int{len(a.at), len(b.at)}; got != tc.calls || resp.Spent.Requests != got[0]+got[1] {
					t.Errorf("attempts %v, spent %+v", got, resp.Spent)
				}
				if tc.name == "used up" && restarts != 6 {
					t.Errorf("%d restarts", restarts)
				}
				if tc.llm == "b" {
					if seen.Messages[1].Extra != nil || seen.Messages[1].ToolCalls[1].Extra != nil {
						t.Errorf("fields of another provider were sent: %+v", seen.Messages)
					}
					if len(resp.Message.Extra) != 1 || resp.Message.Extra["reasoning"] == nil {
						t.Errorf("fields of the fallback were kept: %v", resp.Message.Extra)
					}
					if req.Messages[1].ToolCalls[1].Extra == nil {
						t.Error("the caller's messages were changed")
					}
					// For a while the first is not even asked.
					if resp, err := c.Complete(t.Context(), req, nil); err != nil || resp.LLM != "b" || len(a.at) != tc.calls[0] {
						t.Errorf("second request: %q, %v", resp.LLM, err)
					}
					time.Sleep(2 * time.Hour)
					before := len(a.at)
					if _, err := c.Complete(t.Context(), req, nil); err != nil || len(a.at) == before {
						t.Errorf("later the first is not tried again: %v", err)
					}
				}
			})
		})
	}
	if l := newLLM(&fake{}, nil); WithFallback(l) != llm.Client(l) {
		t.Error("a chain of one")
	}
}

func TestPanicGivesThePlaceBack(t *testing.T) {
	l := newLLM(&fake{do: func(context.Context, int, func(llm.Delta)) (llm.Response, error) { panic("x") }}, nil)
	func() {
		defer func() { _ = recover() }()
		_, _ = l.Complete(t.Context(), llm.Request{}, nil)
	}()
	if s := l.State(); s.InUse != 0 {
		t.Errorf("%+v", s)
	}
}

// An answer without an end is paid for twice at most, and not elsewhere either.
func TestAnswersWithoutAnEndAreAskedForOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := kind(llm.KindTooLong)
		f := &fake{do: failing(long, long, long)}
		other := &fake{do: failing()}
		c := WithFallback(newLLM(f, nil), New(Config{Name: "b", Client: other, Rand: half}))
		_, err := c.Complete(t.Context(), llm.Request{}, nil)
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.KindTooLong || e.Attempts != 2 || len(f.at) != 2 || len(other.at) != 0 {
			t.Errorf("%v; %d attempts, %d elsewhere", err, len(f.at), len(other.at))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: failing(kind(llm.KindTooLong), kind(llm.KindServer))}
		if resp, err := newLLM(f, nil).Complete(t.Context(), llm.Request{}, nil); err != nil || resp.Message.Content != "ok" {
			t.Errorf("%v, %q", err, resp.Message.Content)
		}
	})
}
