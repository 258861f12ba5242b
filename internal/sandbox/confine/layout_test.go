package confine

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
)

// tree is what stands at paths: directories end in a slash, and those on the way
// are there, too.
type tree []string

func (d tree) look(path string) Kind {
	for _, p := range d {
		switch {
		case p == path:
			return File
		case p == path+"/" || strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/"):
			return Directory
		}
	}
	return Missing
}

func TestNewLayout(t *testing.T) {
	private := Private{Home: "/s/home", Tmp: "/s/tmp", Cache: "/s/cache"}
	own := []string{"write /agent/cache < /s/cache", "write /agent/home < /s/home", "write /tmp < /s/tmp"}
	for _, c := range []struct {
		name    string
		policy  sandbox.Policy
		extras  Extras
		disk    tree
		want    []string // beside the private ones
		made    []string
		refused string
	}{
		{
			name:   "read and write",
			policy: sandbox.Policy{Read: []string{"/usr", "/usr/bin", "/w/a"}, Write: []string{"/w"}},
			disk:   tree{"/usr/bin/", "/w/a/"},
			want:   []string{"read /usr", "write /w"},
		},
		{
			name:   "files, and what is not there",
			policy: sandbox.Policy{Read: []string{"/etc/hosts", "/etc/none"}, Write: []string{"/w/gone"}},
			disk:   tree{"/etc/hosts", "/w/"},
			want:   []string{"read /etc/hosts"},
		},
		{
			name:   "writing inside of reading",
			policy: sandbox.Policy{Read: []string{"/p"}, Write: []string{"/p/out"}},
			disk:   tree{"/p/out/"},
			want:   []string{"read /p", "write /p/out"},
		},
		{
			name:   "protected and hidden",
			policy: sandbox.Policy{Write: []string{"/p"}, Read: []string{"/usr"}, Protected: []string{"/p/conf/c.toml", "/usr/bin/x"}, Hidden: []string{"/p/a/state", "/p/key", "/p/none", "/else"}},
			disk:   tree{"/p/conf/c.toml", "/p/a/state/", "/p/key", "/usr/bin/x", "/else/"},
			want:   []string{"write /p", "pin /p/a", "hide /p/a/state", "pin /p/conf", "keep /p/conf/c.toml", "hide /p/key", "read /usr"},
		},
		{
			name:   "protected and not there",
			policy: sandbox.Policy{Write: []string{"/p"}, Read: []string{"/r"}, Protected: []string{"/p/x/agents", "/r/agents", "/q/agents"}},
			disk:   tree{"/p/", "/r/"},
			want:   []string{"write /p", "pin /p/x", "keep /p/x/agents", "read /r"},
			made:   []string{"/p/x/agents"},
		},
		{
			name:   "granted in what is hidden or protected",
			policy: sandbox.Policy{Write: []string{"/p", "/p/agents/sub"}, Read: []string{"/p/state/x"}, Protected: []string{"/p/agents"}, Hidden: []string{"/p/state"}},
			disk:   tree{"/p/agents/sub/", "/p/state/x/"},
			want:   []string{"write /p", "keep /p/agents", "hide /p/state"},
		},
		{
			name:   "only a protected directory is granted",
			policy: sandbox.Policy{Write: []string{"/p/agents/sub"}, Protected: []string{"/p/agents"}},
			disk:   tree{"/p/agents/sub/"},
			want:   []string{"read /p/agents/sub"},
		},
		{
			name:   "fence",
			policy: sandbox.Policy{Write: []string{"/p", "/p/temp/a"}, Read: []string{"/p/temp/b/in.txt"}, Fence: "/p/temp", Hidden: []string{"/p/temp/a/secret"}},
			disk:   tree{"/p/temp/a/secret", "/p/temp/b/in.txt"},
			want:   []string{"write /p", "hide /p/temp", "write /p/temp/a", "hide /p/temp/a/secret", "read /p/temp/b/in.txt"},
		},
		{
			name:   "fence where nothing reaches",
			policy: sandbox.Policy{Write: []string{"/p/temp/a"}, Fence: "/p/temp"},
			disk:   tree{"/p/temp/a/"},
			want:   []string{"write /p/temp/a"},
		},
		{
			name:   "a checkout below what is granted",
			policy: sandbox.Policy{Write: []string{"/p"}},
			extras: Extras{Keep: []string{"/p/a/b/.git/config", "/p/a/b/.git/hooks"}, Pin: []string{"/p/a/b/.git"}},
			disk:   tree{"/p/a/b/.git/config"},
			want:   []string{"write /p", "pin /p/a", "pin /p/a/b", "pin /p/a/b/.git", "keep /p/a/b/.git/config", "keep /p/a/b/.git/hooks"},
			made:   []string{"/p/a/b/.git/hooks"},
		},
		{
			name:   "a repository beside",
			policy: sandbox.Policy{Write: []string{"/wt"}},
			extras: Extras{Write: []string{"/main/.git"}, Keep: []string{"/wt/.git", "/main/.git/config"}, Pin: []string{"/main/.git"}},
			disk:   tree{"/wt/.git", "/main/.git/config"},
			want:   []string{"write /main/.git", "keep /main/.git/config", "write /wt", "keep /wt/.git"},
		},
		{name: "everything", policy: sandbox.Policy{Read: []string{"/"}}, disk: tree{"/x"}, refused: "whole file system"},
		{name: "/proc", policy: sandbox.Policy{Read: []string{"/proc/sys"}}, disk: tree{"/proc/sys/"}, refused: "/proc of their own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := NewLayout(c.policy, private, c.extras, c.disk.look)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Concat(own, c.want)
			// Order is checked below; here it is what there is.
			got := map[string]bool{}
			for _, m := range l.Mounts {
				s := string(m.How) + " " + m.Path
				if m.From != "" {
					s += " < " + m.From
				}
				got[s] = true
			}
			for _, w := range want {
				if !got[w] {
					t.Errorf("lacks %s", w)
				}
				delete(got, w)
			}
			if len(got) > 0 {
				t.Errorf("has %q", slices.Sorted(maps.Keys(got)))
			}
			if !slices.Equal(l.Placeholders, c.made) {
				t.Errorf("makes %q, want %q", l.Placeholders, c.made)
			}
			for i, m := range l.Mounts {
				for _, later := range l.Mounts[i+1:] {
					if under(m.Path, later.Path) {
						t.Errorf("%s comes before %s, which would cover it", m.Path, later.Path)
					}
				}
			}
		})
	}
}

