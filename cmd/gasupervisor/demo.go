package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func (a *app) demoCommand() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: one command, no key, a few seconds",
		Long: `demo runs a task in a directory of its own: an agent reads files and writes a
report, is steered while it works, and answers a reply. Each thing that is done to
a file is shown as the shell command that does the same.

The model's answers come from a script; the daemon, the tools and the files are
real. With --live the model is real too: the one that OPENAI_API_KEY or
OPENAI_BASE_URL, and OPENAI_MODEL, lead to. It may cost a cent.`,
		Example: `  gasupervisor demo
  gasupervisor demo --keep                     look at the files afterwards
  OPENAI_API_KEY=sk-... gasupervisor demo --live
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3 gasupervisor demo --live`,
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.ui, d.environ, d.paced = a.ui, os.Environ(), a.ui.outTTY
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&d.live, "live", false, "ask a real model")
	cmd.Flags().BoolVar(&d.keep, "keep", false, "keep the directory")
	return cmd
}

// demo is one run of the demonstration.
type demo struct {
	ui         *ui
	environ    []string
	live, keep bool
	// paced leaves a person time to read.
	paced bool

	// dir holds config.toml, temp/ and state/.
	dir   string
	model *llmtest.Server
	// steered is closed once the intervention is written, which the scripted model
	// waits for.
	steered chan struct{}
	// written is when input.txt was.
	written time.Time
	// gap says that an empty line is due before the next command.
	gap bool
}

// The task of the demonstration, and what is said about it.
const (
	demoTask      = "minutes"
	demoReport    = "report.md"
	demoInput     = "Collect the open points of minutes/notes in minutes/report.md."
	demoIntervene = "Group them by name."
	demoReply     = "Who has the most to do?"
)

// demoNotes are the files that the agent reads.
var demoNotes = []struct{ name, text string }{
	{"may-02.txt", "Ada: order the cables (open)\nBob: book the room (done)\n"},
	{"may-05.txt", "Cem: call the printer (open)\n"},
	{"may-09.txt", "Ada: send the invoice (open)\nDan: fix the door (done)\n"},
}

// demoPatience bounds a round of a scripted model; a live one may take its time.
const demoPatience = 30 * time.Second

