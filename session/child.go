package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// Subagents. A child is a task like any other: a directory beside its parent's, a
// journal, a session. What is different is its beginning and its end. Its parent's
// session makes the journal, with prompt and settings, before the directory can be
// seen, and records the child's name before that, so that a job that is asked for
// again after a restart finds the child that it had. And when the child's first
// round is over so is its session; a later reply revives it like any other.

// Children is how sessions reach each other, through whoever keeps them all.
type Children struct {
	// Await blocks until the first round of a child is over, or its session has
	// ended without one. When ctx ends it has the child stopped, unless the daemon
	// is stopping, and waits for that.
	Await func(ctx context.Context, child string)
	// Stop has a child stopped and does not wait.
	Stop func(child string)
	// Over tells that the first round of this child is over.
	Over func(child string)
	// Lend lets the first round of a child draw on its parent's budget until it is
	// called again with nil. Draw is what a child was lent; nil: nothing. They may be
	// nil themselves.
	Lend func(child string, reserve Reserve)
	Draw func(child string) Reserve
	// MaxDepth is how deep subagents may be nested; 0 is not at all.
	MaxDepth int
}

// Reserve is round.Job.Reserve.
type Reserve = func(ctx context.Context, want llm.Amount) (settle func(actual llm.Amount), err error)

// lend lets a child draw on this round's budget, where it has one.
func (s *Session) lend(child string, reserve Reserve) {
	if s.cfg.Children.Lend != nil {
		s.cfg.Children.Lend(child, reserve)
	}
}

// parentsBudget is round.Input.Reserve of a subagent's first round. After a restart
// there may be nothing to draw on before its parent has come as far as to ask for it.
func (s *Session) parentsBudget() Reserve {
	draw := s.cfg.Children.Draw
	if draw == nil {
		return nil
	}
	child := s.task
	return func(ctx context.Context, want llm.Amount) (func(llm.Amount), error) {
		if reserve := draw(child); reserve != nil {
			return reserve(ctx, want)
		}
		return func(llm.Amount) {}, nil
	}
}

// errLeaving is the cause with which a round is cancelled whose directory is gone:
// nothing is recorded, and its children are stopped.
var errLeaving = errors.New("the task directory is gone")

type (
	// spawnRequest asks a session for the child that does a job.
	spawnRequest struct {
		call  string
		n     int
		job   round.Job
		reply chan<- spawnReply
	}
	spawnReply struct {
		child string
		err   error
	}
	// spawnEnd says that a job is done with; the reply comes when the round has its
	// place back.
	spawnEnd struct {
		call    string
		n       int
		child   string
		result  *round.JobResult
		regains chan<- struct{}
	}
)

// spawner makes the Spawn of a round that ends with whole. Its calls run in the
// runner's goroutines.
func (s *Session) spawner(whole context.Context, r *running) round.Spawn {
	begins, ends, gone := r.spawns, r.ended, r.gone
	return func(ctx context.Context, call string, n int, job round.Job) (func() (round.JobResult, error), error) {
		reply := make(chan spawnReply, 1)
		select {
		case begins <- spawnRequest{call, n, job, reply}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-gone:
			return nil, round.ErrShutdown
		}
		select {
		case begun := <-reply:
			if begun.err != nil {
				return nil, begun.err
			}
			return func() (round.JobResult, error) { return s.await(whole, ctx, ends, gone, call, n, begun.child) }, nil
		case <-gone:
			return nil, round.ErrShutdown
		}
	}
}

// await waits for a child's result and for the round's place. It runs in the
// runner's goroutines. The job is counted off also where ctx has ended, since the
// round may go on: with the first result, when that was all that it wanted.
func (s *Session) await(whole, ctx context.Context, ends chan<- spawnEnd, gone <-chan struct{}, call string, n int, child string) (round.JobResult, error) {
	s.cfg.Children.Await(ctx, child)
	s.lend(child, nil)
	result, err := FirstResult(s.cfg.StateDir, child)
	regained := make(chan struct{})
	end := spawnEnd{call: call, n: n, child: child, regains: regained}
	if err == nil {
		end.result = &result
	}
	select {
	case ends <- end:
	case <-gone:
		return round.JobResult{}, round.ErrShutdown
	}
	waits := ctx
	if errors.Is(context.Cause(ctx), context.Canceled) {
		waits = whole // The call has no use for this job any more; the round needs its place.
	}
	select {
	case <-regained:
	case <-waits.Done():
	case <-gone:
	}
	if cause := context.Cause(ctx); cause != nil && (err != nil || silent(cause)) {
		return result, cause
	}
	return result, err
}

// serveSpawn answers a runner that asks for a child, come what may.
func (s *Session) serveSpawn(ctx context.Context, r spawnRequest) {
	reply := spawnReply{err: errPanicked}
	defer func() { r.reply <- reply }()
	reply.child, reply.err = s.spawn(ctx, r)
}

// stopChild stops a subagent's first round for its parent.
func (s *Session) stopChild(ctx context.Context) error {
	if s.phase != Queued && s.phase != Running && s.phase != Restarting {
		return nil
	}
	if err := s.load(); err != nil || !s.st.inFirstRound() {
		return err
	}
	return s.happen(ctx, StopArrived)
}

