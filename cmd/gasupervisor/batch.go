package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// func and map run prompt files without a daemon: in this process, by the same
// engine, on tasks in a scratch directory. What the scratch directory holds goes
// with it; what counts is in the out files beside the prompts, and what was spent in
// the daemon's accounts.

// prompt is a file to run, and how.
type prompt struct {
	// path is the file; out is where its output goes.
	path, out string
	// history is a conversation to start from, in any form that _history.json may have.
	history  []byte
	settings settingsFlags
	verbose  bool
}

// newPrompt reads nothing yet.
func newPrompt(path string) prompt {
	return prompt{path: path, out: strings.TrimSuffix(path, filepath.Ext(path)) + ".out.txt"}
}

// promptResult is how a prompt came out.
type promptResult struct {
	Prompt string          `json:"prompt"`
	Output string          `json:"output"`
	Reason string          `json:"reason"`
	Status *taskdir.Status `json:"status"`
	// err is what kept it from being run, or from being written down.
	err error
}

// batch is a scratch directory with an engine at work in it.
type batch struct {
	temp string
	stop func() error
}

// newBatch starts an engine that runs parallel tasks at once. They work in the
// configured temp directory, as a daemon's would. The context that it returns ends
// with the engine, for whatever reason: nobody ends rounds then.
func newBatch(ctx context.Context, l *config.Loaded, parallel int, log *slog.Logger) (context.Context, *batch, error) {
	scratch, err := os.MkdirTemp("", "gasupervisor-")
	if err != nil {
		return nil, nil, fmt.Errorf("make scratch directory: %w", err)
	}
	local := *l
	c := &local.Config
	c.Sandbox.Roots = append(append([]string{}, c.Sandbox.Roots...), c.TempDir)
	c.TempDir, c.StateDir = filepath.Join(scratch, "temp"), filepath.Join(scratch, "state")
	c.MaxRunning = parallel
	c.Limits.TasksPerHour = 0 // whoever started these waits for them
	c.StopTimeout = 5 * time.Second
	e, err := newEngine(&local, l.Config.StateDir, log)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(scratch))
	}
	working, end := startEngine(ctx, e.Run)
	stop := func() error { return errors.Join(end(), os.RemoveAll(scratch)) }
	return working, &batch{temp: c.TempDir, stop: stop}, nil
}

// startEngine starts run, which end stops and waits for. working ends when run does,
// with its error as the cause.
func startEngine(ctx context.Context, run func(context.Context) error) (working context.Context, end func() error) {
	working, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := run(working)
		cancel(err)
		ended <- err
	}()
	return working, func() error {
		cancel(nil)
		return <-ended
	}
}

// runPrompts runs prompts and calls began and ended, one at a time, as they do so.
func (a *app) runPrompts(ctx context.Context, l *config.Loaded, prompts []prompt, parallel int, began func(prompt), ended func(promptResult)) error {
	if err := os.MkdirAll(l.Config.TempDir, 0o755); err != nil {
		return fmt.Errorf("make working directory: %w", err)
	}
	quiet := l.Config
	quiet.Log.Level = "error"
	working, b, err := newBatch(ctx, l, parallel, newLog(a.ui.err, &quiet))
	if err != nil {
		return err
	}
	var tell sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, parallel)
	for i, p := range prompts {
		running.Go(func() {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-working.Done():
				return
			}
			tell.Lock()
			began(p)
			tell.Unlock()
			r := b.run(working, fmt.Sprintf("%d", i+1), p, l.Config.TempDir)
			tell.Lock()
			ended(r)
			tell.Unlock()
		})
	}
	running.Wait()
	if err := b.stop(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// run runs one prompt as a task and lets its out file grow with it.
func (b *batch) run(ctx context.Context, name string, p prompt, workDir string) promptResult {
	r := promptResult{Prompt: p.path, Output: p.out}
	r.Status, r.err = b.task(ctx, name, p, workDir)
	if r.err == nil {
		r.Reason = string(r.Status.Reason)
	}
	return r
}

func (b *batch) task(ctx context.Context, name string, p prompt, workDir string) (*taskdir.Status, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return nil, fmt.Errorf("read prompt: %w", err)
	}
	text, err := readText(f, p.path)
	f.Close()
	if err != nil {
		return nil, err
	}
	out, err := os.Create(p.out)
	if err != nil {
		return nil, fmt.Errorf("write output: %w", err)
	}
	defer out.Close()
	settings := map[string]any{"work_dir": workDir, "verbose": p.verbose}
	maps.Copy(settings, p.settings.values())
	if err := addSettings(b.temp, name, settings); err != nil {
		return nil, err
	}
	if p.history != nil {
		if err := taskdir.WriteHistory(b.temp, name, p.history); err != nil {
			return nil, err
		}
	}
	if err := taskdir.WriteInput(b.temp, name, text); err != nil {
		return nil, err
	}
	if err := b.copyOutput(ctx, name, out); err != nil {
		return nil, err
	}
	st, err := taskdir.ReadStatus(taskdir.TaskPath(b.temp, name))
	if err != nil {
		return nil, err
	}
	// The one that stays.
	path, err := filepath.Abs(p.out)
	st.Output = taskdir.Text(path)
	return st, err
}

// copyOutput copies the task's output as it grows. When ctx ends the round is
// stopped, and the copy ends with what it had got to.
func (b *batch) copyOutput(ctx context.Context, name string, out io.Writer) error {
	err := taskdir.Follow(ctx, b.temp, name, 0, out, taskdir.KeepMarker())
	if ctx.Err() == nil {
		return err
	}
	_, werr := fmt.Fprintf(out, "\n\n[%s]\n\n%s\n", round.Interrupted, taskdir.Marker)
	return errors.Join(context.Cause(ctx), werr)
}
