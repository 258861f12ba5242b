package main

import (
	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) interveneCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "intervene NAME T",
		Short: "Tell a working agent something to act on next",
		Long: `Writes _intervene. The agent reads it when its current turn is over, before anything
else. Without a round in progress it is a reply, ahead of any other.

` + textHelp,
		Example:           `  gasupervisor intervene audit "Leave the vendor directory out"`,
		Args:              wants(1, -1, "a name and a text"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			tempDir, _, text, err := a.message(args)
			if err != nil {
				return err
			}
			if err := taskdir.WriteIntervene(tempDir, args[0], text); err != nil {
				return err
			}
			a.warnNoDaemon(tempDir)
			return nil
		},
	}
}
