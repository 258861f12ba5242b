package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

func (a *app) funcCommand() *cobra.Command {
	var p prompt
	var historyFile string
	cmd := &cobra.Command{
		Use:   "func PROMPT_FILE",
		Short: "Run a prompt file here and now, without a daemon",
		Long: `func works on a prompt file in this process. Its output grows in a file beside
it, PROMPT.out.txt for PROMPT.txt, and ends in [ROUND END]; the result is printed.
There are no replies. Ctrl-C stops it. The agent works in temp_dir, as a task's does,
unless --work-dir names another directory.`,
		Example: `  gasupervisor func review.txt                 # writes review.out.txt
  gasupervisor func prompts/summary.md --llm local`,
		Args: wants(1, 1, "one prompt file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			one := newPrompt(args[0])
			one.settings, one.verbose = p.settings, p.verbose
			r, err := a.function(cmd.Context(), one, historyFile)
			if err != nil {
				return err
			}
			return a.reportPrompt(r)
		},
	}
	a.addSettingsFlags(cmd, &p.settings, "does it")
	cmd.Flags().StringVar(&historyFile, "history", "", "conversation `FILE` to start from")
	cmd.Flags().BoolVar(&p.verbose, "verbose", false, "tool calls and results in full")
	return cmd
}

// function runs one prompt and returns how it came out.
func (a *app) function(ctx context.Context, p prompt, historyFile string) (promptResult, error) {
	if historyFile != "" {
		data, err := os.ReadFile(historyFile)
		if err != nil {
			return promptResult{}, usagef("read history: %w", err)
		}
		p.history = data
	}
	if _, err := os.Stat(p.path); err != nil {
		return promptResult{}, usagef("read prompt: %w", err)
	}
	l, err := a.loadWith(config.Options{ReadKeys: true, Unset: os.Unsetenv})
	if err != nil {
		return promptResult{}, err
	}
	if err := p.settings.check(&l.Config); err != nil {
		return promptResult{}, err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var result promptResult
	err = a.runPrompts(ctx, l, []prompt{p}, 1, func(prompt) {}, func(r promptResult) { result = r })
	if ctx.Err() != nil {
		return result, &exitError{code: exitStopped, err: errors.New("stopped; what there was is in " + p.out)}
	}
	return result, errors.Join(err, result.err)
}

// reportPrompt prints a result and turns its reason into an exit code.
func (a *app) reportPrompt(r promptResult) error {
	if text := string(r.Status.Result); text != "" {
		if err := writeLine(a.ui.text(), text); err != nil {
			return err
		}
	}
	code := codeOf(r.Status)
	if r.Status.Error != nil {
		return &exitError{code: code, err: errors.New(r.Status.Error.Message), hint: "what it did: " + r.Output}
	}
	return exitWith(code)
}
