//go:build unix

package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteAtStaysInItsDirectory(t *testing.T) {
	base := t.TempDir()
	ours, moved, theirs := filepath.Join(base, "a"), filepath.Join(base, "b"), filepath.Join(base, "c")
	for _, d := range []string{ours, theirs} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, ours)
	if err := os.Rename(ours, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(theirs, ours); err != nil {
		t.Fatal(err)
	}
	if err := WriteAt(d, "f", []byte("x"), 0o644, true); err != nil {
		t.Fatal(err)
	}
	wantContent(t, filepath.Join(moved, "f"), "x")
	if got := names(t, theirs); len(got) != 0 {
		t.Errorf("the directory that took the place holds %q", got)
	}
}
