package agentdef

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/filecache"
	"github.com/gasupervisor/gasupervisor/internal/frontmatter"
)

// Dir is a directory of agent files: those directly in it whose names end in .md.
// It may be missing.
type Dir struct {
	Path string
	// SessionTools gives agents without a tools key those of the session, as
	// Claude Code does, instead of the read-only ones.
	SessionTools bool
}

// Sources say where agents come from.
type Sources struct {
	// General is the agent for tasks that name none.
	General Definition
	// Dirs are read in this order: of two agents with one name the first stands.
	Dirs []Dir
	// Options are for the files; SessionTools is the Dir's.
	Options Options
}

// Agent is a Definition that was read from a file.
type Agent struct {
	Definition
	Warnings []Warning
	// SHA256 of the file, in hexadecimal digits.
	SHA256 string
}

// Snapshot is what there was when the directories were read. It does not change.
type Snapshot struct {
	Registry *Registry
	// Agents are those of files, by name.
	Agents []Agent
	// Broken are the files that are not loaded, by path.
	Broken []*FileError
	// LoadedAt is when reading began.
	LoadedAt time.Time
}

// Lookup finds an agent by name: see Registry.Lookup.
func (s *Snapshot) Lookup(name string) (Definition, error) { return s.Registry.Lookup(name) }

// Load reads all agent files. It blocks for the disk only. What is wrong with a
// file is in the Snapshot.
func (s Sources) Load() *Snapshot {
	out := &Snapshot{LoadedAt: time.Now()}
	defs := map[string]Definition{s.General.Name: s.General.Clone()}
	broken := map[string]error{}
	from := map[string]string{}
	for _, dir := range s.Dirs {
		opts := s.Options
		opts.SessionTools = dir.SessionTools
		paths, err := dir.files()
		if err != nil {
			out.Broken = append(out.Broken, &FileError{Path: dir.Path, Problem: "the directory cannot be read: " + err.Error(), Err: err})
			continue
		}
		for _, path := range paths {
			a, err := loadFile(path, opts)
			if errors.Is(err, errNoAgent) {
				continue
			}
			if other, taken := from[a.Name]; err == nil && taken {
				if filepath.Dir(other) != filepath.Dir(path) {
					err = &FileError{Path: path, Problem: fmt.Sprintf("agent %q: %s comes first", a.Name, other), Hint: "rename one of them if both are wanted"}
				} else {
					err = &FileError{Path: path, Problem: fmt.Sprintf("agent %q: %s has that name already", a.Name, other), Hint: "give one of them another name"}
				}
			}
			var bad *FileError
			if errors.As(err, &bad) {
				out.Broken = append(out.Broken, bad)
				broken[strings.TrimSuffix(filepath.Base(path), ".md")] = bad
				continue
			}
			if a.Name == s.General.Name {
				a.Warnings = append(a.Warnings, Warning{Text: "takes the place of the built-in agent, for all tasks that name none"})
			}
			from[a.Name], defs[a.Name] = path, a.Definition
			out.Agents = append(out.Agents, a)
		}
	}
	slices.SortFunc(out.Agents, func(a, b Agent) int { return strings.Compare(a.Name, b.Name) })
	out.Registry = &Registry{defs: defs, broken: broken}
	return out
}

// errNoAgent is a file among agent files that is none.
var errNoAgent = errors.New("no agent file")

// loadFile reads one file. The error is errNoAgent or a *FileError.
func loadFile(path string, o Options) (Agent, error) {
	data, err := frontmatter.ReadFile(path)
	if err != nil {
		return Agent{}, &FileError{Path: path, Problem: err.Error(), Err: err}
	}
	if base := strings.ToLower(filepath.Base(path)); base == "readme.md" && !strings.HasPrefix(strings.TrimPrefix(string(data), "\ufeff"), "---") {
		return Agent{}, errNoAgent
	}
	d, warnings, err := ParseFile(path, data, o)
	if err != nil {
		return Agent{}, err
	}
	sum := sha256.Sum256(data)
	return Agent{Definition: d, Warnings: warnings, SHA256: hex.EncodeToString(sum[:])}, nil
}

