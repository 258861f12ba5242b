package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/confine"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/tool/builtin"
)

// policyView is what a task may do, for printing.
type policyView struct {
	Task       string          `json:"task"`
	Agent      string          `json:"agent"`
	Level      string          `json:"level"`
	Why        string          `json:"why,omitempty"`
	Do         string          `json:"do,omitempty"`
	WorkDir    string          `json:"work_dir"`
	Writes     bool            `json:"writes"`
	Share      bool            `json:"share"`
	Read       []string        `json:"read"`
	Write      []string        `json:"write"`
	Protected  []string        `json:"protected"`
	Hidden     []string        `json:"hidden"`
	User       string          `json:"user,omitempty"`
	Network    string          `json:"network"`
	Limits     map[string]any  `json:"limits"`
	Commands   []confine.Mount `json:"commands"`
	Made       []string        `json:"made,omitempty"`
	Problem    string          `json:"problem,omitempty"`
	Warnings   []string        `json:"warnings"`
	Incomplete bool            `json:"incomplete,omitempty"`
}

// policyOf works out what a context.json comes to, without running anything. A task
// that has none asks for nothing.
func (a *app) policyOf(l *config.Loaded, task, contextFile string) (*toolbox, allowed, *policyView, error) {
	fail := func(err error) (*toolbox, allowed, *policyView, error) { return nil, allowed{}, nil, err }
	data, err := os.ReadFile(contextFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	var s round.Settings
	var warnings []string
	if err == nil {
		if s, warnings, err = round.ParseSettings(data); err != nil {
			return fail(&exitError{code: exitFailed, err: fmt.Errorf("%s: %w", contextFile, err)})
		}
	}
	b, err := newToolbox(l, l.Config.StateDir, nil, nil)
	if err != nil {
		return fail(err)
	}
	lib, err := newLibrary(l, slog.New(slog.DiscardHandler))
	if err != nil {
		return fail(err)
	}
	def, err := lib.agents.Lookup(s.Agent)
	if err != nil {
		return fail(&exitError{code: exitFailed, err: err})
	}
	tools := slices.DeleteFunc(toolNames(), func(n string) bool {
		return !def.May(n) || s.ToolsGiven && !slices.Contains(s.Tools, n)
	})
	al, err := b.allow(task, taskdir.TaskPath(l.Config.TempDir, task), s, builtin.Writes(tools), def.Network)
	if err != nil {
		return fail(&exitError{code: exitFailed, err: err})
	}
	p, c := al.policy, &l.Config.Sandbox
	v := &policyView{
		Task: task, Agent: def.Name, Level: "off", WorkDir: p.WorkDir, Writes: len(p.Write) > 0, Share: c.Share, Read: p.Read, Write: p.Write,
		Protected: p.Protected, Hidden: p.Hidden, Network: c.Network.String(), Warnings: warnings,
		Limits: map[string]any{"memory": c.Memory.String(), "processes": c.Processes, "file_size": c.FileSize.String(), "disk": c.Disk.String(), "disk_reserve": c.DiskReserve.String()},
	}
	if def.Network != nil {
		v.Network += fmt.Sprintf(", of which agent %s has %s", def.Name, config.Network{Hosts: def.Network})
	}
	if b.confinement != nil {
		st := b.confinement.sandbox.Status()
		v.Level, v.Why, v.Do = string(st.Level), st.Why, st.Do
		if u := b.confinement.user; u != nil {
			v.User = u.Name
		}
		extras := al.job.Checkouts()
		layout, err := b.confinement.sandbox.Layout(al.job, extras)
		v.Commands, v.Made, v.Incomplete = layout.Mounts, layout.Placeholders, extras.Truncated
		if err != nil {
			v.Problem = err.Error()
		}
	}
	return b, al, v, nil
}

// showPolicy prints what a task may do.
func (a *app) showPolicy(v *policyView) {
	line := func(key, format string, args ...any) {
		a.ui.printf("%s  %s\n", pad(key, 14), show(fmt.Sprintf(format, args...)))
	}
	list := func(key string, paths []string) {
		for _, p := range paths {
			line(key, "%s", p)
			key = ""
		}
	}
	line("task", "%s", v.Task)
	line("agent", "%s", v.Agent)
	line("commands", "%s", levelText(v))
	if v.Problem != "" {
		line("problem", "%s", v.Problem)
	}
	line("directory", "%s", v.WorkDir)
	if v.User != "" {
		line("user", "%s", v.User)
	}
	line("network", "%s", v.Network)
	if v.Level != "off" {
		l := v.Limits
		line("limits", "%v memory, %v processes, %v a file, %v of disk, of which %v stay free", l["memory"], l["processes"], l["file_size"], l["disk"], l["disk_reserve"])
	}
	a.ui.printf("\nFile tools\n")
	list("write", v.Write)
	if len(v.Write) == 0 {
		line("write", "nothing: the agent has no tool that writes")
	}
	list("read", v.Read)
	list("never write", v.Protected)
	list("never", v.Hidden)
	if len(v.Commands) > 0 {
		a.ui.printf("\nCommands find these paths, and no others\n")
		for _, m := range v.Commands {
			if m.From != "" {
				line(string(m.How), "%s  (%s)", m.Path, m.From)
			} else {
				line(string(m.How), "%s", m.Path)
			}
		}
		list("made for it", v.Made)
		a.ui.printf("%s", legend(v.Commands))
	}
	if v.Incomplete {
		a.ui.warnf("there is too much in what may be written to look through: git checkouts further down are not protected")
	}
	for _, w := range v.Warnings {
		a.ui.warnf("%s", w)
	}
}

// legend explains the words for mounts that do not explain themselves, where they
// are used.
func legend(mounts []confine.Mount) string {
	var said []string
	for _, word := range []struct {
		how  confine.How
		says string
	}{
		{confine.Keep, "read-only inside of what may be written"},
		{confine.Hide, "covered"},
		{confine.Pin, "not to be moved away"},
	} {
		if slices.ContainsFunc(mounts, func(m confine.Mount) bool { return m.How == word.how }) {
			said = append(said, fmt.Sprintf("%s: %s.", word.how, word.says))
		}
	}
	if said == nil {
		return ""
	}
	return "\n" + strings.Join(said, " ") + "\n"
}

func levelText(v *policyView) string {
	switch v.Level {
	case "off":
		return "not confined: they can do whatever the daemon's user can"
	case string(confine.None):
		return "refused: " + v.Why
	}
	if v.Why != "" {
		return "confined, level " + v.Level + ": " + v.Why
	}
	return "confined, level " + v.Level
}

// checkPolicy prints what a context.json comes to, and runs a command as an agent
// would, where there is one.
func (a *app) checkPolicy(ctx context.Context, contextFile, line string, asJSON bool) error {
	l, err := a.load()
	if err != nil {
		return err
	}
	if _, err := os.Stat(contextFile); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	task := taskOf(l.Config.TempDir, contextFile)
	b, al, v, err := a.policyOf(l, task, contextFile)
	if err != nil {
		return err
	}
	if line == "" {
		if asJSON {
			return a.ui.printJSON(v)
		}
		a.showPolicy(v)
		return nil
	}
	if err := os.MkdirAll(taskdir.TaskPath(l.Config.TempDir, task), 0o755); err != nil {
		return err
	}
	o, err := command.Run(ctx, command.Command{
		Line: line, Dir: al.policy.WorkDir, Env: al.commands.Env, Timeout: b.config.Agent.CommandTimeout,
		OutputCap: b.config.Agent.ToolResultCap, Confine: al.commands.Confine, Limits: al.commands.Limits,
	})
	if err != nil {
		return &exitError{code: exitFailed, err: err}
	}
	w := a.ui.text()
	w.Write(o.Output.Head)
	if o.Output.Cut > 0 {
		fmt.Fprintf(w, "\n[... %d bytes left out ...]\n", o.Output.Cut)
	}
	w.Write(o.Output.Tail)
	if o.End != command.Exited {
		return &exitError{code: exitStopped, err: fmt.Errorf("the command was ended: %s", endText(o))}
	}
	return exitWith(o.Exit)
}

func endText(o command.Outcome) string {
	switch o.End {
	case command.Limited:
		return o.Limit
	case command.TimedOut:
		return "its time was over"
	}
	return "cancelled"
}

// taskOf is the task that a context.json belongs to: the one whose directory it
// lies in, else one of its own.
func taskOf(tempDir, contextFile string) string {
	const elsewhere = "policy-check"
	abs, err := filepath.Abs(contextFile)
	if err != nil {
		return elsewhere
	}
	dir := filepath.Dir(abs)
	if real, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		if temp, err := filepath.EvalSymlinks(tempDir); err == nil && temp == real {
			return filepath.Base(dir)
		}
	}
	return elsewhere
}

// showTaskPolicy prints what a task may do by its context.json as it stands.
func (a *app) showTaskPolicy(task string, asJSON bool) error {
	l, err := a.load()
	if err != nil {
		return err
	}
	_, _, v, err := a.policyOf(l, task, filepath.Join(taskdir.TaskPath(l.Config.TempDir, task), taskdir.ContextFile))
	if err != nil {
		return err
	}
	if asJSON {
		return a.ui.printJSON(v)
	}
	a.showPolicy(v)
	return nil
}
