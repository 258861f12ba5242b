// Package session gives each task its life: from an input.txt through rounds and
// the waiting between them to the end, and back again when a late reply comes.
//
// A session is one goroutine (Session.Run) that owns everything about its task:
// the directory's control files, the journal, the output of the round. What
// happens reaches it as a message: "look at your directory", "here is your
// place", an event of the running round, the round's outcome, the clock. What
// follows from a happening is decided by Step, a pure table; what is known is
// what the journal's records add up to (state.apply), whether they were just
// written or read back after a crash.
//
// # The order of things
//
// A message is journalled before it is acted on, an answer before its calls run,
// the end of a round before its marker is written. A reader who sees a file can
// therefore rely on what it says, and a daemon that starts again finds in the
// journal whatever had been promised.
//
// # Waiting
//
// A waiting session holds a Memo and a goroutine, and neither conversation nor
// open file; a message makes it read its journal again. An ended one holds
// nothing: Run returns, and the caller keeps the Memo for the next look.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// Runner runs one round: requests to a model and the tool calls that answer it.
//
// Run blocks until the round is over and leaves nothing running. It reports
// through emit, from its own goroutine only, and returns promptly when ctx ends;
// the cause says what for (round.ErrStopped and its neighbours).
type Runner interface {
	Run(ctx context.Context, in round.Input, emit round.Emit) round.Outcome
}

// Config is what all sessions of a daemon share. It is not changed after the
// first session started.
type Config struct {
	Root *taskdir.Root
	// StateDir holds a directory with a journal for each task.
	StateDir string
	Runner   Runner
	// ReplyTimeout is how long a session waits for a reply.
	ReplyTimeout time.Duration
	// Ask asks for a place to run a round in; Session.Grant answers with the same
	// ticket. Leave takes the request back or gives the place back. Neither blocks
	// for long, both may be called from any session's goroutine.
	// Ask puts requests that are ahead before all others.
	Ask   func(task string, ticket uint64, ahead bool)
	Leave func(task string, ticket uint64)
	// Children is how sessions reach their subagents.
	Children Children
	// Settled, when set, is told once in each Session.Run that the first look is over.
	Settled func(task string)
	Log     *slog.Logger
}

const (
	// flushEvery bounds how often a growing output is written.
	flushEvery = 50 * time.Millisecond
	// statusEvery bounds how often status.json is written while a round runs.
	statusEvery = 200 * time.Millisecond
	// dropAfter is how long a taken file stays before it is deleted, for a writer
	// that still has it open.
	dropAfter = time.Second
	// minimumWait is what is left at least of a reply wait after a restart.
	minimumWait = 30 * time.Second
	// longWait is after how long a file that is never whole is complained about.
	longWait = 60 * time.Second
	// maxCrashes ends a round that crashed the daemon this often without progress.
	maxCrashes = 5
	// snapshotEvery is how much a journal grows between full records.
	snapshotEvery = 256 << 10
)

// Session is one task's life. Its exported methods other than Run never block
// and may be called from any goroutine.
type Session struct {
	cfg  *Config
	task string
	log  *slog.Logger

	looks  chan struct{}
	grants chan uint64
	stops  chan struct{}

	// The rest belongs to the goroutine of Run.

	phase State
	// memo is set while a session is known and st is not loaded.
	memo *Memo
	st   *state
	j    *journal.Journal
	// held are records that wait for the next commit.
	held []*record
	dir  *taskdir.Dir
	run  *running
	// ticket numbers the requests for a place; asked says that one is out or granted.
	ticket uint64
	asked  bool

	pending []*pending
	drops   []drop
	nextSeq uint64
	// seenInput is the input.txt that was found to be nothing new.
	seenInput fileMark
	// arrived is what the happening in progress brought.
	arrived arrival
	refused map[string]bool
	// started says that the first look of this process is behind us.
	started bool
	// statusDue is when status.json is to be written, lookDue when to look again.
	statusDue, lookDue time.Time
	timer              *time.Timer
}

// arrival is a message that was read whole.
type arrival struct {
	file string
	seq  uint64
	taskdir.Content
}

// drop is a taken file that has done its duty.
type drop struct {
	p    *taskdir.Pending
	fp   taskdir.Fingerprint
	file string
	at   time.Time
}

// New makes the session of a task. memo is what an earlier Session.Run of this
// process returned for it, nil at the daemon's start and for a new task.
func New(cfg *Config, task string, memo *Memo) *Session {
	s := &Session{
		cfg: cfg, task: task, memo: memo,
		log:    cfg.Log.With("task", task),
		looks:  make(chan struct{}, 1),
		grants: make(chan uint64, 1),
		stops:  make(chan struct{}, 1),
	}
	if memo != nil {
		s.phase, s.nextSeq, s.started = memo.Phase, memo.Seq+1, true
	}
	return s
}

