package main

import (
	"os"
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

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -100: "-100", -1000: "-1,000"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) is %q, want %q", n, got, want)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
