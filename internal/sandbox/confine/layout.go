package confine

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
)

// How a path of a layout is there.
type How string

// The ways to be there.
const (
	// Read: granted for reading and running.
	Read How = "read"
	// Write: granted for writing, too.
	Write How = "write"
	// Keep: read-only inside of what may be written.
	Keep How = "keep"
	// Hide: covered by something empty, inside of what is granted.
	Hide How = "hide"
	// Pin: as the directory around it, but not to be moved or removed, because a
	// Keep or a Hide is further down.
	Pin How = "pin"
)

// Mount is one path in the root of a command.
type Mount struct {
	Path string `json:"path"`
	How  How    `json:"how"`
	// From is the path outside where it is another one.
	From string `json:"from,omitempty"`
	// Dir says whether it is a directory.
	Dir bool `json:"dir,omitempty"`
}

// Source is the path outside.
func (m Mount) Source() string { return cmp.Or(m.From, m.Path) }

// Kind is what stands at a path.
type Kind int

// The kinds. Whatever is neither a directory nor missing is a file.
const (
	Missing Kind = iota
	File
	Directory
)

// Private are directories of the task's own, outside of what its policy names.
type Private struct {
	// Home and Tmp are for the task alone, Cache is shared or not as the caller
	// decides.
	Home, Tmp, Cache string
}

// Where a command finds its private directories. They lie where no system has
// anything, so that no grant comes in the way; /tmp is the exception that
// programs insist on.
const (
	insideHome  = "/agent/home"
	insideCache = "/agent/cache"
	insideTmp   = "/tmp"
	// insteadOfTmp is used where /tmp itself is granted.
	insteadOfTmp = "/agent/tmp"
)

// Extras are what a look at the disk adds to a policy.
type Extras struct {
	// Keep are paths that may not be written whatever is granted: git's controls.
	Keep []string
	// Pin are directories that may not be moved, though all in them may change.
	Pin []string
	// Write are paths granted because one that the policy grants is useless
	// without: the repository of a git worktree.
	Write []string
	// Read is the same for reading.
	Read []string
	// Unwanted are files that do not exist and would undo what is kept: whatever
	// made them, they are removed when a command is over.
	Unwanted []string
	// Truncated says that there was too much to look through.
	Truncated bool
}

// Layout is the root directory of a command.
type Layout struct {
	// Mounts are in the order in which they are made: outer ones first.
	Mounts []Mount `json:"mounts"`
	// Placeholders are protected paths that do not exist and lie in what may be
	// written, so that a command could make them. They have to be made, as empty
	// directories, before they can be kept.
	Placeholders []string `json:"placeholders,omitempty"`
	// Tmp is the directory for TMPDIR, inside.
	Tmp string `json:"tmp"`
}

// builder makes a layout.
type builder struct {
	policy sandbox.Policy
	look   func(string) Kind
	at     map[string]Mount
}

// NewLayout lays out what p grants. look says what stands at a path, links not
// followed, and is the only thing asked about the disk.
func NewLayout(p sandbox.Policy, private Private, extra Extras, look func(string) Kind) (Layout, error) {
	b := &builder{policy: p, look: look, at: map[string]Mount{}}
	if err := b.grants(slices.Concat(p.Write, extra.Write), slices.Concat(p.Read, extra.Read)); err != nil {
		return Layout{}, err
	}
	var l Layout
	l.Tmp = insideTmp
	if b.governs(insideTmp, Read) || b.governs(insideTmp, Write) {
		l.Tmp = insteadOfTmp
	}
	b.fence()
	b.hidden()
	for _, k := range cleaned(slices.Concat(p.Protected, extra.Keep)) {
		if !b.governs(k, Write) || covered(k, p.Hidden) {
			continue
		}
		if look(k) == Missing {
			l.Placeholders = append(l.Placeholders, k)
		}
		b.put(k, Keep, look(k) != File)
	}
	// The directory of the tasks, by whose path the daemon knows them, is pinned, too.
	for _, path := range cleaned(append(slices.Clone(extra.Pin), filepath.Dir(p.TaskDir))) {
		if b.governs(path, Write) && !covered(path, p.Hidden) && look(path) == Directory {
			b.pin(path)
		}
	}
	b.pins()
	for path, from := range map[string]string{insideHome: private.Home, l.Tmp: private.Tmp, insideCache: private.Cache} {
		if from != "" {
			b.at[path] = Mount{Path: path, How: Write, From: from, Dir: true}
		}
	}
	l.Mounts = slices.SortedFunc(maps.Values(b.at), func(a, c Mount) int { return strings.Compare(a.Path+"/", c.Path+"/") })
	slices.Sort(l.Placeholders)
	return l, nil
}

