package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Files is the file system as one task may see it: every operation checks the
// policy, opens regular files only, never waits for another program, and follows
// a link only to where the policy allows what is asked. Its methods may be called
// by many goroutines at once and block no longer than the disk does.
//
// Errors are a *RefusalError where the policy says no, and satisfy
// errors.Is(err, fs.ErrNotExist) where a path does not exist.
type Files struct {
	policy Policy

	mu    sync.Mutex
	roots map[string]*os.Root
}

// Errors of Files beside those of the system.
var (
	// ErrNotRegular is a path that is neither a regular file nor, where one is
	// wanted, a directory: a pipe, a device, a socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrIsDirectory is a directory where a file is wanted.
	ErrIsDirectory = errors.New("is a directory")
	// ErrNotDirectory is something else where a directory is wanted.
	ErrNotDirectory = errors.New("is not a directory")
	// ErrTooBig is a file with more bytes than the caller takes.
	ErrTooBig = errors.New("file is too big")
	// ErrDangling is a link to nothing: a file made through it would lie where
	// the link wants it.
	ErrDangling = errors.New("is a link to something that does not exist")

	// errChanged is a path whose meaning changed while it was opened.
	errChanged = errors.New("is a link, or changed while it was being opened")
)

// attempts is how often a path that changes under the hand is tried.
const attempts = 3

// OpenFiles returns the file system that p allows. Nothing is opened before it
// is needed. Close it at the end of the round.
func OpenFiles(p Policy) *Files {
	return &Files{policy: p, roots: map[string]*os.Root{}}
}

// Close closes the granted directories. Files and directories that were opened
// through it stay open.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, r := range f.roots {
		errs = append(errs, r.Close())
	}
	clear(f.roots)
	return errors.Join(errs...)
}

// Resolve returns the absolute path that a tool's path means: relative ones start
// at the working directory, but for those with a fixed meaning. Links are not
// looked at.
func (f *Files) Resolve(path string) string {
	if fixed, ok := f.policy.named[filepath.ToSlash(filepath.Clean(path))]; ok {
		return fixed
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.policy.WorkDir, path)
	}
	path = filepath.Clean(path)
	if f.policy.Check(path, Read) != nil {
		// Not a path of the daemon's: perhaps one that only commands see.
		for inside, outside := range f.policy.places {
			if under(path, inside) {
				return outside + strings.TrimPrefix(path, inside)
			}
		}
	}
	return path
}

// Show returns an absolute path as a tool should name it: relative to the working
// directory where it lies there.
func (f *Files) Show(abs string) string {
	if under(abs, f.policy.WorkDir) {
		if rel, err := filepath.Rel(f.policy.WorkDir, abs); err == nil {
			return rel
		}
	}
	return f.Name(abs)
}

// Name returns an absolute path as commands know it, which is another one in the
// task's own directories.
func (f *Files) Name(abs string) string {
	for inside, outside := range f.policy.places {
		if under(abs, outside) {
			return inside + strings.TrimPrefix(abs, outside)
		}
	}
	return abs
}

// Open opens a regular file for reading.
func (f *Files) Open(path string) (*os.File, error) {
	var file *os.File
	err := f.at(path, Read, false, func(at place) (err error) {
		file, err = openRegular(at.root, at.name, os.O_RDONLY)
		return err
	})
	return file, err
}

// Stat describes what path means, links followed.
func (f *Files) Stat(path string) (fs.FileInfo, error) {
	var fi fs.FileInfo
	err := f.at(path, Read, false, func(at place) (err error) {
		fi, err = at.root.Lstat(at.name)
		return err
	})
	return fi, err
}

// ReadFile returns the whole of a regular file of at most limit bytes; for a
// bigger one the error is ErrTooBig.
func (f *Files) ReadFile(path string, limit int64) ([]byte, error) {
	file, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: f.Name(f.Resolve(path)), Err: ErrTooBig}
	}
	return data, nil
}

// WriteFile makes data the content of a file and says whether the file is new.
// Missing directories on the way are made. A file that exists keeps its mode and
// its identity; a new one gets perm and is removed again where writing fails.
func (f *Files) WriteFile(path string, data []byte, perm fs.FileMode) (created bool, err error) {
	err = f.at(path, Write, true, func(at place) (err error) {
		created, err = writeInto(at.root, at.name, data, perm, false)
		return err
	})
	return created, err
}

