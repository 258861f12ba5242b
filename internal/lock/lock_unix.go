//go:build unix

package lock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// open opens what is to be locked. flock works on directories and through
// read-only handles, so that a file need not be writable.
func open(path string, create bool) (*os.File, error) {
	f, err := os.Open(path)
	if create && errors.Is(err, os.ErrNotExist) {
		return os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	}
	return f, err
}

// tryLock takes the lock or answers ErrHeld at once.
func tryLock(f *os.File, exclusive bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK):
			return fmt.Errorf("flock: %w (does this file system support locks? keep temp_dir and state_dir on a local disk)", err)
		default:
			return fmt.Errorf("flock: %w", err)
		}
	}
}

func unlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return fmt.Errorf("unlock %s: %w", f.Name(), err)
	}
	return nil
}
