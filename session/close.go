package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// openOutput creates the round's output, or goes on with the one of a round that
// was cut short, or that starts over.
func (s *Session) openOutput(dir *taskdir.Dir) error {
	r := s.run
	if r.output != nil {
		return nil // It starts over, and nothing that was shown is taken back.
	}
	out, err := dir.ReopenOutput(s.st.Round, 0)
	switch {
	case err == nil && r.resumed && out.Size() > 0:
		out.Line("\n[interrupted by a restart, goes on]")
	case err == nil && out.Size() == 0:
		// Made by a process that got no further.
	default:
		if err == nil {
			out.Close()
		}
		if out, err = dir.CreateOutput(s.st.Round); err != nil {
			return fmt.Errorf("open %s: %w", taskdir.OutputName(s.st.Round), err)
		}
	}
	r.output = out
	if r.events, err = dir.Events(); err != nil {
		s.log().Warn("events.jsonl cannot be written", "err", err)
	}
	return nil
}

// closeRound ends the round for everybody to see, in the order that makes the
// marker the last: journal, history.json, status.json, marker.
func (s *Session) closeRound(ctx context.Context) error {
	if s.st.Aside > 0 {
		return s.closeAside(ctx)
	}
	r := s.run
	// What opened a round that ends before its first commit may still be held: nothing
	// of it is shown before that is durable.
	if err := s.sync(ctx); err != nil {
		return err
	}
	if err := s.settleChildren(); err != nil {
		return err
	}
	end := &closedRecord{
		Outcome: r.outcome, Shown: s.showEnd(), Deadline: time.Now().Add(s.cfg.ReplyTimeout),
		// A message that no request has seen counts as said, for the reply that may come.
		Join: !s.st.Joined && !blank(s.st.RoundText),
	}
	if err := s.commit(ctx, &record{Closed: end}); err != nil {
		return err
	}
	s.at("round_closed")
	s.floor = time.Time{}
	s.event("state", map[string]any{
		"state": s.phase.Public(), "session": s.st.Session, "round": s.st.Round, "reason": end.Reason, "error": end.Error,
	})
	took := time.Duration(0) // in the queue it has not begun
	if !s.st.RoundStarted.IsZero() {
		took = time.Since(s.st.RoundStarted).Round(time.Millisecond)
	}
	s.log().Info("round ended", "session", s.st.Session, "round", s.st.Round, "reason", end.Reason, "turns", s.st.Turn, "took", took)
	u := &unsaid{round: s.st.Round, output: r.output, marker: true, history: true, status: true}
	r.output = nil
	s.say(u)
	r.close()
	s.run = nil
	return nil
}

// showEnd shows the outcome and returns the size of the output with it, 0 where it
// cannot be shown now.
func (s *Session) showEnd() int64 {
	r := s.run
	if r.output == nil {
		// Nothing was shown of it yet, so nothing is before the journal has its end: a
		// start after a crash would take the file for somebody else's.
		return 0
	}
	s.finishCallLine()
	showOutcome(r.output, r.outcome, true)
	if err := r.output.Flush(); err != nil {
		s.log().Error("end of the round cannot be shown, trying again", "err", err)
		return 0
	}
	return r.output.Size()
}

// unsaid is what readers are still to be told of a round or of the session's end.
// The journal has it.
type unsaid struct {
	round int
	// output is open where the marker waits for nothing else.
	output *taskdir.Output
	// marker, history and status say what is still to be written.
	marker, history, status bool
	// aside is the n of old/<n>/ whose outputs want their markers, 0 for none.
	aside int

	due   time.Time
	pause time.Duration
}

func (u *unsaid) close() {
	if u.output != nil {
		u.output.Close()
		u.output = nil
	}
}

// say tells readers what is to be told, now or as soon as the disk takes it. A
// marker that has to wait holds up neither the session nor its place in the queue,
// but later ones do not overtake it: so a start after a crash knows where to look.
func (s *Session) say(u *unsaid) {
	s.unsaid = append(s.unsaid, u)
	if len(s.unsaid) == 1 {
		s.sayAll(time.Now())
	}
}

// sayAll says what is due, and stops at what cannot be said.
func (s *Session) sayAll(now time.Time) {
	for len(s.unsaid) > 0 {
		u := s.unsaid[0]
		if u.due.After(now) {
			return
		}
		if err := s.trySay(u); err != nil {
			if u.pause == 0 {
				s.log().Error("end of the round cannot be written, trying again", "round", u.round, "err", err)
			}
			u.pause = min(max(2*u.pause, firstPause), maxPause)
			u.due = now.Add(u.pause)
			return
		}
		u.close()
		s.unsaid = s.unsaid[1:]
	}
	s.unsaid = nil
}

// saySoon tries again what could not be said.
func (s *Session) saySoon(now time.Time) {
	if len(s.unsaid) == 0 {
		return
	}
	s.sayAll(now)
	if len(s.unsaid) == 0 && (s.phase == Awaiting || s.phase == Ended) {
		s.unload()
	}
}

