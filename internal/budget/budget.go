// Package budget keeps what many requests spend together below a limit.
//
// A request is paid after it was made, and many are made at once, so that a limit
// holds only where each sets aside beforehand what it may cost at most, and gives
// back what it did not. A Budget is such a limit: of a session and its children, or
// of all sessions in a day.
//
// Who cannot set its part aside waits as long as others are on their way, since
// these mostly give something back; where none is, the budget is spent. Budgets may
// stand on one another (a session's on the day's): each is reserved in turn, the
// innermost first. That cannot lock up, because who waits for an outer budget waits
// for requests that have passed it.
package budget

import (
	"context"
	"fmt"
	"sync"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Settle ends a reservation with what was really spent. It is called once; further
// calls do nothing.
type Settle = func(actual llm.Amount)

// Reserve sets want aside until Settle is called. It blocks as Budget.Reserve does,
// and has its errors.
type Reserve = func(ctx context.Context, want llm.Amount) (Settle, error)

// Config describes a budget.
type Config struct {
	// What is limited, and Hint what to do once that is spent, for those who read of it.
	What, Hint string
	// Limit in tokens and in money; 0 is none.
	Limit llm.Amount
	// Spent is what is spent already.
	Spent llm.Amount
	// Elsewhere, where not nil, keeps the account in place of the budget: it is asked
	// anew each time, and counts what a request spent before that is settled.
	Elsewhere func() llm.Amount
}

// Budget is a limit. It may be used by many goroutines at once.
type Budget struct {
	cfg Config

	mu      sync.Mutex
	spent   llm.Amount
	held    llm.Amount
	flying  int
	settled chan struct{} // closed when something is given back
}

// New returns a budget.
func New(cfg Config) *Budget {
	return &Budget{cfg: cfg, spent: cfg.Spent, settled: make(chan struct{})}
}

// SpentError says that a request does not fit into what is left.
type SpentError struct {
	// What and Hint are the budget's.
	What, Hint         string
	Limit, Spent, Want llm.Amount
}

func (e *SpentError) Error() string {
	var s string
	if e.Limit.Tokens > 0 && e.Spent.Tokens+e.Want.Tokens > e.Limit.Tokens {
		s = fmt.Sprintf("%d of %d tokens are spent, and the next request may take %d", e.Spent.Tokens, e.Limit.Tokens, e.Want.Tokens)
	} else {
		s = fmt.Sprintf("$%.4f of $%g are spent, and the next request may cost $%.4f", e.Spent.CostUSD, e.Limit.CostUSD, e.Want.CostUSD)
	}
	if e.What != "" {
		s = e.What + ": " + s
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Spent is what was spent, without what is set aside.
func (b *Budget) Spent() llm.Amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total()
}

func (b *Budget) total() llm.Amount {
	if b.cfg.Elsewhere != nil {
		return b.cfg.Elsewhere()
	}
	return b.spent
}

// Left is what can be set aside now; 0 in tokens or in money is no limit, and what is
// overdrawn is next to nothing.
func (b *Budget) Left() llm.Amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.cfg.Limit.Sub(b.total()).Sub(b.held)
	if b.cfg.Limit.Tokens <= 0 {
		left.Tokens = 0
	} else {
		left.Tokens = max(left.Tokens, 1)
	}
	if b.cfg.Limit.CostUSD <= 0 {
		left.CostUSD = 0
	} else {
		left.CostUSD = max(left.CostUSD, 1e-9)
	}
	return left
}

// Spend enters what was spent without a reservation.
func (b *Budget) Spend(amount llm.Amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = b.spent.Add(amount)
}

// try sets want aside, or reports that it does not fit now.
func (b *Budget) try(want llm.Amount) (Settle, bool) {
	all := b.total().Add(b.held).Add(want)
	limit := b.cfg.Limit
	if limit.Tokens > 0 && all.Tokens > limit.Tokens || limit.CostUSD > 0 && all.CostUSD > limit.CostUSD {
		return nil, false
	}
	b.held = b.held.Add(want)
	b.flying++
	var once sync.Once
	return func(actual llm.Amount) {
		once.Do(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.held = b.held.Sub(want)
			b.flying--
			if b.flying == 0 {
				b.held = llm.Amount{} // money in binary does not add up to nothing
			}
			b.spent = b.spent.Add(actual)
			close(b.settled)
			b.settled = make(chan struct{})
		})
	}, true
}

// Reserve sets want aside. It blocks while that does not fit and other requests are
// on their way; where none is, the error is a *SpentError. Where ctx ends it is the
// cause.
func (b *Budget) Reserve(ctx context.Context, want llm.Amount) (Settle, error) {
	for {
		b.mu.Lock()
		settle, ok := b.try(want)
		flying, settled, spent := b.flying, b.settled, b.total()
		b.mu.Unlock()
		switch {
		case ok:
			return settle, nil
		case flying == 0:
			return nil, &SpentError{What: b.cfg.What, Hint: b.cfg.Hint, Limit: b.cfg.Limit, Spent: spent, Want: want}
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Chain returns a Reserve that reserves in each of these in their order, the
// innermost first; nil ones are left out. It is nil where there are no others.
func Chain(reserves ...Reserve) Reserve {
	var all []Reserve
	for _, r := range reserves {
		if r != nil {
			all = append(all, r)
		}
	}
	if len(all) < 2 {
		if len(all) == 0 {
			return nil
		}
		return all[0]
	}
	return func(ctx context.Context, want llm.Amount) (Settle, error) {
		var held []Settle
		settle := func(actual llm.Amount) {
			for i := len(held) - 1; i >= 0; i-- {
				held[i](actual)
			}
		}
		for _, r := range all {
			s, err := r(ctx, want)
			if err != nil {
				settle(llm.Amount{})
				return nil, err
			}
			held = append(held, s)
		}
		return settle, nil
	}
}
