package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
)

// Bounds of walks through directories.
const (
	maxDepth      = 40
	maxPerDir     = 20_000
	maxIgnoreFile = 64 << 10
)

// opaque are directories that are shown and not gone into: what they hold was
// made by programs, and there is much of it.
var opaque = map[string]bool{
	".git": true, ".hg": true, ".svn": true, "node_modules": true, "__pycache__": true, ".venv": true,
	".tox": true, ".mypy_cache": true, ".pytest_cache": true,
}

// found is one entry of a walk.
type found struct {
	// path is relative to the directory that was walked, with slashes.
	path  string
	depth int
	entry fs.DirEntry
	// dir holds it; it is open only while the entry is visited.
	dir *sandbox.Dir
}

func (f found) isLink() bool { return f.entry.Type()&fs.ModeSymlink != 0 }

// errEnough ends a walk early.
var errEnough = errors.New("enough")

// walk visits what is in d and below, by name, leaving out what .gitignore files
// in it say. Directories that cannot be opened and links are not gone into. visit
// says whether to go into a directory; an error of it ends the walk, errEnough
// without one. The error may be ctx.Err().
func walk(ctx context.Context, d *sandbox.Dir, visit func(found) (into bool, err error)) (ignored int, err error) {
	w := walker{ctx: ctx, visit: visit}
	if err = w.dir(d, "", nil, 0); errors.Is(err, errEnough) {
		err = nil
	}
	return w.ignored, err
}

type walker struct {
	ctx     context.Context
	visit   func(found) (bool, error)
	ignored int
}

func (w *walker) dir(d *sandbox.Dir, base string, ig *ignore, depth int) error {
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	entries, _, err := d.Entries(maxPerDir)
	if err != nil {
		if depth == 0 {
			return err
		}
		return nil
	}
	if f, err := d.Open(".gitignore"); err == nil {
		b, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile))
		f.Close()
		if err == nil {
			ig = parseIgnore(ig, base, string(b))
		}
	}
	for _, e := range entries {
		path := base + e.Name()
		if ig.ignores(path, e.IsDir()) {
			w.ignored++
			continue
		}
		into, err := w.visit(found{path, depth, e, d})
		if err != nil {
			return err
		}
		if !into || !e.IsDir() || opaque[e.Name()] || depth >= maxDepth {
			continue
		}
		sub, err := d.OpenDir(e.Name())
		if err != nil {
			continue
		}
		err = w.dir(sub, path+"/", ig, depth+1)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
