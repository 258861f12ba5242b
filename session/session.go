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
// Not everything is worth a sync of its own. What nothing rests on yet is applied
// and held (Session.hold) until the next commit, or until a status is written
// that shows it. A crash in between finds the file that it came from where it
// was: input.txt in its place, a message under the name that it was taken to.
//
// # Waiting
//
// A waiting session holds a Memo, and neither conversation nor open file; a
// message makes it read its journal again. So does one that has waited for its
// place for a moment. It does not even hold a goroutine, whose stack would be most
// of what it costs: Run returns, and the caller keeps the Memo for the next look
// and the deadline (Config.Park). An ended one is kept in the same way.
//
// # Trouble
//
// A journal that cannot be written holds its session up, and nobody else: it is
// tried again until it can, and nothing is acknowledged meanwhile. One that cannot
// be read ends its session, which says so in status.json; it stays as it is, and a
// later input.txt begins a new session beside it. What is only made from the
// journal (status, history, marker) is written as soon as the disk takes it.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/fault"
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
	// RunnerGrace is how long a runner that was told to end is waited for when the
	// session has to go; 0 for as long as it takes.
	RunnerGrace time.Duration
	// Ask asks for a place to run a round in; Session.Grant answers with the same
	// ticket. Leave takes the request back or gives the place back. Neither blocks
	// for long, both may be called from any session's goroutine. Ask puts requests
	// that are ahead before all others.
	Ask   func(task string, ticket uint64, ahead bool)
	Leave func(task string, ticket uint64)
	// Admit, when set, is asked before the first round of a session that was opened at
	// that time lines up, but not for subagents; after a restart it may be asked anew.
	// It returns 0, or after what time to ask again.
	Admit func(task string, opened time.Time) (wait time.Duration)
	// Children is how sessions reach their subagents.
	Children Children
	// Alone keeps a context.json from naming another task's conversation to start from:
	// an agent can write its own.
	Alone bool
	// Park makes Run return while there is nothing but a reply to wait for: its caller
	// keeps the Memo, and starts the session again for a look or when Memo.Due comes.
	// Thousands that wait then need neither a goroutine nor its stack.
	Park bool
	// Settled, when set, is told once in each Session.Run that the first look is over.
	Settled func(task string)
	// Disk bounds how many sessions write to their journals at the same time, and
	// Ending how many end for want of a reply: a goroutine that waits for the disk
	// costs a thread. The capacity is the bound; nil for none.
	Disk, Ending chan struct{}
	Log          *slog.Logger
	// Journal are options for all journals, with which tests let disks fail.
	Journal []journal.Option

	// at is called between the steps of what must survive a crash; tests end the
	// session there.
	at func(point string)
	// keep overrides dropAfter, and flush flushEvery, where they are not 0.
	keep, flush time.Duration
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
	// rightsWait is how long a file may be another user's before it is refused.
	rightsWait = 5 * time.Second
	// lateAfter is how long a context.json lies there before a session at rest says that
	// it came too late.
	lateAfter = time.Second
	// longWait is after how long a file that is never whole is complained about.
	longWait = 60 * time.Second
	// maxCrashes ends a round that crashed the daemon this often without progress.
	maxCrashes = 5
	// snapshotEvery is how much a journal grows at least between full records.
	snapshotEvery = 256 << 10
)

