package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// recover finds out where the task stood when the process before this one ended.
func (s *Session) recover() error {
	if s.memo != nil {
		return nil
	}
	s.nextSeq = 1
	p := s.place()
	memo, from, err := tail(p.current())
	if errors.Is(err, fs.ErrNotExist) && exists(p.next()) {
		// The process before ended between the two renames.
		if err := p.finishSwitch(); err != nil {
			return fmt.Errorf("open journal of task %q: %w", s.task, err)
		}
		memo, from, err = tail(p.current())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case unreadable(err):
		return s.damaged(err)
	case err != nil:
		return fmt.Errorf("task %q: %w", s.task, err)
	}
	if memo != nil {
		s.memo, s.phase, s.nextSeq = memo, memo.Phase, memo.Seq+1
	} else {
		// Something happened after the last rest: the whole state is needed.
		if err := s.loadFrom(from); err != nil {
			return err
		}
		if s.st == nil {
			s.leftover = true
			return nil
		}
		s.phase, s.nextSeq = s.st.Phase, s.st.Seq+1
		s.reopened = s.phase == Queued
	}
	if s.phase == Awaiting {
		s.floor = time.Now().Add(minimumWait)
	}
	return nil
}

// tail reads a journal from its end: the memo of its last record, where it has one,
// else the offset from which it has to be read.
func tail(path string) (memo *Memo, from int64, err error) {
	last := true
	_, err = journal.ReadBack(path, func(off int64, rec json.RawMessage) (bool, error) {
		var r struct {
			Memo     *Memo     `json:"memo"`
			Snapshot *struct{} `json:"snapshot"`
		}
		if err := json.Unmarshal(rec, &r); err != nil {
			return false, fmt.Errorf("%w: record at byte %d: %v", errFormat, off, err)
		}
		if last {
			last, memo = false, r.Memo
			if memo != nil {
				return false, nil
			}
		}
		switch {
		case r.Snapshot != nil:
			from = off
			return false, nil
		case r.Memo != nil:
			from = r.Memo.From
			return false, nil
		}
		return true, nil
	})
	return memo, from, err
}

// replay adds the records of a journal from an offset on to a state. each, when not
// nil, is called after every record; its error ends the reading.
func replay(path string, from int64, st *state, each func(*record) error) (n int, err error) {
	_, err = journal.Read(path, from, func(off int64, rec json.RawMessage) error {
		var r record
		if err := decode(rec, &r); err != nil {
			return fmt.Errorf("%w: record at byte %d: %v", errFormat, off, err)
		}
		if err := st.apply(&r, off); err != nil {
			return fmt.Errorf("record at byte %d: %w", off, err)
		}
		n++
		if each != nil {
			return each(&r)
		}
		return nil
	})
	return n, err
}

// unreadable reports whether an error is about what a journal holds, and not about
// the way to it.
func unreadable(err error) bool {
	var damage *journal.DamageError
	return errors.As(err, &damage) || errors.Is(err, errFormat)
}

// load reads the journal into st, where it is not loaded.
func (s *Session) load() error {
	switch {
	case s.st != nil:
		return nil
	case s.memo == nil:
		return nil
	case s.memo.Damaged != "":
		return errDamaged
	case s.memo.Adopted:
		return s.adopt()
	}
	m := *s.memo
	if err := s.loadFrom(m.From); err != nil {
		return err
	}
	if s.st == nil {
		return s.damaged(fmt.Errorf("%w: it has lost its records", errFormat))
	}
	if m.Dir != s.st.Dir {
		// Restored from a backup, or moved away and back.
		return s.hold(&record{Moved: &m.Dir})
	}
	return nil
}

func (s *Session) loadFrom(from int64) error {
	st := &state{}
	n, err := replay(s.place().current(), from, st, nil)
	switch {
	case unreadable(err), errors.Is(err, fs.ErrNotExist):
		return s.damaged(err)
	case err != nil:
		return fmt.Errorf("task %q: %w", s.task, err)
	}
	if n > 0 {
		s.st, s.memo = st, nil
	}
	return nil
}

// adopt opens a journal for a session that another program ran, which a message
// continues. If that program left a history.json, it is the conversation.
func (s *Session) adopt() error {
	m := s.memo
	var conversation []llm.Message
	if dir, err := s.openDir(); err == nil {
		if c, err := dir.Read(dir.InPlace(taskdir.HistoryFile), time.Now()); err == nil {
			if conversation, err = history.Import([]byte(c.Text)); err != nil {
				s.log().Warn("history.json cannot be read; the session goes on without it", "err", err)
			}
		}
	}
	s.st, s.memo, s.fresh = &state{}, nil, true
	return s.hold(&record{Opened: &openedRecord{
		Version: formatVersion, Task: s.task, Session: m.Session, Dir: m.Dir, Input: m.Input, Rounds: m.Round + 1, History: conversation,
	}})
}

