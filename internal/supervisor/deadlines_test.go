package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
	"github.com/gasupervisor/gasupervisor/session"
	"github.com/gasupervisor/gasupervisor/watcher"
)

// repeater answers with the message.
type repeater struct{}

func (repeater) Run(_ context.Context, in round.Input, emit round.Emit) round.Outcome {
	for _, e := range []round.Event{
		round.HeadPrepared{Prepared: round.Prepared{Agent: "general", LLM: "test", System: "be good"}},
		round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}},
		round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: in.Message}, Spent: llm.Usage{Requests: 1}},
	} {
		if err := emit(e); err != nil {
			return round.Outcome{Reason: round.Interrupted}
		}
	}
	return round.Outcome{Reason: round.Completed, Result: in.Message, CompletedBy: "text"}
}

// desk is a running Supervisor over real directories, whose looks the test makes.
type desk struct {
	t     *testing.T
	temp  string
	looks chan watcher.Look
	*Supervisor
}

func newDesk(t *testing.T, replyTimeout time.Duration) *desk {
	t.Helper()
	d := &desk{t: t, temp: t.TempDir(), looks: make(chan watcher.Look)}
	root, err := taskdir.OpenRoot(d.temp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	d.Supervisor = New(Config{
		Session:    session.Config{Root: root, StateDir: t.TempDir(), Runner: repeater{}, ReplyTimeout: replyTimeout},
		MaxRunning: 4, StopTimeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, d.looks, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *desk) put(task, file, text string) {
	d.t.Helper()
	if err := os.MkdirAll(filepath.Join(d.temp, task), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.temp, task, file), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	d.looks <- watcher.Look{Task: task}
}

func (d *desk) until(what string, so func() bool) {
	d.t.Helper()
	waittest.Until(d.t, what, so)
}

func (d *desk) state(task string) taskdir.State {
	st, err := taskdir.ReadStatus(filepath.Join(d.temp, task))
	if err != nil {
		return ""
	}
	return st.State
}

func (d *desk) snapshot() Snapshot {
	d.t.Helper()
	s, err := d.Snapshot(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func TestWaitingSessionsAreNotLiveAndAreReplied(t *testing.T) {
	d := newDesk(t, time.Hour)
	const n = 50
	before := runtime.NumGoroutine()
	for i := range n {
		d.put(fmt.Sprint("t", i), taskdir.InputFile, "one")
	}
	for i := range n {
		d.until("the rounds are over", func() bool { return d.state(fmt.Sprint("t", i)) == taskdir.AwaitingReply })
	}
	d.until("no session is live", func() bool { s := d.snapshot(); return s.Live == 0 && s.Tasks == n })
	d.until("no goroutine is left of them", func() bool { return runtime.NumGoroutine() <= before+5 })
	for i := range n {
		d.put(fmt.Sprint("t", i), taskdir.ReplyFile, "two")
	}
	for i := range n {
		d.until("the replies are answered", func() bool {
			st, err := taskdir.ReadStatus(filepath.Join(d.temp, fmt.Sprint("t", i)))
			return err == nil && st.State == taskdir.AwaitingReply && st.Round == 1
		})
	}
}

func TestDeadlineOfASessionThatIsNotLive(t *testing.T) {
	d := newDesk(t, 1500*time.Millisecond)
	d.put("a", taskdir.InputFile, "one")
	d.until("the round is over", func() bool { return d.state("a") == taskdir.AwaitingReply })
	d.until("the session is not live", func() bool { return d.snapshot().Live == 0 })
	d.until("it ends for want of a reply", func() bool { return d.state("a") == taskdir.Ended })
	st, err := taskdir.ReadStatus(filepath.Join(d.temp, "a"))
	if err != nil || round.Reason(st.Reason) != round.ReplyTimeout {
		t.Errorf("reason %v, %v", st, err)
	}
}

func TestVoidDeadlinesAreSweptOut(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler)})
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	now := time.Now()
	tasks := []*task{{}, {}}
	for i, tk := range tasks {
		s.tasks[fmt.Sprint(i)] = tk
	}
	for i := range 1000 {
		tk := tasks[i%2]
		tk.memo = &session.Memo{Phase: session.Awaiting, Deadline: now.Add(time.Duration(i+1) * time.Hour)}
		s.keepDeadline(fmt.Sprint(i%2), tk)
		s.keepDeadline(fmt.Sprint(i%2), tk)
	}
	if n := len(s.deadlines); n > 65 {
		t.Errorf("%d deadlines of two tasks", n)
	}
	valid := 0
	for _, x := range s.deadlines {
		if !s.void(x) {
			valid++
		}
	}
	if valid != 2 {
		t.Errorf("%d deadlines are valid, want that of each task", valid)
	}
}
