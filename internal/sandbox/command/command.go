// Package command runs one shell command for an agent and leaves nothing of it
// behind.
//
// A command is a text for a shell: bash where there is one, else sh; on Windows,
// where neither can be counted on, the interpreter of package goshell. It gets no
// input, a short environment and a directory; what it prints, on both streams, is
// kept up to a cap, head and tail. It ends when the shell does, when its time is
// up or when the caller no longer wants it, and then everything that it started
// is killed: background jobs, what left the process group, what was orphaned by a
// double fork. So a command cannot start a server for the next one; that is the
// price of a tool that can be stopped.
//
// How everything is found: the shell leads a session and a process group of its
// own, every process of the command inherits an environment variable with an id
// that no other call has, and the parents of processes are known. A process that
// leaves the session, is orphaned and has wiped its environment, all three, is
// not found. Only namespaces can do better, which is what Command.Confine is for.
//
// Memory, processes and the disk are bounded by whoever confines; here only the
// time and the output are.
package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Mark is the environment variable by which the processes of a call are found.
const Mark = "GASUPERVISOR_CALL"

// drainPatience is how long the output may stay open when all who could be killed
// are dead.
const drainPatience = 250 * time.Millisecond

// DefaultOutputCap is how many bytes of output are kept where none is asked for.
const DefaultOutputCap = 32 << 10

// Command is what to run.
type Command struct {
	// Line is the text for the shell.
	Line string
	// Dir is the working directory, an absolute path.
	Dir string
	// Env is the whole environment; see Environ.
	Env []string
	// Timeout is how long it may run; 0 is without limit.
	Timeout time.Duration
	// OutputCap is how many bytes of output are kept; 0 is DefaultOutputCap.
	OutputCap int
	// Confine, where not nil, is called with the command ready to start and may
	// put a helper in front of it, with namespaces and limits, by changing the
	// path, the arguments and what is inherited. The helper has to stay, end when
	// the shell does with its exit code, and take all with it when it is killed.
	// It is not called on Windows.
	Confine func(*exec.Cmd) (*Confinement, error)
	// Limits are kept by the job object on Windows. Elsewhere Confine keeps limits.
	Limits Limits
}

// Limits bound a command; 0 is no limit.
type Limits struct {
	// Memory is in bytes, of all processes together.
	Memory int64
	// Processes is how many there may be at once.
	Processes int
}

// Confinement is what Command.Confine put around one command.
type Confinement struct {
	// Started is called once the process was started, or with the error why not.
	// What it returns ends the command.
	Started func(error) error
	// Ended is called when the command is over and all of it is dead; not where
	// Started got an error.
	Ended func() Report
	// Whole says that killing the process that was started kills all of the
	// command, so that nothing has to be looked for.
	Whole bool
}

// Report is what is known of a confined command at its end.
type Report struct {
	// Err says why the command was not run although its helper was started.
	Err error
	// Limit is the limit that ended the command, in words; "" where none did.
	Limit string
	// Left is how many processes were running when the shell had ended.
	Left int
}

// End says how a command came to its end.
type End int

// The ends of a command.
const (
	// Exited: the shell ended by itself or was killed by a signal of its own.
	Exited End = iota
	// TimedOut: Command.Timeout was over.
	TimedOut
	// Cancelled: the context ended.
	Cancelled
	// Limited: a limit other than the time's was passed; Outcome.Limit says which.
	Limited
)

// Outcome is how a command came out.
type Outcome struct {
	End End
	// Exit is the exit code; 128 and the signal's number where a signal ended
	// the shell, as shells report it.
	Exit int
	// Limit is the limit that was passed, in words, where End is Limited.
	Limit string
	// Output is what it printed on both streams, in the order it came.
	Output Output
	// Left is how many processes it had left running, which were killed.
	Left int
	// Survivors is how many of its processes could not be killed: those of
	// another user, or stuck in the kernel.
	Survivors int
	// Took is how long it ran.
	Took time.Duration
}

// ErrNoShell is a system without bash and sh.
var ErrNoShell = errors.New("there is neither bash nor sh in the search path")

// checkDir looks at the working directory first, because the system's own error
// would name the shell.
func checkDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("working directory %s is not a directory", dir)
	}
	return nil
}