// Look asks the session to look at its directory soon.
func (s *Session) Look() {
	select {
	case s.looks <- struct{}{}:
	default:
	}
}

// HasLook reports whether a look was asked for that Run has not taken up.
func (s *Session) HasLook() bool { return len(s.looks) > 0 }

// Stop stops a subagent for its parent, as a _stop does, and ends its session.
func (s *Session) Stop() {
	select {
	case s.stops <- struct{}{}:
	default:
	}
}

// Grant gives the place that was asked for with this ticket. One goroutine calls it.
func (s *Session) Grant(ticket uint64) {
	select {
	case <-s.grants:
	default:
	}
	s.grants <- ticket
}

// Run lives the session until there is nothing to wait for, or ctx ends. It
// returns what to remember for the next look; nil where the task has no session.
//
// When ctx ends a running round is cut short so that the next start resumes it.
// An error is a journal that cannot be read or a directory that cannot be used;
// it has been written to status.json as far as that was possible.
func (s *Session) Run(ctx context.Context) (*Memo, error) {
	defer s.release()
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	if err := s.recover(ctx); err != nil {
		return s.memo, err
	}
	if err := s.look(ctx); err != nil {
		return s.memo, err
	}
	if s.cfg.Settled != nil {
		s.cfg.Settled(s.task)
	}
	for !s.idle() {
		s.arm()
		var err error
		select {
		case <-ctx.Done():
			return s.memo, s.shutdown()
		case <-s.looks:
			err = s.look(ctx)
		case ticket := <-s.grants:
			switch {
			case !s.asked || ticket != s.ticket:
			case s.run != nil && s.run.regains != nil:
				s.regained()
			default:
				err = s.happen(ctx, PlaceGranted)
			}
		case <-s.stops:
			if s.st != nil && s.st.Parent != "" && s.st.Round == 0 {
				err = s.happen(ctx, StopArrived)
			}
		case r := <-s.spawnRequests():
			child, err := s.spawn(ctx, r)
			r.reply <- spawnReply{child, err}
		case e := <-s.spawnEnds():
			err = s.jobOver(e)
		case em := <-s.emissions():
			em.done <- s.emitted(ctx, em.event)
		case req := <-s.inboxRequests():
			notes, err := s.inbox(ctx)
			req <- inboxReply{notes, err}
		case out := <-s.outcomes():
			err = s.runnerReturned(ctx, out)
		case <-s.timer.C:
			err = s.tick(ctx, time.Now())
		}
		if err != nil {
			return s.memo, err
		}
	}
	return s.memo, nil
}

// idle reports whether nothing is left to wait for.
func (s *Session) idle() bool {
	return (s.phase == Idle || s.phase == Ended) && len(s.pending) == 0 && len(s.drops) == 0 && len(s.looks) == 0
}