// Session is one task's life. Its exported methods other than Run and Abort never
// block and may be called from any goroutine.
type Session struct {
	cfg  *Config
	task string

	looks  chan struct{}
	grants chan uint64
	stops  chan struct{}

	// The rest belongs to the goroutine of Run.

	phase State
	// memo or st is what is known of the session, neither where there is none: st
	// while something happens, memo while it waits.
	memo *Memo
	st   *state
	j    *journal.Journal
	// fresh says that the session has no journal yet; switching that its journal is
	// begun beside that of the session before.
	fresh, switching bool
	// leftover says that there is a journal without a single record.
	leftover bool
	// held are records that wait for the next commit.
	held []*record
	dir  *taskdir.Dir
	run  *running
	// early holds the inodes of the messages that were there at the first look.
	early map[uint64]bool
	// unsaid is what readers could not be told yet.
	unsaid []*unsaid
	// ticket numbers the requests for a place; asked says that one is out or granted.
	ticket uint64
	asked  bool

	pending []*pending
	drops   []drop
	nextSeq uint64
	// seenInput is the input.txt that was found to be nothing new.
	seenInput fileMark
	// lateSeen are files that may be too late for a session at rest, which says so at
	// lateDue.
	lateSeen lateMarks
	lateDue  time.Time
	// arrived is what the happening in progress brought.
	arrived *arrival
	// said holds troubles that are not to be repeated, and complaints what was said of
	// things in place of protocol files.
	said       map[string]bool
	complaints []string
	// reopened says that the open round was found in the journal: another process may
	// have run it.
	reopened bool
	// aside is the n of old/<n>/ where the session before has its files.
	aside int
	// floor is until when a reply is waited for at least.
	floor time.Time
	// lastOutput is when the newest output was written to, as the last look saw it.
	lastOutput time.Time
	// looked says that the first look of this process is behind us, settled that it
	// does not count as one in progress any more.
	looked, settled bool
	// statusDue is when status.json is to be written, lookDue when to look again,
	// admitDue when to ask again whether the session may start.
	statusDue, lookDue, admitDue time.Time
	lookPause                    time.Duration
	// timer fires at armed.
	timer *time.Timer
	armed time.Time
}

// arrival is what opens a session or a round: an input that was read whole, or the
// number of a message that the journal knows.
type arrival struct {
	file    string
	seq     uint64
	content taskdir.Content
	// refused is why an input cannot be worked on; "" where it can.
	refused string
}

