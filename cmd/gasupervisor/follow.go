package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) followCommand() *cobra.Command {
	var (
		all   bool
		round int
	)
	cmd := &cobra.Command{
		Use:   "follow NAME",
		Short: "Show a task's output as it grows",
		Long: `Shows the round in progress from its beginning to its end, or the last one where
none is. With --all it goes on with each further round until the session has ended.
The exit code tells how the last round ended. Ctrl-C detaches, and the work goes on.`,
		Example: `  gasupervisor follow audit
  gasupervisor follow audit --round 0 --all > audit.log`,
		Args:              wants(1, 1, "one name"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("round") {
				round = -1
			} else if round < 0 {
				return usagef("--round counts from 0")
			}
			return a.follow(cmd.Context(), args[0], round, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "go on until the session has ended")
	cmd.Flags().IntVar(&round, "round", 0, "begin with round `N`")
	return cmd
}

func (a *app) follow(ctx context.Context, name string, round int, all bool) error {
	tempDir, err := a.tempDir()
	if err != nil {
		return err
	}
	v, err := lookAt(tempDir, name)
	if err != nil {
		return noTask(err, tempDir, name)
	}
	if !v.started() {
		return &exitError{code: exitFailed, err: fmt.Errorf("task %q has not been started", name), hint: "gasupervisor task " + quoteName(name) + " --input T"}
	}
	if round < 0 {
		round = current(v)
	}
	// What is over can be shown without anybody there.
	over := v.Settled && round < v.sight.Outputs && (!all || v.Status == nil || v.Status.State == taskdir.Ended)
	if !over && !a.daemonRuns(tempDir) {
		if round < v.sight.Outputs {
			text, _, err := taskdir.ReadOutput(tempDir, name, round)
			if err == nil && text != "" {
				writeLine(a.ui.text(), text)
			}
		}
		return noDaemon(tempDir)
	}
	ctx, stop := watching(ctx, tempDir, 0)
	defer stop()
	var options []taskdir.FollowOption
	if all {
		options = append(options, taskdir.AllRounds())
	}
	if err := taskdir.Follow(ctx, tempDir, name, round, a.ui.text(), options...); err != nil {
		return watchError(noTask(err, tempDir, name), tempDir, 0)
	}
	if v, err = lookAt(tempDir, name); err != nil {
		return noTask(err, tempDir, name)
	}
	if v.Status == nil || round < v.sight.Outputs-1 && !all {
		return nil
	}
	if v.Status.State != taskdir.Running {
		a.ui.notef("%s: %s", show(name), show(v.summary(time.Now())))
	}
	return exitWith(codeOf(v.Status))
}

// current is the round that is in progress or comes next; where nothing is to come
// it is the last one.
func current(v view) int {
	if v.Settled || !v.finished {
		if v.busy() && v.Status.Round >= v.sight.Outputs {
			return v.Status.Round
		}
		return max(v.sight.Outputs-1, 0)
	}
	return v.sight.Outputs
}
