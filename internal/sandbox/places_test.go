package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A task's own directories lie in what is hidden, and are its own all the same.
func TestPlaces(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	for _, d := range []string{"temp/t", "state/private/t/tmp", "state/private/other/tmp"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inside := filepath.Join(string(filepath.Separator), "sandbox-tmp")
	p, err := Build(Ceiling{TempDir: at("temp"), Share: true, Hidden: []string{at("state")}}.Resolve(),
		Ask{TaskDir: at("temp/t"), Places: map[string]string{inside: at("state/private/t/tmp")}}.Resolve())
	if err != nil {
		t.Fatal(err)
	}
	f := OpenFiles(p)
	defer f.Close()
	// Not even an agent without writing tools is without a place to write.
	if created, err := f.WriteFile(filepath.Join(inside, "sub", "a"), []byte("x"), 0o644); err != nil || !created {
		t.Errorf("write: %v, %v", created, err)
	}
	if b, err := os.ReadFile(at("state/private/t/tmp/sub/a")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := f.ReadFile(filepath.Join(inside, "sub", "a"), 10); err != nil || string(b) != "x" {
		t.Errorf("read: %q, %v", b, err)
	}
	if got := f.Name(at("state/private/t/tmp/sub/a")); got != filepath.Join(inside, "sub", "a") {
		t.Errorf("it is called %s", got)
	}
	var pathErr *os.PathError
	if _, err := f.Stat(filepath.Join(inside, "none")); !errors.As(err, &pathErr) || pathErr.Path != filepath.Join(inside, "none") {
		t.Errorf("an error names %v", err)
	}
	var refused *RefusalError
	for _, path := range []string{at("state/private/other/tmp/x"), at("state/private/t"), at("state/x"), inside + "x/y", filepath.Join(inside, "..", "x")} {
		if _, err := f.Stat(path); !errors.As(err, &refused) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A link that a command made there is still looked through.
	if err := os.Symlink(at("state/private/other/tmp"), at("state/private/t/tmp/l")); err != nil {
		t.Skip("no links here")
	}
	if _, err := f.WriteFile(filepath.Join(inside, "l", "x"), nil, 0o644); !errors.As(err, &refused) {
		t.Errorf("through a link: %v", err)
	}
}

func TestGrantable(t *testing.T) {
	c := Ceiling{Roots: []string{"/srv"}, TempDir: "/g/temp", Hidden: []string{"/srv/state"}}
	p, err := Build(c, Ask{TaskDir: "/g/temp/t"})
	if err != nil {
		t.Skip(err) // paths of another kind
	}
	for path, want := range map[string]bool{"/srv/x": true, "/srv/state/x": false, "/home": false, "/g/temp/t/x": true, "/g/temp/other": false, "relative": false} {
		if got := p.Grantable(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(p string) string { return filepath.Join(dir, p) }
	os.MkdirAll(at("real/sub"), 0o755)
	for link, target := range map[string]string{"one": "real", "two": at("one"), "real/three": "sub", "gone": "nowhere"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Skip("no links here")
		}
	}
	got := Links(at("two/three/x"), at("gone"), "relative", at("real"))
	want := map[string]string{at("two"): at("one"), at("one"): "real", at("real/three"): "sub", at("gone"): "nowhere"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestToolchainEnv(t *testing.T) {
	home := t.TempDir()
	for _, d := range []string{".pyenv", "go/pkg/mod/cache/download"} {
		os.MkdirAll(filepath.Join(home, filepath.FromSlash(d)), 0o755)
	}
	exists := func(dir string) bool { _, err := os.Stat(dir); return err == nil }
	got := ToolchainEnv(home, func(string) string { return "" }, exists)
	want := map[string]string{
		"PYENV_ROOT": filepath.Join(home, ".pyenv"),
		"GOPROXY":    "file://" + filepath.ToSlash(filepath.Join(home, "go/pkg/mod/cache/download")) + ",direct",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	own := map[string]string{"GOPROXY": "off", "NVM_DIR": filepath.Join(home, "nvm"), "GOMODCACHE": filepath.Join(home, "none")}
	got = ToolchainEnv(home, func(name string) string { return own[name] }, exists)
	if got["NVM_DIR"] != own["NVM_DIR"] || got["GOPROXY"] != "" {
		t.Errorf("got %v", got)
	}
}