// files are the paths of the directory's agent files, sorted; links count.
func (d Dir) files() ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && !strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".md") {
			paths = append(paths, filepath.Join(d.Path, name))
		}
	}
	return paths, nil
}

// paths are all directories and files that agents are made of.
func (s Sources) paths() []string {
	var paths []string
	for _, dir := range s.Dirs {
		files, _ := dir.files() // what is wrong shows when they are read
		paths = append(append(paths, dir.Path), files...)
	}
	return paths
}

// Library is the agents of files as they are now. It may be used by many goroutines
// at once.
type Library struct {
	cache *filecache.Cache[*Snapshot]
}

// NewLibrary reads the agents. changed, where it is not nil, is called whenever
// they are found to have changed, by the goroutine whose Lookup found it; before is
// nil the first time. It must not call the Library.
func NewLibrary(s Sources, changed func(before, now *Snapshot)) (*Library, error) {
	if err := s.General.Validate(); err != nil {
		return nil, err
	}
	if changed == nil {
		changed = func(before, now *Snapshot) {}
	}
	cache := filecache.New(s.paths, s.Load, func(before, now *Snapshot) {
		if len(Diff(before.Record(), now.Record())) > 0 {
			changed(before, now)
		}
	})
	l := &Library{cache}
	changed(nil, l.Snapshot())
	return l, nil
}

// Lookup finds an agent by name as the files are now: see Registry.Lookup. It blocks
// for the disk only.
func (l *Library) Lookup(name string) (Definition, error) { return l.Snapshot().Lookup(name) }

// Snapshot returns what there is now.
func (l *Library) Snapshot() *Snapshot { return l.cache.Get() }

// Record is what is kept of a Snapshot to say later what changed.
type Record struct {
	LoadedAt time.Time     `json:"loaded_at"`
	Agents   []RecordAgent `json:"agents"`
	Broken   []RecordFile  `json:"broken"`
}

// RecordAgent is an agent in a Record.
type RecordAgent struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	SHA256 string `json:"sha256"`
}

// RecordFile is a file that is not loaded in a Record.
type RecordFile struct {
	Path    string `json:"path"`
	Problem string `json:"problem"`
}

// Record returns what is to be kept of s.
func (s *Snapshot) Record() Record {
	r := Record{LoadedAt: s.LoadedAt, Agents: []RecordAgent{}, Broken: []RecordFile{}}
	for _, a := range s.Agents {
		r.Agents = append(r.Agents, RecordAgent{a.Name, a.Source, a.SHA256})
	}
	for _, b := range s.Broken {
		r.Broken = append(r.Broken, RecordFile{b.Path, b.Error()})
	}
	return r
}

// Change is one difference between two Records.
type Change struct {
	// Kind is "added", "changed", "removed" or "broken".
	Kind string `json:"kind"`
	// Agent is the name; "" for a broken file.
	Agent string `json:"agent,omitempty"`
	Path  string `json:"path"`
	// Problem is what is wrong with a broken file.
	Problem string `json:"problem,omitempty"`
}

// Diff returns what is different in now, by agent, then what is newly broken.
func Diff(before, now Record) []Change {
	var out []Change
	old := map[string]RecordAgent{}
	for _, a := range before.Agents {
		old[a.Name] = a
	}
	for _, a := range now.Agents {
		b, ok := old[a.Name]
		switch {
		case !ok:
			out = append(out, Change{Kind: "added", Agent: a.Name, Path: a.Source})
		case a != b:
			out = append(out, Change{Kind: "changed", Agent: a.Name, Path: a.Source})
		}
		delete(old, a.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		out = append(out, Change{Kind: "removed", Agent: name, Path: old[name].Source})
	}
	for _, b := range now.Broken {
		if !slices.Contains(before.Broken, b) {
			out = append(out, Change{Kind: "broken", Path: b.Path, Problem: b.Problem})
		}
	}
	return out
}
