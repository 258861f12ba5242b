//go:build unix

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ground is a directory tree to try things in: granted/, other/ (granted too)
// and outside/ with a secret.
type ground struct {
	t                          *testing.T
	dir                        string
	granted, other, outside    string
	files                      *Files
	temp, task, plan, readOnly string
}

func newGround(t *testing.T, change func(*Ceiling)) *ground {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{t: t, dir: dir}
	g.granted, g.other, g.outside = g.path("granted"), g.path("other"), g.path("outside")
	g.temp, g.task, g.readOnly = g.path("temp"), g.path("temp/t"), g.path("readonly")
	g.plan = g.path("temp/t/subagent_plan.md")
	for _, d := range []string{g.granted, g.other, g.outside, g.task, g.readOnly} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g.write("outside/secret", "secret")
	g.write("granted/sub/a.txt", "a")
	g.write("other/b.txt", "b")
	g.write("readonly/in.csv", "1,2")
	c := Ceiling{
		Roots: []string{g.granted, g.other, g.readOnly}, TempDir: g.temp,
		Protocol: func(name string) bool { return name == "input.txt" },
	}
	if change != nil {
		change(&c)
	}
	p, err := Build(c.Resolve(), Ask{
		TaskDir: g.task, WorkDir: g.granted, Writes: true,
		InputFiles:  map[string]string{"in": g.path("readonly/in.csv")},
		OutputFiles: map[string]string{"out": g.path("other/out.csv")},
		Named:       map[string]string{"subagent_plan.md": g.plan},
	}.Resolve())
	if err != nil {
		t.Fatal(err)
	}
	g.files = OpenFiles(p)
	t.Cleanup(func() { g.files.Close() })
	return g
}

func (g *ground) path(name string) string { return filepath.Join(g.dir, name) }

