package confine

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
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
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, out := w.run("cat /proc/self/cgroup; sleep 300 &")
	if out == string(before) || out == "" {
		t.Errorf("it was in the same cgroups: %s", out)
	}
	left, err := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
