package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// look reads the directory and applies what it finds, in the protocol's order:
// _stop, input.txt, _keyinfo, _intervene, reply.txt. A look that finds nothing new
// writes nothing.
func (s *Session) look(ctx context.Context) error {
	s.lookDue = time.Time{}
	err := s.lookOnce(ctx)
	if s.lookDue.IsZero() {
		s.lookPause = 0
	}
	return err
}

func (s *Session) lookOnce(ctx context.Context) error {
	dir, err := s.openDir()
	if err != nil {
		return s.noDir(ctx, err)
	}
	sight, err := dir.Look()
	switch {
	case errors.Is(err, taskdir.ErrGone):
		return s.happen(ctx, DirectoryGone)
	case err != nil:
		s.lookLater(err)
		return nil
	}
	if sight.Temps {
		if err := dir.Sweep(); err != nil {
			s.log().Debug("half-written files cannot be removed", "err", err)
		}
	}
	if gone, err := s.otherDirectory(ctx, dir, sight); gone || err != nil {
		return err
	}
	if sight.LastOutput != nil {
		s.lastOutput = sight.LastOutput.Mtime
	}
	// later says that what was taken before is to be gone on with after the input.
	later := false
	if !s.looked {
		s.looked = true
		if later, err = s.firstLook(ctx, dir, sight); err != nil {
			return err
		}
	}
	if err := s.complain(ctx, sight.Refused); err != nil {
		return err
	}
	if !later {
		if err := s.lookAtStop(ctx, dir, sight.Stop); err != nil {
			return err
		}
	}
	if err := s.lookAtInput(ctx, dir, sight.Input); err != nil {
		return err
	}
	if err := s.lookAtRefusedInput(ctx, dir, sight); err != nil {
		return err
	}
	if later && s.phase != Idle {
		if err := s.resumeTaken(ctx, dir, sight.Taken); err != nil {
			return err
		}
	}
	// A _stop that came with the input is about the session that has just begun.
	if err := s.lookAtStop(ctx, dir, sight.Stop); err != nil {
		return err
	}
	switch {
	case s.phase == Running && s.run.live() && s.run.failed == nil && s.st.Parent == "":
		err = s.lookAtLateFiles(ctx, sight)
	case s.phase == Awaiting, s.phase == Ended:
		err = s.lookAtFilesAtRest(ctx, sight)
	}
	if err != nil {
		return err
	}
	return s.takeMessages(ctx, dir, sight)
}

