package lock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// dirLock is the file that stands for a directory, which cannot itself be locked
// here. Names that begin with a dot are no tasks.
const dirLock = ".gasupervisor.lock"

func open(path string, create bool) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, dirLock)
	}
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	return os.OpenFile(path, flag, 0o600)
}

// tryLock takes the lock or answers ErrHeld at once. The locked byte lies far
// behind the file's end, so that reading it is never refused.
func tryLock(f *os.File, exclusive bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, lockedByte())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return ErrHeld
	}
	return fmt.Errorf("LockFileEx: %w", err)
}

func unlock(f *os.File) error {
	if err := windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte()); err != nil {
		return fmt.Errorf("unlock %s: %w", f.Name(), err)
	}
	return nil
}

func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 0x7fffffff} }
