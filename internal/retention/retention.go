// Package retention packs away what is long over: the directory of a task whose
// session has ended, and its journals, become one compressed file.
//
// An archive is a gzipped tar with two directories: task/, the task's directory
// as it was, and journal/, its journals. Unpacked into place it is the task again.
//
// # With and without a daemon
//
// A daemon may be watching while tasks are packed. The order keeps both sides
// honest: the task's directory is renamed out of sight first, after which no
// message can reach it; then the journals are opened where they are, or where the
// daemon puts those of a directory that is gone; then the archive is written and
// synced; only then is anything deleted, and of the journals what was opened. A task
// of the same name that begins meanwhile keeps its own.
//
// A crash in between leaves a directory under a hidden name, which the next call
// finishes. It knows it by a note in the state directory, written before the
// rename. The name alone would not do: whoever can write to the temp directory,
// agents among them, could make one that names somebody else's journals.
package retention

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// Config says what to pack, and where to.
type Config struct {
	TempDir  string
	StateDir string
	// Archived is the directory, in StateDir, of the journals of tasks whose
	// directories are gone.
	Archived string
	// Dest is where archives are written; it is made where it is missing.
	Dest string
	// After is the age from which an ended session is packed.
	After time.Duration
	Now   time.Time
	// DryRun only says what would be packed.
	DryRun bool
}

// Packed is a task that was packed away.
type Packed struct {
	Task string `json:"task"`
	// Ended is when its session ended.
	Ended time.Time `json:"ended"`
	// Archive is the file; "" after a dry run.
	Archive string `json:"archive,omitempty"`
}

// hiddenPrefix begins the name that a directory has while it is packed, and the
// name of the note of it in Config.Archived.
const hiddenPrefix = ".packing-"

// Prune packs the tasks whose sessions ended longer than After ago and to which
// nothing was written since. It goes on after a task that cannot be packed, and
// returns the errors joined. Where another process is packing to Dest the error is a
// *lock.HeldError: of two that pack one task, one would archive what the other is
// deleting.
func Prune(ctx context.Context, c Config) ([]Packed, error) {
	if !c.DryRun {
		if err := os.MkdirAll(c.Dest, 0o700); err != nil {
			return nil, err
		}
		alone, err := lock.Acquire(c.Dest)
		if err != nil {
			return nil, fmt.Errorf("pack tasks: %w", err)
		}
		defer alone.Release()
	}
	root, err := taskdir.OpenRoot(c.TempDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names, err := root.Names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var packed []Packed
	var errs []error
	if !c.DryRun {
		errs = append(errs, c.finish(ctx, names))
	}
	for _, name := range names {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		ended, old := c.old(root, name)
		if !old {
			continue
		}
		p := Packed{Task: name, Ended: ended}
		if !c.DryRun {
			if p.Archive, err = c.pack(ctx, name, ended); err != nil {
				errs = append(errs, fmt.Errorf("pack task %q: %w", name, err))
				continue
			}
		}
		packed = append(packed, p)
	}
	return packed, errors.Join(errs...)
}

// old reports whether a task's session ended long enough ago, and when. Whatever
// cannot be read stays.
func (c Config) old(root *taskdir.Root, name string) (time.Time, bool) {
	d, err := root.Open(name)
	if err != nil {
		return time.Time{}, false
	}
	defer d.Close()
	st, err := taskdir.ReadStatus(d.Path())
	if err != nil || st.State != taskdir.Ended {
		return time.Time{}, false
	}
	ended := st.UpdatedAt.Time
	s, err := d.Look()
	if err != nil || c.Now.Sub(ended) < c.After {
		return ended, false
	}
	for _, unread := range []*taskdir.Stat{s.Reply, s.Intervene, s.KeyInfo, s.Stop} {
		if unread != nil {
			return ended, false
		}
	}
	return ended, len(s.Taken) == 0 && (s.Input == nil || !s.Input.Mtime.After(ended))
}

// pack moves a task out of sight and archives it.
func (c Config) pack(ctx context.Context, name string, ended time.Time) (string, error) {
	hidden := hiddenPrefix + ended.UTC().Format("20060102T150405Z") + "-" + journal.Place(name)
	note := filepath.Join(c.Archived, hidden)
	if err := os.MkdirAll(c.Archived, 0o700); err != nil {
		return "", err
	}
	if err := atomicfile.Write(note, []byte(name), 0o600); err != nil {
		return "", err
	}
	if err := os.Rename(taskdir.TaskPath(c.TempDir, name), filepath.Join(c.TempDir, hidden)); err != nil {
		return "", errors.Join(err, os.Remove(note))
	}
	return c.archive(ctx, hidden, name)
}

// finish packs what an earlier call was killed at.
func (c Config) finish(ctx context.Context, names []string) error {
	notes, err := os.ReadDir(c.Archived)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, n := range notes {
		if !n.Type().IsRegular() || !strings.HasPrefix(n.Name(), hiddenPrefix) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(c.TempDir, n.Name())); errors.Is(err, fs.ErrNotExist) {
			// Killed before the rename, or after all was done.
			errs = append(errs, os.Remove(filepath.Join(c.Archived, n.Name())))
			continue
		}
		name, err := os.ReadFile(filepath.Join(c.Archived, n.Name()))
		if err == nil && len(name) == 0 {
			// A note of an earlier version.
			for _, other := range names {
				if strings.HasSuffix(n.Name(), "-"+journal.Place(other)) {
					name = []byte(other)
				}
			}
		}
		if err == nil {
			_, err = c.archive(ctx, n.Name(), string(name))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pack %s: %w", n.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// archive writes the archive of a task whose directory has the name hidden, and
// deletes what is in it. hidden is a name that pack has given; name is the task's, ""
// where it is not known.
func (c Config) archive(ctx context.Context, hidden, name string) (string, error) {
	stamp, place, ok := strings.Cut(strings.TrimPrefix(hidden, hiddenPrefix), "-")
	if !ok || place == "" {
		return "", fmt.Errorf("%s has no name that this program gives", hidden)
	}
	journals, err := c.openJournals(place, name)
	if err != nil {
		return "", err
	}
	defer closeAll(journals)
	path := filepath.Join(c.Dest, place+"-"+stamp+".tar.gz")
	for i := 2; ; i++ {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = filepath.Join(c.Dest, fmt.Sprintf("%s-%s.%d.tar.gz", place, stamp, i))
	}
	err = atomicfile.WriteFrom(path, 0o600, func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		t := tar.NewWriter(zip)
		root, err := openDir(filepath.Join(c.TempDir, hidden))
		if err == nil {
			err = errors.Join(addTree(ctx, t, root, "task"), root.Close())
		}
		for i, dir := range journals {
			if err == nil {
				err = addTree(ctx, t, dir.root, filepath.Join("journal", fmt.Sprint(i)))
			}
		}
		return errors.Join(err, t.Close(), zip.Close())
	})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.RemoveAll(filepath.Join(c.TempDir, hidden)), c.removeJournals(place, journals))
	if err == nil {
		err = os.Remove(filepath.Join(c.Archived, hidden))
	}
	return path, err
}

// journals lists the directories of a task's journals: the one in use, and those
// that a daemon has put aside.
func (c Config) journals(place string) ([]string, error) {
	var dirs []string
	live := filepath.Join(c.StateDir, place)
	if fi, err := os.Lstat(live); err == nil && fi.IsDir() {
		dirs = append(dirs, live)
	}
	entries, err := os.ReadDir(c.Archived)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e.Name(), place+"."); ok && e.IsDir() && strings.Trim(n, "0123456789") == "" {
			dirs = append(dirs, filepath.Join(c.Archived, e.Name()))
		}
	}
	return dirs, nil
}

