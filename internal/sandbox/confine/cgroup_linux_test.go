package confine

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

func TestOwnCgroup(t *testing.T) {
	const mounts = "25 1 0:22 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"26 1 0:23 /docker/x /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ self, mounts, dir, why string }{
		{"0::/docker/x/a.service\n", mounts, "/sys/fs/cgroup/a.service", ""},
		{"9:memory:/m\n0::/docker/x\n", mounts, "/sys/fs/cgroup", ""},
		{"0::/elsewhere\n", mounts, "", "cgroup v2 is not mounted"},
		{"9:memory:/m\n", mounts, "", "the system has no cgroup v2"},
		{"0::/a\n", "", "", "cgroup v2 is not mounted"},
		{"0::/a\n", "26 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/a", ""},
	} {
		dir, why := ownCgroup(c.self, c.mounts)
		if dir != c.dir || why != c.why {
			t.Errorf("%q: got %q, %q", c.self, dir, why)
		}
	}
}

// The kernel's files are stood in for by ordinary ones.
func TestCgroups(t *testing.T) {
	dir := t.TempDir()
	if c, why := takeCgroup(dir); c != nil || why == "" {
		t.Errorf("took what is no cgroup: %q", why)
	}
	file := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
		}
	}
	file("cgroup.controllers", "cpu memory\n")
	if c, why := takeCgroup(dir); c != nil || why != dir+" has no controller for pids" {
		t.Errorf("got %v, %q", c, why)
	}
	file("cgroup.controllers", "cpu memory pids\n")
	file("cgroup.subtree_control", "")
	if err := os.Mkdir(filepath.Join(dir, "daemon"), 0o755); err != nil {
		t.Fatal(err)
	}
	file("daemon/cgroup.procs", "")
	c, why := takeCgroup(dir)
	if c == nil {
		t.Fatal(why)
	}
	holds("daemon/cgroup.procs", strconv.Itoa(os.Getpid()))
	holds("cgroup.subtree_control", "+memory +pids")
	if _, err := c.make(Limits{Memory: 1 << 20}); err == nil {
		t.Error("a limit that could not be set was no error")
	}
}

// A command runs in a cgroup of its own, which is gone afterwards. This machine's
// cgroups may have no controllers, so that no limits are set.
func TestCgroupRun(t *testing.T) {
	const root = "/sys/fs/cgroup"
	dir := ""
	for _, d := range []string{root, filepath.Join(root, "unified")} {
		if _, err := os.Stat(filepath.Join(d, "cgroup.procs")); err == nil {
			dir = filepath.Join(d, "gasupervisor-test-"+strconv.Itoa(os.Getpid()))
		}
	}
	if dir == "" || os.Mkdir(dir, 0o755) != nil {
		t.Skip("no cgroup can be made here")
	}
	t.Cleanup(func() { os.Remove(dir) })
	w := newWorld(t, Config{Cgroups: &Cgroups{dir: dir}})
	ready := filepath.Join(w.work, "ready")
	held := make(chan string, 1)
	go func() {
		waittest.Poll(func() bool { return t.Context().Err() != nil || exists(ready) })
		defer os.Remove(ready)
		procs, _ := filepath.Glob(filepath.Join(dir, groupPrefix+"*", "cgroup.procs"))
		text := ""
		for _, p := range procs {
			b, _ := os.ReadFile(p)
			text += string(b)
		}
		held <- text
	}()
	w.run(": > ready; while [ -e ready ]; do sleep 0.01; done; sleep 300 &")
	os.WriteFile(ready, nil, 0o600) // where the command did not
	if len(strings.Fields(<-held)) < 2 {
		t.Error("the helper and the shell were not in a cgroup of their own")
	}
	left, err := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// realCgroups takes a part of this machine's cgroups, as a daemon takes the one that
// it is given, and gives it back at the end.
func realCgroups(t *testing.T) *Cgroups {
	t.Helper()
	self, err1 := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if err1 != nil || err2 != nil {
		t.Skipf("no cgroups: %v, %v", err1, err2)
	}
	home, why := ownCgroup(string(self), string(mounts))
	root, _ := ownCgroup("0::/\n", string(mounts))
	if why != "" || root == "" {
		t.Skipf("no cgroups of version 2 can be divided here: %s", why)
	}
	passed, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	if err != nil {
		t.Skip(err)
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(passed)), c) {
			t.Skipf("%s passes no controller for %s on", root, c)
		}
	}
	dir := filepath.Join(root, "gasupervisor-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := put(home, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			t.Error(err)
		}
		for _, d := range []string{filepath.Join(dir, "daemon"), dir} {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
	})
	c, why := takeCgroup(dir)
	if c == nil {
		t.Fatal(why)
	}
	return c
}

// The kernel keeps the limits by itself, without the helper, which is told of none.
func TestCgroupLimits(t *testing.T) {
	c := realCgroups(t)
	w := newWorld(t, Config{})
	limits := Limits{Memory: 96 << 20, Processes: 20}
	run := func(line string) (report string, left int, out string) {
		t.Helper()
		sp := w.spec(line)
		sp.Limits = limits
		talk, err := newTalk(sp, Config{Cgroups: c}, Reach{})
		if err != nil {
			t.Fatal(err)
		}
		sp.Limits = Limits{}
		var text bytes.Buffer
		cmd := &exec.Cmd{Stdout: &text, Stderr: &text}
		talk.equip(cmd, Full, Config{Program: helperProgram})
		if err := talk.started(cmd.Start()); err != nil {
			t.Fatal(err)
		}
		sp.Limits = limits // for the report
		cmd.Wait()
		r := talk.ended()
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Limit, r.Left, text.String()
	}
	if limit, _, out := run("echo fine"); limit != "" || out != "fine\n" {
		t.Errorf("a small one: %q, %q", limit, out)
	}
	if limit, _, out := run("x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}"); !strings.Contains(limit, "96.0 MB of memory") || out != "" {
		t.Errorf("memory of a process: %q, %q", limit, out)
	}
	if limit, _, out := run("head -c 300000000 /dev/zero > /dev/shm/x; echo written"); !strings.Contains(limit, "96.0 MB of memory") || out != "" {
		t.Errorf("memory of no process: %q, %q", limit, out)
	}
	most := threadsPerProcess*limits.Processes + 64
	_, left, out := run("sh -c 'i=0; while [ $i -lt 1000 ]; do sleep 300 & i=$((i+1)); done; echo all'")
	if left > most || left < most/2 || strings.Contains(out, "all") {
		t.Errorf("processes: %d were left of a thousand, and %d may be: %s", left, most, out)
	}
	if groups, err := filepath.Glob(filepath.Join(c.dir, groupPrefix+"*")); err != nil || len(groups) > 0 {
		t.Errorf("groups are left: %q, %v", groups, err)
	}
}
