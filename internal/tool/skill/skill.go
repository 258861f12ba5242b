// Package skill finds skills and gives agents the tool that reads one. A skill is
// instructions for one kind of work, maybe with scripts and texts beside them, in
// the Agent Skills format: a directory with a SKILL.md, which begins with a YAML
// block that holds name and description.
//
// An agent is told the name and description of every skill from the start, and
// reads a skill with use_skill once it needs it. What a skill's directory holds
// besides is named in the answer, for the agent to read as it reads other files.
package skill

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/gasupervisor/gasupervisor/internal/filecache"
	"github.com/gasupervisor/gasupervisor/internal/frontmatter"
)

// Bounds of what is shown of skills.
const (
	maxName      = 64
	maxListed    = 100 // files of one skill
	maxListDepth = 4
)

// file is what a directory has to hold to be a skill.
const file = "SKILL.md"

// Skill is one skill.
type Skill struct {
	Name        string
	Description string
	// Dir is the absolute path of its directory.
	Dir string
	// Warnings say what is not as the format wants it.
	Warnings []string
}

// Path returns the path of its SKILL.md.
func (s Skill) Path() string { return filepath.Join(s.Dir, file) }

// FileError is a directory that should be a skill and is not one.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// Snapshot is the skills that there were when the directories were read. It does
// not change.
type Snapshot struct {
	// Skills are sorted by name.
	Skills []Skill
	// Broken are the directories that could not be read as skills, by path.
	Broken []*FileError
}

// Find returns the skill of that name.
func (s *Snapshot) Find(name string) (Skill, bool) {
	i := slices.IndexFunc(s.Skills, func(k Skill) bool { return k.Name == name })
	if i < 0 {
		return Skill{}, false
	}
	return s.Skills[i], true
}

// Names returns the names of all skills, sorted.
func (s *Snapshot) Names() []string {
	names := make([]string, len(s.Skills))
	for i, k := range s.Skills {
		names[i] = k.Name
	}
	return names
}