// grants enters what is granted and not granted by something around it already.
func (b *builder) grants(write, read []string) error {
	enter := func(paths []string, how How) error {
		for _, path := range cleaned(paths) {
			if err := possible(path); err != nil {
				return err
			}
			if covered(path, b.policy.Hidden) || b.look(path) == Missing {
				continue
			}
			as := how
			if as == Write && covered(path, b.policy.Protected) {
				as = Read
			}
			if around, ok := b.around(path); ok && (around == Write || around == as) {
				continue
			}
			b.put(path, as, b.look(path) == Directory)
		}
		return nil
	}
	// What may be written first, since that may also be read.
	if err := enter(write, Write); err != nil {
		return err
	}
	return enter(read, Read)
}

// around returns how the innermost entry at or around path has it, the fence
// taken into account.
func (b *builder) around(path string) (How, bool) {
	for dir := path; ; dir = filepath.Dir(dir) {
		if m, ok := b.at[dir]; ok && m.How != Pin {
			return m.How, true
		}
		if dir == b.policy.Fence || dir == filepath.Dir(dir) {
			return "", false
		}
	}
}

// governs reports whether the innermost entry at or around path is of that kind.
func (b *builder) governs(path string, how How) bool {
	got, ok := b.around(path)
	return ok && got == how
}

func (b *builder) put(path string, how How, dir bool) {
	b.at[path] = Mount{Path: path, How: how, Dir: dir}
}

// fence covers the directory into which no grant from above reaches.
func (b *builder) fence() {
	f := b.policy.Fence
	if f == "" {
		return
	}
	if _, ok := b.at[f]; ok {
		return
	}
	for dir := filepath.Dir(f); ; dir = filepath.Dir(dir) {
		if _, ok := b.at[dir]; ok {
			b.put(f, Hide, true)
			return
		}
		if dir == filepath.Dir(dir) {
			return
		}
	}
}

func (b *builder) hidden() {
	for _, h := range cleaned(b.policy.Hidden) {
		if how, ok := b.around(h); ok && how != Hide && b.look(h) != Missing {
			b.put(h, Hide, b.look(h) == Directory)
		}
	}
}

// pins keeps the directories between what may be written and what is kept or
// hidden in it from being moved away with it, which would make room for another.
func (b *builder) pins() {
	for path, m := range maps.Clone(b.at) {
		if m.How == Keep || m.How == Hide {
			b.pin(filepath.Dir(path))
		}
	}
}

// pin pins path and what is around it, up to what is granted.
func (b *builder) pin(path string) {
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, ok := b.at[dir]; ok {
			return
		}
		if !b.governs(dir, Write) {
			return
		}
		b.put(dir, Pin, true)
	}
}

// possible refuses grants that a root of granted paths cannot hold.
func possible(path string) error {
	if path == "/" {
		return fmt.Errorf("the whole file system is granted, and commands cannot be kept to that: name the directories that are needed, in roots, read or work_dir")
	}
	for _, own := range []string{"/proc", "/dev", "/agent"} {
		if under(path, own) {
			return fmt.Errorf("%s is granted, and commands have a %s of their own: take it out of roots, read or work_dir", path, own)
		}
	}
	return nil
}

// covered reports whether path is one of dirs or lies in one.
func covered(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return under(path, filepath.Clean(d)) })
}

// under reports whether path is dir or lies in it; both are clean.
func under(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// cleaned returns paths clean, outer ones first, each once.
func cleaned(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		if filepath.IsAbs(p) {
			out = append(out, filepath.Clean(p))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a+"/", b+"/") })
	return slices.Compact(out)
}
