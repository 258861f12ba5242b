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
type Settle func(actual llm.Amount)

// Reserve sets want aside until Settle is called. It blocks as Budget.Reserve does,
// and has its errors.
type Reserve func(ctx context.Context, want llm.Amount) (Settle, error)

// Budget is a limit. It may be used by many goroutines at once.
type Budget struct {
	limit llm.Amount
	// elsewhere, where not nil, knows what is spent in place of spent.
	elsewhere func() llm.Amount

	mu      sync.Mutex
	spent   llm.Amount
	held    llm.Amount
	flying  int
	settled chan struct{} // closed when something is given back
}

// New returns a budget of which a part is spent already. A limit of 0 in tokens or
// in money is none.
func New(limit, spent llm.Amount) *Budget {
	return &Budget{limit: limit, spent: spent, settled: make(chan struct{})}
}

// Of returns a budget of which somebody else keeps account: spent is asked anew each
// time, and must count what was spent before the Settle of the request that spent it.
func Of(limit llm.Amount, spent func() llm.Amount) *Budget {
	b := New(limit, llm.Amount{})
	b.elsewhere = spent
	return b
}

// SpentError says that a request does not fit into what is left.
type SpentError struct {
	Limit, Spent, Want llm.Amount
}

func (e *SpentError) Error() string {
	if e.tokens() {
		return fmt.Sprintf("%d of %d tokens are spent, and the next request may take %d", e.Spent.Tokens, e.Limit.Tokens, e.Want.Tokens)
	}
	return fmt.Sprintf("$%.4f of $%g are spent, and the next request may cost $%.4f", e.Spent.CostUSD, e.Limit.CostUSD, e.Want.CostUSD)
}

// tokens reports whether tokens are what is short.
func (e *SpentError) tokens() bool {
	return e.Limit.Tokens > 0 && e.Spent.Tokens+e.Want.Tokens > e.Limit.Tokens
}

// Spent is what was spent, without what is set aside.
func (b *Budget) Spent() llm.Amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total()
}

func (b *Budget) total() llm.Amount {
	if b.elsewhere != nil {
		return b.elsewhere()
	}
	return b.spent
}

// Try sets want aside, or reports that it does not fit now.
func (b *Budget) Try(want llm.Amount) (Settle, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.try(want)
}

func (b *Budget) try(want llm.Amount) (Settle, bool) {
	all := b.total().Add(b.held).Add(want)
	if b.limit.Tokens > 0 && all.Tokens > b.limit.Tokens || b.limit.CostUSD > 0 && all.CostUSD > b.limit.CostUSD {
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
			return nil, &SpentError{Limit: b.limit, Spent: spent, Want: want}
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Over returns a Reserve that reserves in b and then in outer, which may be nil.
func (b *Budget) Over(outer Reserve) Reserve {
	if outer == nil {
		return b.Reserve
	}
	return func(ctx context.Context, want llm.Amount) (Settle, error) {
		mine, err := b.Reserve(ctx, want)
		if err != nil {
			return nil, err
		}
		theirs, err := outer(ctx, want)
		if err != nil {
			mine(llm.Amount{})
			return nil, err
		}
		return func(actual llm.Amount) {
			theirs(actual)
			mine(actual)
		}, nil
	}
}
