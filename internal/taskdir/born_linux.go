package taskdir

import (
	"os"

	"golang.org/x/sys/unix"
)

// bornAt returns when an open file was made, 0 where the file system does not say.
func bornAt(f *os.File) (nanoseconds int64) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		var st unix.Statx_t
		if err := unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err == nil && st.Mask&unix.STATX_BTIME != 0 {
			nanoseconds = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
		}
	})
	return nanoseconds
}
