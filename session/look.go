package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// pending is a control file that may still be growing.
type pending struct {
	p       *taskdir.Pending
	file    string
	seq     uint64
	retryAt time.Time
	since   time.Time
	told    bool
}

// look reads the directory and applies what it finds, in the protocol's order:
// _stop, input.txt, _keyinfo, _intervene, reply.txt.
func (s *Session) look(ctx context.Context) error {
	dir, err := s.openDir()
	if err != nil {
		return s.noDir(ctx, err)
	}
	if dir != s.dir {
		defer func() {
			if s.dir != dir {
				dir.Close()
			}
		}()
	}
	sight, err := dir.Look()
	if errors.Is(err, fs.ErrNotExist) {
		return s.happen(ctx, DirectoryGone)
	}
	if err != nil {
		return fmt.Errorf("look at task %q: %w", s.task, err)
	}
	s.complain(sight.Refused)
	if err := s.otherDirectory(ctx, dir, sight); err != nil {
		return err
	}
	if !s.started {
		s.started = true
		if done, err := s.firstLook(ctx, dir, sight); done || err != nil {
			return err
		}
	}
	if sight.Stop != nil && s.phase != Idle {
		if err := s.take(ctx, dir, taskdir.StopName); err != nil {
			return err
		}
	}
	if err := s.lookAtInput(ctx, dir, sight.Input); err != nil {
		return err
	}
	if s.phase == Running && s.run != nil {
		if err := s.lookAtLateFiles(ctx, sight); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		name string
		stat *taskdir.Stat
	}{{taskdir.KeyInfoName, sight.KeyInfo}, {taskdir.InterveneName, sight.Intervene}, {taskdir.ReplyName, sight.Reply}} {
		if m.stat != nil && m.stat.Size > 0 && (s.phase == Awaiting || s.phase == Ended) {
			if err := s.take(ctx, dir, m.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// openDir returns the directory that a running round holds, as long as it is the
// one of that name, or opens it.
func (s *Session) openDir() (*taskdir.Dir, error) {
	dir, err := s.cfg.Root.Open(s.task)
	if err != nil {
		return nil, err
	}
	if s.dir != nil && dir.ID() == s.dir.ID() {
		dir.Close()
		return s.dir, nil
	}
	return dir, nil
}

// noDir handles a directory that cannot be opened.
func (s *Session) noDir(ctx context.Context, err error) error {
	var refused *taskdir.RefusedError
	if errors.As(err, &refused) {
		s.complain([]taskdir.Refusal{{Name: s.task, Why: refused.Error()}})
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s.happen(ctx, DirectoryGone)
	}
	return fmt.Errorf("open task %q: %w", s.task, err)
}

// complain logs what stands in place of a protocol file, once each.
func (s *Session) complain(refused []taskdir.Refusal) {
	for _, r := range refused {
		key := r.Name + ": " + r.Why
		if s.refused[key] {
			continue
		}
		if s.refused == nil {
			s.refused = map[string]bool{}
		}
		s.refused[key] = true
		s.log.Warn("refused a file", "file", r.Name, "why", r.Why)
		if s.st != nil {
			s.st.warn(key)
		}
	}
}

// otherDirectory ends a session whose directory is another one now. A directory
// with a status.json is the same task, moved or restored from a backup.
func (s *Session) otherDirectory(ctx context.Context, dir *taskdir.Dir, sight taskdir.Sight) error {
	if s.phase == Idle {
		return nil
	}
	known := taskdir.FileID{}
	switch {
	case s.st != nil:
		known = s.st.Dir
	case s.memo != nil:
		known = s.memo.Dir
	}
	if known == dir.ID() || known == (taskdir.FileID{}) {
		return nil
	}
	if sight.HasStatus && !s.phase.hasRunner() {
		if s.st != nil {
			s.st.Dir = dir.ID()
		} else {
			s.memo.Dir = dir.ID()
		}
		return nil
	}
	if err := s.happen(ctx, DirectoryGone); err != nil {
		return err
	}
	// The look goes on with the new directory, or is repeated once the runner is out.
	s.Look()
	return nil
}

// lookAtInput reads an input.txt that may be new.
func (s *Session) lookAtInput(ctx context.Context, dir *taskdir.Dir, stat *taskdir.Stat) error {
	if stat == nil || stat.Size == 0 || s.phase == Leaving {
		return nil
	}
	if *stat == s.seenInput || s.inputMark().sees(stat) {
		return nil
	}
	if i := s.pendingIndex(taskdir.InputName); i >= 0 {
		return nil
	}
	return s.tryPending(ctx, dir, &pending{p: dir.InPlace(taskdir.InputName), file: taskdir.InputName, since: time.Now()})
}

func (s *Session) inputMark() inputMark {
	switch {
	case s.st != nil:
		return s.st.Input
	case s.memo != nil:
		return s.memo.Input
	}
	return inputMark{}
}

// lookAtLateFiles starts a round over for a context.json or _history.json that
// came before the first answer, and notes those that came later.
func (s *Session) lookAtLateFiles(ctx context.Context, sight taskdir.Sight) error {
	late := (sight.Context != nil && sight.Context.Size > 0 && !s.st.ContextMark.sees(sight.Context)) ||
		(sight.History != nil && sight.History.Size > 0 && !s.st.HistoryMark.sees(sight.History))
	if !late {
		return nil
	}
	if s.st.Round == 0 && s.st.Answers == 0 {
		s.run.output.Line("[context.json or _history.json arrived, the round starts over]\n")
		s.flush()
		return s.happen(ctx, FilesArrived)
	}
	for _, f := range []struct {
		name string
		stat *taskdir.Stat
		mark *fileMark
	}{{taskdir.ContextName, sight.Context, &s.st.ContextMark}, {taskdir.HistoryName, sight.History, &s.st.HistoryMark}} {
		if f.stat == nil || f.mark.sees(f.stat) {
			continue
		}
		*f.mark = fileMark{Size: f.stat.Size, Mtime: f.stat.Mtime.UnixNano()}
		s.nextSeq++
		if err := s.hold(&record{Message: &messageRecord{
			Seq: s.nextSeq - 1, File: f.name, Outcome: "too late for this session: counts from the next input.txt",
			Fingerprint: taskdir.Fingerprint{Size: f.stat.Size, Mtime: f.stat.Mtime.UnixNano()},
		}}); err != nil {
			return err
		}
		s.statusDue = time.Now()
	}
	return nil
}

// take renames a control file out of its writers' way and tries to read it.
func (s *Session) take(ctx context.Context, dir *taskdir.Dir, name string) error {
	if s.pendingIndex(name) >= 0 {
		// An earlier one is still on its way; the order is kept.
		return nil
	}
	p, err := dir.Take(name, s.nextSeq)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		s.log.Warn("control file cannot be taken", "file", name, "err", err)
		return nil
	}
	seq := s.nextSeq
	s.nextSeq++
	return s.tryPending(ctx, dir, &pending{p: p, file: name, seq: seq, since: time.Now()})
}

func (s *Session) pendingIndex(name string) int {
	return slices.IndexFunc(s.pending, func(p *pending) bool { return p.file == name })
}

// tryPending reads a file that is whole and acts on it, or keeps it for later.
func (s *Session) tryPending(ctx context.Context, dir *taskdir.Dir, p *pending) error {
	content, whole := s.readPending(dir, p)
	if !whole {
		return nil
	}
	if p.file == taskdir.InputName {
		return s.inputRead(ctx, content)
	}
	return s.messageRead(ctx, p, content)
}

// readPending reads a file if it is whole. One that is not stays in s.pending;
// one that cannot be read at all is given up with a log line.
func (s *Session) readPending(dir *taskdir.Dir, p *pending) (taskdir.Content, bool) {
	now := time.Now()
	content, err := dir.Read(p.p, now)
	i := slices.Index(s.pending, p)
	var notWhole *taskdir.NotWholeError
	if errors.As(err, &notWhole) {
		p.retryAt = now.Add(notWhole.RetryAfter)
		if i < 0 {
			s.pending = append(s.pending, p)
		}
		if !p.told && now.Sub(p.since) > longWait {
			p.told = true
			s.log.Warn("file has been open for writing for long; it is read when its writer closes it", "file", p.file, "since", p.since)
			if s.st != nil {
				s.st.warn(fmt.Sprintf("%s has been open for writing since %s; it is read when its writer closes it", p.file, p.since.Format(time.TimeOnly)))
				s.statusDue = now
			}
		}
		return taskdir.Content{}, false
	}
	if i >= 0 {
		s.pending = slices.Delete(s.pending, i, i+1)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("control file cannot be read", "file", p.file, "err", err)
			if s.st != nil {
				s.st.warn(err.Error())
				s.statusDue = now
			}
		}
		return taskdir.Content{}, false
	}
	return content, true
}

func (s *Session) retryPending(ctx context.Context, now time.Time) error {
	for _, p := range slices.Clone(s.pending) {
		if !due(p.retryAt, now) {
			continue
		}
		dir, err := s.openDir()
		if err != nil {
			return s.noDir(ctx, err)
		}
		err = s.tryPending(ctx, dir, p)
		if dir != s.dir {
			dir.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inputRead decides whether a whole input.txt is a new one.
func (s *Session) inputRead(ctx context.Context, c taskdir.Content) error {
	known := s.inputMark()
	if s.phase != Idle && c.SHA256 == known.SHA256 && !c.Stat.Mtime.After(known.TakenAt) {
		s.seenInput = c.Stat
		return nil
	}
	s.arrived = arrival{file: taskdir.InputName, Content: c}
	return s.happen(ctx, InputArrived)
}

// messageRead journals a message that was read whole, acts on it, and plans its
// deletion.
func (s *Session) messageRead(ctx context.Context, p *pending, c taskdir.Content) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	fp := c.Fingerprint()
	defer func() { s.drops = append(s.drops, drop{p.p, fp, time.Now().Add(dropAfter)}) }()
	if s.st.knows(fp) {
		s.log.Info("control file came back after it was acted on; it is deleted", "file", p.file)
		s.settleDown()
		return nil
	}
	msg := &messageRecord{Seq: p.seq, File: p.file, Text: c.Text, Encoding: c.Encoding, Fingerprint: fp}
	switch {
	case p.file == taskdir.StopName:
		return s.stopRead(ctx, msg, c.Stat.Mtime)
	case p.file == taskdir.KeyInfoName:
		if err := s.commit(ctx, &record{Message: msg, Memo: &Memo{}}); err != nil {
			return err
		}
		s.settleDown()
		return nil
	case s.phase == Awaiting || s.phase == Ended:
		s.arrived = arrival{file: p.file, seq: p.seq, Content: c}
		if err := s.hold(&record{Message: msg}); err != nil {
			return err
		}
		return s.happen(ctx, MessageArrived)
	default:
		// It was whole only after a round had begun: an intervention joins that one,
		// a reply opens the next.
		return s.commit(ctx, &record{Message: msg})
	}
}

// stopRead acts on a _stop, unless it was meant for what is over already.
func (s *Session) stopRead(ctx context.Context, msg *messageRecord, mtime time.Time) error {
	before := s.st.StartedAt
	if s.st.ClosedAt.After(before) {
		before = s.st.ClosedAt
	}
	switch {
	case s.phase == Ended:
		msg.Outcome = "without effect: the session had ended"
	case mtime.Before(before.Truncate(time.Millisecond)):
		msg.Outcome = "without effect: older than the end of the last round"
	case s.phase == Awaiting:
		msg.Outcome = "ended the session"
	default:
		msg.Outcome = "stopped the round"
	}
	if s.phase == Ended || mtime.Before(before.Truncate(time.Millisecond)) {
		if err := s.commit(ctx, &record{Message: msg, Memo: &Memo{}}); err != nil {
			return err
		}
		s.settleDown()
		return nil
	}
	if s.phase.hasRunner() {
		// Cancel first: what was asked for is to stop at once.
		if err := s.happen(ctx, StopArrived); err != nil {
			return err
		}
		return s.commit(ctx, &record{Message: msg})
	}
	if err := s.hold(&record{Message: msg}); err != nil {
		return err
	}
	return s.happen(ctx, StopArrived)
}

// settleDown writes the status and unloads again after a message that changed
// nothing in a session at rest.
func (s *Session) settleDown() {
	if s.phase == Awaiting || s.phase == Ended {
		s.writeStatus(false)
		s.unload()
		return
	}
	s.statusDue = time.Now()
}

// dropTaken deletes taken files whose time has come. What was added to one
// meanwhile is a message of its own.
func (s *Session) dropTaken(ctx context.Context, now time.Time) {
	s.drops = slices.DeleteFunc(s.drops, func(d drop) bool {
		if !due(d.at, now) {
			return false
		}
		dir, err := s.openDir()
		if err != nil {
			return true
		}
		if dir != s.dir {
			defer dir.Close()
		}
		rest, err := dir.Drop(d.p, d.fp)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("taken file cannot be deleted", "err", err)
		}
		if rest != nil {
			s.pending = append(s.pending, &pending{p: rest, file: rest.Name(), seq: s.nextSeq, since: now, retryAt: now})
			s.nextSeq++
		}
		return true
	})
	if len(s.pending) > 0 {
		if err := s.retryPending(ctx, now); err != nil {
			s.log.Error("message cannot be acted on", "err", err)
		}
	}
}

// inbox takes what the supervisor wrote for the running round: called at the end
// of each turn, and when the model completes.
func (s *Session) inbox(ctx context.Context) ([]round.Note, error) {
	if s.phase != Running {
		return nil, nil
	}
	dir, err := s.openDir()
	if err != nil {
		return nil, nil // The next look finds out what became of it.
	}
	if dir != s.dir {
		dir.Close()
		s.Look()
		return nil, nil
	}
	sight, err := dir.Look()
	if err != nil {
		return nil, nil
	}
	if sight.Stop != nil {
		s.Look()
	}
	var records []*record
	for _, m := range []struct {
		name string
		stat *taskdir.Stat
	}{{taskdir.KeyInfoName, sight.KeyInfo}, {taskdir.InterveneName, sight.Intervene}} {
		if m.stat == nil || m.stat.Size == 0 {
			continue
		}
		i := s.pendingIndex(m.name)
		var p *pending
		if i >= 0 {
			p = s.pending[i]
		} else {
			taken, err := dir.Take(m.name, s.nextSeq)
			if err != nil {
				continue
			}
			p = &pending{p: taken, file: m.name, seq: s.nextSeq, since: time.Now()}
			s.nextSeq++
		}
		c, whole := s.readPending(dir, p)
		if !whole {
			continue
		}
		s.drops = append(s.drops, drop{p.p, c.Fingerprint(), time.Now().Add(dropAfter)})
		records = append(records, &record{Message: &messageRecord{Seq: p.seq, File: p.file, Text: c.Text, Encoding: c.Encoding, Fingerprint: c.Fingerprint()}})
	}
	if len(records) > 0 {
		if err := s.commit(ctx, records...); err != nil {
			return nil, err
		}
		s.statusDue = time.Now()
	}
	return slices.DeleteFunc(slices.Clone(s.st.Notes), func(n round.Note) bool { return n.Kind == noteReply }), nil
}
