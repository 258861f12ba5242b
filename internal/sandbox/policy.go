// Package sandbox decides what a task may read and write, and enforces it for
// the file tools, which run inside the daemon.
//
// Deciding is pure. A Ceiling is what the operator of the daemon allows any task;
// an Ask is what one task wants, from its context.json and its agent; Build
// compares the two and gives a Policy or a refusal that names the key which asks
// for too much. An ask only ever selects within the ceiling. Policy.Check then
// answers for one path. None of this touches the disk: paths have to be absolute
// and free of links, which Ceiling.Resolve and Ask.Resolve see to.
//
// Enforcing is Files. Names are looked up without trusting that what a path meant
// a moment ago is what it means now: every directory on the way from a granted
// one is opened by handle and compared with what was looked at, so that a
// directory swapped for a link in mid-call leads to an error and never outside.
//
// Three things are refused whatever was granted: what is hidden (the daemon's
// configuration and state) and the inside of processes, writing what is protected (its agents, skills and
// program, and the hooks and config of git checkouts, which run as the user the
// next time someone calls git), and writing the protocol's files in task
// directories, with which one would command the daemon.
//
// Commands are run by sandbox/command.
package sandbox

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Ceiling is what tasks may be granted at most. It comes from the configuration
// and is the same for all tasks. All paths are absolute and free of links; see
// Resolve.
type Ceiling struct {
	// Roots are the directories within which a task may choose its paths.
	Roots []string
	// Read is what every task may read, from [sandbox] read.
	Read []string
	// System is what every task may read because programs need it: see
	// SystemReads and ToolchainReads.
	System []string
	// Protected may be read where a grant covers it and is never written.
	Protected []string
	// Hidden is neither read nor written.
	Hidden []string
	// TempDir is the directory of the task directories.
	TempDir string
	// Share lets every task that writes write all of TempDir, which is then its
	// working directory. Without it both are the task's own directory.
	Share bool
	// Unrestricted allows all that the daemon's user can do, but for what is
	// refused whatever was granted.
	Unrestricted bool
	// User, where not nil, is whom file tools act as.
	User *User
	// Protocol reports whether name, in a task directory, belongs to the file
	// protocol and is not for file tools to write. Nil: none does.
	Protocol func(name string) bool
}

// Ask is what one task wants. All paths are absolute and free of links; see
// Resolve.
type Ask struct {
	// TaskDir is the task's directory.
	TaskDir string
	// Parents are the directories of the tasks that sent this one out. They may be
	// read, and what lies in them may be asked for; they themselves are not to be
	// written, since that would command their tasks.
	Parents []string
	// WorkDir is context.json's work_dir, "" where it has none.
	WorkDir string
	// InputFiles and OutputFiles are context.json's, name to path.
	InputFiles, OutputFiles map[string]string
	// Writes is whether the agent has a tool that writes; without one it is
	// granted no writing.
	Writes bool
	// Named gives relative paths that mean one file wherever the working
	// directory is.
	Named map[string]string
	// Places gives directories that commands know by another path than the daemon:
	// the task's own, such as its /tmp. They are granted, also where they lie in
	// what is hidden, and file tools know them by the commands' paths.
	Places map[string]string
}

// Access is what is to be done with a path.
type Access string

// The two kinds of access. Who may write may also read.
const (
	Read  Access = "read"
	Write Access = "write"
)

// Policy is what one task may do. It is a value that does not change; Check may
// be called by many goroutines at once.
type Policy struct {
	// WorkDir is where relative paths start and commands run.
	WorkDir string
	// TaskDir is the task's directory.
	TaskDir string
	// Read and Write are the granted directories and files.
	Read, Write []string
	// Protected and Hidden are exceptions from the grants: see Ceiling.
	Protected, Hidden []string
	// Fence, where not "", is a directory into which no grant from above it
	// reaches: the other tasks' directories, where tasks do not share them.
	Fence string
	// Unrestricted makes the grants irrelevant; the exceptions stand.
	Unrestricted bool
	// User is whom file tools act as: see Ceiling.
	User *User

	tempDir  string
	protocol func(name string) bool
	named    map[string]string
	ceiling  Ceiling
	places   map[string]string
	parents  []string
}

// RefusalError says which path was refused and what a person can do about it.
type RefusalError struct {
	// Op is what was to be done: an Access.
	Op Access
	// Path is the refused path.
	Path string
	// Key is the key of context.json that asked for it, "" where a tool did.
	Key string
	// Why says what stands against it.
	Why string
	// Hint names the key that would allow it, "" where none does.
	Hint string
}

