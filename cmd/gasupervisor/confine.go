package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/confine"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/netproxy"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/tool/builtin"
)

// confinement keeps commands to their task's policy. It is nil where the
// configuration turns it off.
type confinement struct {
	sandbox *confine.Sandbox
	// links are those by which the paths of the ceiling are known, too.
	links map[string]string
	// env are variables by which toolchains are found.
	env map[string]string
	// privates holds the private directories of tasks, cache is for what they build.
	privates, cache string
	// identity is what git commits under, from the user's own configuration.
	identity string
	// limits says how limits are kept.
	limits string
	// user is whom agents act as, nil the daemon's own.
	user *sandbox.User
	// making is held while private directories are made.
	making sync.Mutex
	// network is what commands may reach where nothing narrows it.
	network config.Network
	log     *slog.Logger
}

// newConfinement reads what it needs of the system. paths are the ceiling's, before
// links in them are resolved.
func newConfinement(c *config.Config, paths []string, log *slog.Logger) (*confinement, error) {
	if c.Sandbox.Mode == config.SandboxOff {
		return nil, nil
	}
	k := &confinement{
		links:    sandbox.Links(paths...),
		env:      map[string]string{},
		privates: filepath.Join(c.StateDir, "private"),
		cache:    filepath.Join(c.StateDir, "cache"),
	}
	if !c.Sandbox.Share {
		k.cache = "" // what one builds, the other would run
	}
	conf := confine.Config{
		Limits: confine.Limits{
			Memory: int64(c.Sandbox.Memory), Processes: c.Sandbox.Processes, FileSize: int64(c.Sandbox.FileSize),
			Disk: int64(c.Sandbox.Disk), DiskReserve: int64(c.Sandbox.DiskReserve), OpenFiles: maxOpenFiles,
		},
	}
	if c.Sandbox.User != "" {
		var err error
		if k.user, err = sandbox.FindUser(c.Sandbox.User); err != nil {
			return nil, fmt.Errorf("[sandbox] user: %w", err)
		}
		conf.User = k.user
	}
	k.log, k.network = log, c.Sandbox.Network
	if _, err := k.reach(nil); err != nil {
		return nil, fmt.Errorf("[sandbox] network: %w", err)
	}
	var why string
	if conf.Cgroups, why = confine.OwnCgroups(); conf.Cgroups != nil {
		k.limits = "limits by cgroup, and watched"
	} else {
		k.limits = "limits watched (no cgroup: " + why + ")"
	}
	k.sandbox = confine.New(conf)
	if home, err := os.UserHomeDir(); err == nil {
		k.identity = gitIdentity(filepath.Join(home, ".gitconfig"), filepath.Join(home, ".config", "git", "config"))
		if c.Sandbox.Toolchains {
			k.env = sandbox.ToolchainEnv(home, os.Getenv, func(dir string) bool {
				fi, err := os.Stat(dir)
				return err == nil && fi.IsDir()
			})
		}
	}
	return k, nil
}

// maxOpenFiles is how many files a process of a command may have open: many for a
// build, few for an attack.
const maxOpenFiles = 8192

// private returns a task's private directories. Most tasks run no command: that the
// directories are there is prepare's business.
func (k *confinement) private(task string) confine.Private {
	dir := filepath.Join(k.privates, journal.Place(task))
	p := confine.Private{Home: filepath.Join(dir, "home"), Tmp: filepath.Join(dir, "tmp"), Cache: k.cache}
	if p.Cache == "" {
		p.Cache = filepath.Join(dir, "cache")
	}
	return p
}

// prepare makes what is missing of a task's private directories.
func (k *confinement) prepare(p confine.Private) error {
	for _, d := range []string{p.Home, p.Tmp, p.Cache} {
		if err := k.makePrivate(d); err != nil {
			return fmt.Errorf("make the task's private directories: %w", err)
		}
	}
	// In HOME, where a command may have put something else: that is its own business.
	if run := filepath.Join(p.Home, ".run"); os.Mkdir(run, 0o700) == nil && k.user != nil {
		if err := k.user.Give(run); err != nil {
			return fmt.Errorf("make the task's private directories: %w", err)
		}
	}
	return k.gitConfig(filepath.Join(p.Home, ".gitconfig"))
}

// gitConfig writes what git needs to commit. It is made once: what a command makes
// of it is the task's own business.
func (k *confinement) gitConfig(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the task's git configuration: %w", err)
	}
	// Other users' checkouts are safe where nothing but the granted paths is there.
	_, err = f.WriteString(k.identity + "[safe]\n\tdirectory = *\n")
	if k.user != nil {
		err = errors.Join(err, f.Chown(k.user.UID, k.user.GID))
	}
	return errors.Join(err, f.Close())
}

