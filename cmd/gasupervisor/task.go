package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

type taskFlags struct {
	input    string
	settings settingsFlags
	ifExists string
	wait     bool
	follow   bool
	asJSON   bool
}

func (a *app) taskCommand() *cobra.Command {
	var f taskFlags
	cmd := &cobra.Command{
		Use:   "task [NAME] --input T",
		Short: "Start a task",
		Long: `Writes input.txt into the task's directory, which starts a session. Without a name
one is made from the text. The name is printed, so that a script can keep it.

` + textHelp + ` Without --input the text is read
from a pipe.

A task that exists is left alone unless --if-exists says otherwise: "reply" goes on
with its conversation, "restart" puts its files into old/ and starts anew.

--wait prints the result when the round is over, --follow the output as it grows;
the exit code tells how it ended. Ctrl-C detaches, and the work goes on.`,
		Example: `  gasupervisor task audit --input "List the TODOs under src" --follow
  name=$(git diff | gasupervisor task --input "Review the diff in work.diff")
  gasupervisor task todos --input "List the TODOs" --work-dir ~/src/app --tools read_file,search_files
  gasupervisor task nightly --input @prompts/nightly.md --if-exists restart --wait`,
		Args:              wants(0, 1, "at most one name; the text goes after --input"),
		ValidArgsFunction: a.completeOneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd, [2]string{"wait", "follow"}, [2]string{"json", "follow"}); err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				// Given and empty is a variable that was not set, and not "make one up".
				if name = args[0]; name == "" {
					return usagef("the task's name is empty; leave it out to have one made")
				}
			}
			return a.task(cmd.Context(), name, cmd.Flags().Changed("input"), f)
		},
	}
	cmd.Flags().StringVarP(&f.input, "input", "i", "", "what to do: text, - or @file (`T`)")
	a.addSettingsFlags(cmd, &f.settings, "does it")
	cmd.Flags().StringVar(&f.ifExists, "if-exists", "fail", "for a task that exists: `fail|reply|restart`")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for the end of the round and print the result")
	cmd.Flags().BoolVar(&f.follow, "follow", false, "show the output as it grows")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) task(ctx context.Context, name string, hasInput bool, f taskFlags) error {
	switch f.ifExists {
	case "fail", "reply", "restart":
	default:
		return usagef("--if-exists: got %q, want fail, reply or restart", f.ifExists)
	}
	if name != "" {
		if err := taskdir.CheckName(name); err != nil {
			return &exitError{code: exitUsage, err: err}
		}
	}
	l, err := a.load()
	if err != nil {
		return err
	}
	if err := f.settings.check(&l.Config); err != nil {
		return err
	}
	if err := checkAgent(l, f.settings.agent); err != nil {
		return err
	}
	var args []string
	if hasInput {
		args = []string{f.input}
	}
	text, err := a.textOrStdin(args, "--input T")
	if err != nil {
		return err
	}
	if err := a.needTempDir(l); err != nil {
		return err
	}
	tempDir := l.Config.TempDir
	running := a.daemonRuns(tempDir)
	if (f.wait || f.follow) && !running {
		return noDaemon(tempDir)
	}
	t, err := startTask(tempDir, name, text, f)
	if err != nil {
		return err
	}
	if f.wait || f.follow {
		a.ui.notef("task %s", show(t.name))
		return a.waitAndReport(ctx, t, f.follow, f.asJSON)
	}
	if f.asJSON {
		err = a.ui.printJSON(map[string]any{
			"task": t.name, "dir": taskdir.TaskPath(tempDir, t.name), "round": t.round, "output": taskdir.OutputPath(tempDir, t.name, t.round),
		})
	} else {
		err = writeLine(a.ui.text(), t.name)
	}
	if !running {
		a.ui.warnf("no daemon is running for %s; the task waits for one (gasupervisor run)", show(tempDir))
	} else if a.ui.outTTY && !f.asJSON {
		a.ui.notef("watch it: gasupervisor follow %s", quoteName(t.name))
	}
	return err
}

// needTempDir makes the temp directory where a configuration says that it is
// meant. In a directory that merely happens to be current none is made.
func (a *app) needTempDir(l *config.Loaded) error {
	tempDir := l.Config.TempDir
	st, err := os.Stat(tempDir)
	switch {
	case err == nil && st.IsDir():
		return nil
	case err == nil:
		return usagef("temp_dir: %s is no directory", tempDir)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("find temp_dir: %w", err)
	case l.File == "" && l.Origin("temp_dir").Kind == config.FromDefault:
		return &exitError{code: exitNoDaemon, err: fmt.Errorf("there is no configuration, and no directory %s", tempDir),
			hint: "gasupervisor init sets this directory up; --config names a configuration elsewhere"}
	}
	if err := os.MkdirAll(tempDir, 0o755); err != nil {
		return fmt.Errorf("make temp_dir: %w", err)
	}
	return nil
}

// startTask writes the files that start a session, or a reply, and says which
// round that asks for.
func startTask(tempDir, name, text string, f taskFlags) (target, error) {
	t := target{tempDir: tempDir, name: name}
	if name == "" {
		var err error
		if t.name, err = makeTask(tempDir, slug(text)); err != nil {
			return t, err
		}
	}
	v, err := lookAt(tempDir, t.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	if err == nil && v.started() {
		switch f.ifExists {
		case "fail":
			return t, &exitError{code: exitFailed, err: fmt.Errorf("task %q exists", t.name),
				hint: "--if-exists reply goes on with it, --if-exists restart starts anew, gasupervisor rm removes it"}
		case "reply":
			if f.settings.given() {
				return t, usagef("--agent, --llm, --work-dir and --tools are chosen when a session starts; leave them out, or use --if-exists restart")
			}
			return sendReply(tempDir, v, text)
		}
		if _, err := taskdir.MoveForNewInput(tempDir, t.name); err != nil {
			return t, err
		}
	}
	// Before input.txt, so that the session finds it there.
	if err := addSettings(tempDir, t.name, f.settings.values()); err != nil {
		return t, err
	}
	return t, taskdir.WriteInput(tempDir, t.name, text)
}

// sendReply writes reply.txt and says which round answers it.
func sendReply(tempDir string, v view, text string) (target, error) {
	t := target{tempDir: tempDir, name: v.Name, round: v.sight.Outputs}
	if v.Status != nil && v.busy() && v.Status.Round >= v.sight.Outputs {
		// The round that is queued or running has no output yet.
		t.round = v.Status.Round + 1
	}
	return t, taskdir.WriteReply(tempDir, v.Name, text)
}

// makeTask makes a directory of a free name.
func makeTask(tempDir, base string) (string, error) {
	root, err := taskdir.OpenRoot(tempDir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	name := base
	for n := 2; ; n++ {
		d, err := root.Create(name)
		if err == nil {
			return name, d.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		name = base + "-" + strconv.Itoa(n)
	}
}

// slug makes a name of the first words of a text.
func slug(text string) string {
	var b strings.Builder
	n, gap := 0, false
	for _, r := range strings.ToLower(text) {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			gap = n > 0
			if n >= 24 {
				break
			}
			continue
		}
		if n >= 32 {
			break
		}
		if gap {
			b.WriteByte('-')
			gap = false
			n++
		}
		b.WriteRune(r)
		n++
	}
	if b.Len() == 0 || taskdir.CheckName(b.String()) != nil {
		return "task"
	}
	return b.String()
}
