package confine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroups makes a cgroup for each command, in the one that the daemon was given to
// divide. The kernel then keeps the limits of memory and processes itself, for
// root too, and counts what belongs to no process. It may be used by many
// goroutines.
type Cgroups struct{ dir string }

// controllers are the ones that commands need.
var controllers = []string{"memory", "pids"}

// OwnCgroups returns a maker of cgroups where the daemon's own cgroup was delegated
// to it, as a service's is (Delegate= of systemd.resource-control(5)), else the
// reason why not. It moves the daemon one level down, since a cgroup that is
// divided holds no processes itself.
func OwnCgroups() (*Cgroups, string) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err.Error()
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err.Error()
	}
	dir, why := ownCgroup(string(self), string(mounts))
	if why != "" {
		return nil, why
	}
	if !delegated(dir) {
		return nil, "the daemon's was not delegated to it; as a service it is"
	}
	return takeCgroup(dir)
}

// ownCgroup finds the directory of the process's own cgroup.
func ownCgroup(self, mountinfo string) (dir, why string) {
	var path string
	for line := range strings.Lines(self) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSpace(rest)
		}
	}
	if path == "" {
		return "", "the system has no cgroup v2"
	}
	for line := range strings.Lines(mountinfo) {
		// proc_pid_mountinfo(5): the root within the file system is the fourth field,
		// the mount point the fifth, and the type follows a lone hyphen.
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+2 || f[dash+1] != "cgroup2" {
			continue
		}
		if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(f[3], "/")); ok {
			return filepath.Join(f[4], rel), ""
		}
	}
	return "", "cgroup v2 is not mounted"
}

// delegated reports whether a cgroup was marked as its owner's to divide.
func delegated(dir string) bool {
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		b := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, b); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}

func takeCgroup(dir string) (*Cgroups, string) {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err.Error()
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(have)), c) {
			return nil, fmt.Sprintf("%s has no controller for %s", dir, c)
		}
	}
	own := filepath.Join(dir, "daemon")
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err.Error()
	}
	if err := put(own, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return nil, err.Error()
	}
	if err := put(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +")); err != nil {
		return nil, err.Error()
	}
	return &Cgroups{dir: dir}, ""
}

// put writes one of the kernel's files, which take a text in one write.
func put(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// group is one command's cgroup.
type group struct {
	path string
	dir  *os.File
}

// groupPrefix begins the names of commands' cgroups.
const groupPrefix = "command-"

func (c *Cgroups) make(l Limits) (*group, error) {
	g := &group{path: filepath.Join(c.dir, groupPrefix+rand.Text()[:12])}
	err := os.Mkdir(g.path, 0o755)
	if err == nil && l.Memory > 0 {
		err = put(g.path, "memory.max", strconv.FormatInt(l.Memory, 10))
		// Without it one process of several would be chosen to die.
		err = errors.Join(err, put(g.path, "memory.oom.group", "1"))
		if swap := put(g.path, "memory.swap.max", "0"); !errors.Is(swap, os.ErrNotExist) {
			err = errors.Join(err, swap)
		}
	}
	if err == nil && l.Processes > 0 {
		err = put(g.path, "pids.max", strconv.Itoa(threadsPerProcess*l.Processes+64))
	}
	if err == nil {
		g.dir, err = os.Open(g.path)
	}
	if err != nil {
		os.Remove(g.path)
		return nil, fmt.Errorf("make a cgroup for the command: %w", err)
	}
	return g, nil
}

// ranOut reports whether the kernel ended processes of the group for the memory.
func (g *group) ranOut() bool {
	b, err := os.ReadFile(filepath.Join(g.path, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" && f[1] != "0" {
			return true
		}
	}
	return false
}

// remove kills what is left in the group, and removes it.
func (g *group) remove() {
	g.dir.Close()
	put(g.path, "cgroup.kill", "1")
	for deadline := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		err := os.Remove(g.path)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return
		}
	}
}
