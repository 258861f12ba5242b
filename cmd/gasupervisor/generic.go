package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// genericAgent runs GenericAgent's command line, so that its users' scripts need
// no change: the same flags, the same "PID: n", the same files.
func (a *app) genericAgent(ctx context.Context, args []string) error {
	ga, err := parseGA(args)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	if err := ga.check(); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	if ga.Func != "" {
		return a.gaFunc(ctx, ga, args)
	}
	return a.gaTask(ctx, ga)
}

// gaFunc runs a prompt file. Without --nobg it does so in a process of its own.
// As with GenericAgent the exit code is 0 once the output is written, whatever
// it says.
func (a *app) gaFunc(ctx context.Context, ga gaArgs, args []string) error {
	p := newPrompt(ga.Func)
	if !ga.NoBG {
		// In the background nobody would hear of it, and wait.
		if _, err := os.Stat(p.path); err != nil {
			return usagef("read prompt: %w", err)
		}
		if _, err := a.load(); err != nil {
			return err
		}
		// Nobody takes an old answer for the new one.
		if err := os.Remove(p.out); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove earlier output: %w", err)
		}
		pid, err := background(append(args, "--nobg"), nil, nil, nil)
		if err != nil {
			return err
		}
		a.ui.printf("PID: %d\n", pid)
		return nil
	}
	l, err := a.load()
	if err != nil {
		return err
	}
	p.settings.llm, p.verbose = llmOf(l, ga.LLMNo), ga.Verbose
	r, err := a.function(ctx, p, ga.History)
	if err != nil {
		return err
	}
	if r.Status.Error != nil {
		a.ui.warnf("%s: %s", ga.Func, r.words())
	}
	return nil
}

// llmOf is a number of GenericAgent's list of LLMs, which wraps around.
func llmOf(l *config.Loaded, n int) string {
	count := len(l.Config.LLMs)
	return strconv.Itoa(((n % count) + count) % count)
}

// gaTask starts a task, and a daemon where none runs.
func (a *app) gaTask(ctx context.Context, ga gaArgs) error {
	if err := taskdir.CheckName(ga.Task); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	l, err := a.load()
	if err != nil {
		return err
	}
	c := &l.Config
	for dir, perm := range map[string]os.FileMode{taskdir.TaskPath(c.TempDir, ga.Task): 0o755, c.StateDir: 0o700} {
		if err := os.MkdirAll(dir, perm); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	if err := a.gaInput(l, ga); err != nil {
		return err
	}
	if err := a.ensureDaemon(ctx, l); err != nil {
		return err
	}
	if ga.NoBG {
		return a.attend(ctx, c.TempDir, ga.Task)
	}
	// The files in which GenericAgent leaves what its process prints.
	var std [2]*os.File
	for i, name := range []string{"stdout.log", "stderr.log"} {
		f, err := taskdir.CreateLog(c.TempDir, ga.Task, name)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		defer f.Close()
		std[i] = f
	}
	args := []string{"attend", "--", ga.Task}
	if l.File != "" {
		args = append([]string{"--config", l.File}, args...)
	}
	// A script may end the process as soon as it has read its number.
	ready, begun, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start waiter: %w", err)
	}
	defer ready.Close()
	pid, err := background(args, begun, std[0], std[1])
	begun.Close()
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, ready); err != nil {
		return fmt.Errorf("start waiter: %w", err)
	}
	a.ui.printf("PID: %d\n", pid)
	return nil
}

// gaInput writes the task's files, input.txt last.
func (a *app) gaInput(l *config.Loaded, ga gaArgs) error {
	tempDir := l.Config.TempDir
	input, err := taskdir.ReadMessage(tempDir, ga.Task, taskdir.InputFile)
	if ga.Input == "" && err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return usagef("task %q has no input.txt; write it first, or give --input", ga.Task)
		}
		return err
	}
	if ga.Input != "" {
		if _, err := taskdir.MoveForNewInput(tempDir, ga.Task); err != nil {
			return err
		}
	}
	settings := map[string]any{"verbose": ga.Verbose}
	if ga.LLMNo != 0 {
		settings["llm"] = llmOf(l, ga.LLMNo)
	}
	if err := addSettings(tempDir, ga.Task, settings); err != nil {
		return err
	}
	if ga.History != "" {
		data, err := os.ReadFile(ga.History)
		if err != nil {
			return usagef("read history: %w", err)
		}
		if err := taskdir.WriteHistory(tempDir, ga.Task, data); err != nil {
			return err
		}
	}
	if ga.Input != "" {
		return taskdir.WriteInput(tempDir, ga.Task, ga.Input)
	}
	// Started again on an input that was done with: GenericAgent does it again, and
	// what is written again is a new input.
	v, err := lookAt(tempDir, ga.Task)
	if err == nil && v.Status != nil && v.Status.State == taskdir.Ended && v.Settled {
		return taskdir.WriteInput(tempDir, ga.Task, input)
	}
	return nil
}

// daemonPatience is how long a daemon may take to get its lock.
const daemonPatience = 10 * time.Second

// ensureDaemon starts a daemon where none runs, in a process of its own that
// logs to the state directory.
func (a *app) ensureDaemon(ctx context.Context, l *config.Loaded) error {
	c := &l.Config
	if a.daemonRuns(c.TempDir) {
		return nil
	}
	logPath := filepath.Join(c.StateDir, "daemon.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	defer log.Close()
	args := []string{"run"}
	if l.File != "" {
		args = append(args, "--config", l.File)
	}
	if _, err := background(args, nil, log, log); err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !a.daemonRuns(c.TempDir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("start daemon: it has not come up within %s; see %s", daemonPatience, logPath)
		case <-tick.C:
		}
	}
	return nil
}

// background starts this program again, in a session of its own that outlives
// this one. nil streams lead nowhere.
func background(args []string, in, out, errOut *os.File) (pid int, err error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(exe, args...)
	if in != nil {
		cmd.Stdin = in
	}
	if out != nil {
		cmd.Stdout, cmd.Stderr = out, errOut
	}
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", exe, err)
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release()
}

// attendCommand is the process whose id GenericAgent's scripts are given.
func (a *app) attendCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "attend NAME",
		Short:  "End with a task's session; write _stop on SIGTERM",
		Hidden: true,
		Args:   wants(1, 1, "one name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tempDir, err := a.tempDir()
			if err != nil {
				return err
			}
			return a.attend(cmd.Context(), tempDir, args[0])
		},
	}
}

// attend waits until the task's session has ended. Told to end itself it stops
// the round, as killing GenericAgent's process does. From then on that it can be
// told, its standard input is closed: where that is the end of a pipe, whoever
// started it sees so.
func (a *app) attend(ctx context.Context, tempDir, name string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Stdin.Close()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	session := 0
	for {
		v, err := lookAt(tempDir, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		// The status of a session before this one says nothing about it.
		if st := v.Status; st != nil && (session > 0 || v.sight.Input == nil || !v.sight.Input.Mtime.After(st.UpdatedAt.Time)) {
			if session == 0 {
				session = st.Session
			}
			if st.State == taskdir.Ended || st.Session != session {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return taskdir.WriteStop(tempDir, name)
		case <-tick.C:
		}
	}
}
