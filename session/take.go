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

// pending is a file that may still be growing.
type pending struct {
	p       *taskdir.Pending
	file    string
	seq     uint64
	retryAt time.Time
	// told says that the log knows of a writer that does not close it, and troubled
	// since when it cannot be read.
	told     bool
	troubled time.Time
}

// drop is a taken file that has done its duty.
type drop struct {
	p    *taskdir.Pending
	fp   taskdir.Fingerprint
	file string
	at   time.Time
}

// take renames a control file out of its writers' way and tries to read it.
func (s *Session) take(ctx context.Context, dir *taskdir.Dir, name string) error {
	if s.pendingIndex(name) >= 0 {
		return nil // An earlier one is still on its way; the order is kept.
	}
	p, err := dir.Take(name, s.nextSeq)
	var busy taskdir.ErrNotWhole
	switch {
	case errors.As(err, &busy):
		s.lookDue = time.Now().Add(busy.RetryAfter)
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, taskdir.ErrEmpty):
		return nil
	case errors.Is(err, fs.ErrExist):
		// Somebody has put a file under the name that this one was to get.
		s.nextSeq++
		s.Look()
		return nil
	case err != nil:
		s.lookLater(err)
		return nil
	}
	seq := s.nextSeq
	s.nextSeq++
	s.at("claimed")
	return s.tryPending(ctx, dir, &pending{p: p, file: name, seq: seq})
}

// takeRefused answers what stands in place of a message and is no file. One that
// cannot be put out of the way is warned of, and gets no answer: it would get another
// at every look.
func (s *Session) takeRefused(ctx context.Context, dir *taskdir.Dir, r taskdir.Refusal) error {
	if s.pendingIndex(r.Name) >= 0 {
		return nil
	}
	p, err := dir.TakeRefused(r.Name, s.nextSeq)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid):
		return nil // It is gone; what has come instead is seen by the look that it causes.
	case errors.Is(err, fs.ErrExist):
		s.nextSeq++
		s.Look()
		return nil
	case err != nil:
		return s.warn(ctx, r.Name+": "+r.Why)
	}
	s.nextSeq++
	return s.tryPending(ctx, dir, &pending{p: p, file: r.Name, seq: s.nextSeq - 1})
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
	if err == nil && s.grown(dir, p) {
		return c, false, nil
	}
	var notWhole taskdir.ErrNotWhole
	if errors.As(err, &notWhole) {
		s.keepPending(p, now.Add(notWhole.RetryAfter))
		if !p.told && notWhole.Waited > longWait {
			p.told = true
			s.log().Warn("file has been open for writing for long; it is read when its writer closes it", "file", p.file)
			err = s.warn(ctx, p.file+" has been open for writing for more than a minute; it is read when its writer closes it")
			return c, false, err
		}
		return c, false, nil
	}
	var refused *taskdir.RefusedError
	var tooLarge *taskdir.TooLargeError
	switch {
	case err == nil, errors.Is(err, taskdir.ErrEmpty), errors.Is(err, fs.ErrNotExist), errors.As(err, &refused), errors.As(err, &tooLarge):
	case errors.Is(err, fs.ErrPermission) && !p.troubled.IsZero() && now.Sub(p.troubled) >= rightsWait:
	default:
		// A trouble that may pass: too many open files, a disk that does not answer, an
		// owner that is about to change.
		if p.troubled.IsZero() {
			p.troubled = now
			s.log().Error("file cannot be read, trying again", "file", p.file, "err", err)
		}
		s.keepPending(p, now.Add(time.Second))
		return c, false, nil
	}
	s.pending = slices.DeleteFunc(s.pending, func(q *pending) bool { return q == p })
	switch {
	case err == nil:
		return c, true, nil
	case errors.Is(err, fs.ErrNotExist):
		return c, false, nil
	case errors.Is(err, taskdir.ErrEmpty) && p.file == taskdir.InputFile:
		s.seenInput = markOf(c.Stat, c.SHA256)
		return c, false, nil
	case errors.Is(err, taskdir.ErrEmpty):
		s.dropLater(p, c.Fingerprint())
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
			s.pending = slices.Insert(s.pending, 0, s.addition(rest, d.file, now))
			return true
		}
	}
	return false
}

