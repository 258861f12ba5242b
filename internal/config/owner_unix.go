//go:build unix

package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writableByOthers says how somebody else could have written, or could replace, a
// file that was found rather than named; "" where nobody can. A configuration
// decides where keys are sent.
func writableByOthers(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	if st.Mode().Perm()&0o002 != 0 {
		return "which everybody may write: chmod o-w it"
	}
	if uid, ok := owner(st); ok && uid != 0 && uid != os.Geteuid() {
		return fmt.Sprintf("which belongs to another user (uid %d)", uid)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err.Error()
	}
	if dir.Mode().Perm()&0o002 != 0 && dir.Mode()&fs.ModeSticky == 0 {
		return "in a directory where everybody may write: chmod o-w the directory"
	}
	return ""
}

func owner(st fs.FileInfo) (uid int, ok bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

func readableByOthers(st fs.FileInfo) bool {
	return st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0
}