// takeMessages takes the messages that open a round or are remembered, while no round
// runs, with what stands in place of one.
func (s *Session) takeMessages(ctx context.Context, dir *taskdir.Dir, sight taskdir.Sight) error {
	for _, m := range messages(sight) {
		if !s.takes() {
			return nil
		}
		if m.there() {
			if err := s.take(ctx, dir, m.name); err != nil {
				return err
			}
		}
		for _, r := range sight.Refused {
			if r.Name == m.name && s.answers(r) {
				if err := s.takeRefused(ctx, dir, r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takes reports whether a look takes messages, other than a _stop.
func (s *Session) takes() bool {
	return (s.phase == Awaiting || s.phase == Ended) && s.damagedBy() == ""
}

// answers reports whether a round is opened to say that something stands in place of a
// message: whoever wrote it waits for that round's output.
func (s *Session) answers(r taskdir.Refusal) bool {
	return s.takes() && !r.Names && (r.Name == taskdir.ReplyFile || r.Name == taskdir.InterveneFile)
}

// sighted is a control file as a look saw it.
type sighted struct {
	name string
	stat *taskdir.Stat
}

func (m sighted) there() bool { return m.stat != nil && m.stat.Size > 0 }

// messages are the control files with a text, in the order in which they apply.
func messages(s taskdir.Sight) [3]sighted {
	return [3]sighted{{taskdir.KeyInfoFile, s.KeyInfo}, {taskdir.InterveneFile, s.Intervene}, {taskdir.ReplyFile, s.Reply}}
}

// openDir returns the directory that is open, or opens it until rest closes it. One
// that is not the task's any more says so itself (taskdir.ErrGone).
func (s *Session) openDir() (*taskdir.Dir, error) {
	if s.dir != nil {
		return s.dir, nil
	}
	dir, err := s.cfg.Root.Open(s.task)
	if err != nil {
		return nil, err
	}
	s.dir = dir
	return dir, nil
}

// noDir handles a directory that cannot be opened.
func (s *Session) noDir(ctx context.Context, err error) error {
	var refused *taskdir.RefusedError
	if errors.As(err, &refused) {
		if err := s.complain(ctx, []taskdir.Refusal{{Name: s.task, Why: refused.Error()}}); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s.happen(ctx, DirectoryGone)
	}
	s.lookLater(err)
	return nil
}

// lookLater repeats a look that failed for a reason that may pass.
func (s *Session) lookLater(err error) {
	s.lookPause = min(max(2*s.lookPause, time.Second), time.Minute)
	s.lookDue = time.Now().Add(s.lookPause)
	if s.once(err.Error()) {
		s.log().Error("task directory cannot be looked at, trying again", "err", err)
	}
}

// once reports whether something has not been said yet.
func (s *Session) once(text string) bool {
	if s.said[text] {
		return false
	}
	if s.said == nil {
		s.said = map[string]bool{}
	}
	s.said[text] = true
	return true
}

// complain says what stands in place of a protocol file, once for each such thing.
func (s *Session) complain(ctx context.Context, refused []taskdir.Refusal) error {
	told := s.complaints
	s.complaints = nil
	for _, r := range refused {
		key := fmt.Sprintf("%s: %s (%d at %d)", r.Name, r.Why, r.Stat.Ino, r.Stat.Mtime.UnixNano())
		s.complaints = append(s.complaints, key)
		if slices.Contains(told, key) {
			continue
		}
		s.log().Warn("refused a file", "file", r.Name, "why", r.Why)
		if s.answers(r) {
			continue // The round that says so warns too.
		}
		if err := s.warn(ctx, r.Name+": "+r.Why); err != nil {
			return err
		}
	}
	return nil
}

// Complaints are what the last look found in place of protocol files. The caller of
// Run keeps them for the session that comes after it, which says only what is new.
func (s *Session) Complaints() []string { return s.complaints }

// Remember gives the session the Complaints of the one before. It is called before Run.
func (s *Session) Remember(complaints []string) { s.complaints = complaints }

// warn adds a warning to status.json, where there is a session to warn about.
func (s *Session) warn(ctx context.Context, text string) error {
	if s.phase == Idle || s.damagedBy() != "" || s.memo != nil && s.memo.Adopted {
		return nil
	}
	if err := s.load(); err != nil || s.st == nil {
		return err
	}
	atRest := s.phase == Awaiting || s.phase == Ended
	switch {
	case slices.Contains(s.st.Warnings, text):
		if atRest {
			s.unload()
		}
		return nil
	case !atRest:
		s.statusDue = time.Now()
		return s.hold(&record{Warning: &text})
	}
	if err := s.commit(ctx, &record{Warning: &text}); err != nil {
		return err
	}
	s.settleDown()
	return nil
}

// otherDirectory ends a session whose directory is another one now. A directory
// with a status.json is the same task, moved or restored from a backup.
func (s *Session) otherDirectory(ctx context.Context, dir *taskdir.Dir, sight taskdir.Sight) (gone bool, err error) {
	known := s.known().Dir
	if s.phase == Idle || known == dir.ID() || known == (taskdir.FileID{}) {
		return false, nil
	}
	if dir.NewSince(known, sight) || s.phase.hasRunner() {
		s.Look() // at the new directory, once this session is over
		return true, s.happen(ctx, DirectoryGone)
	}
	if s.st != nil {
		id := dir.ID()
		return false, s.hold(&record{Moved: &id})
	}
	s.memo.Dir = dir.ID() // and in the journal when there is something else to say
	return false, nil
}

// lookAtStop takes a _stop that is for this session. While a new input.txt ends the
// round it is left to the session that comes.
func (s *Session) lookAtStop(ctx context.Context, dir *taskdir.Dir, stat *taskdir.Stat) error {
	switch {
	case stat == nil, s.damagedBy() != "":
		return nil
	case s.phase == Idle, s.phase == Replacing, s.phase == Leaving:
		return nil
	}
	return s.take(ctx, dir, taskdir.StopFile)
}

// lookAtInput reads an input.txt that may be new.
func (s *Session) lookAtInput(ctx context.Context, dir *taskdir.Dir, stat *taskdir.Stat) error {
	if stat == nil || stat.Size == 0 || s.phase == Leaving {
		return nil
	}
	if s.seenInput.sees(stat) || s.known().Input.sees(stat) || s.pendingIndex(taskdir.InputFile) >= 0 {
		return nil
	}
	return s.tryPending(ctx, dir, &pending{p: dir.InPlace(taskdir.InputFile), file: taskdir.InputFile})
}

// lookAtRefusedInput answers a task that begins with something else than a file in
// place of its input.txt. Where a session is known there is a warning in its status.
func (s *Session) lookAtRefusedInput(ctx context.Context, dir *taskdir.Dir, sight taskdir.Sight) error {
	if s.phase != Idle || s.leftover || sight.Outputs > 0 {
		return nil
	}
	for _, r := range sight.Refused {
		if r.Name == taskdir.InputFile {
			return s.refuseInput(ctx, dir, fmt.Errorf("%s: %s", r.Name, r.Why))
		}
	}
	return nil
}

// inputRead decides whether a whole input.txt is a new one: it is if its text
// differs from the one recorded, or was written again later. Where no text is on
// record the file itself has to differ, or it would not have been read.
func (s *Session) inputRead(ctx context.Context, c taskdir.Content) error {
	known := s.known().Input
	s.seenInput = markOf(c.Stat, c.SHA256)
	if s.phase != Idle && c.SHA256 == known.SHA256 && !c.Stat.Mtime.After(known.TakenAt) {
		return nil
	}
	if s.phase != Idle && !s.persistInput() {
		return nil
	}
	s.arrived = &arrival{file: taskdir.InputFile, content: c}
	return s.happen(ctx, InputArrived)
}

// persistInput makes an input.txt durable that takes the place of a session: were it
// lost to a power failure, nothing would be left to be done. Where it reports false, it
// is looked at again.
func (s *Session) persistInput() bool {
	dir, err := s.openDir()
	if err == nil {
		err = dir.Persist(taskdir.InputFile)
	}
	if err != nil {
		s.seenInput = fileMark{}
		s.lookLater(err)
	}
	return err == nil
}

// startFiles are the files that a session's first round begins with.
func startFiles(s taskdir.Sight) [2]sighted {
	return [2]sighted{{taskdir.ContextFile, s.Context}, {taskdir.ForkFile, s.History}}
}

// lookAtLateFiles starts a round over for a context.json or _history.json that
// came before the first answer, and notes those that came later.
func (s *Session) lookAtLateFiles(ctx context.Context, sight taskdir.Sight) error {
	for i, f := range startFiles(sight) {
		if !f.there() || s.st.lateMarks()[i].sees(f.stat) {
			continue
		}
		if s.st.Round == 0 && s.st.Answers == 0 {
			if err := s.sync(ctx); err != nil {
				return err // Nothing is shown of a session that no journal knows.
			}
			s.run.output.Line("[context.json or _history.json arrived, the round starts over]\n")
			s.flush()
			return s.happen(ctx, FilesArrived)
		}
		if err := s.noteLate(f); err != nil {
			return err
		}
		s.statusSoon()
	}
	return nil
}

// lookAtFilesAtRest notes a context.json and a _history.json that came while no round
// ran, once each time that they are written. They are given lateAfter: what an
// input.txt follows is not late, but for the session that this one begins, and what is
// still being written is noted when it is whole.
func (s *Session) lookAtFilesAtRest(ctx context.Context, sight taskdir.Sight) error {
	known := s.known().Late
	// Without a status.json a supervisor has moved the session's files away, and what
	// it writes then belongs to its next input.txt.
	if known == nil || !sight.HasStatus {
		return nil
	}
	var came []sighted
	var seen lateMarks
	for i, f := range startFiles(sight) {
		if f.there() && !known[i].sees(f.stat) {
			came, seen[i] = append(came, f), lateMarkOf(f.stat)
		}
	}
	if len(came) == 0 {
		return nil
	}
	now := time.Now()
	if seen != s.lateSeen {
		s.lateSeen, s.lateDue = seen, now.Add(lateAfter)
	}
	if !due(s.lateDue, now) {
		if s.lookDue.IsZero() || s.lateDue.Before(s.lookDue) {
			s.lookDue = s.lateDue
		}
		return nil
	}
	if err := s.load(); err != nil || s.st == nil {
		return err
	}
	for _, f := range came {
		if err := s.noteLate(f); err != nil {
			return err
		}
	}
	if err := s.sync(ctx); err != nil {
		return err
	}
	s.settleDown()
	return nil
}

// noteLate gives a file that comes too late for this session its receipt.
func (s *Session) noteLate(f sighted) error {
	s.nextSeq++
	return s.hold(&record{Message: &messageRecord{
		Seq: s.nextSeq - 1, File: f.name, Outcome: outcomeLate, Bytes: f.stat.Size,
		Fingerprint: taskdir.Fingerprint{Ino: f.stat.Ino, Size: f.stat.Size, Mtime: f.stat.Mtime.UnixNano()},
	}})
}