// trySay writes what is still to be written, the marker last.
func (s *Session) trySay(u *unsaid) error {
	dir, err := s.openDir()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // There is nobody to tell.
	}
	if err != nil {
		return err
	}
	if u.aside > 0 {
		return dir.MarkArchived(u.aside)
	}
	// A later round has said, or will say, what is in these files.
	if s.st != nil && s.st.Outcome != nil && s.st.Round == u.round {
		if u.history {
			if err := s.writeResults(dir); err != nil {
				return err
			}
			u.history = false
			s.at("history_written")
		}
		if u.status {
			if err := dir.WriteStatus(s.status(dir), true); err != nil {
				return err
			}
			s.statusDue = time.Time{}
			u.status = false
			s.at("status_written")
		}
	}
	if !u.marker {
		return nil
	}
	if u.output == nil {
		if u.output, err = s.reopenEnd(dir, u.round); err != nil || u.output == nil {
			return err
		}
	}
	if err := u.output.End(); err != nil {
		return err
	}
	s.at("marked")
	return nil
}

// reopenEnd opens the output of a round that was over, and shows its outcome where
// that was lost. It is nil where the marker stands already.
func (s *Session) reopenEnd(dir *taskdir.Dir, n int) (*taskdir.Output, error) {
	end := s.st.Outcome
	if n != s.st.Round {
		end = nil
	}
	shown := int64(0)
	if end != nil {
		shown = end.Shown
	}
	out, err := dir.ReopenOutput(n, shown)
	var refused *taskdir.RefusedError
	switch {
	case errors.Is(err, taskdir.ErrFinished):
		return nil, nil
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &refused):
		if out, err = dir.CreateOutput(n); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	if end != nil && (out.Lost() > 0 || shown == 0 || out.Size() == 0) {
		showOutcome(out, end.Outcome, false)
	}
	return out, nil
}

// writeResults writes history.json, the conversation in the form that GenericAgent
// reads too, and result.json where the task asked for one.
func (s *Session) writeResults(dir *taskdir.Dir) error {
	b, err := history.Export(s.st.Conversation)
	if err != nil {
		s.log().Error("conversation cannot be exported", "err", err)
		return nil // It would not be better the next time.
	}
	if err := dir.WriteHistory(b); err != nil {
		return err
	}
	if end := s.st.Outcome; end.Reason == round.Completed && len(end.Data) > 0 {
		return dir.WriteResult(append(slices.Clip(end.Data), '\n'))
	}
	return nil
}

// closeUnrun ends a round that never got its place.
func (s *Session) closeUnrun(ctx context.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	s.stopChildren()
	s.run = &running{outcome: round.Outcome{Reason: round.Stopped}, resumed: s.st.Began}
	return s.closeRound(ctx)
}

// setAside moves what the earlier session left to old/<n>/. A round that is still
// on its way out gets its marker there (closeAside), any other at once.
func (s *Session) setAside(ctx context.Context) error {
	dir, err := s.openDir()
	if err != nil {
		return err
	}
	if s.damagedBy() == "" && (s.memo == nil || !s.memo.Adopted) {
		if err := s.load(); err != nil {
			return err
		}
	}
	if s.run == nil {
		s.stopChildren()
	}
	if s.st == nil && s.memo == nil {
		sight, err := dir.Look()
		if err != nil {
			return err
		}
		if unrecorded(dir, sight) {
			return nil // Nobody has been told of anything.
		}
	}
	n := 0
	if s.st != nil {
		n = s.st.Aside // after a crash
	}
	for {
		if n == 0 {
			if n, err = dir.NextOld(); err != nil {
				return fmt.Errorf("set the earlier session of task %q aside: %w", s.task, err)
			}
			n = s.place().freeOld(n)
		}
		s.aside = n
		if s.st != nil && s.st.Aside != n {
			if err := s.commit(ctx, &record{Aside: &asideRecord{N: n}}); err != nil {
				return err
			}
			s.at("aside_committed")
		}
		s.sayAside()
		used, err := dir.Archive(n)
		if err != nil {
			return fmt.Errorf("set the earlier session of task %q aside: %w", s.task, err)
		}
		if used == n {
			break
		}
		n = used // Somebody has put another directory there.
	}
	s.at("set_aside")
	if s.run != nil {
		return nil
	}
	return s.closeAside(ctx)
}

