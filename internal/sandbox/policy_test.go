//go:build unix

package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// ceiling is that of a daemon configured in /srv/ga, unless changed.
func ceiling(change func(*Ceiling)) Ceiling {
	c := Ceiling{
		Roots:     []string{"/srv/ga", "/srv/ga/temp", "/data"},
		Read:      []string{"/ref"},
		System:    []string{"/usr", "/etc/hosts"},
		Protected: []string{"/srv/ga/agents", "/srv/ga/skills", "/srv/ga/bin/gasupervisor"},
		Hidden:    []string{"/srv/ga/config.toml", "/srv/ga/state"},
		TempDir:   "/srv/ga/temp",
		Share:     true,
		Protocol: func(name string) bool {
			return name == "input.txt" || name == "_stop" || strings.HasPrefix(name, "output")
		},
	}
	if change != nil {
		change(&c)
	}
	return c
}

func ask(change func(*Ask)) Ask {
	a := Ask{TaskDir: "/srv/ga/temp/t", Writes: true}
	if change != nil {
		change(&a)
	}
	return a
}

func TestBuild(t *testing.T) {
	alone := func(c *Ceiling) { c.Share = false }
	free := func(c *Ceiling) { c.Unrestricted = true }
	in := func(p string) func(*Ask) { return func(a *Ask) { a.InputFiles = map[string]string{"d": p} } }
	out := func(p string) func(*Ask) { return func(a *Ask) { a.OutputFiles = map[string]string{"d": p} } }
	work := func(p string) func(*Ask) { return func(a *Ask) { a.WorkDir = p } }
	for _, c := range []struct {
		name    string
		ceiling func(*Ceiling)
		ask     func(*Ask)
		key     string // the refused key; "" where the policy is given
		hint    string // part of the refusal
	}{
		{"nothing asked", nil, nil, "", ""},
		{"work_dir in a root", nil, work("/data/x"), "", ""},
		{"work_dir is a root", nil, work("/data"), "", ""},
		{"work_dir of the same beginning", nil, work("/database"), "work_dir", "roots"},
		{"work_dir in a home", nil, work("/home/u"), "work_dir", "[sandbox]"},
		{"work_dir above a root", nil, work("/srv"), "work_dir", "roots"},
		{"work_dir by way of ..", nil, work("/data/../home/u"), "work_dir", "roots"},
		{"work_dir only readable", nil, work("/ref/x"), "work_dir", "roots"},
		{"work_dir relative", nil, work("data"), "work_dir", "absolute"},
		{"work_dir is the state", nil, work("/srv/ga/state/x"), "work_dir", "belongs to the daemon"},
		{"work_dir is the agents", nil, work("/srv/ga/agents"), "work_dir", "read only"},
		{"work_dir is a git directory's hooks", nil, work("/data/r/.git/hooks"), "work_dir", "git"},
		{"work_dir is another task, shared", nil, work("/srv/ga/temp/other"), "", ""},
		{"work_dir is another task, alone", alone, work("/srv/ga/temp/other"), "work_dir", "share = true"},
		{"work_dir is its own, alone", alone, work("/srv/ga/temp/t/sub"), "", ""},
		{"work_dir is its parent, alone", alone, func(a *Ask) {
			a.Parents, a.WorkDir = []string{"/srv/ga/temp/other"}, "/srv/ga/temp/other"
		}, "work_dir", "share = true"},
		{"work_dir is in its parent, alone", alone, func(a *Ask) {
			a.Parents, a.WorkDir = []string{"/srv/ga/temp/other"}, "/srv/ga/temp/other/sub"
		}, "", ""},
		{"input of its parent, alone", alone, func(a *Ask) {
			a.Parents, a.InputFiles = []string{"/srv/ga/temp/other"}, map[string]string{"d": "/srv/ga/temp/other/x"}
		}, "", ""},
		{"work_dir is its parent's neighbour, alone", alone, func(a *Ask) {
			a.Parents, a.WorkDir = []string{"/srv/ga/temp/other"}, "/srv/ga/temp/other2"
		}, "work_dir", "share = true"},
		{"work_dir is all tasks, alone", alone, work("/srv/ga/temp"), "work_dir", "share = true"},
		{"input in a root", nil, in("/data/a.csv"), "", ""},
		{"input that may be read", nil, in("/ref/a.csv"), "", ""},
		{"input of the system", nil, in("/usr/share/dict/words"), "", ""},
		{"input in /etc", nil, in("/etc/shadow"), `input_files "d"`, "read"},
		{"input is the configuration", nil, in("/srv/ga/config.toml"), `input_files "d"`, "belongs to the daemon"},
		{"input is an agent", nil, in("/srv/ga/agents/x.md"), "", ""},
		{"input of another task, alone", alone, in("/srv/ga/temp/other/output.txt"), `input_files "d"`, "share = true"},
		{"input of another task, alone, that may be read", func(c *Ceiling) { c.Share, c.Read = false, []string{"/srv/ga/temp/other"} }, in("/srv/ga/temp/other/output.txt"), "", ""},
		{"input relative", nil, in("a.csv"), `input_files "d"`, "absolute"},
		{"output in a root", nil, out("/data/r/a.csv"), "", ""},
		{"output beside the roots", nil, out("/srv/x.csv"), `output_files "d"`, "roots"},
		{"output is an agent", nil, out("/srv/ga/agents/x.md"), `output_files "d"`, "read only"},
		{"output is another task's, alone", alone, out("/srv/ga/temp/other/x"), `output_files "d"`, "share"},
		{"output is a protocol file", nil, out("/srv/ga/temp/other/input.txt"), `output_files "d"`, "protocol"},
		{"anything, off", free, work("/home/u"), "", ""},
		{"the state, off", free, work("/srv/ga/state"), "work_dir", "belongs to the daemon"},
		{"relative, off", free, in("x"), `input_files "d"`, "absolute"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Build(ceiling(c.ceiling), ask(c.ask))
			if c.key == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			var r *RefusalError
			if !errors.As(err, &r) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if r.Key != c.key || !strings.Contains(r.Error(), c.hint) || !strings.Contains(r.Error(), r.Path) || !strings.Contains(r.Error(), c.key) {
				t.Errorf("key %q, %v", r.Key, r)
			}
		})
	}
	if _, err := Build(ceiling(nil), Ask{TaskDir: "t"}); err == nil {
		t.Error("a relative task directory was taken")
	}
}

