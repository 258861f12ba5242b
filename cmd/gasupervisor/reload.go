package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
)

func (a *app) reloadCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Say which agents changed since the daemon read them",
		Long: `A daemon reads agent files anew when a session starts, so that nothing has to be
reloaded: reload reads them as the daemon will, and says what changed since it read
them last and what is wrong. Sessions that run keep the agent that they began with.
Exit code 1: some file is not loaded.`,
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.reload(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) reload(asJSON bool) error {
	l, agents, skills, err := a.loadAgents()
	if err != nil {
		return err
	}
	before, err := readRecord(&l.Config)
	if err != nil && !missing(err) {
		a.ui.warnf("%v", err)
	}
	running := a.daemonRuns(l.Config.TempDir)
	changes := agentdef.Diff(before, agents.Record())
	broken := brokenRemarks(agents, skills)
	if asJSON {
		if changes == nil {
			changes = []agentdef.Change{}
		}
		var since *time.Time
		if !before.LoadedAt.IsZero() {
			since = &before.LoadedAt
		}
		err = a.ui.printJSON(struct {
			Daemon  bool              `json:"daemon"`
			Since   *time.Time        `json:"since"`
			Changes []agentdef.Change `json:"changes"`
			Broken  []remark          `json:"not_loaded"`
		}{running, since, changes, broken})
		if err != nil {
			return err
		}
	} else {
		for _, c := range changes {
			if c.Kind != "broken" {
				a.ui.printf("%s  %s  %s\n", pad(c.Kind, 10), show(c.Agent), show(relative(l.Dir, c.Path)))
			}
		}
		for _, b := range broken {
			b.File = relative(l.Dir, b.File)
			a.ui.printf("%s  %s\n", pad("not loaded", 10), show(b.String()))
		}
		switch {
		case !running:
			a.ui.notef("no daemon is running for %s; the next one reads %s", show(l.Config.TempDir), agentFiles(len(agents.Agents)))
		case len(changes) == 0:
			a.ui.notef("nothing changed since the daemon read %s, %s ago", agentFiles(len(agents.Agents)), shortTime(time.Since(before.LoadedAt)))
		default:
			a.ui.notef("sessions that start from now on use them")
		}
	}
	if len(broken) > 0 {
		return exitWith(exitFailed)
	}
	return nil
}

func agentFiles(n int) string {
	if n == 1 {
		return "1 agent file"
	}
	return fmt.Sprintf("%d agent files", n)
}
