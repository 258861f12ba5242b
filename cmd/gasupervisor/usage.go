package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/usage"
)

func (a *app) usageCommand() *cobra.Command {
	var days int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "What was spent, by day and LLM",
		Long: `Prints what requests to LLMs have cost, for each day and LLM: retries, discarded
answers and subagents included. A cost is unknown where an LLM has no price, and
a request whose tokens the provider did not report is counted and not guessed.`,
		Example: `  gasupervisor usage
  gasupervisor usage --days 30 --json`,
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if days < 1 {
				return usagef("--days: got %d, want at least 1", days)
			}
			l, err := a.load()
			if err != nil {
				return err
			}
			now := time.Now()
			first := now.AddDate(0, 0, 1-days).Format(time.DateOnly)
			list, err := usage.Read(filepath.Join(l.Config.StateDir, usage.DirName), first, now.Format(time.DateOnly))
			if err != nil {
				return err
			}
			if asJSON {
				if list == nil {
					list = []usage.Day{}
				}
				return a.ui.printJSON(list)
			}
			return a.showUsage(list)
		},
	}
	cmd.Flags().IntVar(&days, "days", 7, "how many days, up to today (`N`)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) showUsage(days []usage.Day) error {
	if len(days) == 0 {
		a.ui.notef("nothing was spent in these days")
		return nil
	}
	var rows [][]string
	add := func(day, name string, u llm.Usage) {
		cost := "unknown"
		if u.Unpriced == 0 {
			cost = fmt.Sprintf("$%.4f", u.CostUSD)
		}
		requests := strconv.Itoa(u.Requests)
		if u.Unreported > 0 {
			requests += fmt.Sprintf(" (%d unreported)", u.Unreported)
		}
		rows = append(rows, []string{day, show(name), requests, strconv.FormatInt(u.InputTokens, 10),
			strconv.FormatInt(u.CachedTokens, 10), strconv.FormatInt(u.OutputTokens, 10), cost})
	}
	var all llm.Usage
	for _, d := range days {
		for _, name := range slices.Sorted(maps.Keys(d.LLMs)) {
			add(d.Date, name, d.LLMs[name])
		}
		all = all.Add(d.Total())
	}
	add("total", "", all)
	a.ui.table([]string{"DAY", "LLM", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST"}, rows)
	return nil
}
