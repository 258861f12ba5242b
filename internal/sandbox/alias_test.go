package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestAliases(t *testing.T) {
	const info = `20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:1 /data/gas /mnt/gas rw - ext4 /dev/sda1 rw
22 20 8:1 /data/gas/state/private /srv/a\040b rw - ext4 /dev/sda1 rw
23 20 8:2 / /home rw - ext4 /dev/sdb rw
24 20 8:2 /me /me rw - ext4 /dev/sdb rw
25 20 0:5 / /proc rw - proc proc rw
`
	mounts := parseMounts(info)
	for path, want := range map[string]string{
		"/data/gas/state":     "/mnt/gas/state /srv/a b",
		"/data/gas":           "/mnt/gas /srv/a b",
		"/mnt/gas/state":      "/data/gas/state /srv/a b",
		"/data/other":         "",
		"/home/me/key":        "/me/key",
		"/me/key":             "/home/me/key",
		"/home/you":           "",
		"/data/gas/state/x":   "/mnt/gas/state/x",
		"/data/gas/statement": "/mnt/gas/statement",
	} {
		if got := strings.Join(aliases(mounts, path), " "); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := aliases(nil, "/x"); len(got) > 0 {
		t.Errorf("without mounts: %q", got)
	}
	if got := unescape(`a\040b\134c\9`); got != `a b\c\9` {
		t.Errorf("got %q", got)
	}
}

func TestNothingInGitIsGranted(t *testing.T) {
	c := Ceiling{Roots: []string{"/r"}, TempDir: "/t"}
	for _, path := range []string{"/r/p/.git", "/r/p/.git/worktrees", "/r/p/.git/worktrees/x", "/r/p/.git/refs", "/r/p/.GIT/logs"} {
		for _, a := range []Ask{{WorkDir: path}, {OutputFiles: map[string]string{"o": path + "/x"}}} {
			if _, err := Build(c, Ask{TaskDir: "/t/a", Writes: true, WorkDir: a.WorkDir, OutputFiles: a.OutputFiles}); err == nil {
				t.Errorf("%s is granted by %+v", path, a)
			}
		}
		if _, err := Build(c, Ask{TaskDir: "/t/a", Writes: true, InputFiles: map[string]string{"i": path}}); err != nil {
			t.Errorf("%s cannot be read: %v", path, err)
		}
	}
	p, err := Build(c, Ask{TaskDir: "/t/a", Writes: true, OutputFiles: map[string]string{"o": "/r/p/.gitignore"}})
	if err != nil || !slices.Contains(p.Write, "/r/p") {
		t.Errorf("%v, %v", p.Write, err)
	}
}
