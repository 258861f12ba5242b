package watcher

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func counts(name string) bool {
	switch name {
	case "input.txt", "reply.txt", "_stop", "_intervene":
		return true
	}
	return false
}

// logs collects what a person would read.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// running is a Watcher at work on a real directory.
type running struct {
	*Watcher
	t    testing.TB
	dir  string
	logs *logs
	stop func()
}

// start runs a Watcher until the test ends, and checks then that it leaves no
// goroutine behind. edit changes its Config.
func start(t testing.TB, dir string, edit func(*Config)) *running {
	t.Helper()
	before := runtime.NumGoroutine()
	r := &running{t: t, dir: dir, logs: &logs{}}
	cfg := Config{
		Dir: dir, Counts: counts, Interval: time.Hour, Poll: 5 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(r.logs, nil)),
	}
	if edit != nil {
		edit(&cfg)
	}
	r.Watcher = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			case <-time.After(patience):
				t.Error("Run does not end")
				return
			}
			r.until("no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
	t.Cleanup(r.stop)
	r.until("Run has begun", func() bool { return r.mode.Load() != nil })
	return r
}

// until polls for a condition.
func (r *running) until(what string, ok func() bool) {
	r.t.Helper()
	if !waittest.Poll(ok) {
		r.t.Fatalf("waited in vain until %s; mode %v; log:\n%s", what, r.Mode(), r.logs)
	}
}

// next returns the next look.
func (r *running) next() Look {
	r.t.Helper()
	select {
	case l := <-r.Looks():
		return l
	case <-time.After(patience):
		r.t.Fatalf("no look comes; mode %v; log:\n%s", r.Mode(), r.logs)
		panic("unreachable")
	}
}

// await reads looks until one is as wanted, and returns those before it.
func (r *running) await(task string, why Why) []Look {
	r.t.Helper()
	var before []Look
	for {
		l := r.next()
		if l.Task == task && l.Why == why {
			return before
		}
		before = append(before, l)
	}
}

// awaitTasks reads looks until each task had one.
func (r *running) awaitTasks(names ...string) map[string][]Why {
	r.t.Helper()
	got := map[string][]Why{}
	missing := map[string]bool{}
	for _, n := range names {
		missing[n] = true
	}
	for len(missing) > 0 {
		l := r.next()
		got[l.Task] = append(got[l.Task], l.Why)
		delete(missing, l.Task)
	}
	return got
}

// changed writes a file and waits for the look that its event brings. A look for
// an earlier cause may stand for it; then it writes again.
func (r *running) changed(name, file string) {
	r.t.Helper()
	for range 3 {
		r.write(name+"/"+file, "x")
		l := r.next()
		for l.Task != name {
			l = r.next()
		}
		if l.Why == Changed {
			return
		}
	}
	r.t.Fatalf("no event of %s/%s arrives", name, file)
}

// quiet reads the looks that are on their way and returns them. It ends with
// that of a last event, the only one of its kind, in a task of its own.
func (r *running) quiet() []Look {
	r.t.Helper()
	var before []Look
	if _, err := os.Stat(r.path("marker")); err != nil {
		r.mkdir("marker")
		before = r.await("marker", Appeared)
	}
	r.write("marker/tmp", "x")
	r.rename("marker/tmp", "marker/input.txt")
	return append(before, r.await("marker", Changed)...)
}

func (r *running) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r *running) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) mkdir(name string) { r.t.Helper(); r.check(os.Mkdir(r.path(name), 0o755)) }

func (r *running) write(name, text string) {
	r.t.Helper()
	r.check(os.WriteFile(r.path(name), []byte(text), 0o644))
}

func (r *running) rename(from, to string) {
	r.t.Helper()
	r.check(os.Rename(r.path(from), r.path(to)))
}

func (r *running) removeAll(name string) { r.t.Helper(); r.check(os.RemoveAll(r.path(name))) }

func (r *running) logged(parts ...string) {
	r.t.Helper()
	r.until("the log has "+strings.Join(parts, ", "), func() bool {
		for _, p := range parts {
			if !strings.Contains(r.logs.String(), p) {
				return false
			}
		}
		return true
	})
}

// fake is a backend without a kernel: it remembers watches, fails as told, and
// sends what a test gives it.
type fake struct {
	mu      sync.Mutex
	watches map[string]int // times added
	fail    func(dir string, watches int) error
	events  chan fsnotify.Event
	errs    chan error
	closed  atomic.Bool
}

func newFake() *fake {
	return &fake{watches: map[string]int{}, events: make(chan fsnotify.Event), errs: make(chan error)}
}

func (f *fake) Add(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil && f.watches[dir] == 0 {
		if err := f.fail(dir, len(f.watches)); err != nil {
			return err
		}
	}
	f.watches[dir]++
	return nil
}

func (f *fake) Remove(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches[dir] == 0 {
		return fsnotify.ErrNonExistentWatch
	}
	delete(f.watches, dir)
	return nil
}

func (f *fake) has(dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watches[dir] > 0
}

func (f *fake) failing(fail func(dir string, watches int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *fake) Events() <-chan fsnotify.Event { return f.events }
func (f *fake) Errors() <-chan error          { return f.errs }
func (f *fake) Close() error                  { f.closed.Store(true); return nil }

// lossy is the system's Backend with faults: it loses events and refuses watches when told.
type lossy struct {
	*system
	events chan fsnotify.Event
	errs   chan error
	lose   atomic.Bool
	last   atomic.Pointer[string] // the name of the last event that came
	limit  atomic.Int64           // of watches, 0 for none
	done   chan struct{}
	wg     sync.WaitGroup
	err    error // what Add answers at the limit
}

func newLossy(t testing.TB, err error) *lossy {
	t.Helper()
	b, e := newBackend(counts)
	if e != nil {
		t.Fatal(e)
	}
	l := &lossy{system: b.(*system), events: make(chan fsnotify.Event), errs: make(chan error), done: make(chan struct{}), err: err}
	l.wg.Go(func() {
		for ev := range l.system.Events() {
			lose := l.lose.Load()
			l.last.Store(&ev.Name)
			if lose {
				continue
			}
			select {
			case l.events <- ev:
			case <-l.done:
			}
		}
	})
	return l
}

func (l *lossy) Add(dir string) error {
	if limit := l.limit.Load(); limit > 0 && l.err != nil {
		list := l.watching()
		known := false
		for _, p := range list {
			known = known || p == dir
		}
		if !known && int64(len(list)) >= limit {
			return l.err
		}
	}
	return l.system.Add(dir)
}

func (l *lossy) Events() <-chan fsnotify.Event { return l.events }
func (l *lossy) Errors() <-chan error          { return l.errs }

func (l *lossy) Close() error {
	close(l.done)
	err := l.system.Close()
	l.wg.Wait()
	return err
}

// capture makes the system's Backend and shows it to the test.
func capture(into *atomic.Pointer[system]) func(*Config) {
	return func(c *Config) {
		c.NewBackend = func() (Backend, error) {
			b, err := newBackend(counts)
			if err == nil {
				into.Store(b.(*system))
			}
			return b, err
		}
	}
}
