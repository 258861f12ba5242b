package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

// place is a directory that the daemon writes to, and the key that says where it is.
type place struct {
	key, path string
	perm      os.FileMode
}

func places(c *config.Config) []place {
	return []place{{"temp_dir", c.TempDir, 0o755}, {"state_dir", c.StateDir, 0o700}}
}

// makePlaces makes the daemon's directories and tries whether they can be written. A
// daemon that has no right to do so ends here, and says what to do. What may pass, as
// a full disk does, is logged: rounds wait for it, and there is work that needs no room.
func makePlaces(c *config.Config, log *slog.Logger) error {
	for _, p := range places(c) {
		err := os.MkdirAll(p.path, p.perm)
		made := err == nil
		if made {
			err = writable(p.path)
		}
		switch {
		case err == nil:
		case !made, errors.Is(err, fs.ErrPermission):
			return &exitError{code: exitFailed, err: fmt.Errorf("%s %s cannot be written: %w", p.key, p.path, err), hint: p.remedy(err)}
		default:
			log.Error(p.key+" cannot be written just now; sessions wait until it can", "dir", p.path, "err", err, "do", p.remedy(err))
		}
	}
	return nil
}

// remedy says what to do about a directory that cannot be written.
func (p place) remedy(err error) string {
	switch {
	case errors.Is(err, errNoDirectory), errors.Is(err, syscall.ENOTDIR):
		return "move away the file that stands there, or set another " + p.key
	case errors.Is(err, fs.ErrPermission):
		return "let the daemon's user write there (chown, chmod), or set another " + p.key
	}
	return "make room on its disk, or mount it for writing"
}

var errNoDirectory = errors.New("it is no directory")

// writable tries to write to a directory, which tells more than rights do.
func writable(dir string) error {
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return errNoDirectory
	}
	f, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		return err
	}
	// An empty file takes no room.
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// checkPlace tries a directory, or where it is to be made.
func checkPlace(p place) finding {
	f := finding{levelOK, p.key, p.path, ""}
	at := p.path
	for {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	switch err := writable(at); {
	case err != nil && at == p.path:
		f.Level, f.Text, f.Do = levelProblem, fmt.Sprintf("%s cannot be written: %v", p.path, err), p.remedy(err)
	case err != nil:
		f.Level, f.Text, f.Do = levelProblem, fmt.Sprintf("%s does not exist and cannot be made: %v", p.path, err), p.remedy(err)
	case at != p.path:
		f.Level, f.Text, f.Do = levelNote, p.path+" does not exist yet", "the daemon makes it"
	}
	return f
}
