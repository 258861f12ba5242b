//go:build unix

package retention

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe that took a file's place after it was looked at has no writer, and opening
// it would wait for one.
func TestPipeInPlaceOfAFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "f"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if f, err := openRegular(root, "f"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("opened %v, %v", f, err)
	}
}
