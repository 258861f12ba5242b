package taskdir

import (
	"errors"
	"fmt"
	"time"
)

// ErrGone says that the open directory is no longer the one of its name: it was
// removed or moved away, whether or not another has taken its place.
var ErrGone = errors.New("the task directory was removed or replaced")

// ErrEmpty says that a message has no text, and so is none yet.
var ErrEmpty = errors.New("the file is empty")

// ErrFinished says that an output already ends in the marker.
var ErrFinished = errors.New("the round of this output is over")

// ErrNotWhole says that a file is still being written, as far as can be known.
// It is a value: errors.As with a variable of this type finds it.
type ErrNotWhole struct {
	// Path is the file, under the name it has now.
	Path string
	// RetryAfter is the time after which it is worth trying again.
	RetryAfter time.Duration
	// Waited is the time since the file was first found not to be whole.
	Waited time.Duration
}

func (e ErrNotWhole) Error() string {
	return fmt.Sprintf("read %s: still being written (for %v so far)", e.Path, e.Waited.Round(time.Millisecond))
}

// RefusedError says that something stands at a name of the protocol, or of a
// task, that is not opened for safety's sake.
type RefusedError struct {
	Op   string // "open", "take"
	Path string
	Why  string // "it is a symbolic link"
	Hint string // what a person can do; may be empty
}

func (e *RefusedError) Error() string {
	s := e.Op + " " + e.Path + ": refused: " + e.Why
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// TooLargeError says that a file is larger than what is read of its kind.
type TooLargeError struct {
	Path  string
	Limit int64 // bytes
	// Stat is the file as it was found, so that the same one need not be tried again.
	Stat Stat
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("read %s: %d bytes are more than the limit of %d bytes; put large data into a file of its own and name its path", e.Path, e.Stat.Size, e.Limit)
}

// NameError says that a name given by a person cannot be that of a task.
type NameError struct {
	Name string
	Why  string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("task name %q: %s", e.Name, e.Why)
}