// Load reads the skills in dirs, which may be missing. Of two with one name that of
// the earlier directory stands. It blocks for the disk only.
func Load(dirs []string) *Snapshot {
	out := &Snapshot{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				out.Broken = append(out.Broken, &FileError{dir, err})
			}
			continue
		}
		for _, e := range entries {
			at := filepath.Join(dir, e.Name())
			if fi, err := os.Stat(filepath.Join(at, file)); strings.HasPrefix(e.Name(), ".") || err != nil || fi.IsDir() {
				continue // anything else may lie there too
			}
			k, err := read(at)
			if other, taken := out.Find(k.Name); err == nil && taken {
				err = fmt.Errorf("%s has the name %q already", other.Dir, k.Name)
			}
			if err != nil {
				out.Broken = append(out.Broken, &FileError{filepath.Join(at, file), err})
				continue
			}
			out.Skills = append(out.Skills, k)
		}
	}
	slices.SortFunc(out.Skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// read reads a skill's head.
func read(dir string) (Skill, error) {
	k := Skill{Name: filepath.Base(dir), Dir: dir}
	doc, err := parse(k.Path())
	if err != nil {
		return k, err
	}
	named := false
	for _, f := range doc.Fields {
		key := frontmatter.Normal(f.Key)
		if key != "name" && key != "description" {
			continue
		}
		text, err := f.Text()
		if err != nil {
			return k, err
		}
		text = strings.TrimSpace(text)
		switch {
		case text == "":
		case key == "name":
			k.Name, named = text, true
		default:
			k.Description = text
		}
	}
	for _, n := range doc.Notes {
		k.Warnings = append(k.Warnings, fmt.Sprintf("line %d: %s", n.Line, n.Text))
	}
	switch {
	case len(k.Name) > maxName || strings.ContainsFunc(k.Name, unicode.IsControl):
		return k, fmt.Errorf("the name has more than %d characters, or control characters", maxName)
	case strings.TrimSpace(doc.Body) == "":
		return k, errors.New("there is nothing below the YAML block")
	case !named:
		k.Warnings = append(k.Warnings, "it gives no name, so its directory's is taken")
	case k.Name != filepath.Base(dir):
		k.Warnings = append(k.Warnings, fmt.Sprintf("its name %q is not its directory's", k.Name))
	}
	if k.Description == "" {
		k.Warnings = append(k.Warnings, "it gives no description, so agents do not know what it is for")
	}
	return k, nil
}

func parse(path string) (*frontmatter.Document, error) {
	data, err := frontmatter.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return frontmatter.Parse(data, frontmatter.Options{
		Known: func(key string) bool {
			return slices.Contains([]string{"name", "description", "license", "compatibility", "metadata", "allowedtools"}, key)
		},
		Loose: []string{"description"},
	})
}

// Text returns what a model is told of a skill, in at most limit bytes (0: no
// limit): where it is, its instructions, and the files that it brings.
func (k Skill) Text(limit int) (string, error) {
	doc, err := parse(k.Path())
	if err != nil {
		return "", fmt.Errorf("read skill %s: %w", k.Name, err)
	}
	head := fmt.Sprintf("Skill %s. Its directory is %s; paths in it start there.\n\n", k.Name, k.Dir)
	tail := ""
	if files := k.files(); len(files) > 0 {
		tail = "\n\nFiles in its directory:\n- " + strings.Join(files, "\n- ")
	}
	body := strings.TrimSpace(doc.Body)
	if limit > 0 && len(head)+len(body)+len(tail) > limit {
		cut := fmt.Sprintf("\n[cut here; read the rest in %s]", k.Path())
		room := max(limit-len(head)-len(tail)-len(cut), 0)
		body = strings.ToValidUTF8(body[:min(room, len(body))], "") + cut
	}
	return head + body + tail, nil
}

// files are the paths of what else is in the skill's directory, with slashes.
func (k Skill) files() []string {
	var list []string
	more := 0
	root := os.DirFS(k.Dir)
	fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir
		case path == ".":
		case strings.HasPrefix(d.Name(), "."), d.IsDir() && strings.Count(path, "/") >= maxListDepth-1:
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir(), path == file:
		case len(list) >= maxListed:
			if more++; more > 10*maxListed {
				return fs.SkipAll
			}
		default:
			list = append(list, path)
		}
		return nil
	})
	if more > 0 {
		list = append(list, fmt.Sprintf("(and %d more)", more))
	}
	return list
}

// Library is the skills as they are on disk now. It may be used by many goroutines
// at once.
type Library struct {
	cache *filecache.Cache[*Snapshot]
}

// NewLibrary reads the skills in dirs. changed, where it is not nil, is called with
// every Snapshot that differs from the one before, by the goroutine that asked for
// it; it must not call the Library. A skill whose instructions alone changed is the
// same: they are read when it is used.
func NewLibrary(dirs []string, changed func(*Snapshot)) *Library {
	paths := func() []string {
		var list []string
		for _, dir := range dirs {
			list = append(list, dir)
			entries, _ := os.ReadDir(dir) // what is wrong shows when they are read
			for _, e := range entries {
				list = append(list, filepath.Join(dir, e.Name(), file))
			}
		}
		return list
	}
	told := func(before, now *Snapshot) {
		if changed != nil && !same(before, now) {
			changed(now)
		}
	}
	return &Library{filecache.New(paths, func() *Snapshot { return Load(dirs) }, told)}
}

// Snapshot returns the skills that there are now. It blocks for the disk only.
func (l *Library) Snapshot() *Snapshot { return l.cache.Get() }

func same(a, b *Snapshot) bool {
	return slices.EqualFunc(a.Skills, b.Skills, func(x, y Skill) bool {
		return x.Name == y.Name && x.Description == y.Description && x.Dir == y.Dir && slices.Equal(x.Warnings, y.Warnings)
	}) && slices.EqualFunc(a.Broken, b.Broken, func(x, y *FileError) bool { return x.Error() == y.Error() })
}