// addition is what was added to a message after it had been read.
func (s *Session) addition(rest *taskdir.Pending, file string, now time.Time) *pending {
	s.nextSeq++
	return &pending{p: rest, file: file, seq: s.nextSeq - 1, retryAt: now}
}

// refuse gives up a file that cannot be read as it is. Nothing is destroyed: an
// input.txt stays, a message is renamed.
func (s *Session) refuse(ctx context.Context, dir *taskdir.Dir, p *pending, cause error) error {
	s.log().Warn("file is refused", "file", p.file, "err", cause)
	if p.file == taskdir.InputFile {
		return s.refuseInput(ctx, dir, cause)
	}
	name, err := dir.SetAside(p.p)
	if err != nil {
		s.lookLater(err)
		s.keepPending(p, s.lookDue)
		return nil
	}
	if err := s.load(); err != nil || s.st == nil {
		return err
	}
	msg := &messageRecord{Seq: p.seq, File: p.file, Outcome: fmt.Sprintf("%s%v; kept as %s", outcomeRefused, cause, name), Refused: true}
	if tooLarge := (*taskdir.TooLargeError)(nil); errors.As(cause, &tooLarge) {
		msg.Bytes = tooLarge.Stat.Size
	}
	opens := p.file == taskdir.ReplyFile || p.file == taskdir.InterveneFile
	if opens && (s.phase == Awaiting || s.phase == Ended) {
		if err := s.hold(&record{Message: msg}); err != nil {
			return err
		}
		return s.nextRound(ctx, msg.File, msg.Seq)
	}
	if err := s.commit(ctx, &record{Message: msg}); err != nil {
		return err
	}
	s.settleDown()
	return nil
}

// refuseInput begins a session with an input.txt that cannot be read. Its round ends
// at once: whoever wrote the file waits for the end of an output.
func (s *Session) refuseInput(ctx context.Context, dir *taskdir.Dir, cause error) error {
	if s.phase != Idle && !s.persistInput() {
		return nil
	}
	a := &arrival{file: taskdir.InputFile, refused: cause.Error() + "; correct that, and write input.txt again"}
	if sight, err := dir.Look(); err == nil && sight.Input != nil {
		a.content.Stat, a.content.Bytes = *sight.Input, sight.Input.Size
	}
	s.arrived = a
	return s.happen(ctx, InputArrived)
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
			p.retryAt = now.Add(time.Second)
			return s.noDir(ctx, err)
		}
		if err := s.tryPending(ctx, dir, p); err != nil {
			return err
		}
		waiting[p.file] = slices.Contains(s.pending, p)
		if !waiting[p.file] {
			s.Look() // Another of that name may have waited behind it.
		}
	}
	return nil
}

// messageRead journals a message that was read whole, acts on it, and plans its
// deletion.
func (s *Session) messageRead(ctx context.Context, p *pending, c taskdir.Content) error {
	if err := s.load(); err != nil {
		return err
	}
	fp := c.Fingerprint()
	if s.st.knows(fp) {
		s.log().Info("control file came back after it was acted on; it is deleted", "file", p.file)
		s.dropLater(p, fp)
		s.settleDown()
		return nil
	}
	if known, rest := s.cameBack(p, c); known {
		s.log().Info("control file came back, in an earlier state, after it was acted on; it is deleted", "file", p.file)
		s.dropLater(p, fp)
		s.settleDown()
		return nil
	} else if rest != nil {
		s.keepPending(&pending{p: rest, file: p.file, seq: p.seq}, time.Now())
		return nil
	}
	msg := &messageRecord{
		Seq: p.seq, File: p.file, Text: c.Text, Encoding: c.Encoding, Bytes: c.Bytes, SHA256: c.SHA256, Fingerprint: fp,
	}
	if taken := p.p.Seq(); taken != p.seq {
		msg.Taken = taken
	}
	if err := s.messageArrived(ctx, msg, c.Stat.Mtime); err != nil {
		return err
	}
	s.dropLater(p, fp)
	s.event("message_taken", map[string]any{"file": p.file, "seq": p.seq})
	return nil
}