func TestBuildNamesTheFirst(t *testing.T) {
	bad := map[string]string{"b": "/no/b", "a": "/no/a", "c": "/no/c"}
	for range 20 {
		_, err := Build(ceiling(nil), ask(func(a *Ask) { a.InputFiles = bad }))
		var r *RefusalError
		if !errors.As(err, &r) || r.Key != `input_files "a"` {
			t.Fatalf("got %v", err)
		}
	}
}

func TestCheck(t *testing.T) {
	type row struct{ path, may string } // may: "", "r", "rw"
	for _, c := range []struct {
		name    string
		ceiling func(*Ceiling)
		ask     func(*Ask)
		workDir string
		rows    []row
	}{
		{"shared", nil, nil, "/srv/ga/temp", []row{
			{"/srv/ga/temp/t/notes.md", "rw"}, {"/srv/ga/temp/other/notes.md", "rw"}, {"/srv/ga/temp/x.txt", "rw"},
			{"/srv/ga/temp/input.txt", "rw"}, {"/srv/ga/temp/t/sub/input.txt", "rw"},
			{"/srv/ga/temp/t/input.txt", "r"}, {"/srv/ga/temp/new/_stop", "r"}, {"/srv/ga/temp/t/output3.txt", "r"},
			{"/srv/ga/temp/t/output.txt/x", "r"}, {"/srv/ga/temp/t/subagent_plan.md", "rw"},
			{"/srv/ga/temp/../config.toml", ""}, {"/srv/ga/temp2/x", ""}, {"/srv/ga/README.md", ""}, {"/data/x", ""},
			{"/ref/x", "r"}, {"/usr/bin/go", "r"}, {"/etc/hosts", "r"}, {"/etc/shadow", ""}, {"/etc/hosts2", ""}, {"/", ""},
			{"relative", ""}, {"/srv/ga/state/x", ""},
		}},
		{"alone", func(c *Ceiling) { c.Share = false }, nil, "/srv/ga/temp/t", []row{
			{"/srv/ga/temp/t/notes.md", "rw"}, {"/srv/ga/temp/other/notes.md", ""}, {"/srv/ga/temp/x.txt", ""}, {"/srv/ga/temp", ""},
		}},
		{"alone, above the fence", func(c *Ceiling) { c.Share, c.Read = false, []string{"/srv/ga/temp/other/output.txt"} }, func(a *Ask) {
			a.WorkDir = "/srv/ga"
		}, "/srv/ga", []row{
			{"/srv/ga/src/main.go", "rw"}, {"/srv/ga/temp/t/notes.md", "rw"}, {"/srv/ga/temp/other/notes.md", ""},
			{"/srv/ga/temp/other/output.txt", "r"}, {"/srv/ga/config.toml", ""}, {"/srv/ga/state", ""},
			{"/srv/ga/agents/a.md", "r"}, {"/srv/ga/skills/s/SKILL.md", "r"}, {"/srv/ga/bin/gasupervisor", "r"}, {"/srv/ga/bin/x", "rw"},
		}},
		{"a checkout", nil, func(a *Ask) { a.WorkDir = "/data/repo" }, "/data/repo", []row{
			{"/data/repo/.git/config", "r"}, {"/data/repo/.git/hooks/post-commit", "r"}, {"/data/repo/.git/hooks", "r"},
			{"/data/repo/.git", "r"}, {"/data/repo/sub/.git/config", "r"}, {"/data/repo/.GIT/Config", "r"},
			{"/data/repo/.git/modules/a/b/hooks/x", "r"}, {"/data/repo/.git/worktrees/w/config.worktree", "r"},
			{"/data/repo/.git/commondir", "r"}, {"/data/repo/.git/worktrees/w/gitdir", "r"},
			{"/data/repo/.git/COMMIT_EDITMSG", "rw"}, {"/data/repo/.git/refs/heads/config", "rw"}, {"/data/repo/config", "rw"},
			{"/data/repo/hooks/x", "rw"}, {"/data/repo/.github/config", "rw"}, {"/data/other", ""},
		}},
		{"output files", nil, func(a *Ask) {
			a.OutputFiles = map[string]string{"r": "/data/out/r.csv", "s": "/srv/ga/temp/t"}
		}, "/srv/ga/temp", []row{
			{"/data/out/r.csv", "rw"}, {"/data/out/other", "rw"}, {"/data/x", ""},
		}},
		{"an output file as a root", func(c *Ceiling) { c.Roots = []string{"/data/r.csv"} }, func(a *Ask) {
			a.OutputFiles = map[string]string{"r": "/data/r.csv"}
		}, "/srv/ga/temp", []row{{"/data/r.csv", "rw"}, {"/data/s.csv", ""}}},
		{"a reader", nil, func(a *Ask) { a.Writes, a.WorkDir = false, "/data" }, "/data", []row{
			{"/data/x", "r"}, {"/srv/ga/temp/t/notes.md", "r"},
		}},
		{"off", func(c *Ceiling) { c.Unrestricted = true }, nil, "/srv/ga/temp", []row{
			{"/home/u/x", "rw"}, {"/srv/ga/state/x", ""}, {"/srv/ga/config.toml", ""}, {"/srv/ga/agents/x", "r"},
			{"/srv/ga/temp/t/input.txt", "r"}, {"/home/u/.git/config", "r"},
			{"/proc/self/environ", ""}, {"/proc/1/environ", ""}, {"/proc/cpuinfo", "rw"}, {"/procx/1", "rw"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Build(ceiling(c.ceiling), ask(c.ask))
			if err != nil {
				t.Fatal(err)
			}
			if p.WorkDir != c.workDir {
				t.Errorf("working directory %s, want %s", p.WorkDir, c.workDir)
			}
			for _, r := range c.rows {
				for _, access := range []Access{Read, Write} {
					err := p.Check(r.path, access)
					if want := strings.Contains(r.may, string(access[:1])); want != (err == nil) {
						t.Errorf("%s %s: got %v", access, r.path, err)
					}
					var refused *RefusalError
					if err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), string(access))) {
						t.Errorf("%s %s: %v is no proper refusal", access, r.path, err)
					}
				}
			}
		})
	}
}

