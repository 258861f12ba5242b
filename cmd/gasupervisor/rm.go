package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

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
			for _, name := range args {
				v, err := lookAt(tempDir, name)
				if err != nil {
					return noTask(err, tempDir, name)
				}
				if v.busy() && !force {
					return &exitError{code: exitFailed, err: fmt.Errorf("%s is %s", name, v.Status.State),
						hint: "stop it first (gasupervisor stop --end " + quoteName(name) + "), or use --force"}
				}
			}
			for _, name := range args {
				if err := removeTask(tempDir, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also remove what is running")
	return cmd
}

// removeTask takes a task's directory away at once, under a name that nobody looks
// at, and then deletes it: half of a task must never look like a new one.
func removeTask(tempDir, name string) error {
	aside := filepath.Join(tempDir, fmt.Sprintf(".removed-%016x", rand.Uint64()))
	if err := os.Rename(taskdir.TaskPath(tempDir, name), aside); err != nil {
		return fmt.Errorf("remove task: %w", err)
	}
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove task %s: %w", name, err)
	}
	return nil
}