func TestLayoutTmpGranted(t *testing.T) {
	l, err := NewLayout(sandbox.Policy{Read: []string{"/tmp"}, Write: []string{"/tmp/w"}}, Private{Tmp: "/s/tmp"}, Extras{}, tree{"/tmp/w/"}.look)
	if err != nil {
		t.Fatal(err)
	}
	if l.Tmp != insteadOfTmp {
		t.Errorf("TMPDIR is %s", l.Tmp)
	}
}

// FuzzNewLayout: whatever the policy, what a layout says of a path is not more
// than what the policy does.
func FuzzNewLayout(f *testing.F) {
	f.Add("/p\n/p/temp/a", "/usr\n/p/temp/b", "/p/c", "/p/state", "/p/temp")
	f.Add("/a", "/a/b/c\n/a/b", "/a/b", "/a/b/c/d", "")
	f.Fuzz(func(t *testing.T, write, read, protected, hidden, fence string) {
		list := func(s string) []string { return cleaned(strings.Split(s, "\n")) }
		p := sandbox.Policy{Write: list(write), Read: list(read), Protected: list(protected), Hidden: list(hidden)}
		if f := list(fence); len(f) == 1 && f[0] != "/" {
			p.Fence = f[0]
		}
		l, err := NewLayout(p, Private{}, Extras{}, func(string) Kind { return Directory })
		if err != nil {
			return
		}
		for _, m := range l.Mounts {
			probe := m.Path + "/probe"
			switch m.How {
			case Write:
				if err := p.Check(probe, sandbox.Write); err != nil {
					t.Errorf("%s may be written by commands: %v", m.Path, err)
				}
			case Read:
				if err := p.Check(probe, sandbox.Read); err != nil {
					t.Errorf("%s may be read by commands: %v", m.Path, err)
				}
			}
		}
		// What is granted around an exception leaves it out.
		at := func(path string) How {
			how := How("")
			for _, m := range l.Mounts {
				if under(path, m.Path) && m.How != Pin {
					how = m.How
				}
			}
			return how
		}
		for _, h := range p.Hidden {
			if how := at(h + "/probe"); how == Read || how == Write || how == Keep {
				t.Errorf("%s is hidden, and there as %s", h, how)
			}
		}
		for _, k := range p.Protected {
			if how := at(k + "/probe"); how == Write {
				t.Errorf("%s is protected, and may be written", k)
			}
		}
	})
}
