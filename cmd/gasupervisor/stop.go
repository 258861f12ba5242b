package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// endTimeout is how long `stop --end` waits for a session to end.
const endTimeout = 30 * time.Second

func (a *app) stopCommand() *cobra.Command {
	var end bool
	cmd := &cobra.Command{
		Use:   "stop NAME",
		Short: "Stop a round, or end a session that waits",
		Long: `Writes _stop. A round in progress is cut short, its commands are ended, what it wrote
stays, and the session waits for a reply. A session that waits already ends.

With --end the session ends in any case, and the command returns when it has.`,
		Example: `  gasupervisor stop audit
  gasupervisor stop audit --end`,
		Args:              wants(1, 1, "one name"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			tempDir, err := a.tempDir()
			if err != nil {
				return err
			}
			name := args[0]
			v, err := lookAt(tempDir, name)
			if err != nil {
				return noTask(err, tempDir, name)
			}
			if v.Status != nil && v.Status.State == taskdir.Ended && v.Settled {
				a.ui.notef("%s has ended already", show(name))
				return nil
			}
			if !end {
				if err := taskdir.WriteStop(tempDir, name); err != nil {
					return err
				}
				a.warnNoDaemon(tempDir)
				return nil
			}
			if !a.daemonRuns(tempDir) {
				return noDaemon(tempDir)
			}
			ctx, stop := watching(cmd.Context(), tempDir, endTimeout)
			defer stop()
			err = endSession(ctx, tempDir, name)
			if errors.Is(err, errTimeout) {
				return &exitError{code: exitStopped, err: fmt.Errorf("%s has not ended after %s", name, endTimeout), hint: "see: gasupervisor show " + quoteName(name)}
			}
			return watchError(err, tempDir, endTimeout)
		},
	}
	cmd.Flags().BoolVar(&end, "end", false, "end the session, not only its round")
	return cmd
}

// endSession stops the round of a session, then the session, and returns when it
// has ended. A further _stop is written only once the one before it has had an
// effect, or none.
func endSession(ctx context.Context, tempDir, name string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var written time.Time
	var at taskdir.Status
	for {
		v, err := lookAt(tempDir, name)
		if err != nil {
			return noTask(err, tempDir, name)
		}
		if v.Status != nil && v.Status.State == taskdir.Ended {
			return nil
		}
		changed := v.Status != nil && (v.Status.State != at.State || v.Status.Round != at.Round || v.Status.Session != at.Session)
		if v.sight.Stop == nil && (written.IsZero() || changed || time.Since(written) > 2*time.Second) {
			if err := taskdir.WriteStop(tempDir, name); err != nil {
				return noTask(err, tempDir, name)
			}
			written = time.Now()
			if v.Status != nil {
				at = *v.Status
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
