package main

import (
	"fmt"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// The exit codes, on which scripts rely.
const (
	exitDone     = 0   // done, or the task's round completed
	exitFailed   = 1   // it failed
	exitUsage    = 2   // the command line or the configuration is wrong
	exitStopped  = 3   // stopped, or timed out
	exitPartial  = 4   // ended at a limit: max_turns, budget, loop
	exitNoDaemon = 5   // nobody is there to do it
	exitDetached = 130 // Ctrl-C: what was watched goes on
)

// exitError ends the program with a code. Where err is nil nothing is said.
type exitError struct {
	code int
	err  error
	// hint is a line below the message.
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitWith is an exit without a message; nil for exitDone.
func exitWith(code int) error {
	if code == exitDone {
		return nil
	}
	return &exitError{code: code}
}

// codeOf is the exit code that a task's last round deserves.
func codeOf(st *taskdir.Status) int {
	switch round.Reason(st.Reason) {
	case round.Completed, "":
		return exitDone
	case round.Stopped, round.Replaced:
		return exitStopped
	case round.MaxTurns, round.Budget, round.Loop:
		return exitPartial
	case round.ReplyTimeout:
		// The session's reason hides the round's.
		switch {
		case st.Error != nil:
			switch st.Error.Kind {
			case "max_turns", "budget", "loop":
				return exitPartial
			case "timeout":
				return exitStopped
			}
			return exitFailed
		case st.CompletedBy != "":
			return exitDone
		}
		return exitStopped
	}
	if st.Error != nil && st.Error.Kind == "timeout" {
		return exitStopped
	}
	return exitFailed
}

// worse is the code that tells more of two.
func worse(a, b int) int {
	for _, code := range []int{exitFailed, exitStopped, exitPartial} {
		if a == code || b == code {
			return code
		}
	}
	return max(a, b)
}
