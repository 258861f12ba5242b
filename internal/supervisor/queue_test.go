package supervisor

import (
	"context"
	"slices"
	"testing"
)

func TestQueueIsFairAndGivesPlacesBack(t *testing.T) {
	q := queue{free: 2, places: map[place]bool{}}
	for _, name := range []string{"a", "b", "c", "d"} {
		q.ask(place{name, 1}, false)
	}
	granted := func() (names string) {
		for {
			p, ok := q.next()
			if !ok {
				return names
			}
			names += p.task
		}
	}
	if got := granted(); got != "ab" {
		t.Fatalf("granted %q, want the first two in their order", got)
	}
	q.leave(place{"c", 1})
	q.leave(place{"c", 1})
	if got := granted(); got != "" {
		t.Fatalf("granted %q after a request was taken back, want none: no place is free", got)
	}
	q.leave(place{"a", 1})
	if got := granted(); got != "d" {
		t.Fatalf("granted %q, want d: c had left", got)
	}
	q.leave(place{"b", 2})
	if got := granted(); got != "" || q.free != 0 {
		t.Fatalf("a ticket of another request gave a place back: granted %q, free %d", got, q.free)
	}
	q.leave(place{"b", 1})
	q.leave(place{"d", 1})
	if q.free != 2 || len(q.places) != 0 || len(q.waiting) != 0 {
		t.Fatalf("free %d, places %v, waiting %v: want everything back", q.free, q.places, q.waiting)
	}
}

// After a start every task that was ever there is looked at: one that somebody waits
// for does not stand behind them.
func TestWhoIsWaitedForIsLookedAtFirst(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(echo))
	s := New(w.cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer s.live.Wait()
	defer cancel()
	s.settling = startAtOnce
	s.look(ctx, "old 1", false)
	s.look(ctx, "old 2", false)
	s.look(ctx, "old 3", false)
	s.look(ctx, "new", true)
	s.look(ctx, "old 3", true)
	s.look(ctx, "old 3", true)
	s.look(ctx, "new", false)
	answer := make(chan Snapshot, 1)
	s.handle(ctx, snapshotRequest(answer))
	if got, want := (<-answer).Settling, startAtOnce+4; got != want {
		t.Errorf("%d tasks are said to settle, want %d: each once, wherever it stands in line", got, want)
	}
	var order []string
	for range 6 {
		s.settling = startAtOnce - 1
		s.startLined(ctx)
		for name, task := range s.tasks {
			if task.session != nil && !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
	}
	if want := []string{"new", "old 3", "old 1", "old 2"}; !slices.Equal(order, want) {
		t.Errorf("looked at in the order %q, want %q", order, want)
	}
	if n := len(s.line.hurried) + len(s.line.others); n != 0 {
		t.Errorf("%d names are left in line", n)
	}
}
