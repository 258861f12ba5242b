package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// recover finds out where the task stood when the process before this one ended.
func (s *Session) recover(ctx context.Context) error {
	if s.memo != nil {
		return nil
	}
	s.nextSeq = 1
	memo, err := lastMemo(s.journalPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return s.damaged(err)
	}
	if memo != nil {
		s.memo, s.phase, s.nextSeq = memo, memo.Phase, memo.Seq+1
		if memo.Phase == Awaiting {
			if least := time.Now().Add(minimumWait); memo.Deadline.Before(least) {
				memo.Deadline = least
			}
		}
		return nil
	}
	// Something happened after the last rest: the whole state is needed.
	if err := s.load(ctx); err != nil {
		return s.damaged(err)
	}
	if s.st == nil {
		return nil
	}
	s.phase, s.nextSeq = s.st.Phase, s.st.Seq+1
	return nil
}

// lastMemo returns the memo of a journal whose last record has one, and nil for a
// journal that has to be read whole.
func lastMemo(path string) (*Memo, error) {
	var memo *Memo
	_, err := journal.ReadBack(path, func(_ int64, rec json.RawMessage) (bool, error) {
		var r struct {
			Memo *Memo `json:"memo"`
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return false, err
		}
		memo = r.Memo
		return false, nil
	})
	return memo, err
}

// load reads the journal into st, where it is not loaded.
func (s *Session) load(ctx context.Context) error {
	if s.st != nil {
		return nil
	}
	if s.memo != nil && s.memo.Adopted {
		return s.adopt(ctx)
	}
	from := int64(0)
	if s.memo != nil {
		from = s.memo.From
	}
	st := &state{}
	n := 0
	_, err := journal.Read(s.journalPath(), from, func(off int64, rec json.RawMessage) error {
		var r record
		if err := json.Unmarshal(rec, &r); err != nil {
			return fmt.Errorf("read journal record at %d: %w", off, err)
		}
		n++
		return st.apply(&r, off)
	})
	if err != nil {
		return fmt.Errorf("read journal of task %q: %w", s.task, err)
	}
	if n == 0 {
		return nil
	}
	if s.memo != nil {
		// What a restart or a restored directory changed since.
		st.Deadline, st.Dir = s.memo.Deadline, s.memo.Dir
	}
	s.st = st
	return nil
}

// adopt opens a journal for a session that another program ran, which a message
// continues.
func (s *Session) adopt(ctx context.Context) error {
	m := s.memo
	s.st = &state{}
	s.memo = nil
	return s.hold(&record{Opened: &openedRecord{
		Version: formatVersion, Task: s.task, Session: m.Session, Dir: m.Dir, Input: m.Input, Rounds: m.Round + 1,
	}})
}

// damaged ends a session whose journal cannot be read: the file stays as it is,
// and status.json says what is wrong.
func (s *Session) damaged(err error) error {
	s.log.Error("journal cannot be read; it is left as it is", "path", s.journalPath(), "err", err)
	dir, openErr := s.cfg.Root.Open(s.task)
	if openErr != nil {
		return err
	}
	defer dir.Close()
	s.writeTrouble(dir, "journal", fmt.Sprintf(
		"%v. The journal %s is left as it is; to start afresh move it away and write input.txt again", err, s.journalPath()))
	return err
}

// writeTrouble says in status.json why a task has no session.
func (s *Session) writeTrouble(dir *taskdir.Dir, kind, message string) {
	v := taskdir.NewStatus(s.task)
	v.State, v.Reason, v.UpdatedAt = taskdir.Ended, taskdir.Text(round.Failed), taskdir.Time{Time: time.Now()}
	v.Error = &round.Failure{Kind: kind, Message: message}
	if err := dir.WriteStatus(v, true); err != nil {
		s.log.Error("status.json cannot be written", "err", err)
	}
}

// firstLook is the first look of this process: what the process before it left
// half done is completed. done means that this look is over.
func (s *Session) firstLook(ctx context.Context, dir *taskdir.Dir, sight taskdir.Sight) (done bool, err error) {
	if s.phase == Idle && s.st == nil && s.memo == nil {
		return false, s.firstSight(dir, sight)
	}
	if s.st != nil && s.st.Aside > 0 {
		// A new input had begun to replace this session.
		if _, err := dir.Archive(s.st.Aside); err != nil {
			return false, fmt.Errorf("set the earlier session of task %q aside: %w", s.task, err)
		}
		if err := dir.MarkArchived(s.st.Aside); err != nil {
			return false, fmt.Errorf("set the earlier session of task %q aside: %w", s.task, err)
		}
		s.phase = Ended
	}
	for _, t := range sight.Taken {
		s.nextSeq = max(s.nextSeq, t.Seq+1)
	}
	if len(sight.Taken) > 0 || sight.Reply != nil || sight.Intervene != nil || sight.KeyInfo != nil || sight.Stop != nil {
		// A file that was acted on may have come back; the receipts know it.
		if err := s.load(ctx); err != nil {
			return false, err
		}
	}
	for _, t := range sight.Taken {
		p := &pending{p: dir.Resume(t), file: t.Name, seq: t.Seq}
		if err := s.tryPending(ctx, dir, p); err != nil {
			return false, err
		}
	}
	if s.st != nil && (s.phase == Awaiting || s.phase == Ended) {
		// A commit may have been cut between a message and the round that it opens.
		if opened, err := s.openNoted(ctx); opened || err != nil {
			return false, err
		}
	}
	switch s.phase {
	case Queued:
		// A round was open. A newer input ends it before it costs anything.
		if err := s.lookAtInput(ctx, dir, sight.Input); err != nil {
			return false, err
		}
		if s.phase == Queued && !s.asked {
			return false, s.do(ctx, Enqueue)
		}
	case Awaiting:
		return false, s.repair(ctx, dir, sight)
	}
	return false, nil
}

