package session

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// running is a round in its place: its output, and the runner once it is at work.
type running struct {
	// resumed says that the round had begun before this process, or this place.
	resumed bool
	output  *taskdir.Output
	events  *taskdir.Events
	// flushDue is when buffered output has to be written; filesDue when what stood
	// against starting the runner is tried again.
	flushDue, filesDue time.Time
	contextFile        *taskdir.Pending
	historyFile        *taskdir.Pending

	// The channels below exist while the runner is at work.
	cancel   context.CancelCauseFunc
	emitted  chan emission
	inboxes  chan chan<- inboxReply
	returned chan round.Outcome
	spawns   chan spawnRequest
	ended    chan spawnEnd
	// gone is closed when nobody serves the runner, or what it left behind, any more.
	gone chan struct{}

	// jobs counts subagents that are waited for; regains are those done with that
	// wait for the round to have its place back.
	jobs    int
	regains []chan<- struct{}

	// failed is why the session ends the round, where it does.
	failed  *round.Failure
	outcome round.Outcome
	turn    int
	// openCall is the tool call whose line in the output is unfinished; begun are those
	// that have begun and have no line yet.
	openCall   string
	begun      []round.ToolBegun
	latestTool string
	// waits is what the request under way waits for; its Why is empty without one.
	waits round.Waits
	// waitShown is until when the output says that it waits.
	waitShown time.Time
	heading   bool
	// unwritten says that output could not be written, and that the log knows.
	unwritten bool
}

// over forgets the runner.
func (r *running) over() {
	r.cancel, r.emitted, r.inboxes, r.returned, r.spawns, r.ended, r.jobs = nil, nil, nil, nil, nil, nil, 0
}

// live reports whether a runner is at work.
func (r *running) live() bool { return r != nil && r.cancel != nil }

func (r *running) close() {
	if r == nil {
		return
	}
	if r.output != nil {
		r.output.Close()
		r.output = nil
	}
	if r.events != nil {
		r.events.Close()
		r.events = nil
	}
}

func (s *Session) emissions() <-chan emission {
	if s.run == nil {
		return nil
	}
	return s.run.emitted
}

func (s *Session) inboxRequests() <-chan chan<- inboxReply {
	if s.run == nil {
		return nil
	}
	return s.run.inboxes
}

func (s *Session) spawnRequests() <-chan spawnRequest {
	if s.run == nil {
		return nil
	}
	return s.run.spawns
}

func (s *Session) spawnEnds() <-chan spawnEnd {
	if s.run == nil {
		return nil
	}
	return s.run.ended
}

func (s *Session) outcomes() <-chan round.Outcome {
	if s.run == nil {
		return nil
	}
	return s.run.returned
}

// openSession begins a session with the input that arrived, in a journal of its own.
func (s *Session) openSession(ctx context.Context) error {
	dir, err := s.openDir()
	if err != nil {
		return err
	}
	before := s.known()
	switching := s.st != nil || s.memo != nil && !s.memo.Adopted
	var past []pastMessage
	if s.st != nil {
		past = s.st.past()
	}
	if s.leftover {
		// It holds no record, not even that of a session.
		if err := os.Remove(s.place().current()); err != nil {
			return fmt.Errorf("remove empty journal: %w", err)
		}
		s.leftover = false
	}
	s.closeJournal()
	c, refused := s.arrived.content, s.arrived.refused
	s.arrived, s.seenInput, s.held = nil, fileMark{}, nil
	s.st, s.memo, s.fresh = &state{}, nil, true
	s.floor = time.Time{}
	s.nextSeq = max(s.nextSeq, 1)
	opened := &record{Opened: &openedRecord{
		Version: formatVersion, Task: s.task, Session: before.Session + 1, Dir: dir.ID(),
		Input: takenNow(c),
		Text:  c.Text, Encoding: c.Encoding, Bytes: c.Bytes, Refused: refused,
		Seq: s.nextSeq - 1, Past: past,
	}}
	if !switching {
		// A task's first session is held until the round's first commit: up to then
		// input.txt itself says what there is to do, and a sync is saved on the way to
		// the model.
		return s.hold(opened)
	}
	return s.switchJournal(ctx, opened)
}

