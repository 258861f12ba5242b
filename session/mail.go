package session

import "sync/atomic"

// mail is what others have for a session, and its own alarm. A session that waits
// holds one of these where it could hold a channel for each: there are thousands.
type mail struct {
	// wake has room for one: there is something below.
	wake chan struct{}

	look, stop, alarm atomic.Bool
	// grant is the ticket of a place that was given, 0 for none.
	grant atomic.Uint64
}

// ring wakes the session.
func (m *mail) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mail) put(what *atomic.Bool) {
	what.Store(true)
	m.ring()
}

// Look asks the session to look at its directory soon.
func (s *Session) Look() { s.mail.put(&s.mail.look) }

// HasLook reports whether a look was asked for that Run has not taken up.
func (s *Session) HasLook() bool { return s.mail.look.Load() }

// Stop stops a subagent for its parent, as a _stop does, and ends its session.
func (s *Session) Stop() { s.mail.put(&s.mail.stop) }

// Grant gives the place that was asked for with this ticket. One goroutine calls it.
func (s *Session) Grant(ticket uint64) {
	s.mail.grant.Store(ticket)
	s.mail.ring()
}
