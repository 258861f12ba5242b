package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/budget"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// spender is a world whose model calls on for ever, at 90 tokens in and 10 out a turn.
func spender(t *testing.T) *world {
	w := newScripted(t, func(r *llmtest.Request) llmtest.Reply {
		return llmtest.Call("read", fmt.Sprintf(`{"turn":%d}`, r.Turn())).Usage(90, 10, 0)
	})
	w.def.Prompt, w.model.ReplyReserve = "Be brief.", 100
	return w
}

func TestBudget(t *testing.T) {
	w := spender(t)
	in := w.input("x")
	in.Settings.MaxTokens = 1000
	rec := &record{spent: llm.Usage{InputTokens: 200}}
	out := w.run(in, rec)
	if out.Reason != round.Budget || out.Error == nil || out.Error.Kind != "budget" || !strings.Contains(out.Error.Message, "of 1000 tokens are spent") ||
		!strings.Contains(out.Error.Message, "max_tokens") {
		t.Fatalf("outcome %+v", out)
	}
	spent := rec.spent.Amount().Tokens
	if n := w.srv.Count(); n < 4 || spent > 1000 || int64(n)*100+200 != spent {
		t.Errorf("%d requests, %d tokens", n, spent)
	}
	// Each request was paid for beforehand, and durably.
	reserved := of[round.Reserved](rec)
	if len(reserved) != w.srv.Count() {
		t.Fatalf("%d reservations for %d requests", len(reserved), w.srv.Count())
	}
	for i, r := range reserved {
		if r.Amount.Tokens < 200 || r.Amount.Tokens > 600 {
			t.Errorf("reservation %d: %+v", i, r.Amount)
		}
	}
	// The next round has no more than the first.
	rec.nextRound()
	if out := w.run(in, rec); out.Reason != round.Budget {
		t.Errorf("the next round: %+v", out)
	}

	// Without a limit nothing is set aside.
	w = newWorld(t, llmtest.Done("r"))
	rec = &record{}
	w.run(w.input("x"), rec)
	if n := len(of[round.Reserved](rec)); n != 0 {
		t.Errorf("%d reservations without a budget", n)
	}
}

func TestCostBudget(t *testing.T) {
	w := spender(t)
	w.model.Priced, w.model.Price = true, llm.Price{Input: 1000, Output: 2000}
	w.client = nil
	in := w.input("x")
	in.Settings.MaxCostUSD = 2
	rec := &record{}
	out := w.run(in, rec)
	// The server reports no price: what counts here is what was set aside.
	if out.Reason != round.Loop && out.Reason != round.Budget && out.Reason != round.MaxTurns {
		t.Fatalf("outcome %+v", out)
	}
	if r := of[round.Reserved](rec)[0].Amount; r.CostUSD < 0.29 || r.CostUSD > 0.6 {
		t.Errorf("set aside %+v", r)
	}
	in.Settings.MaxCostUSD = 0.1
	rec = &record{}
	if out := w.run(in, rec); out.Reason != round.Budget || !strings.Contains(out.Error.Message, "of $0.1 are spent") || rec.spent.Requests != 0 {
		t.Errorf("outcome %+v", out)
	}
}

// A request that was under way when the daemon died, and one that reported nothing,
// count as what was set aside for them.
func TestBudgetOfTheUnreported(t *testing.T) {
	w := spender(t)
	in := w.input("x")
	in.Settings.MaxTokens = 10_000
	rec := &record{}
	rec.before = func(_ int, e round.Event) error {
		if a, ok := e.(round.Answered); ok && a.Turn == 3 {
			return errKilled
		}
		return nil
	}
	w.run(in, rec)
	if rec.reserved.Tokens == 0 || rec.estimated.Tokens != 0 {
		t.Fatalf("reserved %+v, estimated %+v", rec.reserved, rec.estimated)
	}
	lost := rec.reserved
	rec.before = func(_ int, e round.Event) error {
		if a, ok := e.(round.Answered); ok && a.Turn == 5 {
			return errKilled
		}
		return nil
	}
	rec.events = nil
	w.resume(in, rec)
	if rec.estimated != lost {
		t.Errorf("estimated %+v after a restart, want %+v", rec.estimated, lost)
	}

	in.Settings.MaxTokens = 100_000
	w = newScripted(t, llmtest.ByTurn(llmtest.Call("read", `{}`).NoUsage(), llmtest.Done("r")))
	rec = &record{}
	w.run(in, rec)
	a := of[round.Answered](rec)
	if a[0].Spent.Unreported != 1 || a[0].Estimated != of[round.Reserved](rec)[0].Amount || a[1].Estimated != (llm.Amount{}) {
		t.Errorf("answers %+v", a)
	}
}

