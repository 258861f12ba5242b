package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
	"github.com/gasupervisor/gasupervisor/session"
	"github.com/gasupervisor/gasupervisor/watcher"
)

// The supervisors of these tests keep real sessions on real directories. Looks come
// from the test, and rounds are run by a function of it.

type runnerFunc func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome

func (f runnerFunc) Run(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
	return f(ctx, in, emit)
}

// answers completes a round with one answer.
func answers(in round.Input, emit round.Emit, text string) round.Outcome {
	events := []round.Event{
		round.TurnStarted{Turn: 1}, round.TextStreamed{Text: text},
		round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: text}, Spent: llm.Usage{Requests: 1}},
	}
	if in.Resumed == nil {
		events = append([]round.Event{round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}}}, events...)
	}
	if in.Prepared == nil {
		events = append([]round.Event{round.HeadPrepared{Prepared: round.Prepared{Agent: "general"}}}, events...)
	}
	for _, e := range events {
		if err := emit(e); err != nil {
			return round.Outcome{Reason: round.Interrupted}
		}
	}
	return round.Outcome{Reason: round.Completed, Result: text, CompletedBy: "text"}
}

func echo(_ context.Context, in round.Input, emit round.Emit) round.Outcome {
	return answers(in, emit, "heard "+in.Message)
}

// world is a temp and a state directory, on which daemons work one after the other.
type world struct {
	t     testing.TB
	cfg   Config
	temp  string
	looks chan watcher.Look
	sup   *Supervisor
	stop  func() error
}

func newWorld(t testing.TB, dir string, r session.Runner) *world {
	t.Helper()
	temp := filepath.Join(dir, "temp")
	state := filepath.Join(dir, "state")
	for _, d := range []string{temp, state} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := taskdir.OpenRoot(temp)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, temp: temp, cfg: Config{
		Session:     session.Config{Root: root, StateDir: state, Runner: r, ReplyTimeout: time.Hour},
		MaxRunning:  8,
		StopTimeout: 10 * time.Second,
		Log:         slog.New(slog.DiscardHandler),
	}}
	t.Cleanup(func() {
		w.halt()
		root.Close()
		noneLeft(t)
	})
	return w
}

// noneLeft fails the test if goroutines of sessions or supervisors live on.
func noneLeft(t testing.TB) {
	t.Helper()
	stacks := func() string {
		buf := make([]byte, 1<<20)
		var left []string
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if !strings.Contains(g, "testing.") && (strings.Contains(g, "gasupervisor/session.") || strings.Contains(g, "internal/supervisor.")) {
				left = append(left, g)
			}
		}
		return strings.Join(left, "\n\n")
	}
	if !waittest.Poll(func() bool { return stacks() == "" }) {
		t.Errorf("goroutines are left:\n%s", stacks())
	}
}

// start runs a daemon until halt.
func (w *world) start(known ...string) {
	w.looks = make(chan watcher.Look)
	w.sup = New(w.cfg)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- w.sup.Run(ctx, w.looks, known) }()
	w.stop = sync.OnceValue(func() error { cancel(); return <-over })
}

func (w *world) halt() error {
	if w.stop == nil {
		return nil
	}
	return w.stop()
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.temp}, names...)...)
}

// put writes a file of a task whole.
func (w *world) put(task, name, text string) {
	w.t.Helper()
	temp := w.path(task, ".tmp-"+name)
	if err := errors.Join(os.MkdirAll(w.path(task), 0o755), os.WriteFile(temp, []byte(text), 0o644), os.Rename(temp, w.path(task, name))); err != nil {
		w.t.Fatal(err)
	}
}

// remove takes a directory away, whatever is being written there.
func (w *world) remove(task string) {
	w.t.Helper()
	if err := os.Rename(w.path(task), filepath.Join(w.t.TempDir(), "removed")); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) look(task string) { w.looks <- watcher.Look{Task: task, Why: watcher.Changed} }

func (w *world) tell(task, name, text string) {
	w.t.Helper()
	w.put(task, name, text)
	w.look(task)
}

func (w *world) read(names ...string) string {
	b, _ := os.ReadFile(w.path(names...))
	return string(b)
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	if !waittest.Poll(ok) {
		w.t.Fatalf("waited in vain for %s", what)
	}
}

func (w *world) ended(task, output string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s of %s to end", output, task), func() bool {
		return strings.HasSuffix(w.read(task, output), "\n\n"+taskdir.Marker+"\n")
	})
}

func (w *world) status(task string) *taskdir.Status {
	st, err := taskdir.ReadStatus(w.path(task))
	if err != nil {
		return &taskdir.Status{}
	}
	return st
}

func (w *world) state(task string, state taskdir.State, reason round.Reason) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s to be %s (%s)", task, state, reason), func() bool {
		st := w.status(task)
		return st.State == state && round.Reason(st.Reason) == reason
	})
}

func (w *world) snapshot() Snapshot {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	snap, err := w.sup.Snapshot(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return snap
}

func (w *world) snapshotIs(want Snapshot) {
	w.t.Helper()
	w.until(fmt.Sprintf("the snapshot %+v", want), func() bool { return w.snapshot() == want })
}

// logged collects what is logged.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.lines = append(l.lines, line)
	return nil
}

func (l *logged) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
