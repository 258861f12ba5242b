package session

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gasupervisor/gasupervisor/internal/round"
)

// A marker that a replaced session is owed outlives the replacement of the next one.
func TestMarkerThatIsOwedToAnEarlierSession(t *testing.T) {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard "+in.Message)
	}))
	var lease atomic.Pointer[os.File]
	d.cfg.at = func(point string) {
		if point == "aside_status" && lease.Load() == nil {
			// As if the disk had not taken the marker, and did not take it now.
			d.quiet("a", "old/1/output.txt", "heard one")
			f, err := os.OpenFile(d.path("a", "old/1/output.txt"), os.O_RDWR, 0)
			if err == nil {
				_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
			}
			if err != nil {
				t.Error(err)
			}
			lease.Store(f)
		}
	}
	d.put("a", "input.txt", "one")
	d.start("a", nil)
	d.ended("a", "output.txt")
	for _, text := range []string{"two", "three"} {
		d.put("a", "input.txt", text)
		d.until("the answer to "+text, func() bool { return strings.Contains(d.read("a", "output.txt"), "heard "+text) })
	}
	if err := lease.Load().Close(); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{"old/1/output.txt", "old/2/output.txt", "output.txt"} {
		d.ended("a", output)
		d.markers("a", output)
	}
}
