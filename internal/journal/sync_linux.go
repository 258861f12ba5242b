package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync leaves out the times of the file, which nobody needs: one journal
// transaction of the file system less where the length did not change either.
func datasync(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := conn.Control(func(fd uintptr) {
		for {
			if serr = unix.Fdatasync(int(fd)); serr != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	return os.NewSyscallError("fdatasync", serr)
}