func TestRefusalNamesTheKey(t *testing.T) {
	p, err := Build(ceiling(nil), ask(nil))
	if err != nil {
		t.Fatal(err)
	}
	for access, want := range map[Access]string{Read: "input_files", Write: "work_dir"} {
		if got := fmt.Sprint(p.Check("/home/u/x", access)); !strings.Contains(got, want) || !strings.Contains(got, "/home/u/x") || !strings.Contains(got, "[sandbox]") {
			t.Errorf("%s: %s", access, got)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"/data/x", "/data/../etc/passwd", "/srv/ga/temp/t/input.txt", "//data//x", "/data/.git/hooks/x", "/datax", ""} {
		f.Add(s)
	}
	p, err := Build(ceiling(nil), ask(func(a *Ask) { a.WorkDir = "/data" }))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if p.Check(path, Write) != nil {
			return
		}
		if p.Check(path, Read) != nil {
			t.Errorf("%q may be written but not read", path)
		}
		// What is allowed stays within the two grants, read as the kernel would read it.
		depth := []string{}
		for _, e := range strings.Split(path, "/") {
			switch e {
			case "", ".":
			case "..":
				depth = depth[:max(0, len(depth)-1)]
			default:
				depth = append(depth, e)
			}
		}
		clean := "/" + strings.Join(depth, "/") + "/"
		if !strings.HasPrefix(clean, "/data/") && !strings.HasPrefix(clean, "/srv/ga/temp/") {
			t.Errorf("%q may be written", path)
		}
		if strings.Contains(strings.ToLower(clean), "/.git/hooks/") && strings.Count(strings.ToLower(clean), "/.git/") == 1 {
			t.Errorf("%q may be written", path)
		}
	})
}