// switchJournal begins the journal of a new session beside that of the one before,
// and puts it in place once it is durable.
func (s *Session) switchJournal(ctx context.Context, opened *record) error {
	p := s.place()
	if err := p.discardNext(); err != nil {
		return err
	}
	s.switching = true
	if err := s.commit(ctx, opened); err != nil {
		return err
	}
	s.closeJournal()
	if err := p.switchTo(s.aside, s.at); err != nil {
		return fmt.Errorf("open session of task %q: %w", s.task, err)
	}
	s.switching = false
	s.at("session_opened")
	// What came while the earlier round was on its way out is still to be looked at.
	s.Look()
	return nil
}

// openRound begins a round with the message that arrived.
func (s *Session) openRound(_ context.Context) error {
	a := s.arrived
	s.arrived = nil
	if err := s.load(); err != nil {
		return err
	}
	// Held until the round's first commit, or until it has waited for its place for
	// a moment: up to then the taken file itself is what a restart finds.
	return s.hold(&record{Round: &roundRecord{Round: s.st.Round + 1, From: a.file, Seq: a.seq}})
}

// enqueue asks for a place, once the session may start at all.
func (s *Session) enqueue(now time.Time) {
	s.admitDue = time.Time{}
	s.statusDue = now.Add(flushEvery)
	if s.cfg.Admit != nil && s.st.Parent == "" && s.st.Round == 0 && !s.st.Began && s.st.Refused == "" {
		if wait := s.cfg.Admit(s.task, s.st.StartedAt); wait > 0 {
			s.admitDue = now.Add(wait)
			s.st.warn("waits: [limits] tasks_per_hour is reached; it is asked again at " + s.admitDue.Format(time.TimeOnly))
			return
		}
	}
	s.ask(s.st.inFirstRound())
}

// startRound prepares the round and starts the runner. While context.json or
// _history.json are being written it returns, to be called again.
func (s *Session) startRound(ctx context.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	dir, err := s.openDir()
	if err != nil {
		if s.run == nil {
			s.run = &running{resumed: s.st.Began}
		}
		s.run.filesDue = time.Now().Add(time.Second)
		return s.noDir(ctx, err)
	}
	if s.run == nil {
		s.run = &running{resumed: s.st.Began || s.reopened}
		if s.run.resumed {
			s.reopened = false
			if err := s.commit(ctx, &record{Resumed: &struct{}{}}); err != nil {
				return err
			}
		}
		if s.st.Crashes >= maxCrashes {
			return s.runnerReturned(ctx, round.Outcome{Reason: round.Interrupted, Error: &round.Failure{
				Kind: "crash", Message: fmt.Sprintf("this round ended the daemon %d times in a row without getting further; a reply tries once more", s.st.Crashes)}})
		}
	}
	if s.st.Refused != "" {
		return s.noRunner(ctx, &round.Failure{Kind: "input", Message: s.st.Refused})
	}
	if !s.run.resumed {
		if err := s.settleChildren(); err != nil {
			return err
		}
	}
	began, failure, wait, err := s.readFiles(ctx, dir)
	if err != nil {
		return err
	}
	if wait > 0 {
		s.run.filesDue = time.Now().Add(wait)
		return nil
	}
	if began != nil {
		if err := s.hold(&record{Began: began}); err != nil {
			return err
		}
	}
	if failure != nil {
		return s.noRunner(ctx, failure)
	}
	s.at("prepared")
	s.startRunner(dir)
	// The runner works on its request while the files for those who watch are made.
	if err := s.openOutput(dir); err != nil {
		s.log().Error("round cannot be shown and is ended", "err", err)
		s.run.failed = &round.Failure{Kind: "output", Message: err.Error()}
		s.run.cancel(round.ErrStopped)
		return nil
	}
	s.event("state", map[string]any{
		"state": "running", "session": s.st.Session, "round": s.st.Round, "from": s.st.RoundFrom, "resumed": s.run.resumed,
	})
	s.statusDue = time.Now().Add(flushEvery)
	return nil
}

