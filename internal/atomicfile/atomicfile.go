// Package atomicfile replaces files so that whoever reads them sees the old
// content or the new, never a part and never nothing.
//
// The content goes to a temporary file in the same directory, whose name begins
// with "." so that watchers and readers of task directories pass it by. It is
// synced, closed and renamed onto the name, and the directory is synced last: a
// rename that is not is lost with the power. What stood at the name, a link
// included, is replaced and never written through. A crash leaves at most such a
// temporary file behind, which its owner removes with Sweep or SweepAt at its next
// start.
//
// The algorithm is written once, over the four operations of a folder. On Unix
// they work relative to an open directory, so that a directory that is swapped
// for a link meanwhile cannot lead them elsewhere; on Windows they work by path
// and wait out other processes that hold the file open for a moment.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/fault"
)

// Temporary files are named tempPrefix, 16 hex digits, tempSuffix: short enough
// for every file system, whatever the length of the name they are renamed to.
const (
	tempPrefix = ".gasupervisor-"
	tempSuffix = ".tmp"
)

// staleAfter is the age from which a temporary file counts as left behind. A
// write takes milliseconds, so this one belongs to a process that died.
const staleAfter = 10 * time.Minute

// Write replaces the file at path by data and returns once that is durable. The
// file gets the permissions perm less the umask, whatever those of an earlier
// file were. The directory must exist.
//
// It blocks for the disk, and may be called from several goroutines: the last
// rename wins. After an error the old content stands, unless only the sync of
// the directory failed: then the new one does, and may be lost with the power.
func Write(path string, data []byte, perm fs.FileMode) error {
	return WriteFrom(path, perm, whole(data))
}

// WriteFrom is Write for content that is produced as it is written, by fill. An
// error of fill leaves the old content.
func WriteFrom(path string, perm fs.FileMode, fill func(io.Writer) error) error {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer d.Close()
	if err := replace(openFolder(d), name, fill, perm, true); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// WriteAt is Write for a name in a directory that the caller holds open. With
// sync false nothing is synced: the file is whole for every reader while the
// system stays up, and may be old or gone after a power failure. That is for
// files which are made anew from elsewhere.
//
// name is one path element. The handle is only used, never read from or closed;
// it may be shared between goroutines.
func WriteAt(dir *os.File, name string, data []byte, perm fs.FileMode, sync bool) error {
	if err := replace(openFolder(dir), name, whole(data), perm, sync); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(dir.Name(), name), err)
	}
	return nil
}

// SweepAt removes the temporary files that died writers have left in dir. Files
// younger than ten minutes stay, since another process may be writing them. It
// goes on after a file that cannot be removed, and returns the first such error.
func SweepAt(dir *os.File) error {
	if err := sweep(openFolder(dir), time.Now().Add(-staleAfter)); err != nil {
		return fmt.Errorf("sweep %s: %w", dir.Name(), err)
	}
	return nil
}

// Sweep is SweepAt for the directory at path, which may be missing.
func Sweep(path string) error {
	d, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	defer d.Close()
	return SweepAt(d)
}

// SyncDir makes what was created, renamed or removed in the directory at path
// durable, as far as the system can: some file systems, and Windows, have no
// sync for directories, which is no error.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	defer d.Close()
	if err := openFolder(d).sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// folder is a directory as far as replacing a file needs it: the seam at which
// systems differ, and at which tests inject faults.
type folder interface {
	// create makes a new file for writing; fs.ErrExist where the name is taken.
	create(name string, perm fs.FileMode) (file, error)
	rename(from, to string) error
	remove(name string) error
	// sync makes renames durable, as far as the system can.
	sync() error
	list() ([]fs.DirEntry, error)
}

type file interface {
	io.WriteCloser
	Sync() error
}

// whole fills a file with data.
func whole(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		n, err := w.Write(data)
		if err == nil && n < len(data) {
			err = io.ErrShortWrite
		}
		return err
	}
}

func replace(d folder, name string, content func(io.Writer) error, perm fs.FileMode, sync bool) (err error) {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name || strings.ContainsRune(name, 0) {
		return fmt.Errorf("name %q: %w", name, fs.ErrInvalid)
	}
	f, temp, err := createTemp(d, perm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && temp != "" {
			d.remove(temp)
		}
	}()
	if err := fill(f, content, sync); err != nil {
		return err
	}
	fault.Point("atomicfile.written")
	if err := d.rename(temp, name); err != nil {
		return err
	}
	temp = ""
	fault.Point("atomicfile.renamed")
	if sync {
		return d.sync()
	}
	return nil
}

// createTemp makes the temporary file. A name that is taken is next to
// impossible by chance; the bound keeps a broken file system from holding us.
func createTemp(d folder, perm fs.FileMode) (file, string, error) {
	for try := 0; ; try++ {
		name := fmt.Sprintf("%s%016x%s", tempPrefix, rand.Uint64(), tempSuffix)
		f, err := d.create(name, perm)
		if err == nil {
			return f, name, nil
		}
		if !errors.Is(err, fs.ErrExist) || try == 10 {
			return nil, "", err
		}
	}
}

func fill(f file, content func(io.Writer) error, sync bool) error {
	err := fault.Error("atomicfile.write")
	if err == nil {
		err = content(f)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	// A network file system may report a full disk only here.
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func sweep(d folder, before time.Time) error {
	entries, err := d.list()
	if err != nil {
		return err
	}
	var first error
	for _, e := range entries {
		if !IsTemp(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err == nil && info.ModTime().Before(before) {
			err = d.remove(e.Name())
		}
		// Gone already: renamed by its writer, or another sweep was faster.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = err
		}
	}
	return first
}

// IsTemp reports whether a file of that name is one that is being written, or whose
// writer has died.
func IsTemp(name string) bool {
	hex, ok := strings.CutPrefix(name, tempPrefix)
	if !ok {
		return false
	}
	hex, ok = strings.CutSuffix(hex, tempSuffix)
	return ok && len(hex) == 16 && strings.Trim(hex, "0123456789abcdef") == ""
}
