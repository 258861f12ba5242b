package supervisor

import (
	"context"
	"errors"
	"sync"
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

// stopChild stops a child's first round, also of one that is not live yet, or whose
// session ends with an error before it hears of it.
func (s *Supervisor) stopChild(ctx context.Context, child string) {
	t := s.tasks[child]
	if t == nil {
		t = &task{}
		s.tasks[child] = t
	}
	t.stop = true
	if t.session != nil {
		t.session.Stop()
		return
	}
	s.look(ctx, child, true)
}

// loans are the budgets that children draw on, by child.
type loans struct {
	mu   sync.Mutex
	lent map[string]session.Reserve
}

// lend is session.Children.Lend.
func (l *loans) lend(child string, reserve session.Reserve) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reserve == nil {
		delete(l.lent, child)
		return
	}
	if l.lent == nil {
		l.lent = map[string]session.Reserve{}
	}
	l.lent[child] = reserve
}

// draw is session.Children.Draw.
func (l *loans) draw(child string) session.Reserve {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lent[child]
}
