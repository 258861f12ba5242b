// Command gasupervisor runs LLM agents on tasks that are directories, and is the
// supervisor's tool for writing and reading these directories.
//
// One file holds one subcommand. They are thin: what they know of task
// directories is in internal/taskdir, and all but run, func, map and demo work on
// files alone, whether or not a daemon runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program but for the exit itself.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{ui: newUI(in, out, errOut, os.Getenv)}
	var err error
	if isGA(args) {
		err = a.genericAgent(ctx, args)
	} else {
		root := a.rootCommand()
		root.SetArgs(args)
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		err = a.ui.lost()
	}
	if err == nil {
		return exitDone
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{code: exitFailed, err: err}
	}
	if e.err != nil {
		fmt.Fprintf(errOut, "gasupervisor: %s\n", showLines(e.err.Error()))
	}
	if e.hint != "" {
		fmt.Fprintf(errOut, "  %s\n", showLines(e.hint))
	}
	return e.code
}
