package loop

import "testing"

func TestDetector(t *testing.T) {
	// Each letter is a turn; a capital one changes something; a doubled cycle is
	// written out by repeat.
	repeat := func(cycle string, n int) (s string) {
		for range n {
			s += cycle
		}
		return s
	}
	for _, tc := range []struct {
		name  string
		turns string
		calls int // per turn; 0 is 1
		told  []int
		over  int // the turn at which it is over; 0 never
	}{
		{name: "no repetition", turns: "abcdefghijklmnop"},
		{name: "the same", turns: repeat("a", 9), told: []int{5}, over: 8},
		{name: "the same after others", turns: "xyz" + repeat("a", 9), told: []int{8}, over: 11},
		{name: "stops in time", turns: repeat("a", 7) + "b" + repeat("a", 4), told: []int{5}},
		{name: "two in turn", turns: repeat("ab", 9), told: []int{10}, over: 16},
		{name: "three", turns: repeat("abc", 8), told: []int{15}, over: 24},
		{name: "four", turns: repeat("abcd", 8), told: []int{20}, over: 32},
		{name: "five is no cycle", turns: repeat("abcde", 12)},
		{name: "one command alone", turns: repeat("A", 9), told: []int{5}, over: 8},
		{name: "edit and test", turns: repeat("Ab", 10)},
		{name: "edit and test in one turn", turns: repeat("A", 10), calls: 2},
		{name: "edit and test without end", turns: repeat("Ab", 20), told: []int{24}, over: 40},
		{name: "another edit each time", turns: "AtBtCtDtEtFtGtHtItJt"},
	} {
		var l Detector
		var told []int
		over := 0
		for i, r := range tc.turns {
			e := Turn{Sum: string(r), Calls: max(tc.calls, 1), Changed: r >= 'A' && r <= 'Z'}
			if l.Tell(e) > 0 {
				told = append(told, i+1)
			}
			l.Add(e)
			if over == 0 && l.Over() > 0 {
				over = i + 1
			}
		}
		if len(told) != len(tc.told) || len(told) > 0 && told[0] != tc.told[0] || over != tc.over {
			t.Errorf("%s: told at %v, over at %d; want %v and %d", tc.name, told, over, tc.told, tc.over)
		}
	}
}

func BenchmarkDetector(b *testing.B) {
	b.ReportAllocs()
	var l Detector
	e := []Turn{{Sum: "a", Calls: 1}, {Sum: "b", Calls: 1, Changed: true}}
	for i := 0; b.Loop(); i++ {
		l.Tell(e[i%2])
		l.Add(e[i%2])
		l.Over()
	}
}
