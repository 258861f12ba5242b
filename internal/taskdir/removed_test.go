package taskdir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What a removal that was broken off has left goes, and nothing else does: not what
// links in it point to, nor what only has such a name.
func TestSweepRemoved(t *testing.T) {
	d := openTask(t)
	root := d.root
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	const left, link, file = ".removed-0123456789abcdef", ".removed-0123456789abcde0", ".removed-0123456789abcde1"
	kept := []string{".removed-", link, file, ".removed-0123456789ABCDEF", ".removed-notes", "removed-0123456789abcdef", "task"}
	for _, name := range append(slices.DeleteFunc(slices.Clone(kept), func(n string) bool { return n == link || n == file }), left+"/deep") {
		if err := os.MkdirAll(filepath.Join(root.path, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(root.path, left, "deep", "output.txt"), []byte("half"), 0o644),
		os.WriteFile(filepath.Join(root.path, file), []byte("a note"), 0o644),
		os.WriteFile(filepath.Join(outside, "file"), []byte("whole"), 0o644),
		os.Symlink(outside, filepath.Join(root.path, left, "link")),
		os.Symlink(outside, filepath.Join(root.path, link)),
	)
	if err != nil {
		t.Skip("no links here: ", err)
	}
	if err := root.SweepRemoved(context.Background()); err != nil {
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
	slices.Sort(kept)
	if !slices.Equal(names, kept) {
		t.Errorf("%q are left, want %q", names, kept)
	}
	if text, err := os.ReadFile(filepath.Join(outside, "file")); string(text) != "whole" {
		t.Errorf("a link was followed: %q, %v", text, err)
	}
}

func TestRemove(t *testing.T) {
	d := openTask(t)
	write(t, d, "output.txt", "done")
	path := d.root.path
	if err := Remove(path, d.Name()); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		t.Errorf("%v is left (%v)", entries, err)
	}
	if err := Remove(path, d.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
	var bad *NameError
	if err := Remove(path, ".."); !errors.As(err, &bad) {
		t.Errorf("a name that leads out: %v", err)
	}
}
