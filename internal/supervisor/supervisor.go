// Package supervisor keeps the sessions of a daemon: it hands looks to them,
// starts them when there is something to look at, gives their rounds places to
// run in, and picks up what one of them drops.
//
// One goroutine (Supervisor.Run) owns the map of tasks and the queue; sessions
// are goroutines of their own and talk to it through one channel. It does no
// I/O, so that no slow disk under one task delays another.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/session"
	"github.com/gasupervisor/gasupervisor/watcher"
)

// Config is what a Supervisor works with.
type Config struct {
	// Session is what all sessions share; Ask, Leave and Log are filled in here.
	Session session.Config
	// MaxRunning bounds how many rounds run at once.
	MaxRunning int
	// StopTimeout bounds how long Run waits for its sessions when it is stopped.
	StopTimeout time.Duration
	Log         *slog.Logger
}

// startAtOnce bounds how many sessions are at their first look at the same time:
// at the daemon's start each of them reads a journal.
const startAtOnce = 64

// Supervisor runs the sessions of one temp directory.
type Supervisor struct {
	cfg      Config
	messages chan message
	done     chan struct{}

	// The rest belongs to the goroutine of Run.
	tasks map[string]*task
	queue queue
	live  sync.WaitGroup
	// settling counts the sessions that are at their first look, which reads a
	// journal; lined are tasks that wait until fewer are.
	settling int
	lined    []string
}

// task is what is known of a task: its session while that is live, its memo after.
type task struct {
	session *session.Session
	memo    *session.Memo
	// settling and lined say that the task is counted in Supervisor.settling, or
	// stands in Supervisor.lined.
	settling, lined bool
	// trouble is the error that the last session ended with.
	trouble string
	// awaited are closed when the task's first round is over: it is a child.
	awaited []chan struct{}
}

func (t *task) release() {
	for _, c := range t.awaited {
		close(c)
	}
	t.awaited = nil
}

// message is what sessions send: one of the types below.
type message interface{ message() }

type (
	ask struct {
		place
		ahead bool
	}
	leave    struct{ place }
	finished struct {
		task string
		memo *session.Memo
		err  error
	}
	// settled says that a session's first look is over.
	settled struct{ task string }
	// await asks to have a channel closed when a child's first round is over.
	await struct {
		child string
		over  chan struct{}
	}
	// stopChild stops a child; over tells that its first round is over.
	stopChild       struct{ child string }
	over            struct{ child string }
	snapshotRequest chan<- Snapshot
)

func (ask) message()             {}
func (leave) message()           {}
func (finished) message()        {}
func (settled) message()         {}
func (await) message()           {}
func (stopChild) message()       {}
func (over) message()            {}
func (snapshotRequest) message() {}

// Snapshot is how a Supervisor stands at a moment.
type Snapshot struct {
	// Tasks counts the tasks known, Live those with a session in memory.
	Tasks, Live int
	// Running and Queued count rounds.
	Running, Queued int
}

// New makes a Supervisor; Run starts it.
func New(cfg Config) *Supervisor {
	s := &Supervisor{
		cfg:      cfg,
		messages: make(chan message, 256),
		done:     make(chan struct{}),
		tasks:    map[string]*task{},
		queue:    queue{free: max(1, cfg.MaxRunning), places: map[place]bool{}},
	}
	s.cfg.Session.Log = cfg.Log
	s.cfg.Session.Ask = func(name string, ticket uint64, ahead bool) { s.send(ask{place{name, ticket}, ahead}) }
	s.cfg.Session.Leave = func(name string, ticket uint64) { s.send(leave{place{name, ticket}}) }
	s.cfg.Session.Children.Await = s.awaitChild
	s.cfg.Session.Children.Stop = func(child string) { s.send(stopChild{child}) }
	s.cfg.Session.Children.Over = func(child string) { s.send(over{child}) }
	s.cfg.Session.Settled = func(name string) { s.send(settled{name}) }
	return s
}

func (s *Supervisor) send(m message) {
	select {
	case s.messages <- m:
	case <-s.done:
	}
}

