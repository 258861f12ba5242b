package taskdir

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// removedPrefix begins the name that a task's directory has while it is deleted.
const removedPrefix = ".removed-"

// Remove takes a task's directory away at once, under a name that nobody looks at,
// and then deletes it: half of a task must never look like a new one. What it could
// not delete SweepRemoved does. fs.ErrNotExist says that there is no such task.
func Remove(tempDir, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	root, err := OpenRoot(tempDir)
	if err != nil {
		return err
	}
	defer root.Close()
	aside := newName(removedPrefix)
	if err := root.h.rename(name, aside); err != nil {
		return pathError("remove", filepath.Join(root.path, name), err)
	}
	if err := os.RemoveAll(filepath.Join(root.path, aside)); err != nil {
		return fmt.Errorf("remove task %s: %w", name, err)
	}
	return nil
}

// SweepRemoved deletes what a Remove that was broken off has left; one that is at work
// it helps. It follows no links. ctx ends it between two directories.
func (r *Root) SweepRemoved(ctx context.Context) error { return r.sweep(ctx, removedPrefix) }

// newName returns a name for a directory that is no task, or not yet, or no more.
func newName(prefix string) string { return fmt.Sprintf("%s%016x", prefix, rand.Uint64()) }

// isNamed reports whether newName made the name.
func isNamed(name, prefix string) bool {
	hex, ok := strings.CutPrefix(name, prefix)
	return ok && len(hex) == 16 && strings.Trim(hex, "0123456789abcdef") == ""
}

// sweep deletes the directories whose names newName made.
func (r *Root) sweep(ctx context.Context, prefix string) error {
	// A handle of its own, since listing moves the offset that it shares.
	h, err := openRoot(r.path)
	if err != nil {
		return pathError("list", r.path, err)
	}
	defer h.close()
	var left []string
	err = r.each(h, func(v view, name []byte, k kind) {
		if !isNamed(string(name), prefix) {
			return
		}
		if k == unknown {
			if in, err := v.lstat(string(name)); err == nil {
				k = in.kind
			}
		}
		if k == directory {
			left = append(left, string(name))
		}
	})
	if err != nil {
		return pathError("list", r.path, err)
	}
	var errs []error
	for _, name := range left {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, os.RemoveAll(filepath.Join(r.path, name)))
	}
	return errors.Join(errs...)
}