// gitIdentity returns the [user] section of the first of the files that has one,
// with name and email alone, or a section that says who it was.
func gitIdentity(files ...string) string {
	quote := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
	unquote := strings.NewReplacer(`\"`, `"`, `\\`, `\`, `"`, "").Replace
	name, email := "gasupervisor agent", "agent@localhost"
	for _, path := range files {
		found := map[string]string{}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		section := ""
		scan := bufio.NewScanner(f)
		for scan.Scan() {
			line := strings.TrimSpace(scan.Text())
			if strings.HasPrefix(line, "[") {
				section = strings.ToLower(strings.Trim(line, "[] \t"))
			} else if key, value, ok := strings.Cut(line, "="); ok && section == "user" {
				found[strings.ToLower(strings.TrimSpace(key))] = unquote(strings.TrimSpace(value))
			}
		}
		f.Close()
		if found["name"] != "" && found["email"] != "" {
			name, email = found["name"], found["email"]
			break
		}
	}
	return fmt.Sprintf("[user]\n\tname = %s\n\temail = %s\n", quote(name), quote(email))
}

// job is what confines the commands of one round. paths are those that the task
// named itself.
func (k *confinement) job(policy sandbox.Policy, p confine.Private, paths []string) confine.Job {
	links := sandbox.Links(paths...)
	for link, target := range k.links {
		links[link] = target
	}
	return confine.Job{
		Policy: policy, Private: p, Links: links, Env: k.env,
		Prepare:   func() error { return k.prepare(p) },
		Checkouts: func() confine.Extras { return confine.Checkouts(policy) },
	}
}

// allowed is what one round may do.
type allowed struct {
	policy   sandbox.Policy
	commands builtin.CommandConfig
	// job is what confines its commands, where they are confined.
	job confine.Job
}

// allow works out what a round may do, from the configuration and the task's
// context.json. network narrows what its commands reach, nil does not. A refusal is
// a policyError.
func (b *toolbox) allow(task, dir string, s round.Settings, writes bool, network []string) (allowed, error) {
	a := allowed{commands: builtin.CommandConfig{
		Env:            command.Environ(b.environ, b.config.Sandbox.Env, keyVariables(b.config)),
		DefaultTimeout: b.config.Agent.CommandTimeout,
		MaxTimeout:     b.config.Agent.CommandTimeoutMax,
		Limits:         command.Limits{Memory: int64(b.config.Sandbox.Memory), Processes: b.config.Sandbox.Processes},
	}}
	ask := sandbox.Ask{
		TaskDir: dir, WorkDir: s.WorkDir, InputFiles: s.InputFiles, OutputFiles: s.OutputFiles, Writes: writes,
		Named: map[string]string{taskdir.PlanFile: filepath.Join(dir, taskdir.PlanFile)},
	}
	for _, parent := range s.Parents {
		ask.Parents = append(ask.Parents, taskdir.TaskPath(b.config.TempDir, parent))
	}
	var private confine.Private
	if b.confinement != nil {
		private = b.confinement.private(task)
		ask.Places = b.confinement.sandbox.Places(private)
	}
	var err error
	real := ask.Resolve()
	if a.policy, err = sandbox.Build(b.ceiling, real); err != nil {
		return a, policyError{err}
	}
	if err := b.confinement.admit(real, private); err != nil {
		return a, err
	}
	if b.confinement != nil {
		a.job = b.confinement.job(a.policy, private, ask.Paths())
		narrow := s.Networks
		if network != nil {
			narrow = append(slices.Clone(narrow), network)
		}
		if a.job.Reach, err = b.confinement.reach(narrow); err != nil {
			return a, fmt.Errorf("the agent's network: %w", err)
		}
		a.commands.Confine = b.confinement.sandbox.Confine(a.job)
	}
	return a, nil
}

// logLevel says how far commands are confined.
func (k *confinement) logLevel(log *slog.Logger) {
	if k == nil {
		return // the start has warned of that
	}
	switch st := k.sandbox.Status(); {
	case st.Level == confine.None:
		log.Error("commands of agents cannot be confined here, so they are refused", "why", st.Why, "do", st.Do)
	case st.Why != "":
		log.Warn("commands of agents are confined in part", "level", st.String(), "do", st.Do)
	default:
		user := "the daemon's"
		if k.user != nil {
			user = k.user.Name
		}
		log.Info("commands of agents are confined", "level", st.String(), "user", user)
	}
}

// reach works out what commands reach: what the configuration allows, narrowed by
// lists of "host:port" patterns, each of which has to have it.
func (k *confinement) reach(narrow [][]string) (confine.Reach, error) {
	lists := slices.Clone(narrow)
	if !k.network.All {
		lists = append(lists, k.network.Hosts)
	}
	if len(lists) == 0 {
		return confine.Reach{Network: confine.NetworkAll}, nil
	}
	var rules netproxy.Rules
	for i, list := range lists {
		if len(list) == 0 {
			return confine.Reach{Network: confine.NetworkOff}, nil
		}
		r, err := netproxy.Parse(list)
		if err != nil {
			return confine.Reach{}, err
		}
		if rules = r.Within(rules); i == 0 {
			rules = r
		}
	}
	proxy := netproxy.New(netproxy.Config{Rules: rules, Log: k.log})
	return confine.Reach{
		Network: confine.NetworkProxy, NoProxy: rules.Direct(),
		Serve: func(l net.Listener) func() { return proxy.Start(l) },
	}, nil
}

// sweep deletes the private directories of tasks that are gone: those without a
// journal.
func (k *confinement) sweep(stateDir string) error {
	if k == nil {
		return nil
	}
	entries, err := os.ReadDir(k.privates)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(stateDir, e.Name())); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, removeTree(filepath.Join(k.privates, e.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}

// removeTree removes what agents left, also directories that they made read-only.
func removeTree(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			root.Chmod(path, 0o700)
		}
		return nil
	})
	root.Close()
	return os.RemoveAll(dir)
}
