//go:build windows

package watcher

import (
	"io/fs"
	"os"
	"syscall"
)

// fileID tells files apart that had the same name. The index of a file is not to
// be had without opening it, its time of creation is.
type fileID struct{ created int64 }

func idOf(info fs.FileInfo) fileID {
	d, ok := info.Sys().(*syscall.Win32FileAttributeData)
	if !ok {
		return fileID{}
	}
	return fileID{d.CreationTime.Nanoseconds()}
}

func openDir(path string) (*os.File, error) { return os.Open(path) }
