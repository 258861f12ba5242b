package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON, policy bool
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Tell all about one task",
		Long:              "Shows what status.json says: state, usage, plan, warnings, and the receipt for each\nmessage that was written to the task.",
		Example:           "  gasupervisor show audit\n  gasupervisor show audit --json | jq .status.usage",
		Args:              wants(1, 1, "one name"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			tempDir, err := a.tempDir()
			if err != nil {
				return err
			}
			v, err := lookAt(tempDir, args[0])
			if err != nil {
				return noTask(err, tempDir, args[0])
			}
			if policy {
				return a.showTaskPolicy(args[0], asJSON)
			}
			if asJSON {
				return a.ui.printJSON(v)
			}
			a.show(v, time.Now())
			if !a.daemonRuns(tempDir) {
				a.ui.notef("no daemon is running for %s (start one: gasupervisor run)", show(tempDir))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&policy, "policy", false, "what the task may read, write and reach")
	return cmd
}

// show writes what is known, leaving out what is not.
func (a *app) show(v view, now time.Time) {
	line := func(key, value string) {
		if value != "" {
			a.ui.printf("%s  %s\n", pad(key, 14), show(value))
		}
	}
	line("task", v.Name)
	line("directory", v.Dir)
	line("state", v.summary(now))
	line("problem", v.Problem)
	for _, r := range v.sight.Refused {
		line("refused", r.Name+": "+r.Why)
	}
	st := v.Status
	if st == nil {
		return
	}
	line("session", fmt.Sprintf("%d, round %d, turn %d", st.Session, st.Round, st.Turn))
	line("agent", string(st.Agent))
	llm := string(st.LLM)
	if st.Model != "" {
		llm += " (" + string(st.Model) + ")"
	}
	line("llm", strings.TrimSpace(llm))
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Local().Format("2006-01-02 15:04:05") + ", " + shortTime(now.Sub(t)) + " ago"
	}
	line("started", at(st.StartedAt.Time))
	line("changed", at(st.UpdatedAt.Time))
	line("output", string(st.Output))
	line("latest tool", string(st.LatestTool))
	if w := st.Waiting; w != nil {
		line("waits", w.Why)
		line("", "since "+at(w.Since.Time))
	}
	if st.Plan.Total > 0 {
		line("plan", strings.TrimSuffix(fmt.Sprintf("%d of %d done: %s", st.Plan.Done, st.Plan.Total, st.Plan.Current), ": "))
	}
	showUsage(line, st.Usage)
	line("parent", string(st.Parent))
	line("children", strings.Join(st.Children, ", "))
	for _, w := range st.Warnings {
		line("warning", w)
	}
	for _, p := range st.OpenPoints {
		line("left open", p)
	}
	for _, f := range st.MissingOutputs {
		line("missing output", f)
	}
	if st.Error != nil {
		line("error", st.Error.Kind+": "+st.Error.Message)
	}
	a.showMessages(st.Messages)
	if st.Result != "" {
		a.ui.printf("\n")
		writeLine(a.ui.text(), string(st.Result))
	}
}

func showUsage(line func(key, value string), u taskdir.Usage) {
	line("usage", fmt.Sprintf("%d requests, %d tool calls, %d tokens in (%d cached), %d out", u.Requests, u.ToolCalls, u.InputTokens, u.CachedTokens, u.OutputTokens))
	if u.UnreportedRequests > 0 {
		line("", fmt.Sprintf("the usage of %d requests was not reported", u.UnreportedRequests))
	}
	if u.CostUSD != nil {
		line("cost", fmt.Sprintf("$%.4f", *u.CostUSD))
	} else if u.Requests > 0 {
		line("cost", "unknown")
	}
	if u.ContextPercent != nil {
		line("context", fmt.Sprintf("%.1f %% of %d tokens", *u.ContextPercent, *u.ContextWindow))
	}
}

// showMessages lists what became of the files that were written to a task.
func (a *app) showMessages(messages []taskdir.Message) {
	if len(messages) == 0 {
		return
	}
	a.ui.printf("\n")
	rows := make([][]string, len(messages))
	for i, m := range messages {
		rows[i] = []string{m.File, m.TakenAt.Local().Format("15:04:05"), fmt.Sprint(m.Bytes), m.Encoding, fmt.Sprint(m.Round), string(m.Outcome)}
	}
	a.ui.table([]string{"MESSAGE", "TAKEN", "BYTES", "ENCODING", "ROUND", "OUTCOME"}, rows)
}
