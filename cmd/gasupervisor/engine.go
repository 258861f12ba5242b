package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/agent"
	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
	"github.com/gasupervisor/gasupervisor/internal/budget"
	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/supervisor"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/tool"
	"github.com/gasupervisor/gasupervisor/internal/tool/builtin"
	"github.com/gasupervisor/gasupervisor/internal/tool/skill"
	"github.com/gasupervisor/gasupervisor/internal/usage"
	"github.com/gasupervisor/gasupervisor/session"
	"github.com/gasupervisor/gasupervisor/watcher"
)

// errReplaced ends an engine whose temp directory is another one than it has open. The
// lock, the root and what commands may reach are all of the old one.
var errReplaced = errors.New("temp_dir was removed and made again, or another directory was put in its place; start the daemon again to work there")

// engine is a watcher, a supervisor and an agent loop joined by a configuration:
// all that works on the tasks of one temp directory.
type engine struct {
	root  *taskdir.Root
	watch *watcher.Watcher
	// replaced gets a word when the temp directory is another one than root.
	replaced <-chan struct{}
	sup      *supervisor.Supervisor
	lib      *library
	// accounts keep what LLMs cost; open while Run works.
	accounts *usage.Accounts
	config   *config.Config
	// confinement is nil where commands are not confined.
	confinement *confinement
	log         *slog.Logger
}

// newEngine makes the directories and joins the parts. It starts nothing and
// takes no locks. stateDir is where the accounts are: the configured state directory,
// also where the engine's own is another one.
func newEngine(l *config.Loaded, stateDir string, log *slog.Logger) (*engine, error) {
	c := &l.Config
	reserveEnvFiles(c.Sandbox.Roots, log)
	accounts := usage.New(filepath.Join(stateDir, usage.DirName), nil, func(err error) {
		if err != nil {
			log.Error("usage is counted in memory only", "err", err)
		} else {
			log.Info("usage is written again")
		}
	})
	models := newModels(c, accounts.Spent, log)
	lib, err := newLibrary(l, log)
	if err != nil {
		return nil, err
	}
	tools, err := newToolbox(l, stateDir, lib, log)
	if err != nil {
		return nil, err
	}
	if err := tools.confinement.giveTempDir(c); err != nil {
		return nil, err
	}
	if err := makePlaces(c, log); err != nil {
		return nil, err
	}
	root, err := taskdir.OpenRoot(c.TempDir, taskdir.WithSettle(c.Settle))
	if err != nil {
		return nil, err
	}
	runner := agent.New(agent.Config{
		Models: models.choose,
		Agents: lib.agents.Lookup,
		Tools:  tools.grant,
		Limits: agent.Limits{Timeout: c.Agent.Timeout},
		Log:    log,

		Reserve:     perDay(c, accounts),
		LearnWindow: models.learn,
		Redact:      tools.keys,
	})
	sup := supervisor.New(supervisor.Config{
		Session: session.Config{Root: root, StateDir: c.StateDir, Runner: runner, ReplyTimeout: c.ReplyTimeout, Alone: !c.Sandbox.Share,
			Admit: func(task string, opened time.Time) time.Duration {
				return accounts.Start(task, opened, c.Limits.TasksPerHour)
			},
			Children: session.Children{MaxDepth: c.Agent.MaxDepth}},
		MaxRunning:  c.MaxRunning,
		StopTimeout: c.StopTimeout,
		Log:         log,
	})
	replaced := make(chan struct{}, 1)
	watch := watcher.New(watcher.Config{Dir: c.TempDir, Counts: taskdir.Counts, Rests: taskdir.Rests, Log: log,
		Replaced: func() {
			select {
			case replaced <- struct{}{}:
			default:
			}
		}})
	return &engine{replaced: replaced, root: root, watch: watch, sup: sup, lib: lib, accounts: accounts, config: c, confinement: tools.confinement, log: log}, nil
}

// perDay is the daemon's own budget; nil where the configuration gives none.
func perDay(c *config.Config, accounts *usage.Accounts) budget.Reserve {
	if c.Limits.CostPerDay <= 0 {
		return nil
	}
	return accounts.Budget(c.Limits.CostPerDay).Reserve
}

