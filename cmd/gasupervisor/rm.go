package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) rmCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove tasks with all their files",
		Long: `Removes the tasks' directories; their sessions end. A task whose round is queued or
running is refused without --force.`,
		Example:           "  gasupervisor rm audit",
		Args:              wants(1, -1, "one or more names"),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			tempDir, err := a.tempDir()
			if err != nil {
				return err
			}
			// All or none: a refusal should not leave half of it done.
			var names []string
			for _, name := range args {
				if slices.Contains(names, name) {
					continue
				}
				names = append(names, name)
				v, err := lookAt(tempDir, name)
				if err != nil {
					return noTask(err, tempDir, name)
				}
				if v.busy() && !force {
					return &exitError{code: exitFailed, err: fmt.Errorf("%s is %s", name, v.Status.State),
						hint: "stop it first (gasupervisor stop --end " + quoteName(name) + "), or use --force"}
				}
			}
			for _, name := range names {
				if err := taskdir.Remove(tempDir, name); err != nil {
					return err
				}
			}
			if err := sweepRemoved(cmd.Context(), tempDir); err != nil {
				// It is in nobody's way, and the daemon tries again.
				a.ui.warnf("what an earlier rm has left cannot be removed: %v", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also remove what is running")
	return cmd
}

// sweepRemoved finishes what an rm that was broken off has left.
func sweepRemoved(ctx context.Context, tempDir string) error {
	root, err := taskdir.OpenRoot(tempDir)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.SweepRemoved(ctx)
}
