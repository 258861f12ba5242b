package taskdir

import (
	"os"

	"golang.org/x/sys/unix"
)

// writers says whether a process has the open file open for writing; known is
// false where the system cannot tell. f must be open for reading only.
//
// A read lease is refused as long as there is a writer. It is given back before
// anything else is done: a process that opens the file for writing meanwhile
// waits for that moment, and the signal that the kernel sends us then is one
// that the Go runtime catches and drops.
func writers(f *os.File) (open, known bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, false
	}
	cerr := raw.Control(func(fd uintptr) {
		var st unix.Statfs_t
		if unix.Fstatfs(int(fd), &st) != nil || !local(int64(st.Type)) {
			return
		}
		switch _, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); err {
		case nil:
			// Cannot fail for a lease that we hold, and closing would end it too.
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
			known = true
		case unix.EAGAIN:
			open, known = true, true
		}
	})
	return open, known && cerr == nil
}

// File systems that x/sys/unix has no name for.
const (
	bcachefsMagic = 0xca451a4e
	zfsMagic      = 0x2fc12fc1
)

// local says whether all writers of files on a file system of this type are
// processes of this kernel that a lease sees. Network file systems, FUSE and
// shared folders of virtual machines have writers elsewhere; an overlay hides
// those that use the layer below.
func local(fstype int64) bool {
	switch uint32(fstype) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
		unix.F2FS_SUPER_MAGIC, unix.REISERFS_SUPER_MAGIC, bcachefsMagic, zfsMagic:
		return true
	}
	return false
}