// general is the agent that works where nothing else is asked for, with the
// configured defaults.
func general(c *config.Config) agentdef.Definition {
	d := agentdef.General()
	d.MaxTurns = c.Agent.MaxTurns
	d.Completion = agentdef.Completion(c.Agent.Completion)
	return d
}

// Run works until ctx ends and the rounds have put down what they do.
func (e *engine) Run(ctx context.Context) error {
	defer e.root.Close()
	if err := e.accounts.Open(); err != nil {
		if e.config.Limits.CostPerDay > 0 {
			return err // it would not be kept
		}
		e.log.Error("usage is counted in memory only", "err", err)
	}
	defer e.accounts.Close()
	e.sweep()
	e.lib.writeRecord(e.lib.agents.Snapshot())
	if err := e.root.SweepUnborn(); err != nil {
		e.log.Warn("directories of subagents that never came to be cannot be removed", "err", err)
	}
	names, err := e.root.Names()
	if err != nil {
		return err
	}
	known, err := session.Known(e.config.StateDir, names)
	if err != nil {
		e.log.Warn("some journals cannot be read; they are left as they are", "err", err)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan error, 1)
	supervised := make(chan error, 1)
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	e.confinement.logLevel(e.log)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		e.keepTidy(watching)
	}()
	defer func() { stop(); <-kept }()
	go func() { watched <- e.watch.Run(watching) }()
	go func() { supervised <- e.sup.Run(ctx, e.watch.Looks(), known) }()
	select {
	case err := <-watched:
		// Without looks there is nothing to do; the service manager starts it anew.
		giveUp()
		stop()
		return errors.Join(fmt.Errorf("watch %s: %w", e.root.Path(), err), <-supervised)
	case <-e.replaced:
		giveUp()
		err := <-supervised
		stop()
		<-watched
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(fmt.Errorf("%s: %w", e.root.Path(), errReplaced), err)
	case err := <-supervised:
		stop()
		<-watched
		return err
	}
}

// sweep removes what an earlier process died in the middle of writing.
func (e *engine) sweep() {
	for _, dir := range []string{e.config.StateDir, filepath.Join(e.config.StateDir, usage.DirName), archiveDir(e.config)} {
		if err := atomicfile.Sweep(dir); err != nil {
			e.log.Warn("some unfinished files of an earlier process cannot be removed", "err", err)
		}
	}
}

// tidyEvery is how often a daemon looks for tasks to pack away.
const tidyEvery = time.Hour