// Snapshot asks a running Supervisor how it stands. It fails when ctx ends or
// Run has returned.
func (s *Supervisor) Snapshot(ctx context.Context) (Snapshot, error) {
	answer := make(chan Snapshot, 1)
	select {
	case s.messages <- snapshotRequest(answer):
	case <-s.done:
		return Snapshot{}, errors.New("the supervisor has stopped")
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	select {
	case snap := <-answer:
		return snap, nil
	case <-s.done:
		return Snapshot{}, errors.New("the supervisor has stopped")
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
}

// Run reconciles the tasks named in known (those with a journal; the watcher
// names those with a directory), then hands out looks until ctx ends. It then
// gives the sessions StopTimeout to put down what they do. It returns an error
// only where some of them did not.
func (s *Supervisor) Run(ctx context.Context, looks <-chan watcher.Look, known []string) error {
	defer close(s.done)
	sessions, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, name := range known {
		s.look(sessions, name)
	}
	for {
		select {
		case <-ctx.Done():
			stop()
			return s.wait()
		case l := <-looks:
			s.look(sessions, l.Task)
		case m := <-s.messages:
			s.handle(sessions, m)
		}
	}
}

// wait waits for the sessions after their context ended.
func (s *Supervisor) wait() error {
	gone := make(chan struct{})
	go func() {
		s.live.Wait()
		close(gone)
	}()
	timeout := time.NewTimer(s.cfg.StopTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-gone:
			return nil
		case <-s.messages:
		case <-timeout.C:
			return fmt.Errorf("some rounds did not stop within %s; the next start resumes them from their journals", s.cfg.StopTimeout)
		}
	}
}

// look hands a look to a task's session, which it starts where none is live.
func (s *Supervisor) look(ctx context.Context, name string) {
	t := s.tasks[name]
	switch {
	case t == nil:
		t = &task{}
		s.tasks[name] = t
		fallthrough
	case t.session == nil && !t.lined:
		if s.settling >= startAtOnce {
			t.lined = true
			s.lined = append(s.lined, name)
			return
		}
		s.start(ctx, name, t)
	case t.session != nil:
		t.session.Look()
	}
}

func (s *Supervisor) start(ctx context.Context, name string, t *task) {
	ses := session.New(&s.cfg.Session, name, t.memo)
	t.session, t.settling, t.lined = ses, true, false
	s.settling++
	s.live.Add(1)
	go func() {
		defer s.live.Done()
		memo, err := runSession(ctx, ses, s.cfg.Log.With("task", name))
		s.send(finished{name, memo, err})
	}()
}

// startLined starts tasks that waited for their first look.
func (s *Supervisor) startLined(ctx context.Context) {
	for len(s.lined) > 0 && s.settling < startAtOnce {
		name := s.lined[0]
		s.lined = s.lined[1:]
		s.start(ctx, name, s.tasks[name])
	}
}

// runSession runs a session and turns a panic into an error, which ends this
// session only.
func runSession(ctx context.Context, ses *session.Session, log *slog.Logger) (memo *session.Memo, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("session panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("defect in gasupervisor: %v", p)
			memo = ses.Abort(err)
		}
	}()
	return ses.Run(ctx)
}

func (s *Supervisor) handle(ctx context.Context, m message) {
	switch m := m.(type) {
	case ask:
		s.queue.ask(m.place, m.ahead)
		s.grant()
	case leave:
		s.queue.leave(m.place)
		s.grant()
	case await:
		s.look(ctx, m.child)
		t := s.tasks[m.child]
		t.awaited = append(t.awaited, m.over)
	case stopChild:
		if t := s.tasks[m.child]; t != nil && t.session != nil {
			t.session.Stop()
		}
	case over:
		if t := s.tasks[m.child]; t != nil {
			t.release()
		}
	case settled:
		s.settle(ctx, s.tasks[m.task])
	case finished:
		s.finish(ctx, m)
	case snapshotRequest:
		snap := Snapshot{Tasks: len(s.tasks), Running: len(s.queue.places), Queued: s.queue.length()}
		for _, t := range s.tasks {
			if t.session != nil {
				snap.Live++
			}
		}
		m <- snap
	}
}

// grant hands out what places there are.
func (s *Supervisor) grant() {
	for {
		p, ok := s.queue.next()
		if !ok {
			return
		}
		t := s.tasks[p.task]
		if t == nil || t.session == nil {
			s.queue.leave(p)
			continue
		}
		t.session.Grant(p.ticket)
	}
}

func (s *Supervisor) settle(ctx context.Context, t *task) {
	if t != nil && t.settling {
		t.settling = false
		s.settling--
		s.startLined(ctx)
	}
}

// finish forgets a session that has nothing to wait for, all but its memo.
func (s *Supervisor) finish(ctx context.Context, m finished) {
	t := s.tasks[m.task]
	again := t.session.HasLook()
	t.session, t.memo = nil, m.memo
	t.release()
	s.settle(ctx, t)
	if m.err != nil && m.err.Error() != t.trouble {
		// Said once: every later look may find the same.
		s.cfg.Log.Error("session ended with an error", "task", m.task, "err", m.err)
	}
	t.trouble = ""
	if m.err != nil {
		t.trouble = m.err.Error()
	}
	switch {
	case again && ctx.Err() == nil:
		s.look(ctx, m.task)
	case t.memo == nil && t.trouble == "":
		delete(s.tasks, m.task)
	}
}
