package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/session"
)

func TestManyTasksShareFewPlaces(t *testing.T) {
	const tasks, places = 200, 2
	var now, most, runs atomic.Int64
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		runs.Add(1)
		return echo(ctx, in, emit)
	}))
	w.cfg.MaxRunning = places
	w.start()
	for i := range tasks {
		w.tell(fmt.Sprint("t", i), "input.txt", fmt.Sprint("task ", i))
	}
	for i := range tasks {
		w.ended(fmt.Sprint("t", i), "output.txt")
	}
	if most.Load() != places || runs.Load() != tasks {
		t.Errorf("%d rounds ran, up to %d at once; want %d and %d", runs.Load(), most.Load(), tasks, places)
	}
	w.snapshotIs(Snapshot{Tasks: tasks})
}

func TestPlacesAreGivenInTheOrderOfAsking(t *testing.T) {
	var mu sync.Mutex
	var order []string
	began, leave := make(chan struct{}, 100), make(chan struct{})
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		mu.Lock()
		order = append(order, in.Task)
		mu.Unlock()
		began <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return echo(ctx, in, emit)
	}))
	w.cfg.MaxRunning = 1
	w.start()
	want := []string{"c", "a", "d", "b"}
	for i, name := range want {
		w.tell(name, "input.txt", "go")
		if i == 0 {
			<-began
		}
		w.until(name+" to ask", func() bool { s := w.snapshot(); return s.Running == 1 && s.Queued == i })
	}
	for range want {
		leave <- struct{}{}
	}
	for _, name := range want {
		w.ended(name, "output.txt")
	}
	if got := strings.Join(order, ""); got != strings.Join(want, "") {
		t.Errorf("rounds ran in the order %q, want that of asking", got)
	}
}

// breakable panics in the middle of a session: when its journal is written to.
type breakable struct {
	armed atomic.Bool
}

func (b *breakable) Write(path string) {
	if b.armed.CompareAndSwap(true, false) {
		panic("the write head fell off over " + filepath.Base(path))
	}
}

func TestPanicInASessionEndsThatRoundOnly(t *testing.T) {
	var b breakable
	first := true
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if in.Task == "b" && first {
			first = false
			emit(round.HeadPrepared{})
			emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
			b.armed.Store(true)
			if err := emit(round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: "lost"}}); err == nil {
				t.Error("the runner was told that a panic was a success")
			}
			return round.Outcome{Reason: round.Interrupted}
		}
		return echo(ctx, in, emit)
	}))
	log := &logged{}
	w.cfg.Log = slog.New(log)
	w.cfg.Session.Journal = panicking(&b)
	w.start()
	w.tell("a", "input.txt", "go")
	w.ended("a", "output.txt")
	w.tell("b", "input.txt", "go")
	w.ended("b", "output.txt")
	w.state("b", taskdir.AwaitingReply, round.Failed)
	if e := w.status("b").Error; e == nil || e.Kind != "panic" || !strings.Contains(e.Message, "write head") {
		t.Errorf("error %+v", e)
	}
	w.until("the log has the stack", func() bool { return log.count("write head") > 0 && log.count("stack=") > 0 })
	w.tell("a", "reply.txt", "still there?")
	w.ended("a", "output1.txt")
	w.tell("b", "reply.txt", "and you?")
	w.ended("b", "output1.txt")
	w.state("b", taskdir.AwaitingReply, round.Completed)
	w.snapshotIs(Snapshot{Tasks: 2})
}

func TestPanicInARunnerFailsThatRound(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if in.Round == 0 {
			panic("oh")
		}
		return echo(ctx, in, emit)
	}))
	w.start()
	w.tell("a", "input.txt", "go")
	w.ended("a", "output.txt")
	w.state("a", taskdir.AwaitingReply, round.Failed)
	w.tell("a", "reply.txt", "again")
	w.ended("a", "output1.txt")
	w.snapshotIs(Snapshot{Tasks: 1})
}

func TestStopIsBoundedAndPutsDownHowFarRoundsAre(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("stubborn %v", stubborn), func(t *testing.T) {
			began, leave := make(chan struct{}, 10), make(chan struct{})
			var resumed atomic.Int64
			w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
				if in.Resumed != nil {
					resumed.Add(1)
					return answers(in, emit, "went on")
				}
				emit(round.HeadPrepared{})
				emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
				began <- struct{}{}
				<-ctx.Done()
				if stubborn {
					<-leave
				}
				return round.Outcome{Reason: round.Interrupted}
			}))
			w.cfg.StopTimeout = 2 * time.Second
			w.cfg.MaxRunning = 3
			w.start()
			for _, name := range []string{"a", "b", "c"} {
				w.tell(name, "input.txt", "go")
				<-began
			}
			w.tell("queued", "input.txt", "go")
			w.snapshotIs(Snapshot{Tasks: 4, Live: 4, Running: 3, Queued: 1})
			start := time.Now()
			err := w.halt()
			if took := time.Since(start); took > w.cfg.StopTimeout {
				t.Errorf("the stop took %s", took)
			}
			if stubborn != (err != nil) {
				t.Errorf("the stop reports %v", err)
			}
			if stubborn && !strings.Contains(err.Error(), "did not end within") {
				t.Errorf("the stop reports %v", err)
			}
			close(leave)
			// An ordered stop is no crash, also where the runner did not end: the rounds go on.
			w.start()
			for _, name := range []string{"a", "b", "c"} {
				w.look(name)
				w.ended(name, "output.txt")
			}
			if resumed.Load() != 3 {
				t.Errorf("%d rounds were resumed", resumed.Load())
			}
			for _, name := range []string{"a", "b", "c"} {
				j, err := os.ReadFile(journalOf(t, w, name))
				if err != nil || !strings.Contains(string(j), `"paused":{}`) {
					t.Errorf("the journal of %s does not say that the daemon was told to stop: %v", name, err)
				}
			}
		})
	}
}

