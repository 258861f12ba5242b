package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// base is where the new root is mounted before it becomes the root, for a moment
// and in the helper's own mount namespace: any directory that always exists.
const base = "/usr"

// oldRoot is where the old root is while the new one is filled.
const oldRoot = "/old-root"

// rootBuilder makes mounts through handles of what is to be mounted, found without
// following a link, so that nothing can be exchanged for a link between the
// policy's decision and the mount.
type rootBuilder struct {
	spec *spec
	old  int // handle of the old root
	root int // handle of the new one
}

// buildRoot makes the root directory of a command and moves into it.
func buildRoot(s *spec) error {
	b := &rootBuilder{spec: s, old: -1, root: -1}
	defer func() {
		unix.Close(b.old)
		unix.Close(b.root)
	}()
	defer unix.Umask(unix.Umask(0o022))
	return runSteps([]step{
		{"keep mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount the root", b.pivot},
		{"make the root's directories", b.skeleton},
		{"mount /proc", b.proc},
		{"make /dev", b.dev},
		{"mount what is granted", b.mounts},
		{"let the old root go", b.leave},
		// Only now, since links are followed on the way.
		{"make links and files", b.linksAndFiles},
		{"make the root read-only", b.freeze},
		{"name the host", func() error { return unix.Sethostname([]byte("localhost")) }},
	})
}