// A session that shares a budget waits while others have requests under way.
func TestSharedBudget(t *testing.T) {
	w := newWorld(t, llmtest.Call("read", `{}`), llmtest.Done("r"))
	parent := budget.New(budget.Config{What: "the parent's budget", Limit: llm.Amount{Tokens: 20_000}})
	sibling, err := parent.Reserve(t.Context(), llm.Amount{Tokens: 19_000})
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	in := w.input("x")
	in.Reserve = func(ctx context.Context, want llm.Amount) (func(llm.Amount), error) {
		if waiting != nil {
			close(waiting)
			waiting = nil
		}
		return parent.Reserve(ctx, want)
	}
	rec := &record{}
	first := waiting
	go func() {
		<-first
		if n := w.srv.Count(); n != 0 {
			t.Errorf("%d requests before there was a budget", n)
		}
		sibling(llm.Amount{Tokens: 1000})
	}()
	if out := w.run(in, rec); out.Result != "r" {
		t.Fatalf("outcome %+v", out)
	}
	if got := parent.Spent().Tokens; got != 1000+rec.spent.Amount().Tokens {
		t.Errorf("the parent's budget counts %d, the child spent %+v", got, rec.spent)
	}

	// What is spent is spent, and says whose it was. A stop ends the wait.
	parent = budget.New(budget.Config{What: "the parent's budget", Limit: llm.Amount{Tokens: 20}})
	in.Reserve = parent.Reserve
	rec = &record{}
	if out := w.run(in, rec); out.Reason != round.Budget || !strings.Contains(out.Error.Message, "the parent's budget: ") {
		t.Errorf("outcome %+v", out)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	in.Reserve = func(ctx context.Context, want llm.Amount) (func(llm.Amount), error) {
		cancel(round.ErrStopped)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if out := w.runCtx(ctx, in, &record{}); out.Reason != round.Stopped {
		t.Errorf("outcome %+v", out)
	}
}

// Children draw on their parent's budget, and what they spent without is entered.
func TestChildrenShareTheBudget(t *testing.T) {
	s := &state{cfg: &Config{}}
	s.in.Settings.MaxTokens = 1000
	s.openBudgets(t.Context())
	settled := make(chan struct{})
	s.in.Spawn = func(ctx context.Context, call string, n int, job round.Job) (func() (round.JobResult, error), error) {
		return func() (round.JobResult, error) {
			spent := llm.Usage{InputTokens: 100}
			if n == 0 {
				settle, err := job.Reserve(ctx, llm.Amount{Tokens: 900})
				if err != nil {
					t.Error(err)
				} else {
					settle(llm.Amount{Tokens: 60})
				}
				close(settled)
			} else {
				<-settled
				if _, err := job.Reserve(ctx, llm.Amount{Tokens: 960}); err == nil {
					t.Error("a child was given what its sibling had spent")
				}
			}
			return round.JobResult{Spent: spent, Outcome: round.Outcome{Reason: round.Completed}}, nil
		}, nil
	}
	s.send2(tool.All)
	if got := s.spending.own.Spent(); got.Tokens != 200 {
		t.Errorf("spent %+v", got)
	}
	s = &state{cfg: &Config{}, in: round.Input{Spawn: func(_ context.Context, _ string, _ int, job round.Job) (func() (round.JobResult, error), error) {
		if job.Reserve != nil {
			t.Error("a reserve without a budget")
		}
		return nil, errors.New("no")
	}}}
	s.send2(tool.All)
}

func TestDaemonsBudget(t *testing.T) {
	w := newWorld(t, llmtest.Call("read", `{}`), llmtest.Done("r"))
	held := 0
	left := 1
	w.cfg.Reserve = func(context.Context, llm.Amount) (func(llm.Amount), error) {
		if left--; left < 0 {
			return nil, &budget.SpentError{What: "cost_per_day", Hint: "wait"}
		}
		held++
		return func(llm.Amount) { held-- }, nil
	}
	rec := &record{}
	out := w.run(w.input("x"), rec)
	if out.Reason != round.Budget || !strings.HasPrefix(out.Error.Message, "cost_per_day: ") || held != 0 {
		t.Errorf("outcome %+v, held %d", out, held)
	}
	if len(of[round.Reserved](rec)) != 0 {
		t.Error("a budget that keeps its own account was journalled")
	}
	// A request that fails gives back what was set aside, and so does a journal that does.
	w = newWorld(t, llmtest.Status(401, "no"))
	left = 5
	w.cfg.Reserve = func(context.Context, llm.Amount) (func(llm.Amount), error) {
		held++
		return func(llm.Amount) { held-- }, nil
	}
	w.run(w.input("x"), &record{})
	w.run(w.input("x"), &record{before: func(_ int, e round.Event) error {
		if _, ok := e.(round.TurnStarted); ok {
			return errors.New("disk full")
		}
		return nil
	}})
	if held != 0 {
		t.Errorf("%d reservations were never settled", held)
	}
}
