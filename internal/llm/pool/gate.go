package pool

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// How the gate learns from rate limits.
const (
	basePause = time.Second      // the pause where the provider names none; doubles
	maxPause  = time.Minute      // up to this
	longPause = time.Hour        // what a provider asks for is believed for this long; then it is asked again
	growEvery = 15 * time.Second // the least time between two steps back up
	growAfter = 4                // answers per place and step
	maxSpread = 100 * time.Millisecond
)

// gate lets requests to one LLM through: at most allowed at once, in the order
// of their tickets, none while the provider wants a pause. After a pause they
// start one by one.
//
// A rate limit halves what is allowed; it grows back slowly. Requests that were
// under way when it was halved do not halve it again.
type gate struct {
	max  int // 0: unbounded
	rand func() float64

	mu      sync.Mutex
	tickets uint64
	waiters []*waiter // by ticket
	inUse   int
	allowed int

	paused     time.Time // until then
	pauseCause *llm.Error
	next       time.Time // the earliest next start while spreading
	spread     int       // starts still to be spread
	streak     int       // pauses without an answer between them
	passes     uint64    // given out
	mark       uint64    // passes up to it were under way at the last cut
	answers    int       // since the last change of allowed
	changed    time.Time
	timer      *time.Timer
}

// waiter is a request at the gate.
type waiter struct {
	ticket uint64
	giveUp time.Time
	ch     chan error // one value: nil lets it through
	pass   uint64
	news   chan struct{} // a pause has begun, or become longer
}

// held is why a request waits at the gate: for the end of a pause, or, where until
// is zero, for others that are under way.
type held struct {
	until time.Time
	cause *llm.Error // of the pause; nil without one
}

// unremarkable is how long a request may wait for others without a word.
const unremarkable = time.Second

// verdict is how a request came out, as far as the gate learns from it.
type verdict struct {
	ok bool
	// err is a rate limit, or a server's wish to be left alone for a while.
	err *llm.Error
}

func newGate(max int, rand func() float64) *gate {
	g := &gate{max: max, rand: rand, allowed: max}
	if max <= 0 {
		g.max, g.allowed = 0, math.MaxInt
	}
	return g
}

// ticket returns the next place in the order. A request keeps it over its first
// attempts, so that one that was refused goes ahead of those who came later.
func (g *gate) ticket() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tickets++
	return g.tickets
}

// acquire blocks until the gate lets the request through or ctx ends. Where the
// provider wants a pause beyond giveUp it fails at once with the rate limit. tell
// hears what is waited for, on the caller's goroutine, and again when that changes.
func (g *gate) acquire(ctx context.Context, ticket uint64, giveUp time.Time, tell func(held)) (pass uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w := &waiter{ticket: ticket, giveUp: giveUp, ch: make(chan error, 1), news: make(chan struct{}, 1)}
	g.mu.Lock()
	if g.paused.After(giveUp) {
		err := g.pauseError()
		g.mu.Unlock()
		return 0, err
	}
	at, _ := slices.BinarySearchFunc(g.waiters, ticket, func(w *waiter, t uint64) int {
		if w.ticket < t {
			return -1
		}
		return 1
	})
	g.waiters = slices.Insert(g.waiters, at, w)
	g.dispatch()
	g.mu.Unlock()

	if let, err := g.wait(ctx, w, tell); let {
		return w.pass, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiters, w); i >= 0 {
		g.waiters = slices.Delete(g.waiters, i, i+1)
	} else if err := <-w.ch; err == nil {
		g.inUse--
		g.dispatch()
	}
	return 0, ctx.Err()
}

// wait waits for the gate's decision about w; let is false where ctx ended first.
func (g *gate) wait(ctx context.Context, w *waiter, tell func(held)) (let bool, err error) {
	select {
	case err := <-w.ch:
		return true, err // at once, as nearly always
	default:
	}
	look := time.NewTimer(unremarkable)
	defer look.Stop()
	say := func() {
		h := g.held()
		tell(h)
		if !h.until.IsZero() {
			// Others may go first when the pause is over.
			look.Reset(time.Until(h.until) + unremarkable)
		}
	}
	if h := g.held(); !h.until.IsZero() {
		say()
	}
	for {
		select {
		case err := <-w.ch:
			return true, err
		case <-ctx.Done():
			return false, nil
		case <-w.news:
			say()
		case <-look.C:
			say()
		}
	}
}

