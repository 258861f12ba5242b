// Package waittest is how tests wait for what other goroutines and processes do and
// tell nobody of: by asking again, with a limit.
//
// It is for real files, processes and clocks. A channel is better where there is
// one, and testing/synctest where nothing but time has to pass.
package waittest

import (
	"testing"
	"time"
)

// Patience is how long a thing may take before a test gives it up. It is far more than
// anything needs, since the machine may be busy with other tests.
const Patience = 30 * time.Second

const interval = 2 * time.Millisecond

// Poll calls so until it says yes, and reports whether it did so within Patience.
func Poll(so func() bool) bool { return pollFor(Patience, so) }

func pollFor(patience time.Duration, so func() bool) bool {
	if so() {
		return true
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		<-tick.C
		if so() {
			return true
		}
	}
	return false
}

// Until polls, and ends the test where it is in vain. what completes the sentence
// "waited in vain until". The test's own goroutine calls it.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	if !Poll(so) {
		t.Fatalf("waited %s, and in vain, until %s", Patience, what)
	}
}
