package supervisor

import (
	"container/heap"
	"context"
	"time"
)

// deadline is when a task's session has to be started again. It is void where the
// task has another one by now, or none.
type deadline struct {
	at   time.Time
	task string
}

// deadlines is a heap: the first is the next.
type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)        { *d = append(*d, x.(deadline)) }

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = deadline{}
	*d = (*d)[:last]
	return x
}

func (s *Supervisor) void(d deadline) bool {
	t := s.tasks[d.task]
	return t == nil || !t.due.Equal(d.at)
}

// keepDeadline has a session that waits started again when it is due.
func (s *Supervisor) keepDeadline(name string, t *task) {
	at := t.memo.Due()
	if at.Equal(t.due) {
		return
	}
	if t.due = at; at.IsZero() {
		return
	}
	s.sweep()
	heap.Push(&s.deadlines, deadline{at, name})
	if s.deadlines[0].task == name {
		s.timer.Reset(time.Until(at))
	}
}

// expire starts the sessions that are due.
func (s *Supervisor) expire(ctx context.Context, now time.Time) {
	for len(s.deadlines) > 0 {
		d := s.deadlines[0]
		if !s.void(d) {
			if d.at.After(now) {
				s.timer.Reset(d.at.Sub(now))
				return
			}
			s.tasks[d.task].due = time.Time{}
			s.look(ctx, d.task, false)
		}
		heap.Pop(&s.deadlines)
	}
}

// sweep keeps void deadlines from piling up: a session that is replied to leaves one
// each time, which may be far ahead.
func (s *Supervisor) sweep() {
	if len(s.deadlines) < 64 || len(s.deadlines) < 2*len(s.tasks) {
		return
	}
	kept := s.deadlines[:0]
	for _, d := range s.deadlines {
		if !s.void(d) {
			kept = append(kept, d)
		}
	}
	clear(s.deadlines[len(kept):])
	s.deadlines = kept
	heap.Init(&s.deadlines)
}
