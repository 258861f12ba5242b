package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

type mapFlags struct {
	settings settingsFlags
	parallel int
	asJSON   bool
}

func (a *app) mapCommand() *cobra.Command {
	var f mapFlags
	cmd := &cobra.Command{
		Use:   "map FILE...",
		Short: "Run many prompt files, several at once",
		Long: `map runs each prompt file as func does: FILE.out.txt beside FILE.txt grows with the
work. A summary ends it; the exit code is that of the worst. Ctrl-C stops all.`,
		Example: `  gasupervisor map prompts/*.txt
  gasupervisor map chapter-*.md -j 8 --json > summary.json`,
		Args: wants(1, -1, "one or more prompt files"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.mapPrompts(cmd.Context(), args, f) },
	}
	cmd.Flags().IntVarP(&f.parallel, "jobs", "j", 0, "how many at once, `N` (default: max_running)")
	a.addSettingsFlags(cmd, &f.settings, "does them")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the summary as JSON")
	return cmd
}

func (a *app) mapPrompts(ctx context.Context, files []string, f mapFlags) error {
	if f.parallel < 0 {
		return usagef("--jobs: got %d, want at least 1", f.parallel)
	}
	l, err := a.loadWith(config.Options{ReadKeys: true, Unset: os.Unsetenv})
	if err != nil {
		return err
	}
	if err := f.settings.check(&l.Config); err != nil {
		return err
	}
	prompts, err := promptsOf(files, f)
	if err != nil {
		return err
	}
	parallel := f.parallel
	if parallel == 0 {
		parallel = l.Config.MaxRunning
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	bar := newProgress(a.ui.err, a.ui.errTTY, a.ui.columns, len(prompts), time.Now)
	drawing, done := context.WithCancel(ctx)
	drawn := make(chan error, 1)
	go func() { drawn <- bar.run(drawing) }()
	results := make([]promptResult, 0, len(prompts))
	err = a.runPrompts(ctx, l, prompts, min(parallel, len(prompts)),
		func(p prompt) { bar.begin(p.path) },
		func(r promptResult) {
			results = append(results, r)
			bar.end(r.Prompt, r.words(), r.code() != exitDone)
		})
	done()
	err = errors.Join(err, <-drawn)
	bar.close()
	if ctx.Err() != nil {
		return &exitError{code: exitStopped, err: fmt.Errorf("stopped after %d of %d", len(results), len(prompts))}
	}
	if err != nil {
		return err
	}
	order := func(r promptResult) int {
		return slices.IndexFunc(prompts, func(p prompt) bool { return p.path == r.Prompt })
	}
	slices.SortFunc(results, func(a, b promptResult) int { return order(a) - order(b) })
	return a.summary(results, f.asJSON)
}

// promptsOf checks the files before anything is spent.
func promptsOf(files []string, f mapFlags) ([]prompt, error) {
	prompts := make([]prompt, 0, len(files))
	// By clean paths: one file can be named in several ways.
	inputs, outs := map[string]bool{}, map[string]string{}
	for _, file := range files {
		inputs[filepath.Clean(file)] = true
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return nil, usagef("read prompt: %w", err)
		}
		p := newPrompt(file)
		p.settings = f.settings
		out := filepath.Clean(p.out)
		if other, taken := outs[out]; taken {
			return nil, usagef("%s and %s would both write %s; leave one out, or rename it", other, file, p.out)
		}
		outs[out] = file
		if inputs[out] {
			return nil, usagef("%s is both a prompt and the output of %s; leave it out", p.out, file)
		}
		prompts = append(prompts, p)
	}
	return prompts, nil
}

// words says in a few words how a prompt came out.
func (r promptResult) words() string {
	if r.err != nil {
		return r.err.Error()
	}
	if r.Status.Error != nil {
		return r.Reason + ": " + r.Status.Error.Message
	}
	return r.Reason
}

func (r promptResult) code() int {
	if r.err != nil {
		return exitFailed
	}
	return codeOf(r.Status)
}

// summary ends a map: how many came out how, and where to look.
func (a *app) summary(results []promptResult, asJSON bool) error {
	code, done := exitDone, 0
	for _, r := range results {
		code = worse(code, r.code())
		if r.code() == exitDone {
			done++
		}
	}
	if asJSON {
		if err := a.ui.printJSON(results); err != nil {
			return err
		}
		return exitWith(code)
	}
	a.ui.printf("%d done, %d not; outputs are beside the prompts, as NAME.out.txt\n", done, len(results)-done)
	return exitWith(code)
}
