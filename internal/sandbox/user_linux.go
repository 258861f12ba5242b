package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canActAsOthers says why agents cannot act as another user than the daemon.
func canActAsOthers() error {
	if os.Geteuid() != 0 {
		return errors.New("only a daemon that runs as root can let agents act as another user: leave it empty, or run it as root")
	}
	return nil
}

// remember notes the daemon's groups.
func (u *User) remember() (err error) {
	if u.own, err = unix.Getgroups(); err != nil {
		return fmt.Errorf("read the daemon's groups: %w", err)
	}
	return nil
}

// act does something with the rights of the user, as far as files are concerned: the
// kernel then decides as it does for the user's commands, and what is made is the
// user's. It holds for one thread, which does nothing else meanwhile. Calls do not
// nest.
func (u *User) act(do func() error) error {
	if u == nil {
		return do()
	}
	runtime.LockOSThread()
	defer func() {
		if err := takeOn(0, os.Getegid(), u.own); err != nil {
			// The thread would go on as somebody else.
			panic(fmt.Errorf("act as the daemon again: %w", err))
		}
		runtime.UnlockOSThread()
	}()
	if err := takeOn(u.UID, u.GID, nil); err != nil {
		return fmt.Errorf("act as user %s: %w", u.Name, err)
	}
	return do()
}

// takeOn gives the calling thread, and it alone, other ids for the file system. Away
// from root it also loses root's power over files (capabilities(7)).
func takeOn(uid, gid int, groups []int) error {
	list := make([]uint32, len(groups)+1) // never of length 0, to have an address
	for i, g := range groups {
		list[i] = uint32(g)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
		return fmt.Errorf("groups: %w", errno)
	}
	// These two never fail; asking again tells what came of it.
	unix.SetfsgidRetGid(gid)
	unix.SetfsuidRetUid(uid)
	if got, _ := unix.SetfsgidRetGid(-1); got != gid {
		return fmt.Errorf("group %d is refused", gid)
	}
	if got, _ := unix.SetfsuidRetUid(-1); got != uid {
		return fmt.Errorf("user %d is refused", uid)
	}
	return nil
}

// MayWrite reports whether the user may write a file, or make files in a directory.
// What leads there does not count: commands reach what is granted without.
func (u *User) MayWrite(path string) bool {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	want := uint32(unix.W_OK)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want |= unix.X_OK
	}
	return u.act(func() error { return unix.Faccessat(fd, "", want, unix.AT_EACCESS|unix.AT_EMPTY_PATH) }) == nil
}

// Owns reports whether a directory, and no link to one, is there and the user's.
func (u *User) Owns(dir string) bool {
	owner := os.Geteuid()
	if u != nil {
		owner = u.UID
	}
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == owner
}

// Give makes a directory the user's that belongs to the daemon, as what root makes
// does, and leaves any other alone. A link, also on the way, is an error.
func (u *User) Give(dir string) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return nil
	}
	if err := unix.Fchown(fd, u.UID, u.GID); err != nil {
		return fmt.Errorf("give %s to user %s: %w", dir, u.Name, err)
	}
	return nil
}
