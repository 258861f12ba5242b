package main

import (
	"testing"
	"time"
)

func TestSampleAt(t *testing.T) {
	var s sample
	for i := range 100 {
		s = append(s, time.Duration(100-i)*time.Millisecond)
	}
	for part, want := range map[float64]time.Duration{0: 1, .5: 51, .99: 100, 1: 100} {
		if got := s.at(part); got != want*time.Millisecond {
			t.Errorf("at(%g) is %s, want %s", part, got, want*time.Millisecond)
		}
	}
	if got := (sample{}).at(.5); got != 0 {
		t.Errorf("an empty sample has %s", got)
	}
}
