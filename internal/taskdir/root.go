package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// DefaultSettle is how long a file has to stand still to count as whole where
// its writers are not known.
const DefaultSettle = 250 * time.Millisecond

// Root is the temp directory, in which every directory is a task. It may be used
// from several goroutines, and must stay open as long as its Dirs are.
type Root struct {
	path     string
	h        handle
	settle   time.Duration
	noLeases bool
	scratch  sync.Pool // *[]byte for directory entries
}

// Option changes how a Root works.
type Option func(*Root)

// WithSettle sets how long a file has to stand still to count as whole where its
// writers are not known.
func WithSettle(d time.Duration) Option { return func(r *Root) { r.settle = d } }

// WithoutLeases does not ask the system for a file's writers, as if it could not tell.
func WithoutLeases() Option { return func(r *Root) { r.noLeases = true } }

// OpenRoot opens the temp directory. Links in its own path are followed.
func OpenRoot(path string, options ...Option) (*Root, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open temp directory: %w", err)
	}
	h, err := openRoot(path)
	if err != nil {
		return nil, pathError("open", path, err)
	}
	r := &Root{path: path, h: h, settle: DefaultSettle}
	r.scratch.New = func() any { b := make([]byte, 8<<10); return &b }
	for _, o := range options {
		o(r)
	}
	return r, nil
}

// Path returns the absolute path of the temp directory.
func (r *Root) Path() string { return r.path }

// Sync makes the names of tasks durable.
func (r *Root) Sync() error {
	if err := r.h.sync(); err != nil {
		return pathError("sync", r.path, err)
	}
	return nil
}

// Close gives the handle back.
func (r *Root) Close() error { return r.h.close() }

// Names lists the tasks, sorted: all directories but those whose names begin
// with ".". Links are listed too, so that Open can say why it refuses them.
func (r *Root) Names() ([]string, error) {
	// A handle of its own, since listing moves the offset that it shares.
	h, err := openRoot(r.path)
	if err != nil {
		return nil, pathError("list", r.path, err)
	}
	defer h.close()
	var names []string
	err = r.each(h, func(v view, name []byte, k kind) {
		if len(name) == 0 || name[0] == '.' {
			return
		}
		if k == unknown {
			in, err := v.lstat(string(name))
			if err != nil {
				return
			}
			k = in.kind
		}
		if k == directory || k == link {
			names = append(names, string(name))
		}
	})
	if err != nil {
		return nil, pathError("list", r.path, err)
	}
	slices.Sort(names)
	return names, nil
}

func (r *Root) each(h handle, fn func(v view, name []byte, k kind)) error {
	buf := r.scratch.Get().(*[]byte)
	defer r.scratch.Put(buf)
	return h.with(func(v view) error {
		return v.each(*buf, func(name []byte, k kind) { fn(v, name, k) })
	})
}

// Open opens the directory of a task. A *RefusedError says that something else
// than a directory has the name, fs.ErrNotExist that nothing has.
func (r *Root) Open(name string) (*Dir, error) {
	path := filepath.Join(r.path, name)
	if ignored(name) || filepath.Base(name) != name {
		return nil, pathError("open", path, fs.ErrInvalid)
	}
	h, err := r.h.sub(name, path)
	if err != nil {
		if isNotDir(err) || isLink(err) {
			if in, serr := r.h.lstat(name); serr == nil && in.kind != directory {
				return nil, &RefusedError{Op: "open", Path: path, Why: "it is " + in.kind.String(), Hint: "a task is a real directory"}
			}
		}
		return nil, pathError("open", path, err)
	}
	id, err := h.stat()
	if err != nil {
		h.close()
		return nil, pathError("open", path, err)
	}
	return &Dir{root: r, name: name, path: path, h: h, id: id}, nil
}

// Create makes the directory of a task and opens it. fs.ErrExist says that the
// name is taken, a *NameError that it cannot be a task's.
func (r *Root) Create(name string) (*Dir, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := r.h.mkdir(name, 0o755); err != nil {
		return nil, pathError("create", filepath.Join(r.path, name), err)
	}
	return r.Open(name)
}

// pathError says what was done to which path, as package os does.
func pathError(op, path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
