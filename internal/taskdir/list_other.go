//go:build unix && !linux

package taskdir

import (
	"os"

	"golang.org/x/sys/unix"
)

// each calls fn for every entry of the directory. The name is only valid during
// the call. buf is scratch space.
func (v view) each(_ []byte, fn func(name []byte, k kind)) error {
	fd, err := retry(func() (int, error) { return unix.Openat(v.fd, ".", dirFlags, 0) })
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		fn([]byte(name), unknown)
	}
	return err
}