// New makes the session of a task. memo is what an earlier Session.Run of this
// process returned for it, nil at the daemon's start and for a new task.
func New(cfg *Config, task string, memo *Memo) *Session {
	s := &Session{
		cfg: cfg, task: task, memo: memo,
		looks:  make(chan struct{}, 1),
		grants: make(chan uint64, 1),
		stops:  make(chan struct{}, 1),
	}
	if memo != nil {
		s.phase, s.nextSeq, s.looked, s.floor = memo.Phase, memo.Seq+1, true, memo.floor
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

// Run lives the session until there is nothing to wait for, or nothing but a reply
// (see Config.Park), or ctx ends. It returns what to remember for the next look; nil
// where the task has no session, or where it has to be read from the journal again.
//
// When ctx ends a running round is cut short so that the next start resumes it.
// Any other error is of a kind that a later Run may not meet again. A journal that
// cannot be read is none: the Memo says so, and so does status.json.
func (s *Session) Run(ctx context.Context) (*Memo, error) {
	defer s.release()
	err := s.begin(ctx)
	s.rest()
	s.settle()
	if err == nil && !s.idle() {
		s.timer, s.armed = time.NewTimer(time.Hour), time.Now().Add(time.Hour)
		defer s.timer.Stop()
	}
	for err == nil && !s.idle() && ctx.Err() == nil {
		err = s.next(ctx)
		s.rest()
	}
	switch {
	case ctx.Err() != nil:
		return s.memo, errors.Join(err, s.shutdown())
	case err != nil:
		// What is in memory may be ahead of the journal.
		return nil, err
	}
	if s.memo != nil {
		s.memo.floor = s.floor
	}
	return s.memo, nil
}

// begin finds out where the task stands, and looks at it.
func (s *Session) begin(ctx context.Context) error {
	if err := s.recover(); err != nil {
		return s.heed(err)
	}
	return s.heed(s.look(ctx))
}

// next waits for something to happen and handles it.
func (s *Session) next(ctx context.Context) error {
	s.arm()
	var err error
	select {
	case <-ctx.Done():
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
		err = s.stopChild(ctx)
	case req := <-s.spawnRequests():
		s.serveSpawn(ctx, req)
	case end := <-s.spawnEnds():
		err = s.jobOver(end)
	case em := <-s.emissions():
		s.serve(ctx, em)
	case req := <-s.inboxRequests():
		s.serveInbox(ctx, req)
	case out := <-s.outcomes():
		err = s.runnerReturned(ctx, out)
	case <-s.timer.C:
		s.armed = time.Time{}
		err = s.tick(ctx, time.Now())
	}
	return s.heed(err)
}

// heed takes errors that the session has dealt with already.
func (s *Session) heed(err error) error {
	if errors.Is(err, errDamaged) {
		return nil
	}
	return err
}

// rest lets go of the directory while no round is at work there.
func (s *Session) rest() {
	if s.dir != nil && s.run == nil {
		s.dir.Close()
		s.dir = nil
	}
}

// settle tells, once, that the first look is over or will take its time.
func (s *Session) settle() {
	if !s.settled && s.cfg.Settled != nil {
		s.cfg.Settled(s.task)
	}
	s.settled = true
}

// idle reports whether nothing is left that needs a goroutine to wait for it.
func (s *Session) idle() bool {
	if len(s.pending) > 0 || len(s.drops) > 0 || len(s.unsaid) > 0 || len(s.looks) > 0 || !s.lookDue.IsZero() {
		return false
	}
	switch s.phase {
	case Idle, Ended:
		return true
	case Awaiting:
		// What is known beyond the Memo would have to be found out again at every look.
		return s.cfg.Park && s.st == nil && s.memo != nil && s.statusDue.IsZero() &&
			s.seenInput == (fileMark{}) && len(s.said) == 0 && !due(s.deadline(), time.Now())
	}
	return false
}

// log is made when there is something to say: thousands of sessions wait in silence.
func (s *Session) log() *slog.Logger { return s.cfg.Log.With("task", s.task) }

// at marks a point between two steps at which a crash must do no harm.
func (s *Session) at(point string) {
	if fault.Enabled {
		fault.Point("session." + point)
	}
	if s.cfg.at != nil {
		s.cfg.at(point)
	}
}

// happen lets Step decide and does what it says.
func (s *Session) happen(ctx context.Context, h Happening) error {
	next, do, ok := Step(s.phase, h)
	if !ok {
		return fmt.Errorf("session is %s: %s cannot happen", s.phase, h)
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
		s.enqueue(time.Now())
	case LeaveQueue, FreePlace:
		s.admitDue = time.Time{}
		s.leave()
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

func (s *Session) leave() {
	if s.asked {
		s.asked = false
		s.cfg.Leave(s.task, s.ticket)
	}
}

// known is what is known of the session, whether it is loaded or not.
func (s *Session) known() Memo {
	switch {
	case s.st != nil:
		return s.st.memo()
	case s.memo != nil:
		return *s.memo
	}
	return Memo{}
}

// damagedBy returns why the journal cannot be read, "" where it can.
func (s *Session) damagedBy() string {
	if s.memo != nil {
		return s.memo.Damaged
	}
	return ""
}

func (s *Session) deadline() time.Time {
	var t time.Time
	switch {
	case s.st != nil:
		t = s.st.Deadline
	case s.memo != nil:
		t = s.memo.Deadline
	}
	return laterOf(t, s.floor)
}

func laterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (s *Session) place() place { return placeOf(s.cfg.StateDir, s.task) }

// unload forgets what waiting does not need.
func (s *Session) unload() {
	if len(s.unsaid) > 0 || len(s.held) > 0 {
		return // There is something to be told from it yet.
	}
	if s.st != nil {
		m := s.st.memo()
		m.Phase = s.phase
		s.memo, s.st = &m, nil
	}
	s.closeJournal()
}

func (s *Session) closeJournal() {
	if s.j == nil {
		return
	}
	if err := s.j.Close(); err != nil {
		s.log().Warn("journal did not close cleanly", "err", err)
	}
	s.j = nil
}

func (s *Session) closeFiles() {
	s.closeJournal()
	for _, u := range s.unsaid {
		u.close()
	}
	s.unsaid = nil
	s.run.close()
	s.run = nil
	s.rest()
}

// release lets go of everything when Run returns.
func (s *Session) release() {
	s.endRunner()
	s.leave()
	s.closeFiles()
	s.st, s.pending, s.drops, s.held = nil, nil, nil, nil
}