// firstSight adopts a directory that another program has finished with.
func (s *Session) firstSight(dir *taskdir.Dir, sight taskdir.Sight) error {
	if sight.Input == nil || sight.Outputs == 0 {
		return nil
	}
	finished, err := dir.FinishedByOther(sight)
	if err != nil || !finished {
		return err
	}
	s.phase = Ended
	s.memo = &Memo{
		Session: 1, Round: sight.Outputs - 1, Phase: Ended, Dir: dir.ID(), Adopted: true,
		Input: inputMark{fileMark{Size: sight.Input.Size, Mtime: sight.Input.Mtime.UnixNano()}, fileTime()},
	}
	s.nextSeq = 1
	return nil
}

// repair makes the files of a round that was over say so: the process before may
// have died between the journal and the marker.
func (s *Session) repair(ctx context.Context, dir *taskdir.Dir, sight taskdir.Sight) error {
	finished, err := dir.Finished(s.memoRound())
	if err != nil {
		return fmt.Errorf("check output of task %q: %w", s.task, err)
	}
	if finished && sight.HasStatus {
		return nil
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	if _, err := s.holdDir(); err != nil {
		return err
	}
	s.run = &running{}
	if !finished {
		if err := s.openOutput(s.dir, true); err != nil {
			return err
		}
		if s.st.Outcome != nil {
			s.showOutcome(*s.st.Outcome)
		}
	}
	s.writeHistory()
	s.writeStatus(true)
	s.endOutput()
	s.run = nil
	s.unload()
	return nil
}

func (s *Session) memoRound() int {
	if s.st != nil {
		return s.st.Round
	}
	return s.memo.Round
}

// Abort ends the round of a session whose Run panicked, so that its supervisor
// reads a failure instead of waiting. It is called after Run has returned, and
// returns what to remember.
func (s *Session) Abort(cause error) (memo *Memo) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panicked session cannot be ended; the next start tries again", "panic", p)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.memo, s.held = nil, nil
	defer s.release()
	if err := s.load(ctx); err != nil || s.st == nil || s.st.Phase != Queued {
		return nil
	}
	dir, err := s.holdDir()
	if err != nil {
		return nil
	}
	s.phase = Awaiting
	s.run = &running{outcome: round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "panic", Message: cause.Error()}}}
	if err := s.openOutput(dir, true); err != nil {
		return nil
	}
	if err := s.closeRound(ctx); err != nil {
		return nil
	}
	s.unload()
	return s.memo
}

// shutdown cuts a running round short so that the next start resumes it.
func (s *Session) shutdown() error {
	r := s.run
	if r == nil || r.cancel == nil {
		if r != nil && r.output != nil {
			s.flush()
			r.output.Close()
		}
		return nil
	}
	r.cancel(round.ErrShutdown)
	s.drain(r)
	s.flush()
	r.output.Close()
	if r.events != nil {
		r.events.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.run = nil
	return s.commit(ctx, &record{Paused: &struct{}{}})
}

// drain waits for a cancelled runner, and takes nothing more from it.
func (s *Session) drain(r *running) {
	for {
		select {
		case em := <-r.emitted:
			em.done <- round.ErrShutdown
		case req := <-r.inboxes:
			req <- inboxReply{err: round.ErrShutdown}
		case req := <-r.spawns:
			req.reply <- spawnReply{err: round.ErrShutdown}
		case end := <-r.ended:
			close(end.regains)
		case <-r.returned:
			return
		}
	}
}

// Known returns the tasks that have a journal in the state directory, other than
// those named: their directories may be gone. Journals that cannot be read are
// reported beside the names.
func Known(stateDir string, except []string) (names []string, err error) {
	places := make(map[string]bool, len(except))
	for _, name := range except {
		places[journal.Place(name)] = true
	}
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		return nil, fmt.Errorf("list journals: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || places[e.Name()] || e.Name() == ArchivedName {
			continue
		}
		path := filepath.Join(stateDir, e.Name(), journalName)
		var first record
		_, err := journal.Read(path, 0, func(_ int64, rec json.RawMessage) error {
			if err := json.Unmarshal(rec, &first); err != nil {
				return err
			}
			return errFirst
		})
		switch {
		case errors.Is(err, errFirst) && first.Opened != nil:
			names = append(names, first.Opened.Task)
		case errors.Is(err, fs.ErrNotExist):
		case err != nil && !errors.Is(err, errFirst):
			errs = append(errs, err)
		}
	}
	return names, errors.Join(errs...)
}

// errFirst ends a reading after the first record.
var errFirst = errors.New("first record read")