// silent reports whether a runner records nothing more after this cause.
func silent(cause error) bool {
	return errors.Is(cause, round.ErrShutdown) || errors.Is(cause, round.ErrRestart) || errors.Is(cause, errLeaving)
}

// spawn finds or makes the child that does a job.
func (s *Session) spawn(ctx context.Context, r spawnRequest) (string, error) {
	if !s.phase.hasRunner() || s.phase == Leaving {
		return "", errLeaving
	}
	i := slices.IndexFunc(s.st.Children, func(c childRecord) bool { return c.Call == r.call && c.N == r.n })
	if i >= 0 {
		// One that was removed meanwhile is not made again: who waits for it hears so.
		child := s.st.Children[i].Task
		if s.st.Children[i].Done || s.st.Children[i].Made || s.childExists(child) {
			s.lend(child, r.job.Reserve)
			return child, s.waits()
		}
	}
	for try := 0; ; try++ {
		child, err := s.makeChild(ctx, r)
		if err == nil {
			return child, s.waits()
		}
		if !errors.Is(err, fs.ErrExist) || try == 100 {
			return "", fmt.Errorf("start a subagent of task %q: %w", s.task, err)
		}
	}
}

// childExists reports whether a child that was recorded came to be: its directory
// is the last thing that is made.
func (s *Session) childExists(child string) bool {
	dir, err := s.cfg.Root.Open(child)
	if err == nil {
		dir.Close()
	}
	return err == nil && exists(placeOf(s.cfg.StateDir, child).current())
}

// childName is the lowest <parent>.<n> that is neither directory nor journal, nor was
// that of a child which has been removed: its job would be taken for the new one's. A
// parent whose name leaves no room for the number has no children.
func (s *Session) childName() (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.%d", s.task, n)
		if err := taskdir.CheckName(name); err != nil {
			return "", err
		}
		removed := slices.ContainsFunc(s.st.Children, func(c childRecord) bool { return c.Task == name && c.used() })
		if !removed && !exists(taskdir.TaskPath(s.cfg.Root.Path(), name)) && !exists(string(placeOf(s.cfg.StateDir, name))) {
			return name, nil
		}
	}
}

// makeChild records the child, writes its journal and publishes its directory.
func (s *Session) makeChild(ctx context.Context, r spawnRequest) (string, error) {
	name, err := s.childName()
	if err != nil {
		return "", err
	}
	unborn, err := s.cfg.Root.Unborn(r.job.Prompt)
	if err != nil {
		return "", err
	}
	defer unborn.Discard()
	if err := s.commit(ctx, &record{Child: &childRecord{Call: r.call, N: r.n, Task: name}}); err != nil {
		return "", err
	}
	home := placeOf(s.cfg.StateDir, name)
	j, err := journal.Create(home.current(), s.cfg.Journal...)
	if err != nil {
		return "", err
	}
	defer j.Close()
	now := fileTime()
	sum := sha256.Sum256([]byte(r.job.Prompt))
	line, err := encode(&record{At: now, Opened: &openedRecord{
		Version: formatVersion, Task: name, Session: 1, Dir: unborn.ID(),
		Input: inputMark{markOf(unborn.Input, hex.EncodeToString(sum[:])), now},
		Text:  r.job.Prompt, Bytes: int64(len(r.job.Prompt)),
		Parent: s.task, Depth: s.st.Depth + 1, Settings: &r.job.Settings, Prepared: r.job.Prepared, History: r.job.Conversation,
	}})
	if err != nil {
		return "", err
	}
	if _, err := j.Commit(line); err != nil {
		return "", errors.Join(err, os.RemoveAll(string(home)))
	}
	s.lend(name, r.job.Reserve) // before anybody can run it
	if err := unborn.Publish(name); err != nil {
		s.lend(name, nil)
		return "", errors.Join(err, home.archive(time.Now()))
	}
	if err := s.made(r, name); err != nil {
		return "", err
	}
	s.event("child", map[string]any{"task": name, "call": r.call, "n": r.n})
	s.statusSoon()
	return name, nil
}

// made notes that a child's directory came to be, once no power failure takes it
// back: it is not made again then, should it be gone after a restart.
func (s *Session) made(r spawnRequest, child string) error {
	if err := s.cfg.Root.Sync(); err != nil {
		s.log().Warn("subagent's directory cannot be made durable", "subagent", child, "err", err)
		return nil
	}
	return s.hold(&record{Child: &childRecord{Call: r.call, N: r.n, Task: child, Made: true}})
}

// waits counts a job that is waited for: with the first the round gives its place
// to others.
func (s *Session) waits() error {
	if s.run.jobs++; s.run.jobs == 1 {
		s.leave()
	}
	return nil
}

// jobOver counts a job off: with the last the round asks for its place back.
func (s *Session) jobOver(e spawnEnd) error {
	if e.result != nil && s.phase != Leaving {
		if err := s.hold(&record{Child: &childRecord{Call: e.call, N: e.n, Task: e.child, Done: true, Spent: e.result.Spent}}); err != nil {
			return err
		}
	}
	s.statusSoon()
	s.run.regains = append(s.run.regains, e.regains)
	if s.run.jobs--; s.run.jobs > 0 || !s.phase.hasRunner() {
		s.regained()
		return nil
	}
	s.ask(true)
	return nil
}

