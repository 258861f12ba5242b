//go:build windows

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// byPath is a folder by its path.
type byPath struct{ dir string }

func openFolder(dir *os.File) folder { return byPath{dir.Name()} }

func (p byPath) create(name string, perm fs.FileMode) (file, error) {
	f, err := os.OpenFile(filepath.Join(p.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm.Perm())
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (p byPath) rename(from, to string) error {
	return patiently(func() error { return os.Rename(filepath.Join(p.dir, from), filepath.Join(p.dir, to)) })
}

func (p byPath) remove(name string) error {
	return patiently(func() error { return os.Remove(filepath.Join(p.dir, name)) })
}

// sync does nothing: Windows has no sync for a directory, and NTFS journals renames.
func (p byPath) sync() error { return nil }

func (p byPath) list() ([]fs.DirEntry, error) { return os.ReadDir(p.dir) }

// patiently repeats f for up to two seconds while another process has the file
// open in a way that forbids it: virus scanners, indexers and readers do so for
// moments.
func patiently(f func() error) error {
	const limit = 2 * time.Second
	for wait, waited := time.Millisecond, time.Duration(0); ; wait = min(2*wait, 100*time.Millisecond) {
		err := f()
		if err == nil || waited >= limit || !isBusy(err) {
			return err
		}
		time.Sleep(wait)
		waited += wait
	}
}

func isBusy(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) ||
		errors.Is(err, windows.ERROR_LOCK_VIOLATION) ||
		errors.Is(err, windows.ERROR_ACCESS_DENIED)
}