// errDamaged says that the journal cannot be read, and that all has been done about it.
var errDamaged = errors.New("the journal cannot be read")

// damaged ends a session whose journal cannot be read. The file stays as it is,
// status.json says what is wrong, messages stay where they are. A new input.txt
// begins a new session, whose switch keeps the damaged file beside it.
func (s *Session) damaged(cause error) error {
	s.log().Error("journal cannot be read; it is left as it is", "path", s.place().current(), "err", cause)
	m := &Memo{Phase: Ended, Damaged: cause.Error(), Dir: s.known().Dir}
	st := &state{}
	// What comes before the damage tells which session it was.
	if _, _ = replay(s.place().current(), 0, st, nil); st.Session > 0 {
		m.Session, m.Round, m.Dir, m.Input, m.Seq = st.Session, st.Round, st.Dir, st.Input, st.Seq
	}
	s.leave()
	s.closeJournal()
	s.st, s.held, s.memo, s.phase, s.statusDue, s.leftover = nil, nil, m, Ended, time.Time{}, false
	s.Look() // There may be a new input.
	s.nextSeq = max(s.nextSeq, m.Seq+1)
	dir, err := s.openDir()
	if err != nil {
		return errDamaged
	}
	v, err := taskdir.ReadStatus(dir.Path())
	if err != nil {
		v = taskdir.NewStatus(s.task)
	}
	if m.Session == 0 {
		m.Session, m.Dir = v.Session, dir.ID()
		m.Input.fileMark = s.oldInput(dir)
	}
	v.Session = m.Session
	s.writeTrouble(dir, v, "journal", fmt.Sprintf(
		"%v. The journal %s is left as it is. To go on, restore it from a backup and restart the daemon; to start afresh write input.txt again, it is then kept beside the new one",
		cause, s.place().current()))
	return errDamaged
}

// oldInput returns the mark of an input.txt that is older than the journal's last
// change: it is not what came after the damage.
func (s *Session) oldInput(dir *taskdir.Dir) fileMark {
	sight, err := dir.Look()
	if err != nil || sight.Input == nil {
		return fileMark{}
	}
	fi, err := os.Stat(s.place().current())
	if err == nil && sight.Input.Mtime.After(fi.ModTime()) {
		return fileMark{}
	}
	return markOf(*sight.Input, "")
}

// writeTrouble says in status.json why a task has no session, once.
func (s *Session) writeTrouble(dir *taskdir.Dir, v *taskdir.Status, kind, message string) {
	if v.State == taskdir.Ended && v.Error != nil && v.Error.Kind == kind && v.Error.Message == message {
		return
	}
	v.State, v.Reason, v.UpdatedAt = taskdir.Ended, taskdir.Text(round.Failed), taskdir.Time{Time: time.Now()}
	v.Error = &round.Failure{Kind: kind, Message: message}
	v.ReplyDeadline = taskdir.Time{}
	if err := dir.WriteStatus(v, true); err != nil {
		s.log().Error("status.json cannot be written", "err", err)
	}
}

// firstLook is the first look of this process: what the process before it left
// half done is completed. later says that messages which were taken are left until
// the input has been looked at, which may begin the session that they are for.
func (s *Session) firstLook(ctx context.Context, dir *taskdir.Dir, sight taskdir.Sight) (later bool, err error) {
	s.early = map[uint64]bool{}
	for _, t := range sight.Taken {
		if t.Seq < maxSeq {
			s.nextSeq = max(s.nextSeq, t.Seq+1)
		}
		s.early[t.Stat.Ino] = true
	}
	for _, m := range messages(sight) {
		if m.there() {
			s.early[m.stat.Ino] = true
		}
	}
	if s.phase == Idle {
		if err := s.firstSight(dir, sight); err != nil || s.phase == Idle {
			return true, err
		}
	}
	if s.damagedBy() != "" || s.memo != nil && s.memo.Adopted {
		return false, nil
	}
	if s.st != nil && s.st.Aside > 0 {
		// A new input had begun to replace this session, and is still to be read.
		if err := s.setAside(ctx); err != nil {
			return false, err
		}
		s.phase = Ended
		s.unload()
		return true, nil
	}
	if err := s.repair(dir, sight); err != nil {
		return false, err
	}
	if s.known().Session > 1 {
		// The process before may have owed earlier sessions their markers.
		owed, err := dir.OwedOld()
		if err != nil {
			return false, fmt.Errorf("look at the earlier sessions of task %q: %w", s.task, err)
		}
		for _, n := range owed {
			s.say(&unsaid{aside: n})
		}
	}
	if err := s.resumeTaken(ctx, dir, sight.Taken); err != nil {
		return false, err
	}
	if err := s.resumeRecorded(ctx); err != nil {
		return false, err
	}
	if s.phase == Queued && !s.asked {
		// A newer input ends the round before it costs anything.
		if err := s.lookAtInput(ctx, dir, sight.Input); err != nil {
			return false, err
		}
		if s.phase == Queued && !s.asked {
			return false, s.do(ctx, Enqueue)
		}
	}
	if s.phase == Awaiting || s.phase == Ended {
		s.unload()
	}
	return false, nil
}

