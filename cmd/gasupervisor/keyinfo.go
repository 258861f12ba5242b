package main

import (
	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) keyinfoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keyinfo NAME T",
		Short: "Tell an agent something to keep in mind from now on",
		Long: `Writes _keyinfo. The text joins the session's working memory when the current turn is
over, and stays there.

` + textHelp,
		Example:           `  gasupervisor keyinfo audit "The staging host is db2, not db1"`,
		Args:              wants(1, -1, "a name and a text"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			tempDir, _, text, err := a.message(args)
			if err != nil {
				return err
			}
			if err := taskdir.WriteKeyInfo(tempDir, args[0], text); err != nil {
				return err
			}
			a.warnNoDaemon(tempDir)
			return nil
		},
	}
}