// held returns what holds requests up just now.
func (g *gate) held() held {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.paused.After(time.Now()) {
		return held{}
	}
	return held{g.paused, g.pauseCause}
}

// pauseError is the rate limit of the pause, for one who cannot wait for its end.
func (g *gate) pauseError() *llm.Error {
	left := time.Until(g.paused)
	e := &llm.Error{Kind: llm.KindRateLimit}
	if g.pauseCause != nil {
		*e = *g.pauseCause
	}
	e.RetryAfter = left
	e.Message = fmt.Sprintf("the provider wants a pause of another %s: %s", left.Round(time.Second), e.Message)
	return e
}

// release gives a place back, with what was learned.
func (g *gate) release(pass uint64, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case v.ok:
		g.answered(pass)
	case v.err != nil:
		g.pause(pass, v.err)
	}
	g.inUse--
	g.dispatch()
}

func (g *gate) answered(pass uint64) {
	if pass <= g.mark {
		return
	}
	g.streak = 0
	if g.allowed >= g.bound() {
		return
	}
	g.answers++
	now := time.Now()
	if g.answers >= growAfter*g.allowed && now.Sub(g.changed) >= growEvery {
		g.allowed = min(g.allowed+max(1, g.allowed/8), g.bound())
		g.answers, g.changed = 0, now
	}
}

// bound is what allowed may grow back to.
func (g *gate) bound() int {
	if g.max == 0 {
		return math.MaxInt
	}
	return g.max
}

// pause stops everybody for as long as the provider wants.
func (g *gate) pause(pass uint64, e *llm.Error) {
	now := time.Now()
	d := e.RetryAfter
	fresh := pass > g.mark
	if d <= 0 {
		if !fresh {
			return
		}
		d = min(basePause<<min(g.streak, 10), maxPause)
	}
	d = min(d, longPause)
	d += time.Duration(g.rand() * float64(min(d/10, 250*time.Millisecond)))
	if fresh {
		g.mark = g.passes
		g.streak++
		if e.Kind == llm.KindRateLimit {
			g.allowed = max(1, min(g.allowed, g.inUse)/2)
			g.answers, g.changed = 0, now
		}
	}
	if until := now.Add(d); until.After(g.paused) {
		g.paused, g.pauseCause = until, e
		g.spread = min(g.allowed, 1000)
		g.next = time.Time{}
		// Who cannot wait so long is told now.
		g.waiters = slices.DeleteFunc(g.waiters, func(w *waiter) bool {
			if until.After(w.giveUp) {
				w.ch <- g.pauseError()
				return true
			}
			select {
			case w.news <- struct{}{}:
			default:
			}
			return false
		})
	}
}

// pauseLeft returns how long the pause lasts.
func (g *gate) pauseLeft() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, time.Until(g.paused))
}

// dispatch lets through whom it can, and sets the timer for the next.
func (g *gate) dispatch() {
	for len(g.waiters) > 0 && g.inUse < g.allowed {
		now := time.Now()
		at := g.paused
		if g.next.After(at) {
			at = g.next
		}
		if at.After(now) {
			if g.timer == nil {
				g.timer = time.AfterFunc(at.Sub(now), g.tick)
			} else {
				g.timer.Reset(at.Sub(now))
			}
			return
		}
		w := g.waiters[0]
		g.waiters = slices.Delete(g.waiters, 0, 1)
		g.inUse++
		g.passes++
		w.pass = g.passes
		w.ch <- nil
		if g.spread > 0 {
			g.spread--
			gap := min(maxSpread, time.Second/time.Duration(min(max(g.allowed, 1), 1000)))
			g.next = now.Add(gap/2 + time.Duration(g.rand()*float64(gap)))
		}
	}
	if g.timer != nil {
		g.timer.Stop()
	}
}

func (g *gate) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dispatch()
}

func (g *gate) state() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{InUse: g.inUse, Waiting: len(g.waiters), Allowed: g.allowed}
	if g.allowed == math.MaxInt {
		s.Allowed = 0
	}
	if g.paused.After(time.Now()) {
		s.PausedUntil = g.paused
	}
	return s
}
