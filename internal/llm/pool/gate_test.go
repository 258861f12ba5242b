package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// take acquires in a goroutine of its own and reports on the channel.
func take(t *testing.T, g *gate, ctx context.Context, ticket uint64, got chan<- uint64) {
	t.Helper()
	go func() {
		if _, err := g.acquire(ctx, ticket, time.Now().Add(time.Hour), untold); err == nil {
			got <- ticket
		}
	}()
	synctest.Wait()
}

func TestGateIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, half)
		got := make(chan uint64, 10)
		first := g.ticket()
		early := g.ticket()
		take(t, g, t.Context(), first, got)
		ctx, cancel := context.WithCancel(t.Context())
		gone := g.ticket()
		for range 3 {
			take(t, g, t.Context(), g.ticket(), got)
		}
		take(t, g, ctx, gone, got)
		// A request that was refused comes back with its old ticket.
		take(t, g, t.Context(), early, got)
		cancel()
		synctest.Wait()
		if s := g.state(); s.Waiting != 4 || s.InUse != 1 {
			t.Fatalf("%+v", s)
		}
		var order []uint64
		for range 5 {
			order = append(order, <-got)
			g.release(1, verdict{ok: true})
			synctest.Wait()
		}
		if !slices.Equal(order, []uint64{1, 2, 4, 5, 6}) {
			t.Errorf("order %v", order)
		}
		if s := g.state(); s.Waiting != 0 || s.InUse != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// One answer of a broken proxy must not close the gate until the daemon ends.
func TestGatePauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, half)
		pass, err := g.acquire(t.Context(), g.ticket(), time.Now().Add(time.Hour), untold)
		if err != nil {
			t.Fatal(err)
		}
		g.release(pass, verdict{err: &llm.Error{Kind: llm.KindServer, RetryAfter: 365 * 24 * time.Hour}})
		if _, err := g.acquire(t.Context(), g.ticket(), time.Now().Add(30*time.Minute), untold); err == nil {
			t.Error("the pause was not kept")
		}
		time.Sleep(longPause + time.Second)
		if _, err := g.acquire(t.Context(), g.ticket(), time.Now().Add(time.Minute), untold); err != nil {
			t.Errorf("after an hour nobody tries again: %v", err)
		}
	})
}

func TestGatePauseIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(8, half)
		for range 8 {
			if _, err := g.acquire(t.Context(), g.ticket(), time.Now().Add(time.Hour), untold); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		limit := &llm.Error{Kind: llm.KindRateLimit, RetryAfter: 3 * time.Second}
		// A burst of refusals counts once.
		for pass := range uint64(8) {
			g.release(pass+1, verdict{err: limit})
		}
		if s := g.state(); s.Allowed != 4 || s.InUse != 0 || s.PausedUntil.Sub(start) < 3*time.Second {
			t.Fatalf("%+v", s)
		}
		var mu sync.Mutex
		var starts []time.Duration
		for range 12 {
			ticket := g.ticket()
			go func() {
				pass, err := g.acquire(t.Context(), ticket, time.Now().Add(time.Hour), untold)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				starts = append(starts, time.Since(start))
				mu.Unlock()
				time.Sleep(time.Second)
				g.release(pass, verdict{ok: true})
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(starts) != 12 || starts[0] < 3*time.Second {
			t.Fatalf("starts %v", starts)
		}
		// The first ones come one by one, and never more than four in a second.
		for i := range 3 {
			if starts[i+1]-starts[i] < 20*time.Millisecond {
				t.Errorf("a stampede: %v", starts[:4])
			}
		}
		for i := 4; i < len(starts); i++ {
			if starts[i]-starts[i-4] < time.Second {
				t.Errorf("more than four at once: %v", starts)
			}
		}
	})
}

func TestGateGrowsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4, half)
		ask := func(v verdict) {
			pass, err := g.acquire(t.Context(), g.ticket(), time.Now().Add(time.Hour), untold)
			if err != nil {
				t.Fatal(err)
			}
			g.release(pass, v)
		}
		ask(verdict{err: &llm.Error{Kind: llm.KindRateLimit}})
		if s := g.state(); s.Allowed != 1 {
			t.Fatalf("%+v", s)
		}
		for range 10 {
			ask(verdict{ok: true})
		}
		if s := g.state(); s.Allowed != 1 {
			t.Errorf("grew within %v: %+v", growEvery, s)
		}
		for range 60 {
			time.Sleep(2 * time.Second)
			ask(verdict{ok: true})
		}
		if s := g.state(); s.Allowed != 4 {
			t.Errorf("after two minutes: %+v", s)
		}
		// A server that wants to be left alone is, but nothing is learned from it.
		ask(verdict{err: &llm.Error{Kind: llm.KindServer, RetryAfter: time.Second}})
		if s := g.state(); s.Allowed != 4 || s.PausedUntil.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

func TestGateLongPauseIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, half)
		pass, _ := g.acquire(t.Context(), g.ticket(), time.Now().Add(time.Minute), untold)
		waiting := make(chan error, 1)
		go func() {
			_, err := g.acquire(t.Context(), g.ticket(), time.Now().Add(time.Minute), untold)
			waiting <- err
		}()
		synctest.Wait()
		g.release(pass, verdict{err: &llm.Error{Kind: llm.KindRateLimit, RetryAfter: time.Hour, Message: "daily limit"}})
		synctest.Wait()
		_, late := g.acquire(t.Context(), g.ticket(), time.Now().Add(time.Minute), untold)
		for _, err := range []error{<-waiting, late} {
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.KindRateLimit || e.RetryAfter < 59*time.Minute {
				t.Errorf("%v", err)
			}
		}
	})
}

// Whatever happens, places are never lost and never given out twice.
func TestGateRandomly(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			limit := rnd.IntN(5)
			g := newGate(limit, half)
			var mu sync.Mutex
			now, peak := 0, 0
			var wg sync.WaitGroup
			for range 200 {
				arrive, work := time.Duration(rnd.IntN(2000))*time.Millisecond, time.Duration(rnd.IntN(300))*time.Millisecond
				patience, outcome := time.Duration(rnd.IntN(60000))*time.Millisecond, rnd.IntN(20)
				wg.Go(func() {
					time.Sleep(arrive)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					pass, err := g.acquire(ctx, g.ticket(), time.Now().Add(time.Hour), untold)
					if err != nil {
						return
					}
					mu.Lock()
					now++
					peak = max(peak, now)
					mu.Unlock()
					time.Sleep(work)
					mu.Lock()
					now--
					mu.Unlock()
					v := verdict{ok: true}
					if outcome == 0 {
						v = verdict{err: &llm.Error{Kind: llm.KindRateLimit, RetryAfter: work}}
					} else if outcome == 1 {
						v = verdict{}
					}
					g.release(pass, v)
				})
			}
			wg.Wait()
			if s := g.state(); s.InUse != 0 || s.Waiting != 0 || limit > 0 && (peak > limit || s.Allowed > limit || s.Allowed < 1) {
				t.Errorf("seed %d: %+v, peak %d of %d", seed, s, peak, limit)
			}
		})
	}
}

func BenchmarkGate(b *testing.B) {
	g := newGate(16, half)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			pass, err := g.acquire(context.Background(), g.ticket(), time.Now().Add(time.Hour), untold)
			if err != nil {
				b.Error(err)
			}
			g.release(pass, verdict{ok: true})
		}
	})
}
