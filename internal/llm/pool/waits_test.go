package pool

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

func untold(held) {}

// waits collects what a request was said to wait for: whole seconds until its end,
// or "?", and a word of why; "over" for the end.
func waits(got *[]string) func(llm.Delta) {
	return func(d llm.Delta) {
		switch w := d.Waits; {
		case w == nil:
		case w.Why == "":
			*got = append(*got, "over")
		case w.Until.IsZero():
			*got = append(*got, "? "+w.Why)
		default:
			*got = append(*got, time.Until(w.Until).Round(time.Second).String()+" "+w.Why)
		}
	}
}

func TestWaitsAreTold(t *testing.T) {
	limit := func(d time.Duration) *llm.Error {
		return &llm.Error{Kind: llm.KindRateLimit, Message: "slow down", RetryAfter: d}
	}
	for name, tt := range map[string]struct {
		errs []*llm.Error
		want string
	}{
		"none":        {nil, ""},
		"rate limit":  {[]*llm.Error{limit(20 * time.Second)}, "20s rate_limit: slow down, over"},
		"two of them": {[]*llm.Error{limit(20 * time.Second), limit(5 * time.Second)}, "20s rate_limit: slow down, over, 5s rate_limit: slow down, over"},
		"retry":       {[]*llm.Error{{Kind: llm.KindServer, Message: "m", RetryAfter: 8 * time.Second}}, "8s LLM a: server: m, over"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				_, err := newLLM(&fake{do: failing(tt.errs...)}, nil).Complete(t.Context(), llm.Request{}, waits(&got))
				if err != nil || strings.Join(got, ", ") != tt.want {
					t.Errorf("%q, %v; want %q", got, err, tt.want)
				}
			})
		})
	}
}

// A request that waits for others says so after a moment, and hears of a pause that
// begins while it waits.
func TestWaitForOthersIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(_ context.Context, n int, _ func(llm.Delta)) (llm.Response, error) {
			time.Sleep(5 * time.Second)
			if n == 1 {
				return broken, &llm.Error{Kind: llm.KindRateLimit, Message: "slow down", RetryAfter: 10 * time.Second}
			}
			return answer("ok"), nil
		}}
		l := newLLM(f, func(c *Config) { c.MaxConcurrent = 1 })
		go l.Complete(t.Context(), llm.Request{}, nil)
		synctest.Wait()
		var got []string
		if _, err := l.Complete(t.Context(), llm.Request{}, waits(&got)); err != nil {
			t.Fatal(err)
		}
		const others = "? LLM a: other requests are under way, as many as it takes at once"
		if want := others + ", 10s rate_limit: slow down, " + others + ", over"; strings.Join(got, ", ") != want {
			t.Errorf("got  %q\nwant %q", strings.Join(got, ", "), want)
		}
	})
}
