package waittest

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {time.Second, true}, {time.Hour, false}} {
			begun := time.Now()
			if got := pollFor(time.Minute, func() bool { return time.Since(begun) >= c.after }); got != c.want {
				t.Errorf("so after %s: got %t", c.after, got)
			}
			if took := time.Since(begun); took < min(c.after, time.Minute) || took > min(c.after, time.Minute)+2*interval {
				t.Errorf("so after %s: took %s", c.after, took)
			}
		}
	})
}
