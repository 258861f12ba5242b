package taskdir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// unbornPrefix begins the name that a directory has before it is a task.
const unbornPrefix = ".unborn-"

// Unborn is the directory of a task that nobody sees yet: what has to be known of
// it can be recorded before a look can find it. It ends with Publish or Discard.
type Unborn struct {
	root *Root
	name string
	d    *Dir // while it is filled
	id   FileID
	// Input is its input.txt.
	Input Stat
}

// Unborn makes a directory with an input.txt, under a name that is ignored.
func (r *Root) Unborn(input string) (*Unborn, error) {
	name := newName(unbornPrefix)
	path := filepath.Join(r.path, name)
	if err := r.h.mkdir(name, 0o755); err != nil {
		return nil, pathError("create", path, err)
	}
	u := &Unborn{root: r, name: name}
	if err := u.fill(path, input); err != nil {
		u.Discard()
		return nil, err
	}
	return u, nil
}

func (u *Unborn) fill(path, input string) error {
	h, err := u.root.h.sub(u.name, path)
	if err != nil {
		return pathError("open", path, err)
	}
	id, err := h.stat()
	if err != nil {
		h.close()
		return pathError("open", path, err)
	}
	u.d = &Dir{root: u.root, name: u.name, path: path, h: h, id: id}
	if err := u.d.replace(InputFile, []byte(input), true); err != nil {
		return err
	}
	f, in, err := u.d.open(InputFile, os.O_RDONLY)
	if err != nil {
		return err
	}
	u.Input, u.id = in.Stat, u.d.ID()
	// Windows renames no directory that is open.
	err = errors.Join(f.Close(), u.d.Close())
	u.d = nil
	return err
}

// ID returns the directory's identity, which Publish does not change.
func (u *Unborn) ID() FileID { return u.id }

// Publish gives the directory the name of a task. fs.ErrExist says that the name
// is taken; then another may be tried.
func (u *Unborn) Publish(name string) error {
	path := filepath.Join(u.root.path, name)
	if err := CheckName(name); err != nil {
		return err
	}
	if err := u.root.h.rename(u.name, name); err != nil {
		return pathError("create", path, err)
	}
	return nil
}

// SweepUnborn removes what a process that died has left of directories that it had
// not published. It is for the start of the daemon, which has the root for itself.
func (r *Root) SweepUnborn() error { return r.sweep(context.Background(), unbornPrefix) }

// Discard removes the directory. After Publish it does nothing.
func (u *Unborn) Discard() {
	if u.d != nil {
		u.d.Close()
	}
	os.RemoveAll(filepath.Join(u.root.path, u.name))
}
