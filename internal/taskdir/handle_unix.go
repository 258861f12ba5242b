//go:build unix

package taskdir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const windowsNames = false

// handle is an open directory. Its operations are relative to it and follow no
// link. It may be used from several goroutines; after close they fail with
// fs.ErrClosed instead of touching whatever has got the descriptor's number since.
type handle struct {
	f   *os.File
	raw syscall.RawConn
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// openRoot opens a directory that the configuration names; links in its path are
// the owner's business.
func openRoot(path string) (handle, error) { return openDirAt(unix.AT_FDCWD, path, path, dirFlags) }

func openDirAt(fd int, name, path string, flags int) (handle, error) {
	sub, err := retry(func() (int, error) { return unix.Openat(fd, name, flags, 0) })
	if err != nil {
		return handle{}, err
	}
	f := os.NewFile(uintptr(sub), path)
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return handle{}, err
	}
	return handle{f: f, raw: raw}, nil
}

func (h handle) close() error { return h.f.Close() }

// with runs fn with the descriptor, which stays valid meanwhile.
func (h handle) with(fn func(view) error) error {
	var err error
	if cerr := h.raw.Control(func(fd uintptr) { err = fn(view{fd: int(fd)}) }); cerr != nil {
		return fs.ErrClosed
	}
	return err
}

func (h handle) sub(name, path string) (sub handle, err error) {
	err = h.with(func(v view) error {
		sub, err = openDirAt(v.fd, name, path, dirFlags|unix.O_NOFOLLOW)
		return err
	})
	return sub, err
}

func (h handle) lstat(name string) (in info, err error) {
	err = h.with(func(v view) error {
		in, err = v.lstat(name)
		return err
	})
	return in, err
}

// stat describes the directory itself.
func (h handle) stat() (id FileID, err error) {
	err = h.with(func(v view) error {
		var st unix.Stat_t
		if _, err := retry(func() (int, error) { return 0, unix.Fstat(v.fd, &st) }); err != nil {
			return err
		}
		id = FileID{Dev: uint64(st.Dev), Ino: st.Ino}
		return nil
	})
	return id, err
}

// isAt says whether the directory, which has this id, is the one at a name.
func (h handle) isAt(parent handle, name string, id FileID) (bool, error) {
	in, err := parent.lstat(name)
	return err == nil && in.kind == directory && in.Ino == id.Ino && in.dev == id.Dev, err
}

// open opens a file of any kind without blocking. Links answer ELOOP.
func (h handle) open(name, path string, flags int, perm fs.FileMode) (f *os.File, err error) {
	err = h.with(func(v view) error {
		fd, err := retry(func() (int, error) {
			return unix.Openat(v.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, uint32(perm))
		})
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), path)
		return nil
	})
	return f, err
}

// statFile describes an open file.
func statFile(f *os.File) (in info, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return info{}, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		if _, err = retry(func() (int, error) { return 0, unix.Fstat(int(fd), &st) }); err == nil {
			in = infoOf(&st)
		}
	})
	return in, errors.Join(cerr, err)
}

func (h handle) remove(name string) error {
	return h.with(func(v view) error { return unix.Unlinkat(v.fd, name, 0) })
}

func (h handle) mkdir(name string, perm fs.FileMode) error {
	return h.with(func(v view) error { return unix.Mkdirat(v.fd, name, uint32(perm)) })
}

// rename fails with fs.ErrExist where something has the new name already.
func (h handle) rename(from, to string) error {
	return h.with(func(v view) error { return renameExclusive(v.fd, from, v.fd, to) })
}

// move renames into another directory, over what is there if replace is set.
func (h handle) move(name string, dst handle, replace bool) error {
	return h.with(func(v view) error {
		return dst.with(func(w view) error {
			if replace {
				return unix.Renameat(v.fd, name, w.fd, name)
			}
			return renameExclusive(v.fd, name, w.fd, name)
		})
	})
}

func (h handle) sync() error {
	err := h.f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// view is a directory's descriptor, valid for the length of a call of with.
type view struct{ fd int }

func (v view) lstat(name string) (info, error) {
	var st unix.Stat_t
	for {
		switch err := unix.Fstatat(v.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
		case nil:
			return infoOf(&st), nil
		case unix.EINTR:
		default:
			return info{}, err
		}
	}
}

func infoOf(st *unix.Stat_t) info {
	in := info{
		nlink: uint64(st.Nlink),
		dev:   uint64(st.Dev),
		Stat:  Stat{Ino: st.Ino, Size: st.Size, Mtime: time.Unix(0, st.Mtim.Nano())},
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		in.kind = regular
	case unix.S_IFDIR:
		in.kind = directory
	case unix.S_IFLNK:
		in.kind = link
	case unix.S_IFIFO:
		in.kind = pipe
	case unix.S_IFSOCK:
		in.kind = socket
	default:
		in.kind = device
	}
	return in
}

func retry(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// isLink says whether an open without following links failed because of one.
func isLink(err error) bool {
	return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK)
}

// isNoFile says whether an open failed since no regular file is there.
func isNoFile(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV)
}

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }

// isBusy says whether a file cannot be renamed or opened just now, which only
// happens on Windows.
func isBusy(error) bool { return false }
