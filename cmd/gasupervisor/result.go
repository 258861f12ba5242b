package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) resultCommand() *cobra.Command {
	var (
		asJSON bool
		round  int
	)
	cmd := &cobra.Command{
		Use:   "result NAME",
		Short: "Print the result of a task's last round",
		Long: `Prints the result alone. The exit code tells how the round ended: 0 done, 1 failed,
3 stopped or timed out, 4 ended at a limit. Of an earlier round (--round, counted from
0) the whole output is printed. --json adds the data of result.json where the task
has an output schema.`,
		Example: `  gasupervisor result audit > todos.txt
  gasupervisor result audit --round 0`,
		Args:              wants(1, 1, "one name"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("round") {
				if asJSON {
					return usagef("--json is for the last round, without --round")
				}
				return a.roundOutput(args[0], round)
			}
			return a.result(args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&round, "round", 0, "the output of round `N`")
	return cmd
}

func (a *app) result(name string, asJSON bool) error {
	tempDir, err := a.tempDir()
	if err != nil {
		return err
	}
	v, err := lookAt(tempDir, name)
	if err != nil {
		return noTask(err, tempDir, name)
	}
	if !v.Settled {
		return &exitError{code: exitFailed, err: fmt.Errorf("%s is not over: %s", name, v.State), hint: "gasupervisor wait " + quoteName(name)}
	}
	if !asJSON {
		if v.Status == nil {
			return a.roundOutput(name, v.sight.Outputs-1)
		}
		return a.report(v, false)
	}
	data, err := resultData(tempDir, name)
	if err != nil {
		return err
	}
	err = a.ui.printJSON(struct {
		outcome
		Data json.RawMessage `json:"data"`
	}{outcomeOf(v), data})
	if err != nil {
		return err
	}
	return exitWith(codeOfView(v))
}

// resultData is result.json, null where there is none.
func resultData(tempDir, name string) (json.RawMessage, error) {
	data, err := taskdir.ReadFile(tempDir, name, taskdir.ResultFile)
	if errors.Is(err, fs.ErrNotExist) {
		return json.RawMessage("null"), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("read result: %s is no JSON", filepath.Join(taskdir.TaskPath(tempDir, name), taskdir.ResultFile))
	}
	return data, nil
}

func (a *app) roundOutput(name string, round int) error {
	tempDir, err := a.tempDir()
	if err != nil {
		return err
	}
	text, finished, err := taskdir.ReadOutput(tempDir, name, max(round, 0))
	if errors.Is(err, fs.ErrNotExist) {
		if _, lookErr := lookAt(tempDir, name); lookErr == nil {
			return &exitError{code: exitFailed, err: fmt.Errorf("%s has no output of round %d", name, round)}
		}
	}
	if err != nil {
		return noTask(err, tempDir, name)
	}
	if text != "" {
		if err := writeLine(a.ui.text(), text); err != nil {
			return err
		}
	}
	if !finished {
		return &exitError{code: exitFailed, err: fmt.Errorf("round %d of %s is not over", round, name)}
	}
	return nil
}