// happen lets Step decide and does what it says.
func (s *Session) happen(ctx context.Context, h Happening) error {
	next, do, ok := Step(s.phase, h)
	if !ok {
		return fmt.Errorf("session is %s: %s cannot happen", s.phase, h)
	}
	if next != s.phase {
		s.log.Debug("session moves", "from", s.phase.String(), "to", next.String(), "because", h.String())
	}
	s.phase = next
	for _, a := range do {
		if err := s.do(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) do(ctx context.Context, a Action) error {
	switch a {
	case SetAside:
		return s.setAside(ctx)
	case OpenSession:
		return s.openSession(ctx)
	case OpenRound:
		return s.openRound(ctx)
	case Enqueue:
		s.ask(s.st != nil && s.st.Parent != "" && s.st.Round == 0)
		s.statusDue = time.Now().Add(flushEvery)
	case LeaveQueue, FreePlace:
		if s.asked {
			s.asked = false
			s.cfg.Leave(s.task, s.ticket)
		}
	case StartRunner:
		return s.startRound(ctx)
	case CancelStop:
		return s.cancelRun(ctx, round.ErrStopped)
	case CancelReplace:
		return s.cancelRun(ctx, round.ErrReplaced)
	case CancelRestart:
		return s.cancelRun(ctx, round.ErrRestart)
	case CancelLeave:
		return s.cancelRun(ctx, errLeaving)
	case CloseRound:
		return s.closeRound(ctx)
	case CloseUnrun:
		return s.closeUnrun(ctx)
	case AwaitReply:
		return s.awaitReply(ctx)
	case EndStopped:
		return s.endSession(ctx, round.Stopped)
	case EndTimeout:
		return s.endSession(ctx, round.ReplyTimeout)
	case EndGone:
		return s.endGone()
	}
	return nil
}

// arm sets the timer to the next thing that is due.
func (s *Session) arm() {
	next := time.Now().Add(24 * time.Hour)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, p := range s.pending {
		sooner(p.retryAt)
	}
	for _, d := range s.drops {
		sooner(d.at)
	}
	sooner(s.statusDue)
	sooner(s.lookDue)
	if s.run != nil {
		sooner(s.run.flushDue)
		sooner(s.run.filesDue)
	}
	if s.phase == Awaiting {
		sooner(s.deadline())
	}
	s.timer.Reset(time.Until(next))
}

// tick does what is due.
func (s *Session) tick(ctx context.Context, now time.Time) error {
	s.dropTaken(now)
	if err := s.retryPending(ctx, now); err != nil {
		return err
	}
	if due(s.lookDue, now) {
		s.lookDue = time.Time{}
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	if r := s.run; r != nil {
		if due(r.flushDue, now) {
			s.flush()
		}
		if due(r.filesDue, now) {
			r.filesDue = time.Time{}
			if err := s.startRound(ctx); err != nil {
				return err
			}
		}
	}
	if due(s.statusDue, now) {
		if len(s.held) > 0 && s.phase == Queued {
			if err := s.commit(ctx); err != nil {
				return err
			}
		}
		s.writeStatus(false)
	}
	if s.phase == Awaiting && due(s.deadline(), now) {
		return s.happen(ctx, DeadlinePassed)
	}
	return nil
}

func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

func (s *Session) deadline() time.Time {
	if s.st != nil {
		return s.st.Deadline
	}
	if s.memo != nil {
		return s.memo.Deadline
	}
	return time.Time{}
}

// hold applies a record now and leaves it to the next commit to make it durable:
// for what nothing acts upon before that.
func (s *Session) hold(r *record) error {
	r.At = fileTime()
	if err := s.st.apply(r, s.journalSize()); err != nil {
		return err
	}
	s.held = append(s.held, r)
	return nil
}

// commit makes what was held and these records durable, in one write and one
// sync, and applies them. While the disk does not take them it tries again,
// with growing pauses; the only error is the end of ctx, and a defect.
func (s *Session) commit(ctx context.Context, records ...*record) error {
	now := fileTime()
	size := s.journalSize()
	for _, r := range records {
		r.At = now
		if err := s.st.apply(r, size); err != nil {
			return err
		}
		if r.Memo != nil {
			*r.Memo = *s.st.memo()
		}
	}
	lines := make([]json.RawMessage, 0, len(s.held)+len(records))
	for _, r := range slices.Concat(s.held, records) {
		line, err := encode(r)
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := s.store(lines)
		if err == nil {
			s.held = nil
			return nil
		}
		s.log.Error("journal cannot be written, trying again; nothing is acknowledged meanwhile", "err", err, "again_in", pause)
		select {
		case <-ctx.Done():
			return fmt.Errorf("write journal of task %q: %w", s.task, err)
		case <-time.After(pause):
		}
	}
}

// store appends to the journal, which it creates where the session is new.
func (s *Session) store(lines []json.RawMessage) error {
	if s.j == nil {
		j, err := s.openJournal()
		if err != nil {
			return err
		}
		s.j = j
	}
	_, err := s.j.Commit(lines...)
	return err
}

func (s *Session) openJournal() (*journal.Journal, error) {
	path := s.journalPath()
	j, report, err := journal.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return journal.Create(path)
	}
	if err == nil && report.Torn > 0 {
		s.log.Warn("journal ended in an unfinished record, which was set aside", "path", path, "bytes", report.Torn)
	}
	return j, err
}

func (s *Session) journalSize() int64 {
	if s.j == nil {
		return 0
	}
	return s.j.Size()
}

func (s *Session) journalPath() string {
	return filepath.Join(s.cfg.StateDir, journal.Place(s.task), journalName)
}

const journalName = "session.jsonl"

// unload forgets what waiting does not need.
func (s *Session) unload() {
	if s.st != nil {
		s.memo = s.st.memo()
		s.memo.Phase = s.phase
		s.st = nil
	}
	s.closeFiles()
}

func (s *Session) closeFiles() {
	if s.j != nil {
		if err := s.j.Close(); err != nil {
			s.log.Warn("journal did not close cleanly", "err", err)
		}
		s.j = nil
	}
	if s.dir != nil {
		s.dir.Close()
		s.dir = nil
	}
}

// release lets go of everything when Run returns.
func (s *Session) release() {
	if r := s.run; r != nil && r.cancel != nil {
		r.cancel(round.ErrShutdown)
		s.drain(r)
	}
	if s.asked {
		s.asked = false
		s.cfg.Leave(s.task, s.ticket)
	}
	s.closeFiles()
	s.st, s.run, s.pending, s.drops = nil, nil, nil, nil
}
