package confine

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
)

// maxEntries bounds how much is looked through for checkouts in one granted
// directory, and maxRepositories how many are taken up there. What lies deeper is not
// protected, and Extras.Truncated says so.
const (
	maxEntries      = 100_000
	maxRepositories = 300
)

// Checkouts looks for git checkouts in what p grants, and returns what has to be
// kept in them and what they need beside it. It reads directories and the small
// files of git, follows no link, and starts no program.
func Checkouts(p sandbox.Policy) Extras {
	f := &finder{policy: p, left: maxEntries, seen: map[string]bool{}}
	for _, root := range cleaned(p.Write) {
		f.left, f.repositories = maxEntries, maxRepositories
		f.walk(root)
	}
	if !slices.Contains(p.Write, p.WorkDir) {
		f.reading(p.WorkDir)
	}
	return f.found
}

type finder struct {
	policy sandbox.Policy
	found  Extras
	seen   map[string]bool
	// left is how many entries, repositories how many of those, may still be looked at.
	left, repositories int
}

// walk looks through a directory, near things first.
func (f *finder) walk(root string) {
	for todo := []string{root}; len(todo) > 0; todo = todo[1:] {
		dir := todo[0]
		if f.seen[dir] || covered(dir, f.policy.Hidden) {
			continue
		}
		f.seen[dir] = true
		entries := f.list(dir)
		if isGitDir(entries) {
			f.gitDir(dir)
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case strings.EqualFold(e.Name(), ".git"):
				f.dotGit(path, e)
			case e.IsDir():
				todo = append(todo, path)
			}
		}
	}
}

// list returns the entries of a directory, as far as there is patience left.
func (f *finder) list(dir string) []os.DirEntry {
	if f.left <= 0 {
		f.found.Truncated = true
		return nil
	}
	h, err := os.OpenFile(dir, os.O_RDONLY|openPlain, 0)
	if err != nil {
		return nil
	}
	defer h.Close()
	entries, _ := h.ReadDir(f.left)
	f.left -= len(entries) + 1
	return entries
}

// isGitDir recognises a repository as git does.
func isGitDir(entries []os.DirEntry) bool {
	n := 0
	for _, e := range entries {
		switch e.Name() {
		case "HEAD", "objects", "refs":
			n++
		}
	}
	return n == 3
}

// dotGit takes up the .git of a checkout: the repository, or a file that says
// where it is.
func (f *finder) dotGit(path string, e os.DirEntry) {
	switch {
	case e.IsDir():
		f.gitDir(path)
		f.hooks(filepath.Join(path, "config"), filepath.Dir(path))
	case e.Type().IsRegular():
		f.found.Keep = append(f.found.Keep, path)
		if common, ok := f.worktree(path); ok {
			f.found.Write = append(f.found.Write, common)
			f.gitDir(common)
			f.hooks(filepath.Join(common, "config"), filepath.Dir(path))
		}
	default:
		// A link: what it leads to is not this checkout's.
		f.found.Keep = append(f.found.Keep, path)
	}
}

// gitDir protects what git obeys in a repository.
func (f *finder) gitDir(dir string) {
	if f.seen[dir+"/."] {
		return
	}
	f.seen[dir+"/."] = true
	if f.repositories--; f.repositories < 0 {
		f.found.Truncated = true
		return
	}
	f.found.Pin = append(f.found.Pin, dir)
	config := filepath.Join(dir, "config")
	f.found.Keep = append(f.found.Keep, filepath.Join(dir, "hooks"))
	if look(config) != Missing {
		f.found.Keep = append(f.found.Keep, config)
	}
	// These make git look elsewhere for all of that.
	for _, name := range []string{"config.worktree", "commondir"} {
		f.keepIfThere(filepath.Join(dir, name))
	}
	for _, e := range f.list(filepath.Join(dir, "worktrees")) {
		at := filepath.Join(dir, "worktrees", e.Name())
		if !e.IsDir() {
			continue
		}
		if f.repositories--; f.repositories < 0 {
			f.found.Truncated = true
			return
		}
		f.found.Pin = append(f.found.Pin, at)
		for _, name := range []string{"commondir", "gitdir", "config.worktree"} {
			f.keepIfThere(filepath.Join(at, name))
		}
	}
	if look(filepath.Join(dir, "modules")) == Directory {
		f.walk(filepath.Join(dir, "modules"))
	}
}

