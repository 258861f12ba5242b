package taskdir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// What a crash leaves of a directory that was not published goes at the next start,
// and nothing else does.
func TestSweepUnborn(t *testing.T) {
	d := openTask(t)
	root := d.root
	if _, err := root.Unborn("left by a crash"); err != nil {
		t.Fatal(err)
	}
	kept := []string{".unborn-", ".unborn-notes", "task", "unborn-0123456789abcdef"}
	for _, name := range kept {
		if err := os.MkdirAll(filepath.Join(root.path, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.SweepUnborn(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root.path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, kept) {
		t.Errorf("%q are left, want %q", names, kept)
	}
}

// A look sees what is half written, and the sweep takes what is old.
func TestLookSeesTemporaryFiles(t *testing.T) {
	d := openTask(t)
	if look(t, d).Temps {
		t.Error("an empty directory has temporary files")
	}
	const temp = ".gasupervisor-0123456789abcdef.tmp"
	write(t, d, temp, "half")
	if err := d.Sweep(); err != nil || !look(t, d).Temps {
		t.Errorf("a file that is being written was swept (%v)", err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.join(temp), old, old); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(); err != nil || look(t, d).Temps {
		t.Errorf("a file that a crash left stays (%v)", err)
	}
}
