package supervisor

// queue gives places to rounds, first come first served.
type queue struct {
	free    int
	waiting []place
	places  map[place]bool
}

// place names a request for a place, and the place itself once it is granted.
type place struct {
	task   string
	ticket uint64
}

// ask lines up a request.
func (q *queue) ask(p place) { q.waiting = append(q.waiting, p) }

// leave gives back a place, or takes back the request for one.
func (q *queue) leave(p place) {
	if q.places[p] {
		delete(q.places, p)
		q.free++
		return
	}
	for i, w := range q.waiting {
		if w == p {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return
		}
	}
}

// next grants the next place; ok is false where none is free or nobody waits.
func (q *queue) next() (p place, ok bool) {
	if q.free == 0 || len(q.waiting) == 0 {
		return place{}, false
	}
	p = q.waiting[0]
	q.waiting = q.waiting[1:]
	q.places[p] = true
	q.free--
	return p, true
}
