package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/journal"
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
	// MaxDepth is how deep subagents may be nested; 0 is not at all.
	MaxDepth int
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

// spawner makes a round's Spawn. Its calls run in the runner's goroutines.
func (s *Session) spawner(begins chan<- spawnRequest, ends chan<- spawnEnd) round.Spawn {
	return func(ctx context.Context, call string, n int, job round.Job) (func() (round.JobResult, error), error) {
		reply := make(chan spawnReply, 1)
		select {
		case begins <- spawnRequest{call, n, job, reply}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		begun := <-reply
		if begun.err != nil {
			return nil, begun.err
		}
		return func() (round.JobResult, error) { return s.await(ctx, ends, call, n, begun.child) }, nil
	}
}

// await waits for a child's result and for the round's place. It runs in the
// runner's goroutines.
func (s *Session) await(ctx context.Context, ends chan<- spawnEnd, call string, n int, child string) (round.JobResult, error) {
	s.cfg.Children.Await(ctx, child)
	result, err := FirstResult(s.cfg.StateDir, child)
	regained := make(chan struct{})
	end := spawnEnd{call: call, n: n, child: child, regains: regained}
	if err == nil {
		end.result = &result
	}
	select {
	case ends <- end:
		select {
		case <-regained:
		case <-ctx.Done():
		}
	case <-ctx.Done():
		if cause := context.Cause(ctx); err != nil || silent(cause) {
			return round.JobResult{}, cause
		}
	}
	return result, err
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
		child := s.st.Children[i].Task
		if s.st.Children[i].Done || s.childExists(child) {
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
	_, jerr := os.Lstat(s.childJournal(child))
	return err == nil && jerr == nil
}

func (s *Session) childJournal(child string) string {
	return filepath.Join(s.cfg.StateDir, journal.Place(child), journalName)
}

// childName is the lowest <parent>.<n> that is neither directory nor journal.
func (s *Session) childName() string {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.%d", s.task, n)
		if _, err := os.Lstat(taskdir.TaskPath(s.cfg.Root.Path(), name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := os.Lstat(filepath.Dir(s.childJournal(name))); errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
}

// makeChild records the child, writes its journal and publishes its directory.
func (s *Session) makeChild(ctx context.Context, r spawnRequest) (string, error) {
	name := s.childName()
	unborn, err := s.cfg.Root.Unborn(r.job.Prompt)
	if err != nil {
		return "", err
	}
	defer unborn.Discard()
	if err := s.commit(ctx, &record{Child: &childRecord{Call: r.call, N: r.n, Task: name}}); err != nil {
		return "", err
	}
	j, err := journal.Create(s.childJournal(name))
	if err != nil {
		return "", err
	}
	defer j.Close()
	now := fileTime()
	line, err := encode(&record{At: now, Opened: &openedRecord{
		Version: formatVersion, Task: name, Session: 1, Dir: unborn.ID(),
		Input: inputMark{fileMark{Size: unborn.Input.Size, Mtime: unborn.Input.Mtime.UnixNano()}, now},
		Text:  r.job.Prompt, Bytes: int64(len(r.job.Prompt)),
		Parent: s.task, Depth: s.st.Depth + 1, Settings: &r.job.Settings, Prepared: r.job.Prepared, History: r.job.Conversation,
	}})
	if err != nil {
		return "", err
	}
	if _, err := j.Commit(line); err != nil {
		return "", errors.Join(err, os.RemoveAll(filepath.Dir(s.childJournal(name))))
	}
	if err := unborn.Publish(name); err != nil {
		return "", errors.Join(err, archivePlace(s.cfg.StateDir, filepath.Dir(s.childJournal(name))))
	}
	s.event("child", map[string]any{"task": name, "call": r.call, "n": r.n})
	s.statusSoon()
	return name, nil
}

// waits counts a job that is waited for: with the first the round gives its place
// to others.
func (s *Session) waits() error {
	if s.run.jobs++; s.run.jobs == 1 && s.asked {
		s.asked = false
		s.cfg.Leave(s.task, s.ticket)
	}
	return nil
}

// jobOver counts a job off: with the last the round asks for its place back.
func (s *Session) jobOver(e spawnEnd) error {
	if e.result != nil {
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

// stopChildren stops what a round has left running when it ends.
func (s *Session) stopChildren() {
	for _, child := range s.st.openChildren() {
		s.cfg.Children.Stop(child)
	}
}

// endChild ends a subagent's session with its first round.
func (s *Session) endChild(ctx context.Context) error {
	reason := s.st.Reason
	s.phase = Ended
	if err := s.endSession(ctx, reason); err != nil {
		return err
	}
	s.cfg.Children.Over(s.task)
	return nil
}

// FirstResult reads from a child's journal how its first round came out.
// ErrNoResult says that it is not over.
func FirstResult(stateDir, child string) (round.JobResult, error) {
	st := &state{}
	_, err := journal.Read(filepath.Join(stateDir, journal.Place(child), journalName), 0, func(off int64, rec json.RawMessage) error {
		var r record
		if err := json.Unmarshal(rec, &r); err != nil {
			return fmt.Errorf("read journal record at %d: %w", off, err)
		}
		if err := st.apply(&r, off); err != nil {
			return err
		}
		if r.Closed != nil {
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return round.JobResult{Task: child, Outcome: *st.Outcome, Spent: st.Spent}, nil
	case errors.Is(err, fs.ErrNotExist):
		return round.JobResult{}, fmt.Errorf("subagent %q: its directory was removed before it was done", child)
	case err != nil:
		return round.JobResult{}, fmt.Errorf("subagent %q: %w", child, err)
	}
	return round.JobResult{}, fmt.Errorf("subagent %q: %w", child, ErrNoResult)
}

// ErrNoResult says that a child's first round is not over.
var ErrNoResult = errors.New("its first round is not over")
