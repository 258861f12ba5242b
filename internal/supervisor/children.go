package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/session"
)

// stopPatience bounds how long a parent waits for a child that was told to stop.
const stopPatience = 10 * time.Second

// awaitChild is session.Children.Await. It is called by the parent's runner.
func (s *Supervisor) awaitChild(ctx context.Context, child string) {
	for {
		over := make(chan struct{})
		s.send(await{child, over})
		// The child's journal is read after the request: what is over then needs no word,
		// and what is not gives it.
		if _, err := session.FirstResult(s.cfg.Session.StateDir, child); !errors.Is(err, session.ErrNoResult) {
			return
		}
		select {
		case <-over:
		case <-s.done:
			return
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), round.ErrShutdown) {
				return
			}
			s.send(stopChild{child})
			patience := time.NewTimer(stopPatience)
			defer patience.Stop()
			select {
			case <-over:
			case <-s.done:
			case <-patience.C:
			}
			return
		}
	}
}
