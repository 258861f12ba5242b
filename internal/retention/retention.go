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
// message can reach it; then the journals are moved to where the daemon, too, puts
// those of a directory that is gone, and one of the two does it; then the archive is
// written and synced; only then is anything deleted. Nothing is ever deleted at the
// place of a task's present journal, where a new task of that name may have its own.
//
// A crash in between leaves a directory under a hidden name, which the next call
// finishes. It knows it by a note in the state directory, written before the
// rename, that holds the task's name. The hidden name alone would not do: whoever can
// write to the temp directory, agents among them, could make one that names somebody
// else's journals.
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
	"strconv"
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
// returns the errors joined. What an earlier call was killed at comes first. Where another process is packing to Dest the error is a
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
		packed, err = c.finish(ctx, names)
		errs = append(errs, err)
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
	place := journal.Place(name)
	hidden := hiddenPrefix + ended.UTC().Format(stampLayout) + "-" + place
	note := filepath.Join(c.Archived, hidden)
	if err := os.MkdirAll(c.Archived, 0o700); err != nil {
		return "", err
	}
	if err := atomicfile.Write(note, []byte(name), 0o600); err != nil {
		return "", err
	}
	journals := contentOf(filepath.Join(c.StateDir, place))
	if err := os.Rename(taskdir.TaskPath(c.TempDir, name), filepath.Join(c.TempDir, hidden)); err != nil {
		return "", errors.Join(err, os.Remove(note))
	}
	if err := c.putAside(place, journals); err != nil {
		return "", err
	}
	return c.archive(ctx, hidden)
}

// stampLayout is how the end of a session is written in names.
const stampLayout = "20060102T150405Z"

// split takes a name apart that pack has given.
func split(hidden string) (ended time.Time, place string, ok bool) {
	stamp, place, _ := strings.Cut(strings.TrimPrefix(hidden, hiddenPrefix), "-")
	ended, err := time.Parse(stampLayout, stamp)
	return ended, place, err == nil && place != ""
}

// finish packs what an earlier call was killed at. names are the tasks there are.
func (c Config) finish(ctx context.Context, names []string) ([]Packed, error) {
	notes, err := os.ReadDir(c.Archived)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var packed []Packed
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
		p, err := c.finishOne(ctx, n.Name(), names)
		if err != nil {
			errs = append(errs, fmt.Errorf("pack %s: %w", n.Name(), err))
			continue
		}
		packed = append(packed, p)
	}
	return packed, errors.Join(errs...)
}

func (c Config) finishOne(ctx context.Context, hidden string, names []string) (Packed, error) {
	ended, place, ok := split(hidden)
	if !ok {
		return Packed{}, errors.New("it has no name that this program gives")
	}
	task, err := os.ReadFile(filepath.Join(c.Archived, hidden))
	if err != nil {
		return Packed{}, err
	}
	p := Packed{Task: string(task), Ended: ended}
	if p.Task == "" {
		p.Task = place // a note of an earlier version of this program
	}
	// Where the task has a successor, what lies there may be the successor's.
	if !slices.ContainsFunc(names, func(name string) bool { return journal.Place(name) == place }) {
		if err := c.putAside(place, contentOf(filepath.Join(c.StateDir, place))); err != nil {
			return Packed{}, err
		}
	}
	p.Archive, err = c.archive(ctx, hidden)
	return p, err
}

// putAside moves the present journals of a task, whose directory is out of sight, to
// where the daemon puts those of a directory that is gone. It leaves them alone
// where they are not as they were: somebody made a task of that name at once, and
// they are its journals now.
func (c Config) putAside(place string, were []string) error {
	live := filepath.Join(c.StateDir, place)
	for n := c.Now.UnixMilli(); ; n++ {
		aside := c.aside(place, n)
		if _, err := os.Lstat(aside); err == nil {
			continue
		}
		err := os.Rename(live, aside)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the daemon was first, or there are none
		}
		if err == nil && !slices.Equal(contentOf(aside), were) {
			err = os.Rename(aside, live)
		}
		return err
	}
}

// contentOf describes what is in a directory of journals, for telling whether it
// changed.
func contentOf(dir string) (content []string) {
	entries, _ := os.ReadDir(dir) // none can be read: that is no content either
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			content = append(content, fmt.Sprint(fi.Name(), " ", fi.Size(), " ", fi.ModTime().UnixNano()))
		}
	}
	return content
}

// archive writes the archive of a task whose directory has the name hidden, and
// deletes what is in it. hidden is a name that pack has given.
func (c Config) archive(ctx context.Context, hidden string) (string, error) {
	ended, place, ok := split(hidden)
	if !ok {
		return "", fmt.Errorf("%s has no name that this program gives", hidden)
	}
	journals, err := c.journals(place)
	if err != nil {
		return "", err
	}
	stem := filepath.Join(c.Dest, place+"-"+ended.Format(stampLayout))
	path := stem + ".tar.gz"
	for i := 2; ; i++ {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = fmt.Sprintf("%s.%d.tar.gz", stem, i)
	}
	err = atomicfile.WriteFrom(path, 0o600, func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		t := tar.NewWriter(zip)
		err := addTree(ctx, t, filepath.Join(c.TempDir, hidden), "task")
		for i, dir := range journals {
			if err == nil {
				err = addTree(ctx, t, dir, filepath.Join("journal", fmt.Sprint(i)))
			}
		}
		return errors.Join(err, t.Close(), zip.Close())
	})
	if err != nil {
		return "", err
	}
	errs := []error{os.RemoveAll(filepath.Join(c.TempDir, hidden))}
	for _, dir := range journals {
		errs = append(errs, os.RemoveAll(dir))
	}
	err = errors.Join(errs...)
	if err == nil {
		err = os.Remove(filepath.Join(c.Archived, hidden))
	}
	return path, err
}

// journals lists the directories of a task's journals that were put aside, the
// newest first.
func (c Config) journals(place string) ([]string, error) {
	entries, err := os.ReadDir(c.Archived)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var numbers []int64
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e.Name(), place+"."); ok && e.IsDir() {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	dirs := make([]string, 0, len(numbers))
	for _, n := range slices.Backward(numbers) {
		dirs = append(dirs, c.aside(place, n))
	}
	return dirs, nil
}

// aside is where the journals of a task are put, under a number that grows with time.
func (c Config) aside(place string, n int64) string {
	return filepath.Join(c.Archived, place+"."+strconv.FormatInt(n, 10))
}

// addTree adds a directory to a tar file. Links are kept as links and followed
// nowhere; other special files are left out.
func addTree(ctx context.Context, t *tar.Writer, dir, as string) error {
	// A directory that was swapped for a link leads nowhere out of its parent.
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	root, err := parent.OpenRoot(filepath.Base(dir))
	if err != nil {
		return err
	}
	defer root.Close()
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