// maxSeq is above all numbers that messages get.
const maxSeq = 1 << 53

// resumeTaken goes on with messages that were taken and not deleted: those that the
// journal knows have only that before them, or an addition.
func (s *Session) resumeTaken(ctx context.Context, dir *taskdir.Dir, taken []taskdir.TakenFile) error {
	for _, t := range taken {
		if t.Seq >= maxSeq {
			continue // Nobody counts as far: it is not ours.
		}
		if err := s.load(); err != nil {
			return err
		}
		p := &pending{p: dir.Resume(t), file: t.Name, seq: t.Seq}
		if fp, known := s.st.read(t); known {
			s.dropLater(p, fp)
			continue
		}
		if err := s.tryPending(ctx, dir, p); err != nil {
			return err
		}
	}
	return nil
}

// resumeRecorded acts on messages that the journal has, and what follows from them
// not: a crash keeps the first records of a commit at most.
func (s *Session) resumeRecorded(ctx context.Context) error {
	if s.st == nil {
		return nil
	}
	if s.st.Stop {
		if err := s.happen(ctx, StopArrived); err != nil || s.st == nil {
			return err
		}
	}
	switch {
	case s.st.childDone():
		return s.endChild(ctx)
	case s.st.inFirstRound() && s.phase == Queued:
		alone, err := s.unawaited()
		if err != nil || !alone {
			return err
		}
		s.log().Info("nobody waits for this subagent any more, it is stopped", "parent", s.st.Parent)
		return s.happen(ctx, StopArrived)
	}
	if s.phase == Awaiting || s.phase == Ended {
		_, err := s.openNoted(ctx)
		return err
	}
	return nil
}

// firstSight looks at a directory whose task has no session that is known of: one
// that has come back, one that another program has finished with, or a new one.
func (s *Session) firstSight(dir *taskdir.Dir, sight taskdir.Sight) error {
	switch {
	case sight.HasStatus && !s.leftover:
		back, err := s.place().restore(s.spokenOf(dir))
		if err != nil {
			return fmt.Errorf("task %q: %w", s.task, err)
		}
		if back {
			s.log().Info("task directory has come back, and so does its session")
			if err := s.recover(); err != nil || s.phase == Idle {
				return err
			}
			_, err := s.otherDirectory(context.Background(), dir, sight)
			return err
		}
	case s.leftover && !unrecorded(dir, sight):
		return s.damaged(fmt.Errorf("%w: it holds no record, and the task has run", errFormat))
	}
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
		Input: inputMark{markOf(*sight.Input, ""), fileTime()},
	}
	return nil
}

// spokenOf returns a test for the journal of which the directory's status.json
// speaks: of the same session, begun at the same moment.
func (s *Session) spokenOf(dir *taskdir.Dir) func(*record) bool {
	v, err := taskdir.ReadStatus(dir.Path())
	return func(first *record) bool {
		return err == nil && first.Opened != nil && first.Opened.Session == v.Session &&
			first.At.Truncate(time.Millisecond).Equal(v.StartedAt.Time)
	}
}

// unrecorded reports whether a directory holds no more than a first session leaves
// that never got a record into its journal: an output without a word, and a status
// that says why.
func unrecorded(dir *taskdir.Dir, sight taskdir.Sight) bool {
	if sight.Outputs > 1 || sight.LastOutput != nil && sight.LastOutput.Size > 0 {
		return false
	}
	if !sight.HasStatus {
		return true
	}
	v, err := taskdir.ReadStatus(dir.Path())
	return err == nil && v.Session == 0
}

