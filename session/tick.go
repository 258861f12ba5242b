package session

import (
	"context"
	"time"
)

// arm sets the timer to the next thing that is due. One that would fire before that
// is left as it is: to tick in vain costs less than to set it for every event of a
// round, which also wakes a thread of the runtime.
func (s *Session) arm() {
	now := time.Now()
	next := now.Add(24 * time.Hour)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, p := range s.pending {
		sooner(p.retryAt)
	}
	for i := range s.drops {
		sooner(s.drops[i].at)
	}
	for _, u := range s.unsaid {
		sooner(u.due)
	}
	sooner(s.statusDue)
	sooner(s.lookDue)
	sooner(s.admitDue)
	if s.run != nil {
		sooner(s.run.flushDue)
		sooner(s.run.filesDue)
	}
	if s.phase == Awaiting {
		sooner(s.deadline())
	}
	if s.armed.IsZero() || next.Before(s.armed) {
		s.armed = next
		s.timer.Reset(next.Sub(now))
	}
}

// tick does what is due.
func (s *Session) tick(ctx context.Context, now time.Time) error {
	if (s.phase == Awaiting || s.phase == Ended) && len(s.held) > 0 {
		// Such as that the directory has another number since the machine started anew:
		// nothing else may come that it could be written with.
		if err := s.sync(ctx); err != nil {
			return err
		}
		s.unload()
	}
	s.dropTaken(now)
	if err := s.retryPending(ctx, now); err != nil {
		return err
	}
	if due(s.lookDue, now) {
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	if due(s.admitDue, now) {
		s.enqueue(now)
	}
	if r := s.run; r != nil {
		if due(r.flushDue, now) {
			s.flush()
		}
		if due(r.filesDue, now) {
			r.filesDue = time.Time{}
			if err := s.startRound(ctx); err != nil {
				return err
			}
		}
	}
	if due(s.statusDue, now) {
		if err := s.showStatus(ctx); err != nil {
			return err
		}
	}
	s.saySoon(now)
	if s.phase == Awaiting && due(s.deadline(), now) {
		return s.timeOut(ctx)
	}
	return nil
}

func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// timeOut ends a session that nobody replied to. Thousands may have waited for the
// same moment.
func (s *Session) timeOut(ctx context.Context) error {
	if s.cfg.Ending != nil {
		select {
		case s.cfg.Ending <- struct{}{}:
			defer func() { <-s.cfg.Ending }()
		case <-ctx.Done():
			return nil
		}
	}
	if len(s.looks) > 0 {
		// A reply that came in the last moment counts.
		<-s.looks
		if err := s.look(ctx); err != nil || s.phase != Awaiting {
			return err
		}
	}
	return s.happen(ctx, DeadlinePassed)
}
