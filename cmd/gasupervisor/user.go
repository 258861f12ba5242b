package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/confine"
)

// giveTempDir makes the directory of the tasks where agents act as another user, whose
// it is where it is new. It is an error if that user may not write in it.
func (k *confinement) giveTempDir(c *config.Config) error {
	if k == nil || k.user == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.TempDir), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	switch err := os.Mkdir(c.TempDir, 0o755); {
	case errors.Is(err, fs.ErrExist):
		// Or something else has the name, which whoever opens it says.
		return k.mayWork(c)
	case err != nil:
		return fmt.Errorf("make directory: %w", err)
	}
	return k.user.Give(c.TempDir)
}

// mayWork returns an error where the user as whom agents act cannot write where all
// tasks work.
func (k *confinement) mayWork(c *config.Config) error {
	if k == nil || k.user == nil || !c.Sandbox.Share {
		return nil
	}
	dir, err := filepath.EvalSymlinks(c.TempDir)
	if err != nil || k.user.MayWrite(dir) {
		return nil // what is not there yet will be the user's
	}
	return fmt.Errorf("[sandbox] user: %s may not write %s, in which tasks work: chown %s %s, or share = false",
		k.user.Name, c.TempDir, k.user.Name, c.TempDir)
}

// admit makes ready what the user as whom agents act is to have of its own, and refuses
// an ask to write where that user may not. The task's directory becomes the user's
// where it is the daemon's.
func (k *confinement) admit(a sandbox.Ask, p confine.Private) error {
	if k == nil || k.user == nil {
		return nil
	}
	// File tools, which may be the first there, could not make it where root alone may.
	if err := k.prepare(p); err != nil || !a.Writes {
		return err
	}
	if err := k.user.Give(a.TaskDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give the task's directory away: %w", err)
	}
	check := func(key, path string) error {
		if path == "" || k.user.MayWrite(standing(path)) {
			return nil
		}
		return policyError{&sandbox.RefusalError{
			Op: sandbox.Write, Path: path, Key: key,
			Why:  fmt.Sprintf("user %s, as whom agents act (user in [sandbox] of config.toml), may not write it", k.user.Name),
			Hint: "a person can give it to that user, or tools in context.json can leave out those that write",
		}}
	}
	if err := check("work_dir", a.WorkDir); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(a.OutputFiles)) {
		if k.user.MayWrite(a.OutputFiles[name]) {
			continue
		}
		if err := check(fmt.Sprintf("output_files %q", name), filepath.Dir(a.OutputFiles[name])); err != nil {
			return err
		}
	}
	return nil
}

// standing returns path, or the innermost directory around it that exists.
func standing(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || filepath.Dir(path) == path {
			return path
		}
		path = filepath.Dir(path)
	}
}

// makePrivate makes one of a task's private directories, for whom agents act as. One
// that was another user's is made anew: that user's files are not this one's to use.
func (k *confinement) makePrivate(dir string) error {
	k.making.Lock()
	defer k.making.Unlock()
	if k.user.Owns(dir) {
		return nil
	}
	if err := removeTree(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil || k.user == nil {
		return err
	}
	return k.user.Give(dir)
}
