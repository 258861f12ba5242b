package agent

import (
	"crypto/sha256"
	"hash"
	"io"
	"slices"
	"strconv"
)

// A round goes in circles where its newest turns are the same few turns over and
// over: the same calls with the same arguments and the same results, alone or in a
// cycle of up to loopCycle turns. It is told once, and ended if it goes on.
const (
	loopCycle = 4
	loopTell  = 5
	loopEnd   = 8
	// A cycle in which something is changed between the calls that repeat may be
	// work (edit and test, edit and test), even where every edit looks the same. It
	// gets more time.
	loopTellChanging = 12
	loopEndChanging  = 20
)

// loopEntry is one turn with calls.
type loopEntry struct {
	sum     string
	calls   int
	changed bool
}

// loop holds as many of the newest turns as matter.
type loop struct{ turns []loopEntry }

func (l *loop) add(e loopEntry) {
	if len(l.turns) == loopCycle*loopEndChanging {
		l.turns = slices.Delete(l.turns, 0, 1)
	}
	l.turns = append(l.turns, e)
}

// tell returns how often the newest turns have come round, where with next they
// come to the point at which the model is to be told; else 0.
func (l *loop) tell(next loopEntry) int {
	turns := append(l.turns, next) // in the spare room, which add fills anew
	for cycle := 1; cycle <= loopCycle; cycle++ {
		matched, tell, _ := measure(turns, cycle)
		if matched == cycle*(tell-1) {
			return tell
		}
	}
	return 0
}

// over returns how often the newest turns have come round, where that ends the
// round; else 0.
func (l *loop) over() int {
	for cycle := 1; cycle <= loopCycle; cycle++ {
		if matched, _, end := measure(l.turns, cycle); matched >= cycle*(end-1) {
			return end
		}
	}
	return 0
}

// measure returns how many of the newest turns equal the one that came cycle turns
// earlier, and the thresholds for such a cycle.
func measure(turns []loopEntry, cycle int) (matched, tell, end int) {
	if len(turns) < cycle {
		return 0, loopTell, loopEnd
	}
	for i := len(turns) - 1; i >= cycle && turns[i].sum == turns[i-cycle].sum; i-- {
		matched++
	}
	calls, changed := 0, false
	for _, t := range turns[len(turns)-cycle:] {
		calls += t.calls
		changed = changed || t.changed
	}
	// A call alone has nothing between it and its repetition but itself.
	if changed && calls > 1 {
		return matched, loopTellChanging, loopEndChanging
	}
	return matched, loopTell, loopEnd
}

type loopHash struct{ h hash.Hash }

func newLoopHash() loopHash { return loopHash{sha256.New()} }

// add takes parts with their lengths, so that shifted borders are a difference.
func (l loopHash) add(parts ...string) {
	for _, p := range parts {
		io.WriteString(l.h, strconv.Itoa(len(p))+":"+p)
	}
}

func (l loopHash) sum() string { return string(l.h.Sum(nil)) }
