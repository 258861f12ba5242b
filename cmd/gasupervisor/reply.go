package main

import "github.com/spf13/cobra"

func (a *app) replyCommand() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "reply NAME T",
		Short: "Go on with a task's conversation: its next round",
		Long: `Writes reply.txt. A session that waits takes it at once; one that works takes it
when its round is over; one that has ended goes on with its whole conversation.

` + textHelp,
		Example: `  gasupervisor reply audit "Only those older than a year" --wait
  git log -5 | gasupervisor reply audit -`,
		Args:              wants(1, -1, "a name and a text"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd, [2]string{"wait", "follow"}, [2]string{"json", "follow"}); err != nil {
				return err
			}
			tempDir, v, text, err := a.message(args)
			if err != nil {
				return err
			}
			if (f.wait || f.follow) && !a.daemonRuns(tempDir) {
				return noDaemon(tempDir)
			}
			t, err := sendReply(tempDir, v, text)
			if err != nil {
				return err
			}
			if f.wait || f.follow {
				return a.waitAndReport(cmd.Context(), t, f.follow, f.asJSON)
			}
			a.warnNoDaemon(tempDir)
			return nil
		},
	}
	f.add(cmd)
	return cmd
}