func journalOf(t *testing.T, w *world, task string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(w.cfg.Session.StateDir, task+"-*", "session.jsonl"))
	if err != nil || len(found) != 1 {
		t.Fatalf("journals of %s: %q, %v", task, found, err)
	}
	return found[0]
}

func TestRestartWithManyWaitingSessions(t *testing.T) {
	tasks := 1000
	if testing.Short() {
		tasks = 100
	}
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return answers(in, emit, fmt.Sprintf("heard %s after %d", in.Message, len(in.Conversation)))
	}))
	w.start()
	name := func(i int) string { return fmt.Sprint("task ", i) }
	for i := range tasks {
		w.tell(name(i), "input.txt", "one")
	}
	for i := range tasks {
		w.ended(name(i), "output.txt")
	}
	if err := w.halt(); err != nil {
		t.Fatal(err)
	}
	// Replies that were written while no daemon was there, and after.
	for i := 0; i < tasks; i += 2 {
		w.put(name(i), "reply.txt", "two")
	}
	w.start()
	for i := range tasks {
		w.look(name(i))
	}
	for i := 1; i < tasks; i += 2 {
		w.tell(name(i), "reply.txt", "two")
	}
	for i := range tasks {
		w.ended(name(i), "output1.txt")
		if text := w.read(name(i), "output1.txt"); !strings.Contains(text, "heard two after 2") {
			t.Fatalf("task %d: %s", i, text)
		}
	}
	w.snapshotIs(Snapshot{Tasks: tasks})
}

func TestTasksWithoutInputLeaveNothingBehind(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(echo))
	w.start()
	for i := range 200 {
		name := fmt.Sprint("t", i)
		if err := os.Mkdir(w.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
		w.look(name)
		w.look("not there " + name)
	}
	w.snapshotIs(Snapshot{})
	entries, err := os.ReadDir(w.cfg.Session.StateDir)
	if err != nil || len(entries) > 0 {
		t.Errorf("the state directory holds %v, %v", entries, err)
	}
}

func TestEndedSessionsAreNotLive(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(echo))
	w.start()
	w.tell("a", "input.txt", "go")
	w.ended("a", "output.txt")
	w.state("a", taskdir.AwaitingReply, round.Completed)
	w.tell("a", "_stop", "")
	w.state("a", taskdir.Ended, round.Stopped)
	w.snapshotIs(Snapshot{Tasks: 1})
	w.tell("a", "reply.txt", "one thing more")
	w.ended("a", "output1.txt")
	w.remove("a")
	w.look("a")
	w.snapshotIs(Snapshot{})
}

func TestKnownTasksWithoutADirectoryAreClosed(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(echo))
	w.start()
	w.tell("a", "input.txt", "go")
	w.ended("a", "output.txt")
	w.state("a", taskdir.AwaitingReply, round.Completed)
	w.halt()
	w.remove("a")
	known, err := session.Known(w.cfg.Session.StateDir, nil)
	if err != nil || len(known) != 1 {
		t.Fatalf("known: %q, %v", known, err)
	}
	w.start(known...)
	w.snapshotIs(Snapshot{})
	if known, err = session.Known(w.cfg.Session.StateDir, nil); err != nil || len(known) != 0 {
		t.Errorf("known: %q, %v", known, err)
	}
}

func TestTroubleIsSaidOnceAndTriedAgain(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(echo))
	log := &logged{}
	w.cfg.Log = slog.New(log)
	// A journal that is a directory can neither be read nor be called damaged.
	w.start()
	w.tell("a", "input.txt", "go")
	w.ended("a", "output.txt")
	w.state("a", taskdir.AwaitingReply, round.Completed)
	w.halt()
	path := journalOf(t, w, "a")
	if err := errors.Join(os.Rename(path, path+".kept"), os.Mkdir(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	w.put("a", "reply.txt", "more")
	w.start()
	for range 5 {
		w.look("a")
		w.snapshotIs(Snapshot{Tasks: 1})
	}
	if n := log.count("session ended with an error"); n != 1 {
		t.Errorf("said %d times: %q", n, log.lines)
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".kept", path)); err != nil {
		t.Fatal(err)
	}
	// Nobody has to look for it to be tried again.
	w.ended("a", "output1.txt")
}

func TestSnapshotOfASupervisorThatHasStopped(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(echo))
	w.start()
	w.halt()
	if _, err := w.sup.Snapshot(context.Background()); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(w.cfg).Snapshot(ctx); err == nil {
		t.Error("no error from one that never ran")
	}
}
