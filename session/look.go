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
	told    bool
}

// look reads the directory and applies what it finds, in the protocol's order:
// _stop, input.txt, _keyinfo, _intervene, reply.txt.
func (s *Session) look(ctx context.Context) error {
	dir, err := s.openDir()
	if err != nil {
		return s.noDir(ctx, err)
	}
	defer func() { s.letGo(dir) }()
	sight, err := dir.Look()
	if errors.Is(err, taskdir.ErrGone) {
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
		if err := s.take(ctx, dir, taskdir.StopFile); err != nil {
			return err
		}
	}
	if err := s.lookAtInput(ctx, dir, sight.Input); err != nil {
		return err
	}
	if s.phase == Running && s.run != nil && s.st.Parent == "" {
		if err := s.lookAtLateFiles(ctx, sight); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		name string
		stat *taskdir.Stat
	}{{taskdir.KeyInfoFile, sight.KeyInfo}, {taskdir.InterveneFile, sight.Intervene}, {taskdir.ReplyFile, sight.Reply}} {
		if m.stat != nil && m.stat.Size > 0 && (s.phase == Awaiting || s.phase == Ended) {
			if err := s.take(ctx, dir, m.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// openDir returns the directory that the session holds, or opens it for a look;
// letGo closes it in the second case. A held one that is not the task's any
// more says so itself (taskdir.ErrGone).
func (s *Session) openDir() (*taskdir.Dir, error) {
	if s.dir != nil {
		return s.dir, nil
	}
	return s.cfg.Root.Open(s.task)
}

func (s *Session) letGo(dir *taskdir.Dir) {
	if dir != s.dir {
		dir.Close()
	}
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
	if !dir.NewSince(known, sight) && !s.phase.hasRunner() {
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
	if s.seenInput.sees(stat) || s.inputMark().sees(stat) {
		return nil
	}
	if i := s.pendingIndex(taskdir.InputFile); i >= 0 {
		return nil
	}
	return s.tryPending(ctx, dir, &pending{p: dir.InPlace(taskdir.InputFile), file: taskdir.InputFile})
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
	}{{taskdir.ContextFile, sight.Context, &s.st.ContextMark}, {taskdir.ForkFile, sight.History, &s.st.HistoryMark}} {
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
	// What stands there under the daemon's next name somebody else has made: an
	// agent that would keep messages out.
	for tries := 0; errors.Is(err, fs.ErrExist) && tries < 1000; tries++ {
		s.nextSeq++
		p, err = dir.Take(name, s.nextSeq)
	}
	var busy taskdir.ErrNotWhole
	switch {
	case errors.As(err, &busy):
		s.lookDue = time.Now().Add(busy.RetryAfter)
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, taskdir.ErrEmpty):
		return nil
	case err != nil:
		s.log.Warn("control file cannot be taken", "file", name, "err", err)
		return nil
	}
	seq := s.nextSeq
	s.nextSeq++
	return s.tryPending(ctx, dir, &pending{p: p, file: name, seq: seq})
}

func (s *Session) pendingIndex(name string) int {
	return slices.IndexFunc(s.pending, func(p *pending) bool { return p.file == name })
}

// tryPending reads a file that is whole and acts on it, or keeps it for later.
func (s *Session) tryPending(ctx context.Context, dir *taskdir.Dir, p *pending) error {
	content, whole, err := s.readPending(ctx, dir, p)
	if !whole || err != nil {
		return err
	}
	if p.file == taskdir.InputFile {
		return s.inputRead(ctx, content)
	}
	return s.messageRead(ctx, p, content)
}

// readPending reads a file if it is whole. One that is not stays in s.pending; one
// that never will be is refused, with a receipt where it was a message.
func (s *Session) readPending(ctx context.Context, dir *taskdir.Dir, p *pending) (c taskdir.Content, whole bool, err error) {
	now := time.Now()
	c, err = dir.Read(p.p, now)
	if err == nil {
		if earlier := s.grown(dir, p); earlier {
			return c, false, nil
		}
	}
	var notWhole taskdir.ErrNotWhole
	if errors.As(err, &notWhole) {
		s.keepPending(p, now.Add(notWhole.RetryAfter))
		if !p.told && notWhole.Waited > longWait {
			p.told = true
			s.log.Warn("file has been open for writing for long; it is read when its writer closes it", "file", p.file)
			s.warn(p.file + " has been open for writing for more than a minute; it is read when its writer closes it")
		}
		return c, false, nil
	}
	s.pending = slices.DeleteFunc(s.pending, func(q *pending) bool { return q == p })
	switch {
	case err == nil:
		return c, true, nil
	case errors.Is(err, fs.ErrNotExist):
		return c, false, nil
	case errors.Is(err, taskdir.ErrEmpty) && p.file == taskdir.InputFile:
		s.seenInput = fileMark{Size: c.Stat.Size, Mtime: c.Stat.Mtime.UnixNano()}
		return c, false, nil
	case errors.Is(err, taskdir.ErrEmpty):
		s.drops = append(s.drops, drop{p.p, c.Fingerprint(), p.file, now.Add(dropAfter)})
		return c, false, nil
	}
	return c, false, s.refuse(ctx, dir, p, err)
}

func (s *Session) keepPending(p *pending, retryAt time.Time) {
	p.retryAt = retryAt
	if !slices.Contains(s.pending, p) {
		s.pending = append(s.pending, p)
	}
}

// grown looks whether something was added to an earlier message of the same name
// after it was read. The addition comes first: one writer may have made it before
// what stands in p.
func (s *Session) grown(dir *taskdir.Dir, p *pending) bool {
	for i, d := range s.drops {
		if d.file != p.file || p.file == taskdir.InputFile {
			continue
		}
		rest, err := dir.Grown(d.p, d.fp)
		var notWhole taskdir.ErrNotWhole
		switch {
		case errors.As(err, &notWhole):
			s.keepPending(p, time.Now().Add(notWhole.RetryAfter))
			return true
		case rest != nil:
			s.drops = slices.Delete(s.drops, i, i+1)
			now := time.Now()
			s.keepPending(p, now)
			s.pending = slices.Insert(s.pending, 0, &pending{p: rest, file: p.file, seq: s.nextSeq, retryAt: now})
			s.nextSeq++
			return true
		}
	}
	return false
}

// refuse gives up a file that cannot be read as it is. Nothing is destroyed: an
// input.txt stays, a message is renamed.
func (s *Session) refuse(ctx context.Context, dir *taskdir.Dir, p *pending, cause error) error {
	s.log.Warn("file is refused", "file", p.file, "err", cause)
	if p.file == taskdir.InputFile {
		var tooLarge *taskdir.TooLargeError
		if errors.As(cause, &tooLarge) {
			s.seenInput = fileMark{Size: tooLarge.Stat.Size, Mtime: tooLarge.Stat.Mtime.UnixNano()}
		}
		if s.phase == Idle {
			s.writeTrouble(dir, "input", cause.Error())
		}
		s.warn(cause.Error())
		return nil
	}
	name, err := dir.SetAside(p.p)
	if err != nil {
		return fmt.Errorf("refuse %s of task %q: %w", p.file, s.task, err)
	}
	if err := s.load(ctx); err != nil || s.st == nil {
		return err
	}
	outcome := fmt.Sprintf("refused, kept as %s: %v", name, cause)
	if err := s.commit(ctx, &record{Message: &messageRecord{Seq: p.seq, File: p.file, Outcome: outcome}, Memo: s.restMemo()}); err != nil {
		return err
	}
	s.settleDown()
	return nil
}

// warn adds a warning to status.json, where there is a session to warn about.
func (s *Session) warn(text string) {
	if s.st != nil {
		s.st.warn(text)
		s.statusDue = time.Now()
	}
}

// restMemo returns the Memo to write with a record of a session at rest, nil for
// one that is at work.
func (s *Session) restMemo() *Memo {
	if s.phase == Awaiting || s.phase == Ended {
		return &Memo{}
	}
	return nil
}

func (s *Session) retryPending(ctx context.Context, now time.Time) error {
	waiting := map[string]bool{}
	for _, p := range slices.Clone(s.pending) {
		// Messages of one name keep their order.
		if waiting[p.file] || !slices.Contains(s.pending, p) {
			continue
		}
		if !due(p.retryAt, now) {
			waiting[p.file] = true
			continue
		}
		dir, err := s.openDir()
		if err != nil {
			return s.noDir(ctx, err)
		}
		err = s.tryPending(ctx, dir, p)
		s.letGo(dir)
		if err != nil {
			return err
		}
		waiting[p.file] = slices.Contains(s.pending, p)
	}
	return nil
}

// inputRead decides whether a whole input.txt is a new one.
func (s *Session) inputRead(ctx context.Context, c taskdir.Content) error {
	known := s.inputMark()
	if s.phase != Idle && c.SHA256 == known.SHA256 && !c.Stat.Mtime.After(known.TakenAt) {
		s.seenInput = fileMark{Size: c.Stat.Size, Mtime: c.Stat.Mtime.UnixNano()}
		return nil
	}
	s.arrived = arrival{file: taskdir.InputFile, Content: c}
	return s.happen(ctx, InputArrived)
}

// messageRead journals a message that was read whole, acts on it, and plans its
// deletion.
func (s *Session) messageRead(ctx context.Context, p *pending, c taskdir.Content) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	fp := c.Fingerprint()
	defer func() { s.drops = append(s.drops, drop{p.p, fp, p.file, time.Now().Add(dropAfter)}) }()
	if s.st.knows(fp) {
		s.log.Info("control file came back after it was acted on; it is deleted", "file", p.file)
		s.settleDown()
		return nil
	}
	s.event("message_taken", map[string]any{"file": p.file, "seq": p.seq})
	msg := &messageRecord{Seq: p.seq, File: p.file, Text: c.Text, Encoding: c.Encoding, Fingerprint: fp}
	switch {
	case p.file == taskdir.StopFile:
		return s.stopRead(ctx, msg, c.Stat.Mtime)
	case p.file == taskdir.KeyInfoFile:
		if err := s.commit(ctx, &record{Message: msg, Memo: s.restMemo()}); err != nil {
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
	late := true
	switch {
	case s.phase == Ended:
		msg.Outcome = "without effect: the session had ended"
	case mtime.Before(before):
		msg.Outcome = "without effect: older than the end of the last round"
	case s.phase == Awaiting:
		msg.Outcome, late = "ended the session", false
	default:
		msg.Outcome, late = "stopped the round", false
	}
	if late {
		if err := s.commit(ctx, &record{Message: msg, Memo: s.restMemo()}); err != nil {
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
func (s *Session) dropTaken(now time.Time) {
	for i := 0; i < len(s.drops); i++ {
		d := &s.drops[i]
		if !due(d.at, now) {
			continue
		}
		if len(s.held) > 0 {
			// The file stands in for a record that is not durable yet.
			d.at = now.Add(dropAfter)
			continue
		}
		dir, err := s.openDir()
		if err != nil {
			return
		}
		rest, err := dir.Drop(d.p, d.fp)
		s.letGo(dir)
		var notWhole taskdir.ErrNotWhole
		switch {
		case errors.As(err, &notWhole):
			d.at = now.Add(notWhole.RetryAfter)
			continue
		case rest != nil:
			s.pending = append(s.pending, &pending{p: rest, file: d.file, seq: s.nextSeq, retryAt: now})
			s.nextSeq++
		case err != nil:
			s.log.Warn("taken file cannot be deleted", "err", err)
		}
		s.drops = slices.Delete(s.drops, i, i+1)
		i--
	}
}

// inbox takes what the supervisor wrote for the running round: called at the end
// of each turn, and when the model completes.
func (s *Session) inbox(ctx context.Context) ([]round.Note, error) {
	if s.phase != Running {
		return nil, nil
	}
	sight, err := s.dir.Look()
	if err != nil {
		s.Look() // It finds out what became of the directory.
		return nil, nil
	}
	if sight.Stop != nil {
		s.Look()
	}
	for _, m := range []struct {
		name string
		stat *taskdir.Stat
	}{{taskdir.KeyInfoFile, sight.KeyInfo}, {taskdir.InterveneFile, sight.Intervene}} {
		if i := s.pendingIndex(m.name); i >= 0 {
			s.pending[i].retryAt = time.Time{}
			if err := s.tryPending(ctx, s.dir, s.pending[i]); err != nil {
				return nil, err
			}
		}
		if m.stat != nil && m.stat.Size > 0 {
			if err := s.take(ctx, s.dir, m.name); err != nil {
				return nil, err
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(s.st.Notes), func(n round.Note) bool { return n.Kind == noteReply }), nil
}
