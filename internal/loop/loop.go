// Package loop tells when an agent goes in circles.
//
// It does where its newest turns are the same few turns over and over: the same
// calls with the same arguments and the same results, alone or in a cycle of up to
// four turns. The agent is told after the fifth time round, and its round is over
// after the eighth. A cycle in which something is changed between the calls that
// repeat may be work (edit and test, edit and test), even where every edit looks the
// same: it gets more time.
//
// The package is a pure leaf: it knows calls by their hash, and not what is said to
// the agent.
package loop

import (
	"crypto/sha256"
	"hash"
	"io"
	"slices"
	"strconv"
)

const (
	longest = 4 // turns of a cycle
	// After how many times round the agent is told, and its round is over.
	tellAfter, endAfter                 = 5, 8
	tellAfterChanging, endAfterChanging = 12, 20
)

// Turn is one turn with calls.
type Turn struct {
	// Sum is equal for turns with the same calls and results; see Hash.
	Sum string
	// Calls is how many there were.
	Calls int
	// Changed is whether one of them changed something.
	Changed bool
}

// Detector holds as many of the newest turns as matter. The zero value is ready; one
// goroutine at a time may use it.
type Detector struct{ turns []Turn }

// Add takes the next turn.
func (d *Detector) Add(t Turn) {
	if len(d.turns) == longest*endAfterChanging {
		d.turns = slices.Delete(d.turns, 0, 1)
	}
	d.turns = append(d.turns, t)
}

// Tell returns how often the newest turns have come round, where with next, which is
// not added, they come to the point at which the agent is to be told; else 0.
func (d *Detector) Tell(next Turn) int {
	turns := append(d.turns, next) // in the spare room, which Add fills anew
	for cycle := 1; cycle <= longest; cycle++ {
		matched, tell, _ := measure(turns, cycle)
		if matched == cycle*(tell-1) {
			return tell
		}
	}
	return 0
}

// Over returns how often the newest turns have come round, where that ends the
// round; else 0.
func (d *Detector) Over() int {
	for cycle := 1; cycle <= longest; cycle++ {
		if matched, _, end := measure(d.turns, cycle); matched >= cycle*(end-1) {
			return end
		}
	}
	return 0
}

// measure returns how many of the newest turns equal the one that came cycle turns
// earlier, and the thresholds for such a cycle.
func measure(turns []Turn, cycle int) (matched, tell, end int) {
	if len(turns) < cycle {
		return 0, tellAfter, endAfter
	}
	for i := len(turns) - 1; i >= cycle && turns[i].Sum == turns[i-cycle].Sum; i-- {
		matched++
	}
	calls, changed := 0, false
	for _, t := range turns[len(turns)-cycle:] {
		calls += t.Calls
		changed = changed || t.Changed
	}
	// A call alone has nothing between it and its repetition but itself.
	if changed && calls > 1 {
		return matched, tellAfterChanging, endAfterChanging
	}
	return matched, tellAfter, endAfter
}

// Hash makes Turn.Sum of the calls of a turn.
type Hash struct{ h hash.Hash }

// NewHash returns the Hash of no calls.
func NewHash() Hash { return Hash{sha256.New()} }

// Add takes the parts of a call, with their lengths, so that shifted borders are a
// difference.
func (h Hash) Add(parts ...string) {
	for _, p := range parts {
		io.WriteString(h.h, strconv.Itoa(len(p))+":"+p)
	}
}

// Sum returns what identifies the calls.
func (h Hash) Sum() string { return string(h.h.Sum(nil)) }