func (e *RefusalError) Error() string {
	s := fmt.Sprintf("%s %s is refused: %s", e.Op, e.Path, e.Why)
	if e.Key != "" {
		s = fmt.Sprintf("%s in context.json is refused: %s: %s", e.Key, e.Path, e.Why)
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Build selects what a asks for within c. A *RefusalError names the first key,
// in the order of their names, that asks for more. Build is pure.
func Build(c Ceiling, a Ask) (Policy, error) {
	if !filepath.IsAbs(a.TaskDir) || !filepath.IsAbs(c.TempDir) {
		return Policy{}, fmt.Errorf("build policy: task directory %q and temp directory %q must be absolute", a.TaskDir, c.TempDir)
	}
	p := Policy{
		TaskDir:      filepath.Clean(a.TaskDir),
		Protected:    cleaned(c.Protected),
		Hidden:       cleaned(c.Hidden),
		Unrestricted: c.Unrestricted,
		User:         c.User,
		tempDir:      filepath.Clean(c.TempDir),
		protocol:     c.Protocol,
		named:        maps.Clone(a.Named),
		ceiling:      c,
		places:       maps.Clone(a.Places),
	}
	p.WorkDir = p.tempDir
	if !c.Share {
		p.WorkDir, p.Fence = p.TaskDir, p.tempDir
	}

	p.parents = cleaned(a.Parents)
	read := slices.Concat(c.System, c.Read, p.parents, []string{p.TaskDir, p.WorkDir})
	write := []string{p.TaskDir, p.WorkDir}
	if a.WorkDir != "" {
		if err := p.within(c, Write, "work_dir", a.WorkDir); err != nil {
			return Policy{}, err
		}
		p.WorkDir = filepath.Clean(a.WorkDir)
		read, write = append(read, p.WorkDir), append(write, p.WorkDir)
	}
	for _, name := range slices.Sorted(maps.Keys(a.InputFiles)) {
		path := a.InputFiles[name]
		if err := p.within(c, Read, fmt.Sprintf("input_files %q", name), path); err != nil {
			return Policy{}, err
		}
		read = append(read, path)
	}
	for _, name := range slices.Sorted(maps.Keys(a.OutputFiles)) {
		path := a.OutputFiles[name]
		if err := p.within(c, Write, fmt.Sprintf("output_files %q", name), path); err != nil {
			return Policy{}, err
		}
		// A file is often made by way of a temporary one beside it.
		if parent := filepath.Dir(path); p.within(c, Write, "", parent) == nil {
			path = parent
		}
		write = append(write, path)
	}
	p.Read = cleaned(slices.Concat(read, write))
	if a.Writes {
		p.Write = cleaned(write)
	}
	return p, nil
}

// Grantable reports whether context.json could have named a directory for
// writing. It is pure.
func (p Policy) Grantable(path string) bool { return p.within(p.ceiling, Write, "", path) == nil }

// place returns the directory of the task's own that holds path, "" where none
// does.
func (p Policy) place(path string) string {
	for _, dir := range p.places {
		if under(path, dir) {
			return dir
		}
	}
	return ""
}

// within refuses a path of context.json that the ceiling does not cover.
func (p Policy) within(c Ceiling, access Access, key, path string) error {
	refuse := func(why, hint string) error {
		return &RefusalError{Op: access, Path: path, Key: key, Why: why, Hint: hint}
	}
	if !filepath.IsAbs(path) {
		return refuse("it is not an absolute path", "write the whole path")
	}
	path = filepath.Clean(path)
	if r := p.except(path, access); r != nil {
		r.Key = key
		return r
	}
	if access == Write && inGit(path) {
		return refuse("it lies in a .git directory, where git keeps what it runs and obeys", "name the checkout itself, in which git may be used")
	}
	if c.Unrestricted || under(path, p.TaskDir) || underAny(path, p.parents) && (access == Read || !slices.Contains(p.parents, path)) {
		return nil
	}
	// An agent can write its own context.json, so that what this names is no proof
	// that a person wanted it.
	if under(path, p.tempDir) && !c.Share && (access == Write || !underAny(path, c.Read)) {
		return refuse("it belongs to other tasks, and tasks do not share their directories",
			`share = true in [sandbox] of config.toml would allow it`)
	}
	ceiling := append(slices.Clone(c.Roots), p.tempDir)
	hint := "a person can add its directory to roots in [sandbox] of config.toml"
	if access == Read {
		ceiling = slices.Concat(ceiling, c.Read, c.System)
		hint = "a person can add its directory to roots, or to read, in [sandbox] of config.toml"
	}
	if !underAny(path, ceiling) {
		return refuse("it is outside of the directories that tasks may use", hint)
	}
	return nil
}

// Check returns nil where the task may do that with the path, which has to be
// absolute and free of links; else a *RefusalError. It is pure.
func (p Policy) Check(path string, access Access) error {
	if !filepath.IsAbs(path) {
		return &RefusalError{Op: access, Path: path, Why: "it is not an absolute path"}
	}
	path = filepath.Clean(path)
	if p.place(path) != "" {
		return nil
	}
	if r := p.except(path, access); r != nil {
		return r
	}
	if p.Unrestricted {
		return nil
	}
	if _, ok := p.grant(path, access); ok {
		return nil
	}
	e := &RefusalError{Op: access, Path: path}
	switch {
	case access == Write && len(p.Write) == 0:
		e.Why = "this agent has no tools that write, so it may write nothing"
	case access == Write:
		e.Why = "it is outside of what this task may write"
		e.Hint = "context.json's work_dir or output_files can name it, within roots in [sandbox] of config.toml"
	default:
		e.Why = "it is outside of what this task may read"
		e.Hint = "context.json's input_files or work_dir can name it, within roots in [sandbox] of config.toml, or a person can add it to read there"
	}
	return e
}

// except refuses what is refused whatever was granted. path is clean.
func (p Policy) except(path string, access Access) *RefusalError {
	e := &RefusalError{Op: access, Path: path}
	if underAny(path, p.Hidden) {
		e.Why = "it belongs to the daemon"
		return e
	}
	if ofProcess(path) {
		e.Why = "it shows the inside of a process, the daemon's among them"
		return e
	}
	if access != Write {
		return nil
	}
	if underAny(path, p.Protected) {
		e.Why = "it belongs to the daemon and may be read only"
		return e
	}
	if gitControl(path) {
		e.Why = "what git runs or obeys in a checkout may be read only"
		return e
	}
	if name, ok := p.inTaskDir(path); ok && p.protocol != nil && p.protocol(name) {
		e.Why = "it is a file of the task protocol, which the daemon and the supervisor write"
		return e
	}
	return nil
}

// inTaskDir returns the name, directly inside a task directory, that path is or
// lies under.
func (p Policy) inTaskDir(path string) (string, bool) {
	if !under(path, p.tempDir) {
		return "", false
	}
	rel, err := filepath.Rel(p.tempDir, path)
	if err != nil {
		return "", false
	}
	parts := strings.Split(rel, string(filepath.Separator))
	if len(parts) < 2 {
		return "", false
	}
	return parts[1], true
}

// grant returns the outermost granted path that covers path.
func (p Policy) grant(path string, access Access) (string, bool) {
	if dir := p.place(path); dir != "" {
		return dir, true
	}
	best, found := "", false
	consider := func(grants []string) {
		for _, g := range grants {
			if !under(path, g) || found && len(g) >= len(best) {
				continue
			}
			if p.Fence != "" && under(path, p.Fence) && !under(g, p.Fence) {
				continue
			}
			best, found = g, true
		}
	}
	consider(p.Write)
	if access == Read {
		consider(p.Read)
	}
	return best, found
}

// ofProcess reports whether path is what the kernel shows of a process: its
// environment may hold keys, and its descriptors lead anywhere.
func ofProcess(path string) bool {
	parts := strings.Split(path, string(filepath.Separator))
	if len(parts) < 3 || parts[0] != "" || parts[1] != "proc" {
		return false
	}
	p := parts[2]
	return p == "self" || p == "thread-self" || strings.Trim(p, "0123456789") == ""
}

// gitControl reports whether writing path would change what git runs or obeys:
// hooks and config of a repository or of its submodules and worktrees, or the
// .git file that says where the repository is.
func gitControl(path string) bool {
	parts := strings.Split(path, string(filepath.Separator))
	at := slices.IndexFunc(parts, func(s string) bool { return strings.EqualFold(s, ".git") })
	if at < 0 {
		return false
	}
	rest := parts[at+1:]
	if len(rest) == 0 {
		return true
	}
	control := func(s string) bool {
		switch strings.ToLower(s) {
		case "hooks", "config", "config.worktree",
			"commondir", "gitdir": // these say that all of that is elsewhere
			return true
		}
		return false
	}
	switch strings.ToLower(rest[0]) {
	case "modules", "worktrees":
		return slices.ContainsFunc(rest[1:], control)
	}
	return control(rest[0])
}

// inGit reports whether path is or lies in a .git directory. Nothing in one is granted
// by its own name: what leads git elsewhere is kept only where the whole is seen.
func inGit(path string) bool {
	return slices.ContainsFunc(strings.Split(path, string(filepath.Separator)), func(s string) bool { return strings.EqualFold(s, ".git") })
}

// under reports whether path is dir or lies in it. Both are clean; the prefix is
// compared by whole elements.
func under(path, dir string) bool {
	if path == dir {
		return true
	}
	if !strings.HasSuffix(dir, string(filepath.Separator)) {
		dir += string(filepath.Separator)
	}
	return strings.HasPrefix(path, dir)
}

func underAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return under(path, filepath.Clean(d)) })
}

// cleaned returns the absolute paths among paths, clean, sorted, each once.
func cleaned(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		if filepath.IsAbs(p) {
			out = append(out, filepath.Clean(p))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