// keepTidy packs away tasks that are long over, where the configuration says so, and
// removes what is left of tasks that are gone.
func (e *engine) keepTidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		if after := e.config.Retention.ArchiveAfter; after > 0 {
			packed, err := prune(ctx, e.config, after, false)
			for _, p := range packed {
				e.log.Info("task packed away", "task", p.Task, "archive", p.Archive)
			}
			if err != nil && ctx.Err() == nil {
				e.log.Error("some tasks cannot be packed away", "err", err)
			}
		}
		if err := e.root.SweepRemoved(ctx); err != nil {
			e.log.Warn("what an rm that was broken off has left cannot be removed", "err", err)
		}
		if err := e.confinement.sweep(e.config.StateDir); err != nil {
			e.log.Warn("some private directories of tasks that are gone cannot be removed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// toolbox grants tools to rounds, by the policy that the configuration and the
// task's context.json add up to.
type toolbox struct {
	ceiling sandbox.Ceiling
	config  *config.Config
	lib     *library
	environ []string
	// keys stand nowhere in what an agent is told.
	keys *redact.Replacer
	// confinement is nil where commands are not confined.
	confinement *confinement
}

func newToolbox(l *config.Loaded, stateDir string, lib *library, log *slog.Logger) (*toolbox, error) {
	c := &l.Config
	ceiling := sandbox.Ceiling{
		Roots:        c.Sandbox.Roots,
		Read:         slices.Concat(c.Sandbox.Read, skillDirs(l)),
		System:       sandbox.SystemReads(os.Getenv("PATH")),
		Protected:    protected(l),
		Hidden:       hidden(l, stateDir),
		TempDir:      c.TempDir,
		Share:        c.Sandbox.Share,
		Unrestricted: c.Sandbox.Mode == config.SandboxOff,
		Protocol:     taskdir.IsProtocol,
	}
	if c.Sandbox.Toolchains {
		if home, err := os.UserHomeDir(); err == nil {
			ceiling.System = append(ceiling.System, sandbox.ToolchainReads(home, os.Getenv)...)
		}
	}
	confinement, err := newConfinement(c, slices.Concat(ceiling.Roots, ceiling.Read, ceiling.System, []string{ceiling.TempDir}), log)
	if err != nil {
		return nil, err
	}
	if confinement != nil {
		ceiling.User = confinement.user
	}
	return &toolbox{ceiling: ceiling.Resolve(), config: c, lib: lib, environ: os.Environ(), keys: redact.New(c.Secrets()...), confinement: confinement}, nil
}

// protected is what agents may read and never write: what the daemon is made of.
func protected(l *config.Loaded) []string {
	paths := []string{}
	if l.File != "" {
		paths = append(paths, l.File)
	}
	if exe, err := os.Executable(); err == nil {
		paths = append(paths, exe)
	}
	if dir, err := os.UserConfigDir(); err == nil && runtime.GOOS == "linux" {
		paths = append(paths, filepath.Join(dir, "systemd")) // what runs as the user
	}
	// What says how agents work: they do not rewrite each other.
	for _, dir := range agentDirs(l) {
		paths = append(paths, dir.Path)
	}
	return append(paths, skillDirs(l)...)
}

// hidden is what agents neither read nor write: the journals, and files with keys.
func hidden(l *config.Loaded, stateDir string) []string {
	paths := append([]string{stateDir}, envFiles()...)
	if own := l.Config.StateDir; own != stateDir {
		paths = append(paths, own)
	}
	for _, e := range l.Config.LLMs {
		if e.APIKeyFile != "" {
			paths = append(paths, e.APIKeyFile)
		}
	}
	return paths
}

// envFiles are the environments that services of this program may have. They hold
// keys, and what is set there overrides config.toml. A config.toml beside one makes
// its directory a root.
func envFiles() []string {
	if runtime.GOOS != "linux" {
		return nil
	}
	paths := []string{systemEnvFile}
	if path, err := userEnvFile(); err == nil {
		paths = append(paths, path)
	}
	return paths
}

// reserveEnvFiles makes the environment files that are missing in a directory which a
// task may be granted: what is not there cannot be hidden, and a command could make
// one that the next start obeys. What the daemon may not make no command can.
func reserveEnvFiles(roots []string, log *slog.Logger) {
	for _, path := range envFiles() {
		dir := filepath.Dir(path)
		granted := slices.ContainsFunc(roots, func(root string) bool {
			rel, err := filepath.Rel(root, dir)
			return err == nil && filepath.IsLocal(rel)
		})
		if fi, err := os.Stat(dir); !granted || err != nil || !fi.IsDir() {
			continue
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrPermission) {
			log.Warn("the environment file of services cannot be made, and agents that are granted its directory could make it", "err", err)
		}
	}
}

// policyError is a refusal by the policy, which ends the round before a token.
type policyError struct{ error }

// FailureKind names the kind of failure in status.json.
func (policyError) FailureKind() string { return "policy" }

func (e policyError) Unwrap() error { return e.error }

// grant makes the tools of one round.
func (b *toolbox) grant(req agent.ToolRequest) (agent.Toolset, error) {
	in := req.Input
	skills := b.lib.skills.Snapshot()
	names := granted(req, skills)
	allowed, err := b.allow(in.Task, in.Dir, in.Settings, builtin.Writes(names), req.Agent.Network)
	if err != nil {
		return agent.Toolset{}, err
	}
	policy := allowed.policy
	if in.Settings.WorkDir != "" {
		if fi, err := os.Stat(policy.WorkDir); err != nil || !fi.IsDir() {
			return agent.Toolset{}, fmt.Errorf("context.json, key \"work_dir\": %s is not a directory that exists", policy.WorkDir)
		}
	}
	files := sandbox.OpenFiles(policy)
	tools, err := builtin.New(builtin.Env{
		Files:      files,
		WorkDir:    policy.WorkDir,
		WritePlan:  in.WritePlan,
		SetKeyInfo: req.SetKeyInfo,
		Delegate:   req.Delegate,
		Command:    allowed.commands,
		ResultCap:  b.config.Agent.ToolResultCap,
		Keys:       b.keys,
	}, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == skill.Name }))
	if err != nil {
		return agent.Toolset{}, errors.Join(err, files.Close())
	}
	if slices.Contains(names, skill.Name) {
		tools = append(tools, skill.Tool(skills, b.config.Agent.ToolResultCap))
	}
	slices.SortStableFunc(tools, byOrder(toolNames()))
	environment := ""
	if req.Agent.Kind == agentdef.KindCustom && in.Prepared == nil {
		environment = environmentBlock(files, policy.WorkDir, req.Model, time.Now())
	}
	return agent.Toolset{
		Set:   tool.NewSet(b.config.Agent.ToolResultCap, tools...),
		Close: files.Close,
		Exists: func(path string) (time.Time, bool) {
			fi, err := files.Stat(path)
			if err != nil {
				return time.Time{}, false
			}
			return fi.ModTime(), true
		},
		WorkDir:      policy.WorkDir,
		Facts:        b.facts(policy, names),
		Instructions: instructions(files, in.Settings.WorkDir, b.keys),
		Environment:  environment,
		Catalogue:    b.catalogue(req.Agent, names, skills),
	}, nil
}

