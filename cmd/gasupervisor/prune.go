package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/retention"
	"github.com/gasupervisor/gasupervisor/session"
)

func (a *app) pruneCommand() *cobra.Command {
	var after time.Duration
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Pack away tasks whose sessions ended long ago",
		Long: `Packs each task whose session ended longer ago than --after, its directory and its
journals, into one compressed file in the state directory's archive/, and removes
it from the temp directory. A task with a message that was not read yet stays.

With [retention] archive_after in config.toml the daemon does so by itself.`,
		Example: `  gasupervisor prune --after 720h --dry-run
  gasupervisor prune --after 720h`,
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.load()
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("after") {
				after = l.Config.Retention.ArchiveAfter
			}
			if after <= 0 {
				return usagef("--after D is missing, and config.toml has no [retention] archive_after")
			}
			packed, err := prune(cmd.Context(), &l.Config, after, dryRun)
			if asJSON {
				if packed == nil {
					packed = []retention.Packed{}
				}
				if jerr := a.ui.printJSON(packed); jerr != nil {
					return jerr
				}
				return err
			}
			for _, p := range packed {
				where := p.Archive
				if dryRun {
					where = "would be packed"
				}
				a.ui.printf("%s: %s\n", show(p.Task), show(where))
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&after, "after", 0, "age from which an ended session is packed, such as `720h`")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be packed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func prune(ctx context.Context, c *config.Config, after time.Duration, dryRun bool) ([]retention.Packed, error) {
	return retention.Prune(ctx, retention.Config{
		TempDir: c.TempDir, StateDir: c.StateDir,
		Archived: filepath.Join(c.StateDir, session.ArchivedName),
		Dest:     archiveDir(c),
		After:    after, Now: time.Now(), DryRun: dryRun,
	})
}

// archiveDir is where tasks go that are packed away.
func archiveDir(c *config.Config) string { return filepath.Join(c.StateDir, "archive") }
