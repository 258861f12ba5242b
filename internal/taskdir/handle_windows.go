package taskdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/windows"
)

const windowsNames = true

// handle is an open directory. Every operation looks at what has the name before
// it opens it, since os.Root follows links that stay inside; making links takes
// a privilege here.
type handle struct {
	r *os.Root
	f *os.File
}

func openRoot(path string) (handle, error) {
	r, err := os.OpenRoot(path)
	if err != nil {
		return handle{}, err
	}
	return newHandle(r)
}

func newHandle(r *os.Root) (handle, error) {
	// Opened like this it does not keep others from removing the directory.
	f, err := r.Open(".")
	if err != nil {
		r.Close()
		return handle{}, err
	}
	return handle{r: r, f: f}, nil
}

func (h handle) close() error { return errors.Join(h.r.Close(), h.f.Close()) }

func (h handle) with(fn func(view) error) error { return fn(view{h}) }

func (h handle) sub(name, path string) (handle, error) {
	in, err := h.lstat(name)
	if err != nil {
		return handle{}, err
	}
	if in.kind != directory {
		return handle{}, syscall.ENOTDIR
	}
	r, err := h.r.OpenRoot(name)
	if err != nil {
		return handle{}, err
	}
	return newHandle(r)
}

func (h handle) lstat(name string) (info, error) {
	fi, err := h.r.Lstat(name)
	if err != nil {
		return info{}, err
	}
	return infoOf(fi), nil
}

func (h handle) stat() (FileID, error) {
	in, err := statFile(h.f)
	return FileID{Dev: in.dev, Ino: in.Ino}, err
}

// isAt says whether the directory is the one at a name.
func (h handle) isAt(parent handle, name string, _ FileID) (bool, error) {
	there, err := parent.r.Lstat(name)
	if err != nil {
		return false, err
	}
	own, err := h.f.Stat()
	return err == nil && os.SameFile(there, own), err
}

func (h handle) open(name, path string, flags int, perm fs.FileMode) (*os.File, error) {
	in, err := h.lstat(name)
	switch {
	case err == nil && in.kind == link:
		return nil, syscall.ELOOP
	case err == nil && in.kind != regular:
		return nil, syscall.EISDIR
	case err != nil && (flags&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)):
		return nil, err
	}
	return h.r.OpenFile(name, flags, perm)
}

// statFile describes an open file.
func statFile(f *os.File) (info, error) {
	fi, err := f.Stat()
	if err != nil {
		return info{}, err
	}
	in := infoOf(fi)
	var d windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &d); err != nil {
		return info{}, err
	}
	in.dev = uint64(d.VolumeSerialNumber)
	in.Ino = uint64(d.FileIndexHigh)<<32 | uint64(d.FileIndexLow)
	in.nlink = uint64(d.NumberOfLinks)
	return in, nil
}

func (h handle) remove(name string) error { return h.r.Remove(name) }

func (h handle) mkdir(name string, perm fs.FileMode) error { return h.r.Mkdir(name, perm) }

// rename fails with fs.ErrExist where something has the new name already.
func (h handle) rename(from, to string) error {
	return moveFile(filepath.Join(h.r.Name(), from), filepath.Join(h.r.Name(), to), false)
}

// move renames into another directory, over what is there if replace is set.
func (h handle) move(name string, dst handle, replace bool) error {
	return moveFile(filepath.Join(h.r.Name(), name), filepath.Join(dst.r.Name(), name), replace)
}

func moveFile(from, to string, replace bool) error {
	old, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	var flags uint32
	if replace {
		flags = windows.MOVEFILE_REPLACE_EXISTING
	}
	return windows.MoveFileEx(old, name, flags)
}

// sync does nothing: Windows has no sync for directories.
func (h handle) sync() error { return nil }

// view is the directory for the length of a call of with.
type view struct{ h handle }

func (v view) lstat(name string) (info, error) { return v.h.lstat(name) }

// each calls fn for every entry of the directory.
func (v view) each(_ []byte, fn func(name []byte, k kind)) error {
	d, err := v.h.r.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, name := range names {
		fn([]byte(name), unknown)
	}
	return err
}

func infoOf(fi fs.FileInfo) info {
	in := info{nlink: 1, Stat: Stat{Size: fi.Size(), Mtime: fi.ModTime()}}
	switch mode := fi.Mode(); {
	case mode.IsRegular():
		in.kind = regular
	case mode&(fs.ModeSymlink|fs.ModeIrregular) != 0:
		in.kind = link
	case mode.IsDir():
		in.kind = directory
	case mode&fs.ModeNamedPipe != 0:
		in.kind = pipe
	case mode&fs.ModeSocket != 0:
		in.kind = socket
	default:
		in.kind = device
	}
	return in
}

func isLink(err error) bool   { return errors.Is(err, syscall.ELOOP) }
func isNoFile(err error) bool { return errors.Is(err, syscall.EISDIR) }
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// isBusy says whether a file cannot be renamed or opened just now: another
// process has it open and does not share it.
func isBusy(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}