// ownTmp tells an agent what it would not expect of a machine: what it leaves there,
// nobody else finds, not even its subagents.
const ownTmp = "Temporary directories (/tmp) are yours alone: put what others need elsewhere."

// facts are what an agent with these tools has to know about where it works.
func (b *toolbox) facts(policy sandbox.Policy, names []string) string {
	writes := builtin.Writes(names) || slices.Contains(names, builtin.ExecuteCommand)
	if b.confinement == nil || !writes || slices.Contains(policy.Write, "/tmp") {
		return ""
	}
	return ownTmp
}

// byOrder sorts tools as their names stand in order.
func byOrder(order []string) func(a, b tool.Tool) int {
	return func(a, b tool.Tool) int {
		return slices.Index(order, a.Spec().Name) - slices.Index(order, b.Spec().Name)
	}
}

// catalogue is what an agent with these tools can choose from, and the skills that
// it has from the start.
func (b *toolbox) catalogue(def agentdef.Definition, names []string, skills *skill.Snapshot) string {
	var parts []string
	if slices.Contains(names, builtin.Task) {
		parts = append(parts, agentdef.Catalogue(b.lib.agents.Snapshot().Definitions()))
	}
	if slices.Contains(names, skill.Name) {
		parts = append(parts, skill.Catalogue(skills))
	}
	preloaded, missing := skills.Preload(def.Skills, b.config.Agent.ToolResultCap)
	if len(missing) > 0 {
		b.lib.log.Warn("an agent's skills are not there", "agent", def.Name, "skills", missing)
	}
	parts = append(parts, preloaded)
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n\n")
}

// granted are the names of the tools that are asked for, less those left out.
func granted(req agent.ToolRequest, skills *skill.Snapshot) []string {
	names := req.Names
	if names == nil {
		names = toolNames()
	}
	// A session keeps the tools that it began with. At its beginning use_skill is
	// left out where there is nothing to use.
	useless := len(skills.Skills) == 0 && req.Input.Prepared == nil
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return slices.Contains(req.Without, n) || n == builtin.Task && req.Input.Spawn == nil || n == skill.Name && useless
	})
}

// keyVariables are the environment variables that hold keys, which no command sees.
func keyVariables(c *config.Config) []string {
	var names []string
	for _, e := range c.LLMs {
		if e.APIKeyEnv != "" {
			names = append(names, e.APIKeyEnv)
		}
	}
	return names
}

// maxInstructions bounds an AGENTS.md, which goes into every conversation.
const maxInstructions = 64 << 10

// instructions is the AGENTS.md of a working directory that the task names.
func instructions(files *sandbox.Files, workDir string, keys *redact.Replacer) string {
	if workDir == "" {
		return ""
	}
	f, err := files.Open(filepath.Join(workDir, "AGENTS.md"))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxInstructions))
	if err != nil {
		return ""
	}
	if len(text) == maxInstructions {
		return keys.CutEnd(string(text))
	}
	return string(text)
}
