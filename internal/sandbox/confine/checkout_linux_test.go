package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
)

// git runs git without the user's configuration.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func policyFor(t *testing.T, roots []string, workDir, temp string, writes bool) sandbox.Policy {
	t.Helper()
	p, err := sandbox.Build(sandbox.Ceiling{Roots: roots, TempDir: temp, Share: true}.Resolve(),
		sandbox.Ask{TaskDir: filepath.Join(temp, "t"), WorkDir: workDir, Writes: writes}.Resolve())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheckouts(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(p string) string { return filepath.Join(dir, p) }
	for _, d := range []string{"temp/t", "a/deep/clone", "sub", "out"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	git(t, at("sub"), "init", "-q")
	git(t, at("sub"), "commit", "-q", "--allow-empty", "-m", "x")
	git(t, at("a/deep/clone"), "init", "-q")
	git(t, at("a/deep/clone"), "submodule", "--quiet", "add", at("sub"), "lib")
	git(t, at("a/deep/clone"), "commit", "-q", "-m", "x")
	git(t, at("a/deep/clone"), "worktree", "add", "-q", at("a/tree"))
	git(t, at("a/deep/clone"), "worktree", "add", "-q", at("out/second"))
	git(t, at("a/deep/clone"), "config", "core.hooksPath", ".husky")
	git(t, at("out"), "init", "-q", "--bare", at("a/bare"))
	os.Mkdir(at("a/deep/clone/.husky"), 0o755)

	const g = "a/deep/clone/.git"
	all := Checkouts(policyFor(t, []string{dir}, at("a"), at("temp"), true))
	for _, want := range []string{
		g + "/config", g + "/hooks", g + "/modules/lib/config", g + "/modules/lib/hooks", g + "/worktrees/tree/commondir",
		g + "/worktrees/tree/gitdir", "a/deep/clone/lib/.git", "a/tree/.git", "a/bare/config", "a/bare/hooks", "a/deep/clone/.husky",
	} {
		if !slices.Contains(all.Keep, at(want)) {
			t.Errorf("%s is not kept: %q", want, all.Keep)
		}
	}
	for _, want := range []string{g, g + "/modules/lib", g + "/worktrees/tree"} {
		if !slices.Contains(all.Pin, at(want)) {
			t.Errorf("%s is not pinned: %q", want, all.Pin)
		}
	}
	for _, want := range []string{g + "/commondir", g + "/config.worktree", g + "/modules/lib/commondir"} {
		if !slices.Contains(all.Unwanted, at(want)) {
			t.Errorf("%s would be left: %q", want, all.Unwanted)
		}
	}

	// A worktree brings its repository along, where that is a task's to use.
	if got := Checkouts(policyFor(t, []string{dir}, at("out/second"), at("temp"), true)); !slices.Equal(got.Write, []string{at(g)}) || !slices.Contains(got.Keep, at(g+"/config")) {
		t.Errorf("a worktree: %+v", got)
	}
	if got := Checkouts(policyFor(t, []string{dir}, at("out/second"), at("temp"), false)); !slices.Equal(got.Read, []string{at(g)}) || len(got.Write) > 0 {
		t.Errorf("a worktree to read: %+v", got)
	}
	if got := Checkouts(policyFor(t, []string{at("out")}, at("out/second"), at("temp"), true)); len(got.Write) > 0 {
		t.Errorf("a repository outside: %+v", got)
	}
	// A file that an agent wrote opens nothing.
	for name, text := range map[string]string{
		"another's":  "gitdir: " + at(g+"/worktrees/tree"),
		"a system's": "gitdir: /etc/worktrees/x",
		"a link's":   "gitdir: " + at("link/.git/worktrees/tree"),
		"nothing":    "gitdir: ",
		"long":       "gitdir: " + strings.Repeat("x", 1<<20),
	} {
		forged := at("out/forged")
		os.RemoveAll(forged)
		if err := os.MkdirAll(forged, 0o755); err != nil {
			t.Fatal(err)
		}
		os.Symlink(at("a/deep/clone"), at("link"))
		if err := os.WriteFile(filepath.Join(forged, ".git"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := Checkouts(policyFor(t, []string{dir}, forged, at("temp"), true)); len(got.Write) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCheckoutsBounded(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "x", "y"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := &finder{left: 4, repositories: 1, seen: map[string]bool{}}
	f.walk(dir)
	if !f.found.Truncated {
		t.Error("it went on, or did not say that it stopped")
	}
	// An agent makes many that look like repositories.
	for i := range 5 {
		for _, name := range []string{"HEAD", "objects", "refs"} {
			if err := os.MkdirAll(filepath.Join(dir, "r"+strconv.Itoa(i), name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	f = &finder{left: 1000, repositories: 3, seen: map[string]bool{}}
	f.walk(dir)
	if !f.found.Truncated || len(f.found.Pin) != 3 {
		t.Errorf("it took up %q", f.found.Pin)
	}
}

// FuzzHooksPath: what git would take for the path is found, whatever stands around it.
func FuzzHooksPath(f *testing.F) {
	f.Add("[core]\n\teditor = x\n", ".husky/_")
	f.Add("# [core]\n[a \"b]\"]\n=\n", "/x y")
	f.Fuzz(func(t *testing.T, before, value string) {
		if strings.ContainsAny(value, "\n\r\"]\x00") || strings.TrimSpace(value) != value || len(before)+len(value) > 1<<15 {
			t.Skip()
		}
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte(before+"\n[core]\n\tHooksPath = "+value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := hooksPath(path); got != value {
			t.Errorf("got %q, want %q", got, value)
		}
	})
}