// repair makes the files of a round that was over say so: the process before may
// have died between the journal and the marker, or the disk have been full.
func (s *Session) repair(dir *taskdir.Dir, sight taskdir.Sight) error {
	n := s.known().Round
	if sight.Outputs > n+1 {
		// Of a round that no journal knows: its message went with the power.
		if err := dir.DiscardOutput(n + 1); err != nil {
			return err
		}
	}
	open := s.phase == Queued
	if open {
		n-- // The one before is over, if there is one.
	}
	if n < 0 {
		return nil
	}
	finished, err := dir.Finished(n)
	if err != nil {
		return fmt.Errorf("check output of task %q: %w", s.task, err)
	}
	u := &unsaid{round: n, marker: !finished}
	if !open {
		u.history, u.status = !finished, !finished
	}
	if finished && !open {
		told := s.told(dir)
		u.status = told == nil
		s.correctDeadline(dir, told)
	}
	if !u.marker && !u.status {
		return nil
	}
	if err := s.load(); err != nil {
		return err
	}
	if u.marker {
		if err := s.oweMarkers(dir, n); err != nil {
			return err
		}
	}
	s.say(u)
	s.at("repaired")
	return nil
}

// oweMarkers has the markers written that rounds before n are still owed: a disk
// that was full for long has left more than one without. They are written in the
// order of their rounds (say), so that what comes before a marker has its own.
func (s *Session) oweMarkers(dir *taskdir.Dir, n int) error {
	first := n
	for ; first > 0; first-- {
		finished, err := dir.Finished(first - 1)
		if err != nil {
			return fmt.Errorf("check output of task %q: %w", s.task, err)
		}
		if finished {
			break
		}
	}
	for ; first < n; first++ {
		s.say(&unsaid{round: first, marker: true})
	}
	return nil
}

// told returns what status.json says, where that is how the session stands, and nil
// where it is not.
func (s *Session) told(dir *taskdir.Dir) *taskdir.Status {
	v, err := taskdir.ReadStatus(dir.Path())
	m := s.known()
	if err != nil || v.Session != m.Session || v.Round != m.Round || v.State != taskdir.State(s.phase.Public()) {
		return nil
	}
	return v
}

// correctDeadline has status.json say until when a reply is waited for, where that
// is later than it says: a start extends waits that are nearly over. Thousands may
// wait, so the journal is not read for it, nor the file synced.
func (s *Session) correctDeadline(dir *taskdir.Dir, told *taskdir.Status) {
	until := s.deadline().Truncate(time.Millisecond)
	if told == nil || s.phase != Awaiting || told.ReplyDeadline.Equal(until) {
		return
	}
	told.ReplyDeadline, told.UpdatedAt = taskdir.Time{Time: until}, taskdir.Time{Time: time.Now()}
	if err := dir.WriteStatus(told, false); err != nil {
		s.log().Error("status.json cannot be written", "err", err)
	}
}

// Abort ends the round of a session whose Run panicked, so that its supervisor
// reads a failure instead of waiting. It is called after Run has returned, and
// returns what to remember.
func (s *Session) Abort(cause error) (memo *Memo) {
	defer func() {
		if p := recover(); p != nil {
			s.log().Error("panicked session cannot be ended; the next look tries again", "panic", p)
			memo = nil
		}
	}()
	defer s.release()
	ctx, cancel := context.WithTimeout(context.Background(), lastWrite)
	defer cancel()
	s.memo, s.st, s.held, s.settled = nil, nil, nil, true
	if err := s.recover(); err != nil || s.st == nil || s.st.Phase != Queued || s.st.Aside > 0 {
		return nil
	}
	s.phase = Awaiting
	s.run = &running{
		resumed: s.st.Began,
		outcome: round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "panic", Message: cause.Error()}},
	}
	if dir, err := s.openDir(); err == nil && s.oweMarkers(dir, s.st.Round) != nil {
		return nil
	}
	if err := s.closeRound(ctx); err != nil || !s.st.atRest() {
		return nil
	}
	s.unload()
	return s.memo
}

// lastWrite bounds how long a session that has to go tries to write to its journal.
const lastWrite = time.Second

// shutdown cuts a running round short so that the next start resumes it.
func (s *Session) shutdown() error {
	if s.run == nil {
		return nil
	}
	err := s.endRunner()
	s.flush()
	if s.st == nil || s.st.Phase != Queued {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWrite)
	defer cancel()
	return errors.Join(err, s.commit(ctx, &record{Paused: &struct{}{}}))
}
