package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

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
// say: those in it, and in a git checkout those above it as well. Directories that cannot be opened and links are not gone into. visit
// says whether to go into a directory; an error of it ends the walk, errEnough
// without one. The error may be ctx.Err().
func (e Env) walk(ctx context.Context, d *sandbox.Dir, visit func(found) (into bool, err error)) (ignored int, err error) {
	w := walker{ctx: ctx, visit: visit}
	if err = w.dir(d, "", e.ignoredAbove(d.Path()), 0); errors.Is(err, errEnough) {
		err = nil
	}
	return w.ignored, err
}

// ignoredAbove returns the rules that a checkout has for the directory at path: what
// git itself would leave out, up to the directory that holds .git. Outside of a
// checkout nothing above a directory speaks for it.
func (e Env) ignoredAbove(path string) *ignore {
	type level struct{ text, prefix string }
	var levels []level
	prefix := ""
	for dir := path; ; {
		if dir != path {
			if text, err := e.Files.ReadFile(filepath.Join(dir, ".gitignore"), maxIgnoreFile); err == nil {
				levels = append(levels, level{string(text), prefix})
			}
		}
		if _, err := e.Files.Stat(filepath.Join(dir, ".git")); err == nil {
			if text, err := e.Files.ReadFile(filepath.Join(dir, ".git", "info", "exclude"), maxIgnoreFile); err == nil {
				levels = append(levels, level{string(text), prefix})
			}
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil
		}
		dir, prefix = up, filepath.Base(dir)+"/"+prefix
	}
	var ig *ignore
	for _, l := range slices.Backward(levels) {
		ig = parseIgnore(ig, "", l.text)
		ig.prefix = l.prefix
	}
	return ig
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
