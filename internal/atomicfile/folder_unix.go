//go:build unix

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// handle is a folder by its open directory.
type handle struct{ dir *os.File }

func openFolder(dir *os.File) folder { return handle{dir} }

// with runs f with the directory's descriptor, again where a signal came between.
// SyscallConn keeps the descriptor open meanwhile and, unlike Fd, changes nothing.
func (h handle) with(f func(fd int) error) error {
	conn, err := h.dir.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := conn.Control(func(fd uintptr) {
		for {
			if ferr = f(int(fd)); ferr != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	return ferr
}

func (h handle) create(name string, perm fs.FileMode) (file, error) {
	f, err := h.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (h handle) open(name string, flags int, perm fs.FileMode) (*os.File, error) {
	path := filepath.Join(h.dir.Name(), name)
	var f *os.File
	err := h.with(func(fd int) error {
		got, err := unix.Openat(fd, name, flags|unix.O_CLOEXEC, uint32(perm.Perm()))
		if err == nil {
			f = os.NewFile(uintptr(got), path)
		}
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: path, Err: err}
	}
	return f, nil
}

func (h handle) rename(from, to string) error {
	err := h.with(func(fd int) error { return unix.Renameat(fd, from, fd, to) })
	if err != nil {
		return &os.LinkError{Op: "renameat", Old: from, New: to, Err: err}
	}
	return nil
}

func (h handle) remove(name string) error {
	err := h.with(func(fd int) error { return unix.Unlinkat(fd, name, 0) })
	if err != nil {
		return &fs.PathError{Op: "unlinkat", Path: filepath.Join(h.dir.Name(), name), Err: err}
	}
	return nil
}

// sync reports no error where the file system cannot sync directories: there is
// nothing better to be had there.
func (h handle) sync() error {
	err := h.dir.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// list reads through a handle of its own, since reading moves the position.
func (h handle) list() ([]fs.DirEntry, error) {
	d, err := h.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}