// closeAside ends a session whose files are in old/<n>/: its open round, if there is
// one, its status, and the outputs without a marker.
func (s *Session) closeAside(ctx context.Context) error {
	r := s.run
	replaced := round.Outcome{Reason: round.Replaced}
	if s.st != nil && s.st.Phase == Queued {
		if err := s.commit(ctx, &record{Closed: &closedRecord{Outcome: replaced}}); err != nil {
			return err
		}
		s.at("aside_closed")
		if s.st.inFirstRound() {
			s.cfg.Children.Over(s.task)
		}
		s.event("state", map[string]any{"state": "ended", "session": s.st.Session, "round": s.st.Round, "reason": replaced.Reason})
		s.log().Info("round ended", "session", s.st.Session, "round", s.st.Round, "reason", replaced.Reason)
	}
	dir, err := s.openDir()
	if err != nil {
		return err
	}
	old, err := dir.Old(s.aside)
	if errors.Is(err, fs.ErrNotExist) {
		r.close()
		s.run = nil
		return nil // Nothing had been shown.
	}
	if err != nil {
		return fmt.Errorf("set the earlier session of task %q aside: %w", s.task, err)
	}
	defer old.Close()
	if s.st != nil {
		v := s.status(old)
		v.State = taskdir.Ended
		if err := old.WriteStatus(v, false); err != nil {
			s.log().Warn("status of the replaced session cannot be written", "err", err)
		}
		s.at("aside_status")
	}
	if err := s.showAside(old); err != nil {
		s.log().Error("end of the replaced session cannot be shown", "err", err)
	}
	s.say(&unsaid{aside: s.aside})
	s.at("aside_marked")
	r.close()
	s.run = nil
	return nil
}

// sayAside forgets what readers were still to be told in the task's directory: they
// are told in old/<n>/, and of earlier sessions in theirs.
func (s *Session) sayAside() {
	s.unsaid = slices.DeleteFunc(s.unsaid, func(u *unsaid) bool {
		u.close()
		return u.aside == 0
	})
}

// showAside shows in old/<n>/ how the session's last round came out, where that does
// not stand there. Its marker is said after those that are owed already.
func (s *Session) showAside(old *taskdir.Dir) error {
	if s.st == nil || s.st.Outcome == nil {
		return nil
	}
	end, out := s.st.Outcome, (*taskdir.Output)(nil)
	if s.run != nil && s.run.output != nil {
		s.finishCallLine()
		out, s.run.output = s.run.output, nil
	}
	if out == nil {
		var err error
		out, err = old.ReopenOutput(s.st.Round, end.Shown)
		var refused *taskdir.RefusedError
		switch {
		case errors.Is(err, taskdir.ErrFinished), errors.Is(err, fs.ErrNotExist), errors.As(err, &refused):
			return nil
		case err != nil:
			return err
		}
	}
	if end.Shown == 0 || out.Lost() > 0 {
		showOutcome(out, end.Outcome, false)
	}
	return out.Close()
}

// awaitReply waits for a reply, unless there is one already.
func (s *Session) awaitReply(ctx context.Context) error {
	if s.st.childDone() {
		return s.endChild(ctx)
	}
	if opened, err := s.openNoted(ctx); opened || err != nil {
		return err
	}
	s.statusDue = time.Time{}
	s.unload()
	s.Look()
	return nil
}

// openNoted opens a round with a message that was taken and that no round has
// applied: an intervention before a reply.
func (s *Session) openNoted(ctx context.Context) (opened bool, err error) {
	for _, kind := range []round.NoteKind{round.NoteIntervene, noteReply} {
		for _, n := range s.st.Notes {
			if n.Kind == kind {
				return true, s.nextRound(ctx, string(kind), n.Seq)
			}
		}
	}
	return false, nil
}

// endSession ends a session at rest.
func (s *Session) endSession(ctx context.Context, reason round.Reason) error {
	if err := s.load(); err != nil {
		return err
	}
	if err := s.settleChildren(); err != nil {
		return err
	}
	if err := s.commit(ctx, &record{Ended: &endedRecord{Reason: reason}}); err != nil {
		return err
	}
	s.at("ended")
	s.log().Info("session ended", "session", s.st.Session, "reason", reason)
	s.eventAtRest("state", map[string]any{"state": "ended", "reason": reason})
	s.say(&unsaid{round: s.st.Round, status: true})
	s.unload()
	return nil
}

// endGone ends a session whose directory is gone: nothing is written there, and
// the journal is kept where no later task of that name meets it.
func (s *Session) endGone() error {
	s.log().Info("task directory is gone, its session is over")
	if s.known().Phase == Queued && s.load() == nil {
		s.stopChildren()
	}
	s.run.close()
	s.run = nil
	s.closeFiles()
	s.st, s.memo, s.pending, s.drops, s.held, s.statusDue, s.lookDue = nil, nil, nil, nil, nil, time.Time{}, time.Time{}
	s.phase, s.aside, s.floor, s.seenInput, s.leftover, s.fresh = Idle, 0, time.Time{}, fileMark{}, false, false
	// What comes under that name is looked at as if for the first time.
	s.looked, s.nextSeq = false, 1
	s.at("directory_gone")
	if err := s.place().archive(time.Now()); err != nil {
		return fmt.Errorf("task %q: %w", s.task, err)
	}
	s.Look()
	return nil
}