// AppendFile adds data at the end of a file; else it is like WriteFile.
func (f *Files) AppendFile(path string, data []byte, perm fs.FileMode) (created bool, err error) {
	err = f.at(path, Write, true, func(at place) (err error) {
		created, err = writeInto(at.root, at.name, data, perm, true)
		return err
	})
	return created, err
}

// OpenDir opens a directory for reading.
func (f *Files) OpenDir(path string) (*Dir, error) {
	var dir *Dir
	err := f.at(path, Read, false, func(at place) error {
		sub, err := openStep(at.root, at.name)
		if err != nil {
			return err
		}
		dir = &Dir{policy: f.policy, root: sub, path: at.real}
		return nil
	})
	return dir, err
}

// place is where a path leads: a name in an open directory.
type place struct {
	root *os.Root
	name string // "." for the directory itself
	real string // the absolute path, free of links
}

// at finds out what path means, asks the policy, and calls do with the place.
// With create the directories on the way are made.
func (f *Files) at(path string, access Access, create bool, do func(place) error) error {
	abs := f.Resolve(path)
	var err error
	for range attempts {
		if err = f.tryAt(abs, access, create, do); !errors.Is(err, errChanged) {
			break
		}
	}
	var refused *RefusalError
	var pathErr *fs.PathError
	switch {
	case err == nil, errors.As(err, &refused):
		return err
	case errors.As(err, &pathErr):
		// The system's error names the element alone.
		err = pathErr.Err
	}
	return &fs.PathError{Op: string(access), Path: f.Name(abs), Err: err}
}

func (f *Files) tryAt(abs string, access Access, create bool, do func(place) error) error {
	if strings.ContainsRune(abs, 0) {
		return errors.New("the path holds a zero byte")
	}
	real, dangling, err := followLinks(abs)
	if err != nil {
		return f.vague(abs, access, err)
	}
	if err := f.policy.Check(real, access); err != nil {
		var refused *RefusalError
		if errors.As(err, &refused) && real != abs {
			refused.Path, refused.Why = abs, fmt.Sprintf("it is a link to %s: %s", real, refused.Why)
		}
		return err
	}
	if dangling {
		return ErrDangling
	}
	base, steps, name, err := f.place(real, access, create)
	if err != nil {
		return err
	}
	if f.policy.Unrestricted {
		defer base.Close()
	}
	return f.policy.User.act(func() error {
		root, done, err := walk(base, steps, create)
		if err != nil {
			return err
		}
		defer done()
		return do(place{root, name, real})
	})
}

// vague keeps an error that was met outside of the granted paths from telling
// what is there.
func (f *Files) vague(abs string, access Access, err error) error {
	if refused := f.policy.Check(abs, access); refused != nil {
		return refused
	}
	return err
}

// place opens where the way to real begins, which is free of links: the outermost
// grant that covers it, so that the fewest directories are trusted to be what they
// were. steps lead from there to the directory that holds it under name. Without
// restrictions base is the caller's to close.
func (f *Files) place(real string, access Access, create bool) (base *os.Root, steps []string, name string, err error) {
	dir := filepath.Dir(real)
	if name = filepath.Base(real); dir == real {
		name = "."
	}
	if f.policy.Unrestricted {
		base, err = openBase(dir, create, nil)
		return base, nil, name, err
	}
	grant, ok := f.policy.grant(real, access)
	if !ok {
		return nil, nil, "", f.policy.Check(real, access)
	}
	isDir := true
	if fi, err := os.Lstat(grant); err == nil {
		isDir = fi.IsDir()
	}
	switch {
	case !isDir || grant == real && create:
		grant = filepath.Dir(grant)
	case grant == real:
		dir, name = real, "."
	}
	if base, err = f.root(grant, create); err != nil {
		return nil, nil, "", err
	}
	rel, err := filepath.Rel(grant, dir)
	if err != nil {
		return nil, nil, "", err
	}
	if rel != "." {
		steps = strings.Split(rel, string(filepath.Separator))
	}
	return base, steps, name, nil
}

// root returns the handle of a granted directory, or of the one that holds a
// granted file.
func (f *Files) root(base string, create bool) (*os.Root, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.roots[base]; ok {
		return r, nil
	}
	r, err := openBase(base, create, f.policy.User)
	if err != nil {
		return nil, err
	}
	f.roots[base] = r
	return r, nil
}
