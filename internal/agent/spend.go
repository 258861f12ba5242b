package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/gasupervisor/gasupervisor/internal/budget"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// spending is what a round sets aside for its requests and pays.
type spending struct {
	// own is the session's budget; nil where it has none.
	own *budget.Budget
	// reserve sets aside in all budgets that are in force; nil where none is. shared
	// is the part of it that children draw on.
	reserve, shared budget.Reserve
	// recorded is true where a budget is in force that has to hold over a restart.
	recorded bool
	// held is the reservation of the request to come or under way; settle ends it.
	held   llm.Amount
	settle budget.Settle
	// unpriced names an LLM that answered after a fallback and has no price, while
	// a cost limit is in force.
	unpriced string
}

// otherLimit says how a limit of context.json is changed: a session keeps those that
// it began with.
func otherLimit(key string) string {
	return "another " + key + " in context.json counts from the next input.txt, and for a task that goes on with this conversation (gasupervisor fork)"
}

// openBudgets joins the session's own budget with those that it shares.
func (s *state) openBudgets(context.Context) *round.Outcome {
	set := s.in.Settings
	var own budget.Reserve
	if set.MaxTokens > 0 || set.MaxCostUSD > 0 {
		s.spending.own = budget.New(budget.Config{
			What: "the session's budget", Hint: otherLimit("max_tokens or max_cost_usd"),
			Limit: llm.Amount{Tokens: set.MaxTokens, CostUSD: set.MaxCostUSD},
			Spent: s.in.Spent.Amount().Add(s.in.Estimated),
		})
		own = s.spending.own.Reserve
	}
	s.spending.shared = budget.Chain(own, s.in.Reserve)
	s.spending.reserve = budget.Chain(s.spending.shared, s.cfg.Reserve)
	s.spending.recorded = s.spending.shared != nil
	return nil
}

// reserve sets aside what the next request may cost, unless that is done. It waits
// while others who draw on the same budgets have requests under way.
func (s *state) reserve(ctx context.Context) *round.Outcome {
	p := &s.spending
	if p.unpriced != "" {
		return s.partial(round.Budget, "max_cost_usd is set, but LLM %q answered in place of %q and has no price in config.toml", p.unpriced, s.model.Name)
	}
	if p.reserve == nil || p.settle != nil {
		return nil
	}
	want := s.requestAmount()
	settle, err := p.reserve(ctx, want)
	if err != nil {
		var spent *budget.SpentError
		if out := s.cut(ctx); out != nil && !errors.As(err, &spent) {
			return out
		}
		return s.partial(round.Budget, "%v", err)
	}
	p.held, p.settle = want, settle
	if !p.recorded {
		return nil
	}
	return s.emit(ctx, round.Reserved{Amount: want})
}

// requestAmount is what the next request may cost: its estimated size and a full
// answer. What the provider's cache gave the last time it will give again.
func (s *state) requestAmount() llm.Amount {
	input, output := int64(s.size()), int64(s.model.Reserve())
	a := llm.Amount{Tokens: input + output}
	if s.model.Priced {
		a.CostUSD = s.model.Price.Cost(input, min(s.reading.cached, input), output)
	}
	return a
}

// settle ends the reservation of a request that is over, and returns what it is
// taken to have cost where that was not reported.
func (s *state) settle(spent llm.Usage) (estimated llm.Amount) {
	p := &s.spending
	if p.settle == nil {
		return llm.Amount{}
	}
	for range spent.Unreported {
		estimated = estimated.Add(p.held)
	}
	p.settle(spent.Amount().Add(estimated))
	p.settle, p.held = nil, llm.Amount{}
	if !p.recorded {
		return llm.Amount{}
	}
	return estimated
}

// release gives back what was set aside for a request that was not made.
func (s *state) release() { s.settle(llm.Usage{}) }

func (s *state) spentBeside(ctx context.Context, spent llm.Usage, estimated llm.Amount) *round.Outcome {
	if spent == (llm.Usage{}) {
		return nil
	}
	return s.emit(ctx, round.SpentBeside{Spent: spent, Estimated: estimated})
}

// childBudget is what the requests of one child draw on. What the child turns out to
// have spent without drawing on it, as it does between a restart of the daemon and
// its parent's, is entered when it is over.
type childBudget struct {
	own    *budget.Budget
	shared budget.Reserve

	mu    sync.Mutex
	drawn llm.Amount
}

func (s *state) childBudget() *childBudget {
	return &childBudget{own: s.spending.own, shared: s.spending.shared}
}

// reserve is round.Job.Reserve; nil where there is no budget.
func (b *childBudget) reserve() budget.Reserve {
	if b.shared == nil {
		return nil
	}
	return func(ctx context.Context, want llm.Amount) (budget.Settle, error) {
		settle, err := b.shared(ctx, want)
		if err != nil {
			return nil, err
		}
		var once sync.Once // as budget.Settle promises
		return func(actual llm.Amount) {
			settle(actual)
			once.Do(func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.drawn = b.drawn.Add(actual)
			})
		}, nil
	}
}

// over enters what the child spent beside.
func (b *childBudget) over(spent llm.Usage) {
	if b.own == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	beside := spent.Amount().Sub(b.drawn)
	b.own.Spend(llm.Amount{Tokens: max(0, beside.Tokens), CostUSD: max(0, beside.CostUSD)})
}
