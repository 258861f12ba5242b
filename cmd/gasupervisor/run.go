package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/service"
)

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "The daemon, in the foreground",
		Long: `run watches the temp directory and works on its tasks until it is told to stop.

Ctrl-C or SIGTERM ends it: rounds in progress are cut short and go on at the next
start. A second signal does not wait for them. Messages go to standard error.`,
		Example: `  gasupervisor run
  gasupervisor run --config /etc/gasupervisor/config.toml
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3 gasupervisor run`,
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.loadWith(config.Options{ReadKeys: true, Unset: os.Unsetenv})
			if err != nil {
				return err
			}
			return a.runDaemon(cmd.Context(), l)
		},
	}
}

// runDaemon is the daemon, from its locks to its end.
func (a *app) runDaemon(ctx context.Context, l *config.Loaded) error {
	log := newLog(a.ui.err, &l.Config)
	e, err := newEngine(l, l.Config.StateDir, log)
	if err != nil {
		return err
	}
	release, err := own(l, log)
	if err != nil {
		return err
	}
	defer release()
	unserve, err := serveProfiles(log)
	if err != nil {
		return err
	}
	defer unserve()
	logStart(log, l)
	// The grace beyond the supervisor's own bound is for closing files.
	err = service.Run(ctx, e.Run, l.Config.StopTimeout+2*time.Second)
	if err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// own takes the locks that make this process the only daemon of its directories,
// and says in the state directory who it is.
func own(l *config.Loaded, log *slog.Logger) (release func(), err error) {
	c := &l.Config
	var locks []*lock.Lock
	release = func() {
		for _, held := range locks {
			held.Release()
		}
	}
	for _, dir := range []string{c.TempDir, c.StateDir} {
		held, err := lock.Acquire(dir)
		if err != nil {
			release()
			return nil, alreadyRunning(c.StateDir, err)
		}
		locks = append(locks, held)
	}
	who := lock.Holder{PID: os.Getpid(), Started: time.Now(), Version: thisBuild().Version, TempDir: c.TempDir, Config: l.File}
	if err := atomicfile.Write(filepath.Join(c.StateDir, lock.HolderFile), who.Encode(), 0o600); err != nil {
		// The locks hold without it; on a full disk there is work that needs no room.
		log.Error("state directory cannot be written; sessions wait until it can", "file", lock.HolderFile, "err", err)
	}
	return release, nil
}

func alreadyRunning(stateDir string, err error) error {
	if !errors.Is(err, lock.ErrHeld) {
		return err
	}
	e := &exitError{code: exitFailed, err: fmt.Errorf("another daemon works there already: %w", err),
		hint: "use that one, or give this one a temp_dir and a state_dir of its own"}
	if who, rerr := lock.ReadHolder(stateDir); rerr == nil {
		e.err = fmt.Errorf("another daemon works there already (%s): %w", who, err)
	}
	return e
}

// newLog is the daemon's log on standard error, without keys.
func newLog(w io.Writer, c *config.Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: redact.New(c.Secrets()...).Attr}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// logStart says what is in force, and where each LLM setting came from.
func logStart(log *slog.Logger, l *config.Loaded) {
	c := &l.Config
	file := l.File
	if file == "" {
		file = "none, defaults"
	}
	log.Info("gasupervisor starts", "version", thisBuild().Version, "config", file, "because", l.Why,
		"temp_dir", c.TempDir, "state_dir", c.StateDir, "max_running", c.MaxRunning)
	for _, s := range l.LLMSettings() {
		log.Info("LLM setting", "key", s.Key, "value", s.Value, "from", s.Origin)
	}
	for _, w := range l.Warnings {
		log.Warn(w)
	}
	for i := range c.LLMs {
		if e := &c.LLMs[i]; e.NeedsKey() {
			log.Warn("an LLM has no key: tasks that use it will fail", "llm", e.Name, "do", checkKey(e).Do)
		}
	}
	if c.Sandbox.Mode == config.SandboxOff {
		log.Warn("commands of agents are not confined: they can do whatever this user can ([sandbox] mode = \"off\")")
	}
}