func (g *ground) write(name, text string) {
	g.t.Helper()
	if err := os.MkdirAll(filepath.Dir(g.path(name)), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(g.path(name), []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) link(target, name string) {
	g.t.Helper()
	if err := os.Symlink(target, g.path(name)); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) read(name string) string {
	b, err := os.ReadFile(g.path(name))
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

// within fails the test where do blocks.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s blocks", what)
	}
}

func refused(err error) bool {
	var r *RefusalError
	return errors.As(err, &r)
}

func TestFilesRead(t *testing.T) {
	g := newGround(t, nil)
	g.link("../other/b.txt", "granted/to-other")
	g.link(g.outside, "granted/to-outside")
	g.link(g.path("outside/secret"), "granted/to-secret")
	g.link("loop", "granted/loop")
	g.link("sub", "granted/to-sub")
	if err := syscall.Mkfifo(g.path("granted/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want string // the text, or part of the error
		ok   bool
	}{
		{"sub/a.txt", "a", true},
		{"./sub/../sub/a.txt", "a", true},
		{g.path("granted/sub/a.txt"), "a", true},
		{g.path("readonly/in.csv"), "1,2", true},
		{g.path("readonly"), "outside of what this task may read", false},
		{"to-other", "b", true},
		{"to-sub/a.txt", "a", true},
		{"../outside/secret", "outside of what", false},
		{"to-outside/secret", "it is a link to", false},
		{"to-secret", "it is a link to", false},
		{"loop", "too many links", false},
		{"pipe", "named pipe", false},
		{"sub", "is a directory", false},
		{"none", "no such file", false},
		{"sub/a.txt/x", "not a directory", false},
		{"a\x00b", "zero byte", false},
		{"/etc/passwd", "outside of what", false},
		{"", "is a directory", false},
	} {
		t.Run(strings.ReplaceAll(c.path, g.dir, ""), func(t *testing.T) {
			within(t, "reading", func() {
				b, err := g.files.ReadFile(c.path, 100)
				if c.ok {
					if err != nil || string(b) != c.want {
						t.Errorf("got %q, %v", b, err)
					}
				} else if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %q, %v, want an error with %q", b, err, c.want)
				}
			})
		})
	}
	if _, err := g.files.ReadFile("none", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	if _, err := g.files.ReadFile(g.path("readonly/in.csv"), 2); !errors.Is(err, ErrTooBig) {
		t.Errorf("a big file gives %v", err)
	}
	if fi, err := g.files.Stat("to-sub"); err != nil || !fi.IsDir() {
		t.Errorf("stat gives %v, %v", fi, err)
	}
}

func TestFilesWrite(t *testing.T) {
	g := newGround(t, nil)
	g.write("granted/mode", "long old text")
	if err := os.Chmod(g.path("granted/mode"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.write("temp/t/input.txt", "task")
	g.link("../other/b.txt", "granted/to-other")
	g.link(g.path("outside/new"), "granted/dangling")
	g.link("nowhere", "granted/dangling-inside")
	g.link(g.outside, "granted/to-outside")
	g.link(g.path("temp/t/input.txt"), "granted/to-input")
	if err := syscall.Mkfifo(g.path("granted/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path    string
		created bool
		want    string // "" or part of the error
	}{
		{"new", true, ""},
		{"deep/er/new", true, ""},
		{"mode", false, ""},
		{"to-other", false, ""},
		{g.path("other/made/r.csv"), true, ""},
		{"subagent_plan.md", true, ""},
		{g.path("temp/t/notes"), true, ""},
		{"dangling", false, "it is a link to"},
		{"dangling-inside", false, "link to something that does not exist"},
		{"to-outside/new", false, "it is a link to"},
		{"to-input", false, "protocol"},
		{g.path("temp/t/input.txt"), false, "protocol"},
		{g.path("temp/u/notes"), false, "outside of what"},
		{g.path("readonly/in.csv"), false, "outside of what"},
		{g.path("outside/new"), false, "outside of what"},
		{"pipe", false, "named pipe"},
		{"sub", false, "is a directory"},
		{".git/hooks/post-commit", false, "git"},
	} {
		t.Run(strings.ReplaceAll(c.path, g.dir, ""), func(t *testing.T) {
			within(t, "writing", func() {
				created, err := g.files.WriteFile(c.path, []byte("new"), 0o644)
				switch {
				case c.want == "" && (err != nil || created != c.created):
					t.Errorf("created %v, %v", created, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want an error with %q", err, c.want)
				}
			})
		})
	}
	if fi, err := os.Stat(g.path("granted/mode")); err != nil || fi.Mode().Perm() != 0o600 || g.read("granted/mode") != "new" {
		t.Errorf("the old file has %v, %q, %v", fi.Mode(), g.read("granted/mode"), err)
	}
	if got := g.read("temp/t/subagent_plan.md"); got != "new" {
		t.Errorf("the plan is %q", got)
	}
	for _, untouched := range []string{"outside/new", "granted/nowhere", "granted/.git", "temp/u"} {
		if _, err := os.Lstat(g.path(untouched)); err == nil {
			t.Errorf("%s was made", untouched)
		}
	}
	if created, err := g.files.AppendFile("new", []byte("er"), 0o644); err != nil || created || g.read("granted/new") != "newer" {
		t.Errorf("append: created %v, %v, %q", created, err, g.read("granted/new"))
	}
}

// A working directory that is not there yet is made with the first file in it.
func TestFilesMissingGrant(t *testing.T) {
	g := newGround(t, nil)
	if err := os.RemoveAll(g.granted); err != nil {
		t.Fatal(err)
	}
	if _, err := g.files.ReadFile("x", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading gives %v", err)
	}
	if _, err := g.files.WriteFile("a/x", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := g.read("granted/a/x"); got != "x" {
		t.Errorf("got %q", got)
	}
}

// A granted directory that became a link after the policy was made is refused.
func TestFilesGrantSwapped(t *testing.T) {
	g := newGround(t, nil)
	if err := os.Rename(g.granted, g.path("gone")); err != nil {
		t.Fatal(err)
	}
	g.link("outside", "granted")
	if b, err := g.files.ReadFile("secret", 10); !refused(err) {
		t.Errorf("got %q, %v", b, err)
	}
	if root, err := openBase(g.granted, false, nil); !errors.Is(err, errChanged) {
		t.Errorf("opening the link gives %v, %v", root, err)
	}
	if _, err := g.files.WriteFile("new", []byte("x"), 0o644); !refused(err) {
		t.Errorf("writing gives %v", err)
	}
	if _, err := os.Lstat(g.path("outside/new")); err == nil {
		t.Error("a file was made outside")
	}
}

func TestFilesUnrestricted(t *testing.T) {
	g := newGround(t, func(c *Ceiling) {
		c.Unrestricted = true
		c.Hidden = []string{c.Roots[0] + "/config.toml"}
		c.Protected = []string{c.Roots[0] + "/agents"}
	})
	g.write("granted/config.toml", "key")
	g.write("granted/agents/a.md", "agent")
	g.link("config.toml", "granted/innocent")
	g.link(g.path("outside/secret"), "granted/to-secret")
	g.link("nowhere", "granted/dangling")
	if err := syscall.Mkfifo(g.path("outside/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := g.files.ReadFile("to-secret", 10); err != nil || string(b) != "secret" {
		t.Errorf("got %q, %v", b, err)
	}
	if created, err := g.files.WriteFile(g.path("outside/a/b"), []byte("x"), 0o644); err != nil || !created {
		t.Errorf("created %v, %v", created, err)
	}
	if b, err := g.files.ReadFile("agents/a.md", 10); err != nil || string(b) != "agent" {
		t.Errorf("got %q, %v", b, err)
	}
	for _, path := range []string{"config.toml", "innocent", "/proc/self/environ", "/proc/thread-self/environ"} {
		if b, err := g.files.ReadFile(path, 1<<20); !refused(err) {
			t.Errorf("%s gives %q, %v", path, b, err)
		}
	}
	for _, path := range []string{"agents/a.md", "agents/b.md", "innocent", g.path("temp/t/input.txt")} {
		if _, err := g.files.WriteFile(path, nil, 0o644); !refused(err) {
			t.Errorf("writing %s gives %v", path, err)
		}
	}
	if _, err := g.files.WriteFile("dangling", nil, 0o644); !errors.Is(err, ErrDangling) {
		t.Errorf("dangling gives %v", err)
	}
	within(t, "a pipe", func() {
		if _, err := g.files.Open(g.path("outside/pipe")); !errors.Is(err, ErrNotRegular) {
			t.Errorf("got %v", err)
		}
	})
	if _, err := g.files.OpenDir("/"); err != nil {
		t.Errorf("the root gives %v", err)
	}
}

func TestDir(t *testing.T) {
	g := newGround(t, nil)
	for i := range 300 {
		g.write(fmt.Sprintf("granted/many/%03d", i), "x")
	}
	g.link(g.outside, "granted/many/link")
	d, err := g.files.OpenDir("many")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Path() != g.path("granted/many") {
		t.Errorf("path %s", d.Path())
	}
	entries, more, err := d.Entries(1000)
	if err != nil || more || len(entries) != 301 || entries[0].Name() != "000" || entries[300].Name() != "link" {
		t.Errorf("%d entries, more %v, %v", len(entries), more, err)
	}
	if entries, more, err := d.Entries(10); err != nil || !more || len(entries) != 10 {
		t.Errorf("%d entries, more %v, %v", len(entries), more, err)
	}
	for _, name := range []string{"link", "..", ".", "a/b", ""} {
		if sub, err := d.OpenDir(name); err == nil && name != "." {
			t.Errorf("%q was opened: %v", name, sub.Path())
		}
	}
	if f, err := d.Open("001"); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

func TestFollowLinks(t *testing.T) {
	g := newGround(t, nil)
	g.link("../other", "granted/up")
	g.link("up", "granted/chain")
	g.link("gone/x", "granted/dangle")
	g.link("dangle", "granted/dangle2")
	for _, c := range []struct {
		path, want string
		dangling   bool
	}{
		{"granted/sub", "granted/sub", false},
		{"granted/none/x", "granted/none/x", false},
		{"granted/chain/b.txt", "other/b.txt", false},
		{"granted/chain/none/x", "other/none/x", false},
		{"granted/dangle", "granted/gone/x", true},
		{"granted/dangle2/y", "granted/gone/x/y", true},
	} {
		got, dangling, err := followLinks(g.path(c.path))
		if err != nil || got != g.path(c.want) || dangling != c.dangling {
			t.Errorf("%s: got %s, %v, %v", c.path, got, dangling, err)
		}
	}
	if a := (Ask{WorkDir: g.path("granted/up"), InputFiles: map[string]string{"a": g.path("granted/chain/b.txt")}}.Resolve()); a.WorkDir != g.other || a.InputFiles["a"] != g.path("other/b.txt") {
		t.Errorf("resolved to %+v", a)
	}
}

func TestSystemReads(t *testing.T) {
	dir := t.TempDir()
	c := Ceiling{System: append(SystemReads(dir+string(os.PathListSeparator)+"relative"+string(os.PathListSeparator)+"/"),
		ToolchainReads(dir, func(k string) string {
			return map[string]string{"GOROOT": "/", "GOPATH": dir}[k]
		})...)}
	if err := os.MkdirAll(filepath.Join(dir, "pkg/mod"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(c.Resolve().System, "\n") + "\n"
	for _, want := range []string{"/usr\n", "/pkg/mod\n", resolveOr(dir) + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	for _, never := range []string{"shadow", "ssl/private", "relative", ".cargo"} {
		if strings.Contains(got, never) {
			t.Errorf("%q is in:\n%s", never, got)
		}
	}
	if strings.HasPrefix(got, "/\n") || strings.Contains(got, "\n/\n") {
		t.Errorf("everything may be read:\n%s", got)
	}
}

func BenchmarkReadFile(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a/b/c/f"), make([]byte, 2048), 0o644); err != nil {
		b.Fatal(err)
	}
	p, err := Build(Ceiling{Roots: []string{dir}, TempDir: dir, Share: true}.Resolve(), Ask{TaskDir: dir}.Resolve())
	if err != nil {
		b.Fatal(err)
	}
	f := OpenFiles(p)
	defer f.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.ReadFile("a/b/c/f", 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever stands in the place of a task's directory when its rights are worked out,
// they are for that place, and for nowhere that a link leads.
func TestTaskDirIsALink(t *testing.T) {
	g := newGround(t, nil)
	g.link(g.outside, "temp/link")
	for name, ask := range map[string]Ask{
		"the task's":   {TaskDir: g.path("temp/link"), Writes: true},
		"its parent's": {TaskDir: g.task, Parents: []string{g.path("temp/link")}, Writes: true},
	} {
		p, err := Build(Ceiling{TempDir: g.temp}.Resolve(), ask.Resolve())
		if err != nil {
			t.Fatal(err)
		}
		f := OpenFiles(p)
		defer f.Close()
		for _, path := range []string{g.path("outside/secret"), g.path("temp/link/secret")} {
			if b, err := f.ReadFile(path, 100); err == nil {
				t.Errorf("%s: %s holds %q", name, path, b)
			}
		}
		if _, err := f.WriteFile(g.path("temp/link/new"), []byte("x"), 0o644); err == nil {
			t.Errorf("%s: written through it", name)
		}
	}
}
