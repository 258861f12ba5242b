//go:build unix

package taskdir

import "golang.org/x/sys/unix"

func renameChecked(fromDir int, from string, toDir int, to string) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		return unix.EEXIST
	case unix.ENOENT:
		return unix.Renameat(fromDir, from, toDir, to)
	default:
		return err
	}
}
