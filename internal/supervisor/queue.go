package supervisor

import "slices"

// queue gives places to rounds: first come first served, and before those whoever
// somebody waits for already.
type queue struct {
	free           int
	ahead, waiting []place
	places         map[place]bool
}

// place names a request for a place, and the place itself once it is granted.
type place struct {
	task   string
	ticket uint64
}

// ask lines up a request.
func (q *queue) ask(p place, ahead bool) {
	if ahead {
		q.ahead = append(q.ahead, p)
		return
	}
	q.waiting = append(q.waiting, p)
}

// leave gives back a place, or takes back the request for one.
func (q *queue) leave(p place) {
	if q.places[p] {
		delete(q.places, p)
		q.free++
		return
	}
	for _, line := range []*[]place{&q.ahead, &q.waiting} {
		if i := slices.Index(*line, p); i >= 0 {
			*line = slices.Delete(*line, i, i+1)
			return
		}
	}
}

// next grants the next place; ok is false where none is free or nobody waits.
func (q *queue) next() (p place, ok bool) {
	line := &q.waiting
	if len(q.ahead) > 0 {
		line = &q.ahead
	}
	if q.free == 0 || len(*line) == 0 {
		return place{}, false
	}
	p = (*line)[0]
	*line = (*line)[1:]
	q.places[p] = true
	q.free--
	return p, true
}

func (q *queue) length() int { return len(q.ahead) + len(q.waiting) }

// line holds the names of tasks that wait for their first look: those for which
// somebody waits come first. A name may stand in both.
type line struct{ hurried, others []string }

func (l *line) add(name string, hurried bool) {
	if hurried {
		l.hurried = append(l.hurried, name)
		return
	}
	l.others = append(l.others, name)
}

// next takes the next name out; ok is false where there is none.
func (l *line) next() (name string, ok bool) {
	from := &l.hurried
	if len(*from) == 0 {
		from = &l.others
	}
	if len(*from) == 0 {
		return "", false
	}
	name, *from = (*from)[0], (*from)[1:]
	return name, true
}
