package command

import "bytes"

// Output is what a command printed, with the middle left out where it was more
// than the cap.
type Output struct {
	// Head is the beginning; where Cut is 0 it is everything.
	Head []byte
	// Tail is the end, where something was cut before it.
	Tail []byte
	// Cut is how many bytes are missing between the two.
	Cut int64
	// Bytes and Lines count all that was printed; a last line without its end
	// counts.
	Bytes, Lines int64
}

// capture takes output as it comes and keeps its head and its tail in constant
// memory. It belongs to one goroutine.
type capture struct {
	headCap, tailCap int
	head, ring       []byte
	next             int // where the ring is written next, once it is full
	bytes, newlines  int64
	last             byte
}

func newCapture(limit int) *capture {
	if limit <= 0 {
		limit = DefaultOutputCap
	}
	tail := limit / 2
	return &capture{headCap: limit - tail, tailCap: tail}
}

// Write implements io.Writer and never fails.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	if n == 0 {
		return 0, nil
	}
	c.bytes += int64(n)
	c.newlines += int64(bytes.Count(p, []byte{'\n'}))
	c.last = p[n-1]

	room := min(c.headCap-len(c.head), len(p))
	c.head = append(c.head, p[:room]...)
	p = p[room:]
	if len(p) > c.tailCap {
		// Only the end of it can stay.
		p = p[len(p)-c.tailCap:]
		c.ring, c.next = append(c.ring[:0], p...), 0
		return n, nil
	}
	room = min(c.tailCap-len(c.ring), len(p))
	c.ring = append(c.ring, p[:room]...)
	for p = p[room:]; len(p) > 0; {
		k := copy(c.ring[c.next:], p)
		p = p[k:]
		c.next = (c.next + k) % len(c.ring)
	}
	return n, nil
}

// output returns what was kept.
func (c *capture) output() Output {
	out := Output{Head: c.head, Bytes: c.bytes, Lines: c.newlines}
	if c.bytes > 0 && c.last != '\n' {
		out.Lines++
	}
	tail := append(c.ring[c.next:len(c.ring):len(c.ring)], c.ring[:c.next]...)
	out.Cut = c.bytes - int64(len(c.head)+len(tail))
	if out.Cut == 0 {
		out.Head = append(out.Head, tail...)
	} else {
		out.Tail = tail
	}
	return out
}
