// Package pool makes one reliable LLM of a client that makes single attempts:
// retries with backoff, a gate that all sessions on the LLM share, and other LLMs
// to fall back on.
//
// An answer is asked for again after transient failures (see
// llm.ErrorKind.Final), at most Config.Attempts times and for at most
// Config.MaxWait. A provider's wish to wait is the least wait. Between attempts
// the place at the gate is free for others.
package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Defaults of Config.
const (
	DefaultAttempts  = 6
	DefaultMaxWait   = 10 * time.Minute
	DefaultBaseDelay = 500 * time.Millisecond
	DefaultMaxDelay  = 30 * time.Second
)

// limitFactor is how many times as often as other failures a rate limit is
// borne: it says that others were served meanwhile, and MaxWait bounds it.
const limitFactor = 5

// keepsPlace is how many rate limits in a row cost a request its place at the
// gate. Up to then it goes ahead of those who came later. One that is refused
// whenever it comes - it alone is more than the account may send a minute - would
// hold all of them up.
const keepsPlace = 3

// maxTooLong is how many answers without an end one request may cost: the second one
// says that it is no accident.
const maxTooLong = 2

// How long an LLM that failed for good is passed over where there is a fallback.
const (
	downTransient = time.Minute
	downFinal     = 5 * time.Minute
)

// Config describes one LLM of the pool.
type Config struct {
	// Name is the configured entry's name.
	Name string
	// Client makes one attempt.
	Client llm.Client
	// MaxConcurrent bounds the requests at once; 0 sets no bound.
	MaxConcurrent int
	// Attempts bounds how often one answer is asked for; 0 is DefaultAttempts.
	Attempts int
	// MaxWait bounds the time from the first failure to the last attempt; 0 is
	// DefaultMaxWait. A provider that wants a longer wait is given up at once.
	MaxWait time.Duration
	// BaseDelay is the wait after the first failure, which doubles up to MaxDelay.
	BaseDelay, MaxDelay time.Duration
	// Rand returns numbers in [0, 1) for jitter; nil is math/rand.
	Rand func() float64
	// Spent hears what each attempt cost, also those that failed, before Complete
	// returns; nil: nobody does. It is called by many goroutines at once.
	Spent func(llm.Usage)
	// Log takes retries and pauses; nil discards.
	Log *slog.Logger
}

// LLM is one configured LLM with its gate. It implements llm.Client, and many
// goroutines use it at once.
type LLM struct {
	cfg  Config
	gate *gate

	mu   sync.Mutex
	down time.Time // passed over until then where there is a fallback
}

var _ llm.Client = (*LLM)(nil)

