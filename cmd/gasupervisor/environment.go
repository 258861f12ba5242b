package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
)

// environmentBlock tells a custom agent what its prompt cannot know. It is made
// once for a session, and stays in its prompt as it is.
func environmentBlock(files *sandbox.Files, workDir, model string, now time.Time) string {
	return fmt.Sprintf(`Environment:
- Working directory: %s
- Git: %s
- Platform: %s/%s
- Shell: %s
- Date: %s
- Model: %s`, show(workDir), gitFacts(files, workDir), runtime.GOOS, runtime.GOARCH, shellName(), now.Format("2006-01-02"), show(model))
}

// shellName is what runs commands: see package command.
func shellName() string {
	if runtime.GOOS == "windows" {
		return "a POSIX shell that is built in"
	}
	for _, name := range []string{"bash", "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "none"
}

// maxGitFile bounds what is read of git's small files.
const maxGitFile = 4 << 10

// isRefName reports whether a text is taken for a branch's name. Whoever works in the
// checkout could write anything there, and it becomes part of a prompt. (As a regular
// expression it would take milliseconds to compile, at each start of a helper, too.)
func isRefName(s string) bool {
	odd := func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune("._/+@#-", r)
	}
	n := utf8.RuneCountInString(s)
	return 0 < n && n <= 120 && !strings.ContainsFunc(s, odd)
}

// gitFacts says what is checked out at dir, from git's files: in a directory that
// agents write no program is started.
func gitFacts(files *sandbox.Files, dir string) string {
	for {
		git := filepath.Join(dir, ".git")
		if fi, err := files.Stat(git); err == nil {
			if !fi.IsDir() {
				// A worktree or a submodule: the file says where the repository is.
				text, err := files.ReadFile(git, maxGitFile)
				at, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
				if err != nil || !ok {
					return "yes"
				}
				if git = filepath.FromSlash(at); !filepath.IsAbs(git) {
					git = filepath.Join(dir, git)
				}
			}
			head, err := files.ReadFile(filepath.Join(git, "HEAD"), maxGitFile)
			if err != nil {
				return "yes"
			}
			return "yes, " + headFacts(strings.TrimSpace(string(head)))
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "no"
		}
		dir = up
	}
}

// headFacts says what a HEAD file means.
func headFacts(head string) string {
	if ref, ok := strings.CutPrefix(head, "ref: "); ok {
		if ref = strings.TrimPrefix(ref, "refs/heads/"); isRefName(ref) {
			return "branch " + ref
		}
		return "branch unknown"
	}
	if len(head) >= 40 && isRefName(head) {
		return "no branch, at " + head[:12]
	}
	return "branch unknown"
}