// noRunner ends a round before it costs anything.
func (s *Session) noRunner(ctx context.Context, f *round.Failure) error {
	return s.runnerReturned(ctx, round.Outcome{Reason: round.Failed, Error: f})
}

// startRunner starts the goroutine that runs the round; endRunner and
// runnerReturned wait for it.
func (s *Session) startRunner(dir *taskdir.Dir) {
	st, r := s.st, s.run
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	r.emitted = make(chan emission)
	r.inboxes = make(chan chan<- inboxReply)
	r.returned = make(chan round.Outcome, 1)
	r.gone = make(chan struct{})
	in := round.Input{
		Task: s.task, Dir: dir.Path(), Session: st.Session, Round: st.Round,
		Message: st.RoundText, Settings: st.Settings, KeyInfo: st.KeyInfo,
		Prepared: st.Prepared, Conversation: slices.Clip(st.Conversation),
		Spent: st.Spent, Estimated: st.Estimated, StartedAt: st.RoundStarted,
		Context: st.Context, LastLLM: st.LLM, Depth: st.Depth,
		Inbox: r.inbox(), ReadPlan: dir.ReadPlan, WritePlan: dir.WritePlan,
	}
	if st.Joined {
		in.Resumed = &round.Resumed{Turn: st.Turn, Begun: st.Begun, Cut: st.Cut}
	}
	if st.Depth < s.cfg.Children.MaxDepth {
		r.spawns, r.ended = make(chan spawnRequest), make(chan spawnEnd)
		in.Spawn = s.spawner(ctx, r)
	}
	if st.inFirstRound() {
		in.Reserve = s.parentsBudget()
	}
	emit, returned, log := r.emit(), r.returned, s.log()
	go func() {
		defer func() {
			if p := recover(); p != nil {
				log.Error("round panicked", "panic", p, "stack", string(debug.Stack()))
				returned <- round.Outcome{Reason: round.Failed, Error: &round.Failure{
					Kind: "panic", Message: fmt.Sprintf("defect in gasupervisor: %v (the log has the stack)", p)}}
			}
		}()
		returned <- s.cfg.Runner.Run(ctx, in, emit)
	}()
}

// cancelRun cancels the runner, or ends a round whose runner has not started.
func (s *Session) cancelRun(ctx context.Context, cause error) error {
	if !s.run.live() {
		return s.runnerReturned(ctx, round.Outcome{Reason: round.Stopped})
	}
	s.run.cancel(cause)
	return nil
}

// runnerReturned takes the outcome; what the session wanted of the runner
// overrules what the runner says.
func (s *Session) runnerReturned(ctx context.Context, out round.Outcome) error {
	r := s.run
	if r.live() {
		r.cancel(nil)
		close(r.gone)
		s.regained()
		r.over()
	}
	s.stopChildren()
	if ctx.Err() != nil && out.Reason == round.Interrupted {
		return nil // by the daemon's stop, and it goes on after that
	}
	if r != nil {
		switch {
		case s.phase == Replacing:
			out = round.Outcome{Reason: round.Replaced}
		case r.failed != nil:
			out = round.Outcome{Reason: round.Failed, Error: r.failed}
		case s.phase == Stopping && out.Reason != round.Completed:
			out = round.Outcome{Reason: round.Stopped}
		}
		r.outcome = out
	}
	return s.happen(ctx, RoundOver)
}

// endRunner tells a live runner to end, takes nothing more from it, and waits for
// it as long as is allowed.
func (s *Session) endRunner() error {
	r := s.run
	if !r.live() {
		return nil
	}
	r.cancel(round.ErrShutdown)
	close(r.gone)
	returned := r.returned
	s.regained()
	r.over()
	var grace <-chan time.Time
	if s.cfg.RunnerGrace > 0 {
		t := time.NewTimer(s.cfg.RunnerGrace)
		defer t.Stop()
		grace = t.C
	}
	select {
	case <-returned:
		return nil
	case <-grace:
		return fmt.Errorf("round of task %q did not end within %s after it was told to", s.task, s.cfg.RunnerGrace)
	}
}
