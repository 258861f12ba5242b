//go:build faults

package fault

import (
	"errors"
	"syscall"
	"testing"
)

func TestCrashes(t *testing.T) {
	p, err := parse("journal.written:2", "")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if p.crashes("journal.synced") {
			t.Error("crashes at another point")
		}
		if got := p.crashes("journal.written"); got != want {
			t.Errorf("passing %d: crashes = %v", i+1, got)
		}
	}
	if p.fails("journal.write") {
		t.Error("fails unasked")
	}
}

func TestChanceIsRepeatable(t *testing.T) {
	run := func() (n int) {
		p, err := parse("random:7:0.25", "journal.write:9:0.5")
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if p.crashes("any") {
				n++
			}
			if p.fails("journal.write") {
				n += 10000
			}
			if p.fails("journal.sync") {
				t.Error("another operation fails")
			}
		}
		return n
	}
	first := run()
	if c := first % 10000; c < 150 || c > 350 {
		t.Errorf("%d crashes in 1000 passings at 0.25", c)
	}
	if again := run(); again != first {
		t.Errorf("the same seed gave %d, then %d", first, again)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"x", "x:0", "x:y", "random:1", "random:x:0.1", "random:1:x"} {
		if _, err := parse(s, ""); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
	if _, err := parse("", "x:1"); err == nil {
		t.Error("a failure without probability is accepted")
	}
}

func TestNothingAsked(t *testing.T) {
	Point("any")
	if err := Error("any"); err != nil || errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}
