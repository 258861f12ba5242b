package taskdir

import (
	"errors"

	"golang.org/x/sys/unix"
)

// renameExclusive renames unless the new name is taken (fs.ErrExist). File
// systems without such a rename get a look before it, which is as good as long
// as nobody but us makes such names.
func renameExclusive(fromDir int, from string, toDir int, to string) error {
	err := unix.RenameatxNp(fromDir, from, toDir, to, unix.RENAME_EXCL)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return renameChecked(fromDir, from, toDir, to)
	}
	return err
}