func (d *demo) run(ctx context.Context) (err error) {
	if d.live && !d.hasModel() {
		return &exitError{code: exitUsage, err: errors.New("--live needs a model"),
			hint: "set OPENAI_API_KEY; or, for a server of your own, OPENAI_BASE_URL and OPENAI_MODEL"}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !d.live {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("it has not come to its end within %s", demoPatience))
		defer cancel()
	}
	if d.dir, err = os.MkdirTemp("", "gasupervisor-demo-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() {
		switch {
		case d.keep:
			d.ui.printf("\nThe files are in %s\n", show(d.dir))
		default:
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	if d.dir, err = filepath.EvalSymlinks(d.dir); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	d.steered = make(chan struct{})
	if !d.live {
		if d.model, err = llmtest.Start(d.script()); err != nil {
			return fmt.Errorf("start scripted model: %w", err)
		}
		defer d.model.Close()
	}
	l, err := d.configuration()
	if err != nil {
		return err
	}
	e, err := newEngine(l, l.Config.StateDir, slog.New(slog.NewTextHandler(d.ui.err, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	engineCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	defer func() {
		end()
		err = errors.Join(err, <-ended)
	}()
	go func() { ended <- e.Run(engineCtx) }()
	if err := d.story(ctx, l); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			if errors.Is(cause, context.Canceled) {
				cause = errors.New("interrupted")
			}
			return fmt.Errorf("demo: %w", cause)
		}
		return err
	}
	return nil
}

// hasModel reports whether the environment leads to a model.
func (d *demo) hasModel() bool {
	for _, kv := range d.environ {
		k, v, _ := strings.Cut(kv, "=")
		if v != "" && (k == "OPENAI_API_KEY" || k == "OPENAI_BASE_URL") {
			return true
		}
	}
	return false
}

// configuration writes the demonstration's config.toml and loads it. Of the
// environment it sees what leads to the live model and nothing else: no override
// of the user's leads out of the directory.
func (d *demo) configuration() (*config.Loaded, error) {
	text := "temp_dir = \"temp\"\nstate_dir = \"state\"\nstop_timeout = \"5s\"\n"
	opts := config.Options{Path: filepath.Join(d.dir, "config.toml"), Environ: []string{}, ReadKeys: true}
	if d.live {
		opts.Unset = os.Unsetenv
		for _, kv := range d.environ {
			if strings.HasPrefix(kv, "OPENAI_") {
				opts.Environ = append(opts.Environ, kv)
			}
		}
	} else {
		text += fmt.Sprintf("[[llm]]\nname = \"scripted\"\nbase_url = %q\napi_key_env = \"\"\nmodel = \"scripted\"\ncontext_window = 32768\n", d.model.URL)
	}
	if err := os.WriteFile(opts.Path, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return config.Load(opts)
}

// story is what is shown, from beginning to end.
func (d *demo) story(ctx context.Context, l *config.Loaded) error {
	d.intro(l)
	for _, step := range []func(context.Context) error{d.begin, d.firstRound, d.showReport, d.secondRound, d.finish} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.outro()
	return nil
}

// begin makes the task: its notes, and input.txt.
func (d *demo) begin(ctx context.Context) error {
	d.command("cd %s", d.dir)
	d.command("gasupervisor run &")
	d.pause(ctx, 300*time.Millisecond)
	notes := filepath.Join(d.taskDir(), "notes")
	if err := os.MkdirAll(notes, 0o755); err != nil {
		return fmt.Errorf("make notes: %w", err)
	}
	d.command("mkdir -p temp/%s/notes", demoTask)
	for _, n := range demoNotes {
		if err := os.WriteFile(filepath.Join(notes, n.name), []byte(n.text), 0o644); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
		d.command("printf %s \\\n    > temp/%s/notes/%s", shellText(n.text), demoTask, n.name)
		d.pause(ctx, 100*time.Millisecond)
	}
	d.pause(ctx, 300*time.Millisecond)
	d.gap = true
	d.command("echo %s \\\n    > temp/%s/%s", shellText(demoInput), demoTask, taskdir.InputFile)
	err := d.put(taskdir.InputFile, demoInput+"\n")
	d.written = time.Now()
	return err
}

// firstRound follows the first round and steers it in its second turn.
func (d *demo) firstRound(ctx context.Context) error {
	var steering error
	return errors.Join(d.followRound(ctx, 0, func() {
		d.pause(ctx, 400*time.Millisecond)
		d.command("echo %s > temp/%s/%s", shellText(demoIntervene), demoTask, taskdir.InterveneFile)
		steering = d.put(taskdir.InterveneFile, demoIntervene+"\n")
		close(d.steered)
	}), steering)
}

func (d *demo) showReport(ctx context.Context) error {
	d.pause(ctx, 300*time.Millisecond)
	text, err := os.ReadFile(filepath.Join(d.taskDir(), demoReport))
	if err != nil {
		return fmt.Errorf("the agent has written no report: %w", err)
	}
	d.command("cat temp/%s/%s", demoTask, demoReport)
	w := d.quoted(nil)
	fmt.Fprint(w, strings.TrimRight(string(text), "\n"), "\n")
	d.pause(ctx, 300*time.Millisecond)
	return nil
}

func (d *demo) secondRound(ctx context.Context) error {
	d.command("echo %s > temp/%s/%s", shellText(demoReply), demoTask, taskdir.ReplyFile)
	if err := d.put(taskdir.ReplyFile, demoReply+"\n"); err != nil {
		return err
	}
	return d.followRound(ctx, 1, nil)
}

// finish ends the session.
func (d *demo) finish(ctx context.Context) error {
	d.pause(ctx, 300*time.Millisecond)
	d.command("touch temp/%s/%s", demoTask, taskdir.StopFile)
	if err := d.put(taskdir.StopFile, ""); err != nil {
		return err
	}
	_, err := d.await(ctx, taskdir.Ended)
	return err
}

// followRound shows a round as it grows, and calls inTheMiddle when its second
// turn begins. A round that did not complete is an error.
func (d *demo) followRound(ctx context.Context, n int, inTheMiddle func()) error {
	d.command("tail -f temp/%s/%s", demoTask, taskdir.OutputName(n))
	w := d.quoted(inTheMiddle)
	if err := taskdir.Follow(ctx, d.tempDir(), demoTask, n, w, taskdir.KeepMarker()); err != nil {
		return err
	}
	d.gap = true
	st, err := d.await(ctx, taskdir.AwaitingReply)
	if err != nil {
		return err
	}
	if st.Reason != taskdir.Text(round.Completed) {
		why := string(st.Reason)
		if st.Error != nil {
			why += ": " + st.Error.Message
		}
		return fmt.Errorf("round %d did not complete: %s", n, why)
	}
	return nil
}

// await waits until the task is in a state, as status.json says.
func (d *demo) await(ctx context.Context, state taskdir.State) (*taskdir.Status, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := taskdir.ReadStatus(d.taskDir())
		if err != nil || st.State == state {
			return st, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// put writes a file of the task the way that the shell command beside it does.
func (d *demo) put(file, text string) error {
	if err := os.WriteFile(filepath.Join(d.taskDir(), file), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

func (d *demo) tempDir() string { return filepath.Join(d.dir, "temp") }

func (d *demo) taskDir() string { return taskdir.TaskPath(d.tempDir(), demoTask) }
