package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) lsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the tasks and what they are doing",
		Example: `  gasupervisor ls
  gasupervisor ls --json | jq -r '.tasks[] | select(.state == "running") | .task'`,
		Args: wants(0, 0, "no arguments; show NAME tells about one task"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.ls(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) ls(asJSON bool) error {
	tempDir, err := a.tempDir()
	if err != nil {
		return err
	}
	running := a.daemonRuns(tempDir)
	views, err := allTasks(tempDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if asJSON {
		return a.ui.printJSON(struct {
			TempDir string `json:"temp_dir"`
			Daemon  bool   `json:"daemon"`
			Tasks   []view `json:"tasks"`
		}{tempDir, running, views})
	}
	if len(views) > 0 {
		now := time.Now()
		rows := make([][]string, len(views))
		for i, v := range views {
			rows[i] = lsRow(v, now)
		}
		a.ui.table([]string{"NAME", "STATE", "ROUND", "TURN", "PLAN", "COST", "CHANGED", "RESULT"}, rows)
	} else {
		a.ui.notef("no tasks in %s", show(tempDir))
	}
	if !running {
		a.ui.notef("no daemon is running for %s (start one: gasupervisor run)", show(tempDir))
	}
	return nil
}

// allTasks looks at all tasks; never nil. One that cannot be looked at is listed with its problem.
func allTasks(tempDir string) ([]view, error) {
	views := []view{}
	root, err := taskdir.OpenRoot(tempDir)
	if err != nil {
		return views, err
	}
	defer root.Close()
	names, err := root.Names()
	if err != nil {
		return views, err
	}
	for _, name := range names {
		v, err := lookIn(root, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, taskdir.ErrGone) {
			continue // removed just now
		}
		if err != nil {
			v.State, v.Problem = stateUnreadable, err.Error()
		}
		views = append(views, v)
	}
	return views, nil
}

func lsRow(v view, now time.Time) []string {
	row := []string{v.Name, v.summary(now), "", "", "", "", "", v.Problem}
	st := v.Status
	if st == nil {
		return row
	}
	row[2] = strconv.Itoa(st.Round)
	row[3] = strconv.Itoa(st.Turn)
	if st.Plan.Total > 0 {
		row[4] = fmt.Sprintf("%d/%d", st.Plan.Done, st.Plan.Total)
	}
	if c := st.Usage.CostUSD; c != nil {
		row[5] = fmt.Sprintf("$%.4f", *c)
	}
	if !st.UpdatedAt.IsZero() {
		row[6] = shortTime(now.Sub(st.UpdatedAt.Time)) + " ago"
	}
	switch {
	case st.Error != nil:
		row[7] = oneLine(st.Error.Message)
	case st.Result != "":
		row[7] = oneLine(string(st.Result))
	case v.busy() && st.Waiting != nil:
		row[7] = oneLine(st.Waiting.Why)
	case v.busy():
		row[7] = oneLine(string(st.LatestTool))
	}
	return row
}

// oneLine is the first line that says something, for a list.
func oneLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			if cells(line) > 100 {
				return fit(line, 100)
			}
			return line
		}
	}
	return ""
}
