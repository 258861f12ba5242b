package watcher

// urgency orders looks. It is also the state of a task in the queue: none when
// nobody waits for a look at it.
type urgency uint8

const (
	none   urgency = iota
	lazy           // follows from a pass over all tasks
	urgent         // follows an event
)

// queue holds the tasks that are to be looked at, each once.
type queue struct {
	urgent, lazy fifo
}

// want puts a task into the queue, or moves it ahead. The earlier cause stands.
func (q *queue) want(t *task, why Why, u urgency) {
	if t.wanted >= u {
		return
	}
	if t.wanted == none {
		t.why = why
	}
	t.wanted = u
	if u == urgent {
		q.urgent.push(t)
	} else {
		q.lazy.push(t)
	}
}

// front returns the task to look at next, or nil.
func (q *queue) front() *task {
	if t := q.urgent.front(); t != nil {
		return t
	}
	// A task that was moved ahead has left its place here behind.
	for t := q.lazy.front(); t != nil; t = q.lazy.front() {
		if t.wanted == lazy {
			return t
		}
		q.lazy.pop()
	}
	return nil
}

// pop takes out what front returned.
func (q *queue) pop() *task {
	t := q.front()
	if t.wanted == urgent {
		q.urgent.pop()
	} else {
		q.lazy.pop()
	}
	t.wanted = none
	return t
}

// fifo is a queue of tasks whose memory is given back when it runs empty.
type fifo struct {
	items []*task
	head  int
}

func (f *fifo) push(t *task) { f.items = append(f.items, t) }

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) front() *task {
	if f.head == len(f.items) {
		return nil
	}
	return f.items[f.head]
}

func (f *fifo) pop() *task {
	t := f.items[f.head]
	f.items[f.head] = nil
	f.head++
	if f.head == len(f.items) {
		if cap(f.items) > 64 {
			f.items = nil
		} else {
			f.items = f.items[:0]
		}
		f.head = 0
	}
	return t
}
