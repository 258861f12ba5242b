package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/session"
)

type forkFlags struct {
	round        int
	input        string
	wait, follow bool
	asJSON       bool
}

func (a *app) forkCommand() *cobra.Command {
	var f forkFlags
	cmd := &cobra.Command{
		Use:   "fork NAME NEW",
		Short: "Start a new task with another one's conversation",
		Long: `Gives the new task NEW the conversation of NAME, as it was after a round or as it is
now, also while NAME is working. NAME goes on as if nothing had been. NEW works in
the same places: it gets NAME's context.json, but for fork_from.

` + textHelp + ` Without --input the files are
prepared, and NEW starts when somebody writes its input.txt.`,
		Example: `  gasupervisor fork audit audit-de --input "Now write the report in German"
  gasupervisor fork audit retry --round 0 --input "Try again, without the network"`,
		Args:              wants(2, 2, "the name of a task and that of the new one"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("round") {
				f.round = session.Latest
			} else if f.round < 0 {
				return usagef("--round: rounds count from 0")
			}
			return a.fork(cmd, args[0], args[1], f)
		},
	}
	cmd.Flags().IntVar(&f.round, "round", 0, "the conversation after round `N`, counted from 0 (default: as it is now)")
	cmd.Flags().StringVarP(&f.input, "input", "i", "", "what the new task is to do: text, - or @file (`T`)")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for the end of the round and print the result")
	cmd.Flags().BoolVar(&f.follow, "follow", false, "show the output as it grows")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "with --wait: print JSON")
	cmd.MarkFlagsMutuallyExclusive("wait", "follow")
	cmd.MarkFlagsMutuallyExclusive("json", "follow")
	return cmd
}

func (a *app) fork(cmd *cobra.Command, name, fresh string, f forkFlags) error {
	if err := taskdir.CheckName(fresh); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	l, err := a.load()
	if err != nil {
		return err
	}
	tempDir := l.Config.TempDir
	if _, err := lookAt(tempDir, name); err != nil {
		return noTask(err, tempDir, name)
	}
	if v, err := lookAt(tempDir, fresh); err == nil && v.started() {
		return &exitError{code: exitFailed, err: fmt.Errorf("task %q exists", fresh), hint: "choose another name, or gasupervisor rm " + quoteName(fresh)}
	}
	text := ""
	if cmd.Flags().Changed("input") {
		if text, err = a.text(f.input); err != nil {
			return err
		}
	} else if f.wait || f.follow {
		return usagef("--wait and --follow want --input")
	}
	conversation, err := forkHistory(l.Config.StateDir, tempDir, name, f.round)
	if err != nil {
		return err
	}
	if err := taskdir.WriteHistory(tempDir, fresh, conversation); err != nil {
		return err
	}
	if err := copySettings(tempDir, name, fresh); err != nil {
		return err
	}
	if text == "" {
		a.ui.notef("%s is prepared; it starts when its input.txt is written", show(fresh))
		return writeLine(a.ui.text(), fresh)
	}
	if err := taskdir.WriteInput(tempDir, fresh, text); err != nil {
		return err
	}
	if f.wait || f.follow {
		return a.waitAndReport(cmd.Context(), target{tempDir: tempDir, name: fresh}, f.follow, f.asJSON)
	}
	a.warnNoDaemon(tempDir)
	return writeLine(a.ui.text(), fresh)
}

// forkHistory is a task's conversation for a _history.json: from its journal, or
// where there is none to read, from its history.json.
func forkHistory(stateDir, tempDir, name string, round int) ([]byte, error) {
	msgs, err := session.Conversation(stateDir, name, round)
	if err == nil {
		return history.Export(msgs)
	}
	if round == session.Latest && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
		data, ferr := taskdir.ReadFile(tempDir, name, taskdir.HistoryFile)
		if ferr == nil {
			return data, nil
		}
	}
	return nil, &exitError{code: exitFailed, err: err}
}