// pivot makes a file system in memory the root, with the old one in it.
func (b *rootBuilder) pivot() (err error) {
	if err := unix.Mount("root", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m,nr_inodes=16k"); err != nil {
		return err
	}
	if err := unix.Mkdir(base+oldRoot, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(base, base+oldRoot); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if b.old, err = unix.Open(oldRoot, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	b.root, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// skeleton makes what is there whatever is granted. empty is mounted over
// directories that are to look empty, and is below /agent, where nothing is
// granted.
func (b *rootBuilder) skeleton() error {
	for _, d := range []string{"/proc", "/dev", "/dev/shm", "/tmp", "/etc", "/agent"} {
		if err := unix.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	if err := unix.Mkdir(emptyDir, 0o555); err != nil {
		return err
	}
	return os.Chmod("/tmp", 0o1777)
}

const emptyDir = "/agent/empty"

// masked are files and directories of /proc that tell of the machine or, to root,
// do things to it.
var masked = []string{
	"kcore", "keys", "key-users", "kmsg", "kallsyms", "kpagecount", "kpageflags", "kpagecgroup", "config.gz", "iomem",
	"ioports", "latency_stats", "modules", "mtrr", "sched_debug", "slabinfo", "sysrq-trigger", "timer_list", "vmallocinfo",
	"acpi", "asound", "bus", "driver", "fs", "irq", "scsi", "tty",
}

func (b *rootBuilder) proc() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w (inside of a container with a /proc that is partly covered?)", err)
		}
		return err
	}
	for _, name := range masked {
		path := "/proc/" + name
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			continue
		}
		from := oldRoot + "/dev/null"
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			from = emptyDir
		}
		tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		unix.Close(tree)
		if err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	if err := b.bounds(); err != nil {
		return err
	}
	return unix.MountSetattr(unix.AT_FDCWD, "/proc", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// reservedPids are process ids that the kernel does not use a second time.
const reservedPids = 300

// bounds sets what the kernel bounds for each namespace: the one thing that holds
// for root without a cgroup and without looking. It is done in /proc, before that
// becomes read-only.
func (b *rootBuilder) bounds() error {
	l := b.spec.Limits
	var u unix.Utsname
	// A namespace has a pid_max of its own since 6.14; before, it is the machine's.
	if l.Processes > 0 && unix.Uname(&u) == nil && atLeast(unix.ByteSliceToString(u.Release[:]), 6, 14) {
		// Threads count here, and ordinary programs have a dozen to the process.
		if err := setKernel("kernel/pid_max", int64(reservedPids+threadsPerProcess*l.Processes)); err != nil {
			return fmt.Errorf("bound process ids: %w", err)
		}
	}
	if l.Memory > 0 {
		err := setKernel("kernel/shmall", l.Memory/4/int64(os.Getpagesize()))
		b.spec.sharedBound = err == nil && setKernel("kernel/msgmni", 256) == nil
	}
	return boundWatches()
}

// watchesShare is the part of a user's file watches that one command may have.
const watchesShare = 8

// boundWatches leaves file watches to the user's other programs, of which the daemon
// is one: what a namespace has counts for its user outside, too.
func boundWatches() error {
	for name, of := range map[string]string{"max_inotify_instances": "max_user_instances", "max_inotify_watches": "max_user_watches"} {
		text, err := os.ReadFile("/proc/sys/fs/inotify/" + of)
		if err != nil {
			return nil // the kernel has none
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil {
			err = setKernel("user/"+name, max(n/watchesShare, 1))
		}
		if err != nil {
			return fmt.Errorf("bound file watches: %w", err)
		}
	}
	return nil
}

// setKernel sets one of the kernel's numbers for the namespace.
func setKernel(name string, n int64) error {
	fd, err := unix.Open("/proc/sys/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(strconv.FormatInt(n, 10)))
	return err
}

const threadsPerProcess = 8

// atLeast compares the release of a kernel.
func atLeast(release string, major, minor int) bool {
	f := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	if len(f) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(f[0])
	b, err2 := strconv.Atoi(f[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// devices are the ones that programs need.
var devices = []string{"null", "zero", "full", "random", "urandom"}

func (b *rootBuilder) dev() error {
	for _, name := range devices {
		if err := touch("/dev/" + name); err != nil {
			return err
		}
		from, err := openBelow(b.old, "/dev/"+name, unix.O_PATH)
		if err != nil {
			return fmt.Errorf("/dev/%s: %w", name, err)
		}
		// Without nodev, or it would be no device.
		err = attach(from, false, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, unix.AT_FDCWD, "/dev/"+name)
		unix.Close(from)
		if err != nil {
			return fmt.Errorf("/dev/%s: %w", name, err)
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := unix.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	size := b.spec.Limits.Memory / 4
	if size <= 0 {
		size = 1 << 30
	}
	return unix.Mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d,nr_inodes=16k", size))
}

func (b *rootBuilder) mounts() error {
	for _, m := range b.spec.Mounts {
		if err := b.mount(m); err != nil {
			return fmt.Errorf("%s %s: %w", m.How, m.Path, err)
		}
	}
	return nil
}

func (b *rootBuilder) mount(m Mount) error {
	if m.How == Hide {
		return b.hide(m)
	}
	var attr uint64 = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if m.How == Read || m.How == Keep {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	from, err := openBelow(b.old, m.Source(), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	if dir := st.Mode&unix.S_IFMT == unix.S_IFDIR; dir != m.Dir {
		return errors.New("a directory became a file, or a file a directory")
	}
	at, err := b.point(m.Path, m.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return attach(from, true, attr, at, "")
}

// hide covers a path. A directory gets a file system of its own, since something
// in it may be granted all the same.
func (b *rootBuilder) hide(m Mount) error {
	at, err := b.point(m.Path, m.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if !m.Dir {
		from, err := openBelow(b.old, "/dev/null", unix.O_PATH)
		if err != nil {
			return err
		}
		defer unix.Close(from)
		return attach(from, false, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY, at, "")
	}
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for k, v := range map[string]string{"size": "1m", "nr_inodes": "4k", "mode": "0755"} {
		if err := unix.FsconfigSetString(fs, k, v); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	defer unix.Close(mnt)
	return unix.MoveMount(mnt, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// point opens the place of a mount, and makes it where that is possible: in the
// root itself, in a private directory, in one that covers another.
func (b *rootBuilder) point(path string, dir bool) (int, error) {
	fd, err := openBelow(b.root, path, unix.O_PATH)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := b.mkdirs(filepath.Dir(path)); err != nil {
		return -1, err
	}
	above, err := openBelow(b.root, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if dir {
		err = unix.Mkdirat(above, filepath.Base(path), 0o755)
	} else {
		var f int
		if f, err = unix.Openat(above, filepath.Base(path), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644); err == nil {
			unix.Close(f)
		}
	}
	// In a private directory another command of the task may make room for the same.
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("make room for it: %w", err)
	}
	return openBelow(b.root, path, unix.O_PATH)
}

func (b *rootBuilder) mkdirs(path string) error {
	fd, err := openBelow(b.root, path, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		unix.Close(fd)
		return nil
	}
	if !errors.Is(err, unix.ENOENT) || path == "/" {
		return err
	}
	if err := b.mkdirs(filepath.Dir(path)); err != nil {
		return err
	}
	above, err := openBelow(b.root, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(above)
	if err := unix.Mkdirat(above, filepath.Base(path), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make room for it: %w", err)
	}
	return nil
}

// linksAndFiles makes what is not mounted. What stands there already, because
// something was granted that brings it along, stays.
func (b *rootBuilder) linksAndFiles() error {
	make := func(path string, do func() error) error {
		fd, err := unix.Openat2(b.root, "."+path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
		if err == nil {
			unix.Close(fd)
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return do()
	}
	for _, l := range b.spec.Links {
		if err := make(l.Path, func() error { return unix.Symlink(l.Target, l.Path) }); err != nil {
			return fmt.Errorf("%s: %w", l.Path, err)
		}
	}
	for _, f := range b.spec.Files {
		if err := make(f.Path, func() error { return writeSmall(f.Path, f.Text) }); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return nil
}

func (b *rootBuilder) leave() error {
	unix.Close(b.old)
	b.old = -1
	if err := unix.Unmount(oldRoot, unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Rmdir(oldRoot)
}

// freeze makes read-only what had to be written to be filled.
func (b *rootBuilder) freeze() error {
	ro := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	for _, m := range b.spec.Mounts {
		if m.How == Hide && m.Dir {
			if err := unix.MountSetattr(unix.AT_FDCWD, m.Path, 0, ro); err != nil {
				return fmt.Errorf("%s: %w", m.Path, err)
			}
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, "/", 0, ro)
}

// openBelow opens an absolute path below a directory. A link on the way, also a
// magic one, is an error.
func openBelow(dir int, path string, flags uint64) (int, error) {
	rel := strings.TrimPrefix(path, "/")
	if rel == "" {
		rel = "."
	}
	return unix.Openat2(dir, rel, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// attach mounts what the handle from stands for, with all that is mounted in it
// where deep is set, at a path or, where that is "", at the handle at.
func attach(from int, deep bool, attr uint64, at int, path string) error {
	recursive := uint(0)
	if deep {
		recursive = unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(from, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|recursive)
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|recursive, &unix.MountAttr{Attr_set: attr}); err != nil {
		return fmt.Errorf("set flags: %w", err)
	}
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if path == "" {
		flags |= unix.MOVE_MOUNT_T_EMPTY_PATH
	}
	if err := unix.MoveMount(tree, "", at, path, flags); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

func touch(path string) error { return writeSmall(path, "") }

func writeSmall(path, text string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}
