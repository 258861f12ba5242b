package confine

import (
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newestABI is the newest version of Landlock of which all rights are named here.
// Newer kernels are asked for these: what they have more is not handled, which
// makes them as strict as this one.
const newestABI = 7

// minABI is the version from which Landlock alone confines commands: the first
// that keeps signals and abstract sockets inside (6.12).
const minABI = 6

// landlockABI returns the kernel's version of Landlock; 0 is none.
func landlockABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// The rights.
const (
	mayRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	// Devices are not made, and ioctls not given to those that are there.
	mayWrite = mayRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// ofFiles are the rights that can be given for a file; the rest is for directories.
	ofFiles = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	toDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// handled returns all that a version of Landlock can forbid (landlock(7)).
func handled(abi int) unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{Handled_access_fs: 1<<13 - 1}
	if abi >= 2 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return a
}

// rule is what is allowed at and below a path.
type rule struct {
	path   string
	access uint64
}

// rules returns what a command may do where.
func rules(s *spec) []rule {
	var list []rule
	if s.Level == Full {
		// The root holds nothing that may not be read.
		list = append(list, rule{"/", mayRead}, rule{"/dev", toDevice}, rule{"/dev/shm", mayWrite})
	} else {
		for _, name := range devices {
			list = append(list, rule{"/dev/" + name, toDevice})
		}
		list = append(list, rule{"/proc", mayRead})
	}
	for _, m := range s.Mounts {
		switch m.How {
		case Write:
			list = append(list, rule{m.Path, mayWrite})
		case Read:
			list = append(list, rule{m.Path, mayRead})
		}
	}
	return list
}

// restrictPaths puts the calling thread, and what it starts, behind Landlock. A
// kernel without Landlock is an error where nothing else keeps the paths.
func restrictPaths(s *spec) error {
	abi := landlockABI()
	if s.Level == Full && abi == 0 {
		return nil
	}
	if s.Level != Full && abi < minABI {
		return fmt.Errorf("version %d of the kernel's Landlock is too old: %d is needed", abi, minABI)
	}
	attr := handled(min(abi, newestABI))
	size := unsafe.Offsetof(attr.Quiet_access_fs)
	switch {
	case abi < 4:
		size = unsafe.Offsetof(attr.Handled_access_net)
	case abi < 6:
		size = unsafe.Offsetof(attr.Scoped)
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("create ruleset: %w", errno)
	}
	defer unix.Close(int(set))
	for _, r := range rules(s) {
		if err := allow(int(set), r, attr.Handled_access_fs); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("restrict: %w", errno)
	}
	return nil
}

func allow(set int, r rule, handled uint64) error {
	fd, err := openNoLinks(r.path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil // nothing is allowed of what is not there, or out of the user's reach
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	access := r.access & handled
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= ofFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func openNoLinks(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, filepath.Clean(path), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}
