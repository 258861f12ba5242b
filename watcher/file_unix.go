//go:build unix

package watcher

import (
	"io/fs"
	"os"
	"syscall"
)

// fileID tells files apart that had the same name.
type fileID struct{ dev, ino uint64 }

func idOf(info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{uint64(st.Dev), uint64(st.Ino)}
}

// openDir opens a directory and nothing else: what has taken its place meanwhile
// is not followed and cannot hold us.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
