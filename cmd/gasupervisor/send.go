package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// sendFlags are those of the commands that write a message to a task.
type sendFlags struct{ wait, follow, asJSON bool }

func (f *sendFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for the end of the round and print the result")
	cmd.Flags().BoolVar(&f.follow, "follow", false, "show the output as it grows")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "with --wait: print JSON")
}

// message resolves the arguments NAME T of a command and looks at the task.
func (a *app) message(args []string) (tempDir string, v view, text string, err error) {
	if tempDir, err = a.tempDir(); err != nil {
		return
	}
	if v, err = lookAt(tempDir, args[0]); err != nil {
		err = noTask(err, tempDir, args[0])
		return
	}
	if !v.started() {
		err = &exitError{code: exitFailed, err: fmt.Errorf("task %q has not been started", args[0]), hint: "gasupervisor task " + quoteName(args[0]) + " --input T"}
		return
	}
	text, err = a.textOrStdin(args[1:], "the text")
	return
}

// warnNoDaemon tells that a message waits.
func (a *app) warnNoDaemon(tempDir string) {
	if !a.daemonRuns(tempDir) {
		a.ui.warnf("no daemon is running for %s; the message waits for one (gasupervisor run)", show(tempDir))
	}
}