// hooks protects the directory that a config says has the hooks, for a checkout in
// top.
func (f *finder) hooks(config, top string) {
	hooks := hooksPath(config)
	if hooks == "" {
		return
	}
	if !filepath.IsAbs(hooks) {
		hooks = filepath.Join(top, hooks)
	}
	if look(hooks) == Directory && !under(top, filepath.Clean(hooks)) {
		f.found.Keep = append(f.found.Keep, hooks)
	}
}

func (f *finder) keepIfThere(path string) {
	if look(path) == Missing {
		f.found.Unwanted = append(f.found.Unwanted, path)
		return
	}
	f.found.Keep = append(f.found.Keep, path)
}

// worktree returns the repository that a .git file belongs to as a further
// worktree. An agent may have written the file, so the repository has to lie in
// what tasks may use, and has to know of the worktree itself.
func (f *finder) worktree(dotGit string) (common string, ok bool) {
	gitDir := readLine(dotGit, "gitdir: ")
	if gitDir == "" {
		return "", false
	}
	if !filepath.IsAbs(gitDir) {
		gitDir = filepath.Join(filepath.Dir(dotGit), gitDir)
	}
	gitDir = filepath.Clean(gitDir)
	common = filepath.Dir(filepath.Dir(gitDir))
	if filepath.Base(filepath.Dir(gitDir)) != "worktrees" || filepath.Base(common) != ".git" {
		return "", false
	}
	if real, err := filepath.EvalSymlinks(common); err != nil || real != common || !f.policy.Grantable(filepath.Dir(common)) {
		return "", false
	}
	back, err := filepath.EvalSymlinks(readLine(filepath.Join(gitDir, "gitdir"), ""))
	return common, err == nil && back == dotGit && isGitDir(f.list(common))
}

// reading finds the repository of a working directory that is only read.
func (f *finder) reading(workDir string) {
	dotGit := filepath.Join(workDir, ".git")
	if look(dotGit) != File {
		return
	}
	if common, ok := f.worktree(dotGit); ok {
		f.found.Read = append(f.found.Read, common)
	}
}

// maxLine is more than any path has.
const maxLine = 8 << 10

// readLine returns the first line of a regular file, after a prefix; "" where
// there is none.
func readLine(path, prefix string) string {
	line, _, _ := strings.Cut(readSmall(path, maxLine), "\n")
	rest, ok := strings.CutPrefix(line, prefix)
	if !ok {
		return ""
	}
	return strings.TrimSpace(rest)
}

// readSmall returns the beginning of a regular file that is no link.
func readSmall(path string, limit int64) string {
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	h, err := os.OpenFile(path, os.O_RDONLY|openPlain, 0)
	if err != nil {
		return ""
	}
	defer h.Close()
	b, _ := io.ReadAll(io.LimitReader(h, limit))
	return string(b)
}

// hooksPath returns core.hooksPath of a git config, read so that rather too much
// than too little looks like one.
func hooksPath(config string) string {
	var found string
	scan := bufio.NewScanner(strings.NewReader(readSmall(config, 1<<20)))
	for scan.Scan() {
		key, value, ok := strings.Cut(scan.Text(), "=")
		if i := strings.LastIndexByte(key, ']'); i >= 0 {
			key = key[i+1:]
		}
		if ok && strings.EqualFold(strings.TrimSpace(key), "hookspath") {
			found = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return found
}
