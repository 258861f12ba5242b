package budget

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

func tokens(n int64) llm.Amount { return llm.Amount{Tokens: n} }

func TestReserve(t *testing.T) {
	ctx := context.Background()
	b := New(Config{What: "the session", Hint: "raise it", Limit: tokens(100), Spent: tokens(40)})
	first, err := b.Reserve(ctx, tokens(50))
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Reserve(late, tokens(20)); !errors.Is(err, context.Canceled) {
		t.Errorf("more than there is was set aside, or not waited for: %v", err)
	}
	first(tokens(30))
	first(tokens(30))
	if b.Spent() != tokens(70) {
		t.Errorf("spent %+v", b.Spent())
	}
	var spent *SpentError
	if _, err := b.Reserve(ctx, tokens(31)); !errors.As(err, &spent) || !strings.HasPrefix(err.Error(), "the session: 70 of 100 tokens") || !strings.HasSuffix(err.Error(), "; raise it") {
		t.Errorf("nothing is under way and it does not fit: %v", err)
	}
	last, err := b.Reserve(ctx, tokens(30))
	if err != nil {
		t.Fatal(err)
	}
	last(tokens(60)) // more than was set aside
	if _, err := b.Reserve(ctx, tokens(1)); err == nil {
		t.Error("an overdrawn budget gives")
	}
	if _, err := New(Config{Spent: tokens(1 << 40)}).Reserve(ctx, tokens(1<<40)); err != nil {
		t.Errorf("no limit: %v", err)
	}
}

func TestLeft(t *testing.T) {
	b := New(Config{Limit: llm.Amount{Tokens: 100, CostUSD: 1}, Spent: llm.Amount{Tokens: 10, CostUSD: 0.25}})
	if _, err := b.Reserve(context.Background(), llm.Amount{Tokens: 20, CostUSD: 0.25}); err != nil {
		t.Fatal(err)
	}
	b.Spend(tokens(5))
	if got := b.Left(); got != (llm.Amount{Tokens: 65, CostUSD: 0.5}) {
		t.Errorf("left %+v", got)
	}
	b.Spend(llm.Amount{Tokens: 500, CostUSD: 5})
	if got := b.Left(); got.Tokens != 1 || got.CostUSD <= 0 || got.CostUSD > 1e-6 {
		t.Errorf("left of an overdrawn one %+v", got)
	}
	if got := New(Config{}).Left(); got != (llm.Amount{}) {
		t.Errorf("left without a limit %+v", got)
	}
}

func TestMoney(t *testing.T) {
	b := New(Config{Limit: llm.Amount{CostUSD: 0.3}})
	for range 3 {
		s, err := b.Reserve(context.Background(), llm.Amount{Tokens: 1 << 40, CostUSD: 0.1})
		if err != nil {
			// 0.1 three times is a little more than 0.3.
			if b.Spent().CostUSD < 0.2 {
				t.Fatal(err)
			}
			break
		}
		s(llm.Amount{CostUSD: 0.1})
	}
	if _, err := b.Reserve(context.Background(), llm.Amount{CostUSD: 0.2}); err == nil || !strings.Contains(err.Error(), "of $0.3 are spent") {
		t.Errorf("%v", err)
	}
}

func TestWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Limit: tokens(100)})
		first, _ := b.Reserve(t.Context(), tokens(80))
		go func() {
			time.Sleep(time.Second)
			first(tokens(10))
		}()
		start := time.Now()
		if _, err := b.Reserve(t.Context(), tokens(90)); err != nil || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("stopped")
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		if _, err := b.Reserve(ctx, tokens(90)); !errors.Is(err, cause) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var day atomic.Int64
		outer := New(Config{Limit: tokens(100), Elsewhere: func() llm.Amount { return tokens(day.Load()) }})
		a := Chain(New(Config{Limit: tokens(60)}).Reserve, nil, outer.Reserve)
		b := Chain(New(Config{Limit: tokens(90)}).Reserve, outer.Reserve)
		first, err := a(t.Context(), tokens(60))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { day.Store(5); first(tokens(5)) })
		second, err := b(t.Context(), tokens(80))
		if err != nil {
			t.Fatalf("the day's budget was free again: %v", err)
		}
		day.Store(85)
		second(tokens(80))
		if _, err := a(t.Context(), tokens(20)); err == nil || !strings.Contains(err.Error(), "85 of 100") {
			t.Errorf("the day's budget is spent: %v", err)
		}
		if Chain(nil, nil) != nil {
			t.Error("a chain of nothing")
		}
		// What the inner one had set aside for that is free again.
		if _, err := a(t.Context(), tokens(15)); err != nil {
			t.Error(err)
		}
	})
}

// However many draw on a budget, it is not overdrawn, and nobody waits for ever.
func TestMany(t *testing.T) {
	b := New(Config{Limit: tokens(1000)})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for {
				settle, err := b.Reserve(context.Background(), tokens(7))
				if err != nil {
					return
				}
				settle(tokens(5))
			}
		})
	}
	wg.Wait()
	if got := b.Spent().Tokens; got <= 993 || got > 1000 {
		t.Errorf("spent %d", got)
	}
}
