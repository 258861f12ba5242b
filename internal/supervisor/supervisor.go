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
	// Session is what all sessions share. Ask, Leave, Settled, the bounds and Log are
	// filled in here.
	Session session.Config
	// MaxRunning bounds how many rounds run at once.
	MaxRunning int
	// StopTimeout bounds how long Run waits for its sessions when it is stopped. In its
	// second half they do not wait for their rounds any more, and put down how far these are.
	StopTimeout time.Duration
	Log         *slog.Logger
}

const (
	// startAtOnce bounds how many sessions are at their first look at the same time:
	// at the daemon's start each of them reads a journal.
	startAtOnce = 64
	// writeAtOnce bounds how many sessions wait for a journal's disk at the same time,
	// and endAtOnce how many end for want of a reply. After a long night the deadlines
	// of thousands may have passed.
	writeAtOnce = 64
	endAtOnce   = 8
	// A session that ended with an error is started again after firstRetry, and after
	// twice as long each further time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

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
	// journal; line are tasks that wait until fewer are.
	settling int
	line     line
	// deadlines are of sessions that wait without being live; timer fires at the
	// first of them.
	deadlines deadlines
	timer     *time.Timer
}

// task is what is known of a task: its session while that is live, its memo after.
type task struct {
	session *session.Session
	memo    *session.Memo
	// complaints is what the last session has said of things in place of files.
	complaints []string
	// settling says that the task is counted in Supervisor.settling, lined that it
	// stands in Supervisor.line, and hurried that it does so at the front.
	settling, lined, hurried bool
	// trouble is the error that the last session ended with, and retry how long after
	// that the next one starts.
	trouble string
	retry   time.Duration
	// awaited are closed when the task's first round is over: it is a child. stop says
	// that a session is to stop that round, until one has ended well.
	awaited []chan struct{}
	stop    bool
	// due is the task's entry in Supervisor.deadlines, zero where it has none. It
	// stands while the session is live: most looks change nothing.
	due time.Time
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
		task       string
		memo       *session.Memo
		complaints []string
		err        error
	}
	// settled says that a session's first look is over.
	settled struct{ task string }
	// again says that a session which ended with an error may try again.
	again struct{ task string }
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
func (again) message()           {}
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
	// Settling counts tasks that wait for their first look, or are at it.
	Settling int
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
	s.cfg.Session.Park = true
	s.cfg.Session.Disk = make(chan struct{}, writeAtOnce)
	s.cfg.Session.Ending = make(chan struct{}, endAtOnce)
	s.cfg.Session.RunnerGrace = cfg.StopTimeout / 2
	s.cfg.Session.Ask = func(name string, ticket uint64, ahead bool) { s.send(ask{place{name, ticket}, ahead}) }
	s.cfg.Session.Leave = func(name string, ticket uint64) { s.send(leave{place{name, ticket}}) }
	s.cfg.Session.Children.Await = s.awaitChild
	s.cfg.Session.Children.Stop = func(child string) { s.send(stopChild{child}) }
	lent := &loans{}
	s.cfg.Session.Children.Lend, s.cfg.Session.Children.Draw = lent.lend, lent.draw
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
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	for _, name := range known {
		s.look(sessions, name, false)
	}
	for {
		select {
		case <-ctx.Done():
			stop()
			return s.wait()
		case l := <-looks:
			s.look(sessions, l.Task, l.Urgent)
		case m := <-s.messages:
			s.handle(sessions, m)
		case now := <-s.timer.C:
			s.expire(sessions, now)
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
	var errs []error
	note := func(m message) {
		if f, ok := m.(finished); ok && f.err != nil {
			s.cfg.Log.Error("session could not put down all that it did", "task", f.task, "err", f.err)
			errs = append(errs, f.err)
		}
	}
	for {
		select {
		case m := <-s.messages:
			note(m)
		case <-gone:
			for len(s.messages) > 0 {
				note(<-s.messages)
			}
			if len(errs) == 0 {
				return nil
			}
			return fmt.Errorf("%d sessions could not put down all that they did, the next start resumes them from their journals: %w", len(errs), errs[0])
		case <-timeout.C:
			return fmt.Errorf("some sessions did not stop within %s; the next start resumes them from their journals", s.cfg.StopTimeout)
		}
	}
}

// look hands a look to a task's session, which it starts where none is live. Where
// somebody waits for it, it does not stand in line behind all tasks there are.
func (s *Supervisor) look(ctx context.Context, name string, hurried bool) {
	t := s.tasks[name]
	if t == nil {
		t = &task{}
		s.tasks[name] = t
	}
	switch {
	case t.session != nil:
		t.session.Look()
	case t.lined && (t.hurried || !hurried):
	case s.settling >= startAtOnce:
		t.lined, t.hurried = true, hurried
		s.line.add(name, hurried)
	default:
		s.start(ctx, name, t)
	}
}

func (s *Supervisor) start(ctx context.Context, name string, t *task) {
	ses := session.New(&s.cfg.Session, name, t.memo)
	ses.Remember(t.complaints)
	if t.stop {
		ses.Stop()
	}
	t.session, t.settling, t.lined, t.hurried = ses, true, false, false
	s.settling++
	s.live.Add(1)
	go s.run(ctx, name, ses)
}

// run runs a session. Its frame is part of what a waiting session costs.
func (s *Supervisor) run(ctx context.Context, name string, ses *session.Session) {
	defer s.live.Done()
	memo, err := runSession(ctx, ses)
	s.send(finished{name, memo, ses.Complaints(), err})
}

// startLined starts tasks that waited for their first look.
func (s *Supervisor) startLined(ctx context.Context) {
	for s.settling < startAtOnce {
		name, ok := s.line.next()
		if !ok {
			return
		}
		// One that was moved to the front, and has been there, left its old place behind.
		if t := s.tasks[name]; t != nil && t.lined {
			s.start(ctx, name, t)
		}
	}
}

// runSession runs a session and turns a panic into an error, which ends this
// session only.
func runSession(ctx context.Context, ses *session.Session) (memo *session.Memo, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
			memo = ses.Abort(err)
		}
	}()
	return ses.Run(ctx)
}

