package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/confine"
)

func TestReach(t *testing.T) {
	for _, c := range []struct {
		name    string
		network config.Network
		narrow  [][]string
		want    confine.Network
	}{
		{"off", config.Network{}, nil, confine.NetworkOff},
		{"off, and an agent wants all", config.Network{}, [][]string{{"*:443"}}, confine.NetworkOff},
		{"all", config.Network{All: true}, nil, confine.NetworkAll},
		{"all, and an agent wants less", config.Network{All: true}, [][]string{{"a.org:443"}}, confine.NetworkProxy},
		{"all, and an agent wants none", config.Network{All: true}, [][]string{{}}, confine.NetworkOff},
		{"all, and a parent has none", config.Network{All: true}, [][]string{{}, {"a.org:443"}}, confine.NetworkOff},
		{"a list", config.Network{Hosts: []string{"a.org:443"}}, nil, confine.NetworkProxy},
		{"a list, and an agent's", config.Network{Hosts: []string{"a.org:443"}}, [][]string{{"b.org:443"}}, confine.NetworkProxy},
	} {
		k := &confinement{network: c.network}
		got, err := k.reach(c.narrow)
		if err != nil || got.Network != c.want || (got.Serve != nil) != (c.want == confine.NetworkProxy) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	if _, err := (&confinement{network: config.Network{Hosts: []string{"a.*.org:443"}}}).reach(nil); err == nil {
		t.Error("a pattern that means nothing was taken")
	}
}

func TestGitIdentity(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fallback := "[user]\n\tname = \"gasupervisor agent\"\n\temail = \"agent@localhost\"\n"
	half := file("half", "[user]\n\tname = A\n")
	whole := file("whole", "[core]\n\tname = no\n[User]\n name = \"A \\\"B\\\" C\"\n\temail=a@b.org\n\tsigningkey = SECRET\n[credential]\n\temail = x\n")
	for _, c := range []struct {
		files []string
		want  string
	}{
		{nil, fallback},
		{[]string{filepath.Join(dir, "none")}, fallback},
		{[]string{half}, fallback},
		{[]string{half, whole}, "[user]\n\tname = \"A \\\"B\\\" C\"\n\temail = \"a@b.org\"\n"},
	} {
		if got := gitIdentity(c.files...); got != c.want {
			t.Errorf("%q: got %q, want %q", c.files, got, c.want)
		}
	}
}

// What a task had for itself is kept as long as it has a journal.
func TestSweepPrivate(t *testing.T) {
	state := t.TempDir()
	k := &confinement{privates: filepath.Join(state, "private"), cache: filepath.Join(state, "cache")}
	if err := k.sweep(state); err != nil {
		t.Errorf("nothing to sweep: %v", err)
	}
	outside := filepath.Join(state, "outside")
	for _, name := range []string{"kept", "gone"} {
		p := k.private(name)
		if _, err := os.Lstat(p.Home); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directories are there before a command wants them: %v", err)
		}
		for range 2 {
			if err := k.prepare(p); err != nil {
				t.Fatal(err)
			}
		}
		locked := filepath.Join(p.Home, "go", "locked")
		if err := os.MkdirAll(locked, 0o755); err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(locked, "f"), nil, 0o400)
		os.Mkdir(outside, 0o700)
		os.Symlink(outside, filepath.Join(locked, "link"))
		os.Chmod(locked, 0o500)
	}
	if err := os.Mkdir(filepath.Join(state, journal.Place("kept")), 0o700); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(outside, "f"), nil, 0o600)
	if err := k.sweep(state); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(k.privates)
	if err != nil || len(entries) != 1 || entries[0].Name() != journal.Place("kept") {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "f")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	os.Chmod(filepath.Join(k.privates, journal.Place("kept"), "home", "go", "locked"), 0o700)
}
