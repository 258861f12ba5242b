// Package lock lets one process own a directory or file: the operating system
// holds the lock, so that it ends with its process, however that dies, and no
// file that was left behind can block or lie.
//
// What is known about the owner (Holder) lies in a file beside the state and is
// for messages only. It is never a reason to believe that somebody runs.
package lock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Lock is held until Release, or the end of the process.
type Lock struct{ f *os.File }

// HeldError says that another process holds the lock.
type HeldError struct {
	// Path is what was to be locked.
	Path string
	// Who describes the holder as far as the operating system tells, as in
	// "process 1234"; "" where it does not.
	Who string
}

func (e *HeldError) Error() string {
	if e.Who == "" {
		return fmt.Sprintf("lock %s: another process holds it", e.Path)
	}
	return fmt.Sprintf("lock %s: %s holds it", e.Path, e.Who)
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// ErrHeld is what errors.Is finds in a HeldError.
var ErrHeld = errors.New("held by another process")

// A Probe holds the lock, shared, for an instant. Acquire outlasts that.
const (
	attempts = 11
	pause    = 10 * time.Millisecond
)

// Acquire locks a directory, or a file that it creates where there is none. It
// does not wait for an owner: where there is one it returns a *HeldError, after a
// tenth of a second at most.
func Acquire(path string) (*Lock, error) {
	f, err := open(path, true)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for i := range attempts {
		if i > 0 {
			time.Sleep(pause)
		}
		err = tryLock(f, true)
		if err == nil {
			return &Lock{f: f}, nil
		}
		if !errors.Is(err, ErrHeld) {
			break
		}
	}
	who := ""
	if errors.Is(err, ErrHeld) {
		who = holderOf(f)
	}
	f.Close()
	if errors.Is(err, ErrHeld) {
		return nil, &HeldError{Path: path, Who: who}
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// Release gives the lock up. A second call does nothing.
func (l *Lock) Release() error {
	if l == nil || l.f == nil {
		return nil
	}
	err := unlock(l.f)
	err = errors.Join(err, l.f.Close())
	l.f = nil
	return err
}

// Probe reports whether a process holds the lock now. What does not exist is not
// held. It never keeps an owner from starting, and changes nothing on disk.
func Probe(path string) (held bool, err error) {
	f, err := open(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("probe lock: %w", err)
	}
	defer f.Close()
	err = tryLock(f, false)
	if errors.Is(err, ErrHeld) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("probe lock %s: %w", path, err)
	}
	return false, unlock(f)
}

// Holder is what the owner writes about itself.
type Holder struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Version string    `json:"version"`
	TempDir string    `json:"temp_dir"`
	Config  string    `json:"config"`
}

func (h Holder) String() string {
	return fmt.Sprintf("process %d, running since %s", h.PID, h.Started.Local().Format("2006-01-02 15:04:05"))
}

// HolderFile is the name of the file that describes the owner in its state directory.
const HolderFile = "daemon.json"

// ReadHolder reads what the last owner wrote in its state directory. Whether it
// still runs, only the lock tells.
func ReadHolder(stateDir string) (Holder, error) {
	var h Holder
	b, err := os.ReadFile(filepath.Join(stateDir, HolderFile))
	if err != nil {
		return h, fmt.Errorf("read holder: %w", err)
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("read holder %s: %w", filepath.Join(stateDir, HolderFile), err)
	}
	return h, nil
}

// Encode returns the holder file's text. The owner writes it, after it has the lock.
func (h Holder) Encode() []byte {
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		panic(err) // plain fields always encode
	}
	return append(b, '\n')
}