// settleChildren adds up what subagents have spent that were given up, and whose
// first round ended later than the call that they were for.
func (s *Session) settleChildren() error {
	for _, c := range s.st.Children {
		if c.Done {
			continue
		}
		result, err := FirstResult(s.cfg.StateDir, c.Task)
		if err != nil {
			continue // It is at work still, or there is nothing left to add up.
		}
		done := &childRecord{Call: c.Call, N: c.N, Task: c.Task, Done: true, Spent: result.Spent}
		if err := s.hold(&record{Child: done}); err != nil {
			return err
		}
	}
	return nil
}

// regained lets the jobs go on that waited for the round's place.
func (s *Session) regained() {
	for _, c := range s.run.regains {
		close(c)
	}
	s.run.regains = nil
}

// ask asks for a place; ahead of new tasks where others wait for the round.
func (s *Session) ask(ahead bool) {
	s.ticket++
	s.asked = true
	s.cfg.Ask(s.task, s.ticket, ahead)
}

// stopChildren stops what a round has left running when it ends, also one that did
// not get its place again after a restart. Those that a crash keeps from hearing of
// it find out themselves: see unawaited.
func (s *Session) stopChildren() {
	if s.st == nil {
		return
	}
	for _, child := range s.st.openChildren() {
		s.cfg.Children.Stop(child)
	}
}

// endChild ends a subagent's session with its first round.
func (s *Session) endChild(ctx context.Context) error {
	reason, noted := s.st.Reason, len(s.st.Notes) > 0
	s.phase = Ended
	if err := s.endSession(ctx, reason); err != nil {
		return err
	}
	s.cfg.Children.Over(s.task)
	if !noted {
		return nil
	}
	// A message that was taken and came too late for the round revives the session.
	if err := s.load(); err != nil {
		return err
	}
	_, err := s.openNoted(ctx)
	return err
}

// unawaited reports whether nobody waits for this subagent's first round any more:
// its parent's round is over, or was replaced or removed with its task, and a crash
// came before the subagent was told. The parent's journal is read from its end back
// to where it was sent out.
func (s *Session) unawaited() (bool, error) {
	waits := false
	_, err := journal.ReadBack(placeOf(s.cfg.StateDir, s.st.Parent).reading(), func(off int64, rec json.RawMessage) (bool, error) {
		var r struct {
			Child                               *childRecord
			Opened, Round, Aside, Closed, Ended *struct{}
			Snapshot                            *struct {
				Phase    State
				Children []childRecord
			}
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return false, fmt.Errorf("%w: record at byte %d: %v", errFormat, off, err)
		}
		switch {
		case r.Child != nil && r.Child.Task == s.task:
			waits = !r.Child.Done
			return false, nil
		case r.Snapshot != nil:
			waits = r.Snapshot.Phase == Queued && slices.ContainsFunc(r.Snapshot.Children, func(c childRecord) bool {
				return c.Task == s.task && !c.Done && !c.Left
			})
			return false, nil
		}
		return r.Opened == nil && r.Round == nil && r.Aside == nil && r.Closed == nil && r.Ended == nil, nil
	})
	if err != nil && !unreadable(err) && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("subagent %q: %w", s.task, err)
	}
	return !waits, nil
}

// FirstResult reads from a child's journal how its first round came out.
// ErrNoResult says that it is not over; what it has spent by now is returned beside it.
func FirstResult(stateDir, child string) (round.JobResult, error) {
	p := placeOf(stateDir, child)
	st := &state{}
	read := func(path string) error {
		_, err := replay(path, 0, st, func(r *record) error {
			switch {
			case st.Parent == "":
				return errReplaced
			case r.Closed != nil:
				return errFound
			}
			return nil
		})
		return err
	}
	err := read(p.reading())
	// After an input of its own the subagent is a task like any other, and what it was
	// sent out for stands in an earlier journal.
	for n := p.lastOld(); n > 0 && errors.Is(err, errReplaced); n-- {
		if exists(p.old(n)) {
			err = read(p.old(n))
		}
	}
	switch {
	case errors.Is(err, errFound):
		return round.JobResult{Task: child, Outcome: st.Outcome.Outcome, Spent: st.Spent}, nil
	case errors.Is(err, fs.ErrNotExist):
		return round.JobResult{}, fmt.Errorf("subagent %q: its directory was removed before it was done", child)
	case err != nil:
		return round.JobResult{}, fmt.Errorf("subagent %q: %w", child, err)
	}
	return round.JobResult{Task: child, Spent: st.Spent}, fmt.Errorf("subagent %q: %w", child, ErrNoResult)
}

// errReplaced ends the reading of a journal that is not of a subagent's first round.
var errReplaced = errors.New("another session has taken its place")

// ErrNoResult says that a child's first round is not over.
var ErrNoResult = errors.New("its first round is not over")