// packedJournal is a directory of journals that is being packed. It is known by what it
// is: a daemon may move it, and make another one where it was.
type packedJournal struct {
	root *os.Root
	is   fs.FileInfo
}

func closeAll(journals []packedJournal) {
	for _, j := range journals {
		j.root.Close()
	}
}

// openJournals opens the directories of journals of a task that was hidden. The one in
// use belongs to another task where there is a directory of the name again: a daemon
// makes journals only for a directory that it has seen.
func (c Config) openJournals(place, name string) ([]packedJournal, error) {
	for attempt := 1; ; attempt++ {
		dirs, err := c.journals(place)
		if err != nil {
			return nil, err
		}
		var opened []packedJournal
		for _, dir := range dirs {
			var j packedJournal
			if j, err = openJournal(dir); err != nil {
				break
			}
			// Looked at after the journal was opened: a later one is another directory.
			if dir == filepath.Join(c.StateDir, place) && c.isThere(name) {
				if err = j.root.Close(); err != nil {
					break
				}
				continue
			}
			opened = append(opened, j)
		}
		if err == nil {
			return opened, nil
		}
		closeAll(opened)
		// A daemon has just put it aside. It does so once.
		if !errors.Is(err, fs.ErrNotExist) || attempt == 3 {
			return nil, err
		}
	}
}

func openJournal(dir string) (packedJournal, error) {
	root, err := openDir(dir)
	if err != nil {
		return packedJournal{}, err
	}
	is, err := root.Stat(".")
	if err != nil {
		return packedJournal{}, errors.Join(err, root.Close())
	}
	return packedJournal{root, is}, nil
}

// isThere says whether the temp directory has a task of the name.
func (c Config) isThere(name string) bool {
	if name == "" {
		return false
	}
	_, err := os.Lstat(taskdir.TaskPath(c.TempDir, name))
	return err == nil
}

// removeJournals removes the directories that were packed, wherever they are by now,
// and no other.
func (c Config) removeJournals(place string, packed []packedJournal) error {
	for attempt := 1; ; attempt++ {
		dirs, err := c.journals(place)
		if err != nil {
			return err
		}
		found := false
		for _, dir := range dirs {
			is, err := os.Lstat(dir)
			if err != nil || !slices.ContainsFunc(packed, func(j packedJournal) bool { return os.SameFile(is, j.is) }) {
				continue
			}
			found = true
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		// One that was moved away from under the removal is found in the next pass.
		if !found || attempt == 3 {
			return nil
		}
	}
}

// openDir opens a directory. One that was swapped for a link leads nowhere out of its
// parent.
func openDir(dir string) (*os.Root, error) {
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return parent.OpenRoot(filepath.Base(dir))
}

// addTree adds a directory to a tar file. Links are kept as links and followed
// nowhere; other special files are left out.
func addTree(ctx context.Context, t *tar.Writer, root *os.Root, as string) error {
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			if link, err = root.Readlink(name); err != nil {
				return err
			}
		case !fi.IsDir() && !fi.Mode().IsRegular():
			return nil
		}
		h, err := tar.FileInfoHeader(fi, link)
		if err != nil {
			return err
		}
		h.Name = filepath.ToSlash(filepath.Join(as, name))
		if fi.IsDir() {
			h.Name += "/"
		}
		if err := t.WriteHeader(h); err != nil || !fi.Mode().IsRegular() {
			return err
		}
		f, err := openRegular(root, name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, io.LimitReader(f, fi.Size()))
		return err
	})
}

// openRegular opens a file that was seen to be a regular one. Agents may write in
// there still: where a pipe has taken its place, opening that keeps nobody waiting.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(&fs.PathError{Op: "pack", Path: name, Err: fs.ErrInvalid}, err, f.Close())
	}
	return f, nil
}
