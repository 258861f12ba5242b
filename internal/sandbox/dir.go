package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Dir is an open directory of Files, for listings and searches: its entries are
// reached by handle, and links among them are not followed. It may be used by one
// goroutine at a time.
type Dir struct {
	policy Policy
	root   *os.Root
	path   string
}

// Path returns the directory's absolute path, free of links.
func (d *Dir) Path() string { return d.path }

// Close closes the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Entries returns the entries that the task may read, by name, and whether there
// are more than limit, in which case any limit of them are returned.
func (d *Dir) Entries(limit int) (entries []fs.DirEntry, more bool, err error) {
	var h *os.File
	err = d.policy.User.act(func() (err error) {
		h, err = d.root.Open(".")
		return err
	})
	if err != nil {
		return nil, false, err
	}
	defer h.Close()
	for len(entries) <= limit {
		batch, err := h.ReadDir(256)
		for _, e := range batch {
			if d.policy.Check(filepath.Join(d.path, e.Name()), Read) == nil {
				entries = append(entries, e)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	if more = len(entries) > limit; more {
		entries = entries[:limit]
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, more, nil
}

// Open opens the regular file name in the directory for reading.
func (d *Dir) Open(name string) (*os.File, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	var file *os.File
	err := d.policy.User.act(func() (err error) {
		file, err = openRegular(d.root, name, os.O_RDONLY)
		return err
	})
	return file, err
}

// OpenDir opens the directory name in the directory.
func (d *Dir) OpenDir(name string) (*Dir, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	var sub *os.Root
	err := d.policy.User.act(func() (err error) {
		sub, err = openStep(d.root, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Dir{policy: d.policy, root: sub, path: filepath.Join(d.path, name)}, nil
}

func (d *Dir) check(name string) error {
	if name != filepath.Base(name) || name == ".." {
		return fmt.Errorf("open %q: not a name in a directory", name)
	}
	return d.policy.Check(filepath.Join(d.path, name), Read)
}