// panicError is a panic in a session.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("defect in gasupervisor: %v", e.value) }

func (s *Supervisor) handle(ctx context.Context, m message) {
	switch m := m.(type) {
	case ask:
		s.queue.ask(m.place, m.ahead)
		s.grant()
	case leave:
		s.queue.leave(m.place)
		s.grant()
	case await:
		s.look(ctx, m.child, true)
		t := s.tasks[m.child]
		t.awaited = append(t.awaited, m.over)
	case stopChild:
		s.stopChild(ctx, m.child)
	case over:
		if t := s.tasks[m.child]; t != nil {
			t.release()
		}
	case settled:
		s.settle(ctx, s.tasks[m.task])
	case again:
		if t := s.tasks[m.task]; t != nil && t.session == nil {
			s.look(ctx, m.task, true)
		}
	case finished:
		s.finish(ctx, m)
	case snapshotRequest:
		snap := Snapshot{Tasks: len(s.tasks), Running: len(s.queue.places), Queued: s.queue.length(), Settling: s.settling}
		for _, t := range s.tasks {
			if t.session != nil {
				snap.Live++
			}
			if t.lined {
				snap.Settling++
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
	wanted := t.session.HasLook()
	t.session, t.memo, t.complaints = nil, m.memo, m.complaints
	s.settle(ctx, t)
	if m.err != nil {
		s.troubled(t, m)
		return
	}
	t.release()
	t.stop = false
	switch {
	case wanted:
		t.trouble, t.retry = "", 0
		s.look(ctx, m.task, true)
	case t.memo == nil && len(t.complaints) == 0:
		delete(s.tasks, m.task)
	default:
		t.trouble, t.retry = "", 0
		s.keepDeadline(m.task, t)
	}
}

// troubled says once what ended a session, and tries again later: the session may
// be in the middle of a round, or have a deadline to keep.
func (s *Supervisor) troubled(t *task, m finished) {
	if text := m.err.Error(); text != t.trouble {
		t.trouble = text
		args := []any{"task", m.task, "err", m.err}
		if p := (*panicError)(nil); errors.As(m.err, &p) {
			args = append(args, "stack", string(p.stack))
		}
		s.cfg.Log.Error("session ended with an error and is tried again", args...)
	}
	t.retry = min(max(2*t.retry, firstRetry), lastRetry)
	time.AfterFunc(t.retry, func() { s.send(again{m.task}) })
}
