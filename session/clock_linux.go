package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// fileTime is now by the clock that stamps files, which lags some milliseconds
// behind: what is written after this call is not older than it.
func fileTime() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}