// New returns an LLM. It starts nothing.
func New(cfg Config) *LLM {
	if cfg.Attempts <= 0 {
		cfg.Attempts = DefaultAttempts
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = DefaultMaxWait
	}
	if cfg.BaseDelay <= 0 {
		cfg.BaseDelay = DefaultBaseDelay
	}
	if cfg.MaxDelay <= 0 {
		cfg.MaxDelay = DefaultMaxDelay
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("llm", cfg.Name)
	return &LLM{cfg: cfg, gate: newGate(cfg.MaxConcurrent, cfg.Rand)}
}

// Name returns the configured entry's name.
func (l *LLM) Name() string { return l.cfg.Name }

// State is what the gate of an LLM is doing.
type State struct {
	Name string
	// InUse requests are being answered, Waiting wait for a place.
	InUse, Waiting int
	// Allowed is how many may be answered at once, as learned from rate limits;
	// 0 where nothing bounds it.
	Allowed int
	// PausedUntil is when a pause ends that the provider asked for; zero without one.
	PausedUntil time.Time
}

// State returns what the gate is doing.
func (l *LLM) State() State {
	s := l.gate.state()
	s.Name = l.cfg.Name
	return s
}

// Complete asks for an answer until it is there or has failed for good. See
// llm.Client.
func (l *LLM) Complete(ctx context.Context, req llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
	resp, _, err := l.run(ctx, req, onDelta)
	return resp, err
}

// run is Complete; shown says that text of a failed answer was streamed last.
func (l *LLM) run(ctx context.Context, req llm.Request, onDelta func(llm.Delta)) (_ llm.Response, shown bool, _ error) {
	var (
		spent llm.Usage
		t     = tries{ticket: l.gate.ticket(), giveUp: time.Now().Add(l.cfg.MaxWait)}
		wait  = &teller{onDelta: onDelta}
	)
	defer wait.over()
	for {
		resp, text, err := l.attempt(ctx, t.ticket, t.giveUp, req, onDelta, wait)
		spent = spent.Add(resp.Spent)
		resp.Spent, resp.LLM = spent, l.cfg.Name
		if err == nil {
			l.setDown(0)
			if t.attempts > 0 {
				l.cfg.Log.Info("LLM answered", "attempts", t.attempts+1)
			}
			return resp, false, nil
		}
		failed := llm.Response{Spent: spent, LLM: l.cfg.Name}
		var e *llm.Error
		if ctx.Err() != nil || !errors.As(err, &e) {
			return failed, text, err
		}
		t.attempts++
		if t.attempts == 1 {
			t.giveUp = time.Now().Add(l.cfg.MaxWait)
		}
		told := *e
		told.LLM, told.Attempts = l.cfg.Name, t.attempts
		e = &told
		pause, again := l.again(&t, e)
		if !again {
			return failed, text, e
		}
		l.cfg.Log.Warn("LLM failed, asked again", "error", e, "wait", pause)
		if text && onDelta != nil {
			onDelta(llm.Delta{Restarted: e})
		}
		if e.Kind == llm.KindRateLimit {
			continue // the gate makes it wait, and tells of it
		}
		wait.begin(time.Now().Add(pause), e.Error())
		if err := sleep(ctx, pause); err != nil {
			return failed, false, fmt.Errorf("wait for LLM %s: %w", l.cfg.Name, err)
		}
	}
}

// tries is what one request has cost so far in attempts.
type tries struct {
	ticket   uint64    // its place at the gate
	giveUp   time.Time // no attempt begins after it
	attempts int
	failures int // without rate limits
	limits   int
	tooLong  int
}

// again counts a failure and says whether the request is made again, and after
// which pause. An LLM that is given up on is passed over for a while, unless the
// failure was the request's own.
func (l *LLM) again(t *tries, e *llm.Error) (pause time.Duration, again bool) {
	if e.Kind.Final() {
		if e.Kind == llm.KindAuth || e.Kind == llm.KindQuota {
			l.setDown(downFinal)
		}
		return 0, false
	}
	if e.Kind == llm.KindTooLong {
		if t.tooLong++; t.tooLong >= maxTooLong {
			return 0, false
		}
	}
	if e.Kind == llm.KindRateLimit {
		// The gate holds everybody up as long as the provider asked for.
		if t.limits++; t.limits >= keepsPlace {
			t.ticket = l.gate.ticket()
		}
		pause = l.gate.pauseLeft()
	} else {
		t.failures++
		pause = l.delay(t.failures, e.RetryAfter)
	}
	if t.failures >= l.cfg.Attempts || t.limits >= l.cfg.Attempts*limitFactor || time.Now().Add(pause).After(t.giveUp) {
		l.setDown(downTransient)
		return 0, false
	}
	return pause, true
}

// teller tells whoever watches an answer what its request waits for.
type teller struct {
	onDelta func(llm.Delta)
	waits   llm.Wait
}

func (t *teller) begin(until time.Time, why string) {
	if t.waits.Why == "" {
		t.waits.Since = time.Now()
	}
	t.waits.Until, t.waits.Why = until, why
	t.tell()
}

func (t *teller) over() {
	if t.waits.Why != "" {
		t.waits = llm.Wait{}
		t.tell()
	}
}

func (t *teller) tell() {
	if t.onDelta != nil {
		w := t.waits
		t.onDelta(llm.Delta{Waits: &w})
	}
}

// attempt makes one attempt when the gate lets it; text says that it streamed text.
func (l *LLM) attempt(ctx context.Context, ticket uint64, giveUp time.Time, req llm.Request, onDelta func(llm.Delta), wait *teller) (resp llm.Response, text bool, err error) {
	pass, err := l.gate.acquire(ctx, ticket, giveUp, func(h held) {
		why := "LLM " + l.cfg.Name + ": other requests are under way, as many as it takes at once"
		if h.cause != nil {
			why = h.cause.Error()
		}
		wait.begin(h.until, why)
	})
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("wait for LLM %s: %w", l.cfg.Name, ctx.Err())
		}
		return llm.Response{}, false, err
	}
	wait.over()
	// Also where the client or the caller's function panics.
	verdict := verdict{}
	defer func() { l.gate.release(pass, verdict) }()
	var each func(llm.Delta)
	if onDelta != nil {
		each = func(d llm.Delta) {
			text = text || d.Text != ""
			onDelta(d)
		}
	}
	resp, err = l.cfg.Client.Complete(ctx, req, each)
	if l.cfg.Spent != nil && resp.Spent != (llm.Usage{}) {
		l.cfg.Spent(resp.Spent)
	}
	var e *llm.Error
	switch {
	case err == nil:
		verdict.ok = true
	case errors.As(err, &e) && (e.Kind == llm.KindRateLimit || e.Kind == llm.KindServer && e.RetryAfter > 0):
		verdict.err = e
	}
	return resp, text, err
}

// delay returns the wait after failure n, counted from 1.
func (l *LLM) delay(n int, floor time.Duration) time.Duration {
	d := l.cfg.MaxDelay
	if n < 20 {
		d = min(l.cfg.BaseDelay<<(n-1), l.cfg.MaxDelay)
	}
	d = d/2 + time.Duration(l.cfg.Rand()*float64(d/2))
	if floor > 0 {
		// Not all at the first moment that is allowed.
		d = max(d, floor+time.Duration(l.cfg.Rand()*float64(min(floor/10, 2*time.Second))))
	}
	return d
}

func (l *LLM) setDown(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = time.Time{}
	if d > 0 {
		l.down = time.Now().Add(d)
	}
}

func (l *LLM) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.down)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
