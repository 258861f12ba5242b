package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) waitCommand() *cobra.Command {
	var (
		anyOne, asJSON bool
		timeout        time.Duration
	)
	cmd := &cobra.Command{
		Use:   "wait NAME...",
		Short: "Wait until tasks have nothing more to do",
		Long: `Waits until the rounds of all tasks named are over, or with --any that of one. Each
task is printed when it is. The exit code is that of the worst: 0 done, 4 ended at a
limit, 3 stopped or timed out, 1 failed. Ctrl-C detaches, and the work goes on.`,
		Example: `  gasupervisor wait audit review docs --timeout 30m
  first=$(gasupervisor wait --any a b c --json | jq -r '.[0].task')`,
		Args:              wants(1, -1, "one or more names"),
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return usagef("--timeout is negative")
			}
			return a.wait(cmd.Context(), args, anyOne, asJSON, timeout)
		},
	}
	cmd.Flags().BoolVar(&anyOne, "any", false, "wait for one of them only")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after `D`, such as 30s or 10m")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) wait(ctx context.Context, names []string, anyOne, asJSON bool, timeout time.Duration) error {
	tempDir, err := a.tempDir()
	if err != nil {
		return err
	}
	open := make([]string, 0, len(names))
	seen := map[string]bool{}
	for _, n := range names {
		if _, err := lookAt(tempDir, n); err != nil {
			return noTask(err, tempDir, n)
		}
		if !seen[n] {
			open, seen[n] = append(open, n), true
		}
	}
	ctx, stop := watching(ctx, tempDir, timeout)
	defer stop()

	results := []outcome{}
	code, asked := exitDone, false
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		for i := 0; i < len(open) && !(anyOne && len(results) > 0); {
			v, err := lookAt(tempDir, open[i])
			if err != nil {
				return noTask(err, tempDir, open[i])
			}
			if !v.Settled {
				i++
				continue
			}
			open = append(open[:i], open[i+1:]...)
			results = append(results, outcomeOf(v))
			code = worse(code, codeOfView(v))
			if !asJSON {
				a.ui.printf("%s: %s\n", show(v.Name), show(v.summary(time.Now())))
			}
		}
		if len(open) == 0 || anyOne && len(results) > 0 {
			break
		}
		// What is over needs no daemon; the rest does.
		if !asked && !a.daemonRuns(tempDir) {
			err = noDaemon(tempDir)
			break
		}
		asked = true
		select {
		case <-ctx.Done():
			err = watchError(context.Cause(ctx), tempDir, timeout)
			var e *exitError
			if errors.As(err, &e) && e.code == exitStopped {
				e.hint = fmt.Sprintf("still at work: %s", showLines(fmt.Sprintf("%q", open)))
			}
		case <-tick.C:
			continue
		}
		break
	}
	if asJSON {
		if err := a.ui.printJSON(results); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return exitWith(code)
}
