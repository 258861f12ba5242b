package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// openBase opens a directory by its path and makes sure that this is the
// directory with that path, and not one that a link put there. What is missing it
// makes as the user where create is set.
func openBase(base string, create bool, u *User) (*os.Root, error) {
	// With the dot the last element has to be a directory too, or opening it
	// could wait for a pipe's other end.
	root, err := os.OpenRoot(base + string(filepath.Separator) + ".")
	if create && errors.Is(err, fs.ErrNotExist) && filepath.Dir(base) != base {
		above, err := openBase(filepath.Dir(base), true, u)
		if err != nil {
			return nil, err
		}
		defer above.Close()
		err = u.act(func() error {
			sub, done, err := walk(above, []string{filepath.Base(base)}, true)
			if err != nil {
				return err
			}
			defer done()
			root, err = sub.OpenRoot(".")
			return err
		})
		return root, err
	}
	if err != nil {
		return nil, err
	}
	if !standsAt(root, base) {
		root.Close()
		return nil, errChanged
	}
	return root, nil
}

// standsAt reports whether the open directory is the one with that path, no
// link on the way.
func standsAt(root *os.Root, path string) bool {
	if at, ok := handlePath(root); ok {
		return at == path
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real != path {
		return false
	}
	byPath, err1 := os.Lstat(path)
	byHandle, err2 := root.Stat(".")
	return err1 == nil && err2 == nil && os.SameFile(byPath, byHandle)
}

// walk opens the directories of steps one after the other, from root on, and
// makes the missing ones where create is set. done closes what it opened, which
// root is not.
func walk(root *os.Root, steps []string, create bool) (_ *os.Root, done func(), err error) {
	at, done := root, func() {}
	for _, step := range steps {
		next, err := openStep(at, step)
		if create && errors.Is(err, fs.ErrNotExist) {
			if err = at.Mkdir(step, 0o755); err == nil || errors.Is(err, fs.ErrExist) {
				next, err = openStep(at, step)
			}
		}
		done()
		if err != nil {
			return nil, nil, err
		}
		at, done = next, func() { next.Close() }
	}
	return at, done, nil
}

// openStep opens the directory name in root, and makes sure that it is the one
// that stood there and no link's target.
func openStep(root *os.Root, name string) (*os.Root, error) {
	before, err := root.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case before.Mode()&fs.ModeSymlink != 0:
		return nil, errChanged
	case !before.IsDir():
		return nil, ErrNotDirectory
	}
	sub, err := root.OpenRoot(name + string(filepath.Separator) + ".")
	if err != nil {
		return nil, changedUnless(root, name, before, err)
	}
	after, err := sub.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = errChanged
	}
	if err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// openRegular opens the file name in root, and makes sure that it is the regular
// file that stood there and no link's target.
func openRegular(root *os.Root, name string, flag int) (*os.File, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := regular(before); err != nil {
		return nil, err
	}
	file, err := root.OpenFile(name, flag|openNonblock, 0)
	if err != nil {
		return nil, changedUnless(root, name, before, err)
	}
	after, err := file.Stat()
	switch {
	case err != nil:
	case !os.SameFile(before, after):
		err = errChanged
	default:
		err = regular(after)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// changedUnless returns err where name is still what before describes, else
// errChanged: then err is about something else.
func changedUnless(root *os.Root, name string, before fs.FileInfo, err error) error {
	if now, lerr := root.Lstat(name); lerr != nil || !os.SameFile(before, now) {
		return errChanged
	}
	return err
}

func regular(fi fs.FileInfo) error {
	switch {
	case fi.Mode().IsRegular():
		return nil
	case fi.IsDir():
		return ErrIsDirectory
	case fi.Mode()&fs.ModeSymlink != 0:
		return errChanged
	}
	return fmt.Errorf("%w but a %s", ErrNotRegular, kind(fi.Mode()))
}

func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

func writeInto(root *os.Root, name string, data []byte, perm fs.FileMode, add bool) (created bool, err error) {
	flag := os.O_WRONLY
	if add {
		flag |= os.O_APPEND
	}
	file, err := openRegular(root, name, flag)
	if errors.Is(err, fs.ErrNotExist) {
		// Exclusive creation follows no link.
		file, err = root.OpenFile(name, flag|os.O_CREATE|os.O_EXCL|openNonblock, perm)
		if errors.Is(err, fs.ErrExist) {
			return false, errChanged
		}
		created = true
	}
	if err != nil {
		return false, err
	}
	_, err = file.Write(data)
	if err == nil && !add && !created {
		err = file.Truncate(int64(len(data)))
	}
	err = errors.Join(err, file.Close())
	if err != nil && created {
		err = errors.Join(err, root.Remove(name))
	}
	return created && err == nil, err
}