func (s *Session) messageArrived(ctx context.Context, msg *messageRecord, mtime time.Time) error {
	atRest := s.phase == Awaiting || s.phase == Ended
	switch {
	case msg.File == taskdir.StopFile:
		return s.stopArrived(ctx, msg, mtime)
	case atRest && msg.File != taskdir.KeyInfoFile:
		if err := s.hold(&record{Message: msg}); err != nil {
			return err
		}
		return s.nextRound(ctx, msg.File, msg.Seq)
	}
	// Key info, or what was whole only after a round had begun: an intervention joins
	// that one, a reply opens the next.
	if err := s.commit(ctx, &record{Message: msg}); err != nil {
		return err
	}
	s.settleDown()
	return nil
}

// nextRound opens a round with a message that the state knows.
func (s *Session) nextRound(ctx context.Context, file string, seq uint64) error {
	s.arrived = &arrival{file: file, seq: seq}
	return s.happen(ctx, MessageArrived)
}

// stopArrived acts on a _stop, unless it was meant for what is over already.
func (s *Session) stopArrived(ctx context.Context, msg *messageRecord, mtime time.Time) error {
	switch {
	case s.phase == Ended:
		msg.Outcome = outcomeOver
	case s.stale(mtime):
		msg.Outcome = outcomeStale
	}
	if msg.Outcome != "" {
		if err := s.commit(ctx, &record{Message: msg}); err != nil {
			return err
		}
		s.settleDown()
		return nil
	}
	if s.run.live() {
		// Before anything waits for a disk.
		s.run.cancel(round.ErrStopped)
	}
	if err := s.hold(&record{Message: msg}); err != nil {
		return err
	}
	if err := s.happen(ctx, StopArrived); err != nil {
		return err
	}
	return s.sync(ctx)
}

// stale reports whether a _stop of that age was meant for what is over: it is older
// than the input, or than the end of the last round. That end is for everybody when
// the marker was written.
func (s *Session) stale(mtime time.Time) bool {
	written := time.Unix(0, s.st.Input.Mtime)
	if s.st.Input.TakenAt.Before(written) {
		written = s.st.Input.TakenAt // by a clock that is ahead
	}
	if mtime.Before(written) || mtime.Before(s.st.ClosedAt) {
		return true
	}
	return s.phase == Awaiting && mtime.Before(s.lastOutput) && !s.lastOutput.After(time.Now())
}

// settleDown has the status written after a message that moved nothing.
func (s *Session) settleDown() {
	if s.phase == Awaiting || s.phase == Ended {
		s.writeStatus(false)
		s.unload()
		return
	}
	s.statusDue = time.Now()
}

// dropLater plans the deletion of a taken file. It stays while a writer may still
// have it open, and while the record of it is not durable.
func (s *Session) dropLater(p *pending, fp taskdir.Fingerprint) {
	s.drops = append(s.drops, drop{p.p, fp, p.file, time.Now().Add(s.keepTaken())})
}

func (s *Session) keepTaken() time.Duration {
	if s.cfg.keep != 0 {
		return s.cfg.keep
	}
	return dropAfter
}

// dropTaken deletes taken files whose time has come. What was added to one
// meanwhile is a message of its own.
func (s *Session) dropTaken(now time.Time) {
	for i := 0; i < len(s.drops); i++ {
		d := &s.drops[i]
		if !due(d.at, now) {
			continue
		}
		dir, err := s.openDir()
		if err != nil || len(s.held) > 0 {
			d.at = now.Add(s.keepTaken())
			continue
		}
		rest, err := dir.Drop(d.p, d.fp)
		var notWhole taskdir.ErrNotWhole
		switch {
		case errors.As(err, &notWhole):
			d.at = now.Add(notWhole.RetryAfter)
			continue
		case rest != nil:
			s.pending = append(s.pending, s.addition(rest, d.file, now))
		case err != nil:
			// The journal knows it, so the next start tries again.
			s.log().Warn("taken file cannot be deleted", "err", err)
		}
		s.at("dropped")
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
	for _, m := range messages(sight) {
		if m.name == taskdir.ReplyFile {
			continue
		}
		if i := s.pendingIndex(m.name); i >= 0 {
			if err := s.tryPending(ctx, s.dir, s.pending[i]); err != nil {
				return nil, err
			}
		}
		if m.there() {
			if err := s.take(ctx, s.dir, m.name); err != nil {
				return nil, err
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(s.st.Notes), func(n round.Note) bool { return n.Kind == noteReply }), nil
}
