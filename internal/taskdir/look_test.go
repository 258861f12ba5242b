package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLook(t *testing.T) {
	d := openTask(t)
	if s := look(t, d); s.Input != nil || s.Outputs != 0 || s.LastOutput != nil || s.HasStatus || s.Taken != nil || s.Refused != nil {
		t.Errorf("an empty directory looks like %+v", s)
	}
	write(t, d, "input.txt", "hello")
	write(t, d, "_stop", "")
	write(t, d, "reply.txt", "re")
	write(t, d, "context.json", "{}")
	write(t, d, "output.txt", "one")
	write(t, d, "output2.txt", "three")
	write(t, d, "output02.txt", "not ours")
	write(t, d, "status.json", "{}")
	write(t, d, ".taken-10-reply.txt", "b")
	write(t, d, ".taken-9-_keyinfo", "a")
	write(t, d, ".taken-x-_keyinfo", "not ours")
	write(t, d, ".input.txt.tmp", "temporary")
	s := look(t, d)
	if s.Input == nil || s.Input.Size != 5 || s.Stop == nil || s.Stop.Size != 0 || s.Reply == nil || s.Reply.Size != 2 || s.Context == nil || s.Context.Size != 2 {
		t.Errorf("messages: %+v", s)
	}
	if s.History != nil || s.KeyInfo != nil || s.Intervene != nil {
		t.Errorf("what is not there was seen: %+v", s)
	}
	if s.Outputs != 3 || s.LastOutput == nil || s.LastOutput.Size != 5 || !s.HasStatus {
		t.Errorf("outputs: %+v", s)
	}
	if len(s.Taken) != 2 || s.Taken[0].Seq != 9 || s.Taken[0].Name != "_keyinfo" || s.Taken[1].Seq != 10 || s.Taken[1].Stat.Size != 1 {
		t.Errorf("taken: %+v", s.Taken)
	}
	fi, err := os.Stat(d.join("input.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Input.Mtime.Equal(fi.ModTime()) {
		t.Errorf("mtime %v, want %v", s.Input.Mtime, fi.ModTime())
	}
}

func TestLookManyEntries(t *testing.T) {
	// More than one read of the directory.
	d := openTask(t)
	for i := range 1000 {
		write(t, d, fmt.Sprintf("output%d.txt", i+1), "")
	}
	write(t, d, "input.txt", "x")
	if s := look(t, d); s.Outputs != 1001 || s.Input == nil {
		t.Errorf("%d outputs", s.Outputs)
	}
}

func TestLookRemovedAndRecreated(t *testing.T) {
	d := openTask(t)
	write(t, d, "input.txt", "one")
	if err := os.RemoveAll(d.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Look(); !errors.Is(err, ErrGone) {
		t.Fatalf("a removed directory: %v", err)
	}
	other, err := d.root.Create("task")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	write(t, other, "input.txt", "two")
	if _, err := d.Look(); !errors.Is(err, ErrGone) {
		t.Errorf("a replaced directory: %v", err)
	}
	// The old handle makes nothing in the new directory.
	if err := d.WriteStatus(NewStatus("task"), false); err == nil {
		t.Error("status was written into a removed directory")
	}
	if exists(t, other, StatusFile) {
		t.Error("the new directory has the old session's status")
	}
	s := look(t, other)
	if s.Input == nil {
		t.Error("the new directory looks empty")
	}
	if other.ID() == d.ID() {
		t.Skip("the file system gave the inode out again at once")
	}
	if !other.NewSince(d.ID(), s) {
		t.Error("another directory without a status counts as the same task")
	}
	write(t, other, "status.json", "{}")
	if other.NewSince(d.ID(), look(t, other)) {
		t.Error("a restored directory counts as a new task")
	}
}

func TestRootNames(t *testing.T) {
	root, err := OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	want := []string{"a\nb", "mein auftrag", "x", "审计", "\xff\xfe"}
	slices.Sort(want)
	for _, name := range append(want, ".hidden") {
		if err := os.Mkdir(filepath.Join(root.Path(), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root.Path(), "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := root.Names()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, name := range want {
		d, err := root.Open(name)
		if err != nil {
			t.Error(err)
			continue
		}
		d.Close()
	}
	for _, name := range []string{".hidden", "..", "x/..", ""} {
		if d, err := root.Open(name); err == nil {
			d.Close()
			t.Errorf("%q was opened", name)
		}
	}
	_, err = root.Open("file")
	wantRefused(t, err)
	if _, err := root.Open("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := root.Create("x"); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	var ne *NameError
	if _, err := root.Create("../x"); !errors.As(err, &ne) {
		t.Error(err)
	}
}

func TestClosedDir(t *testing.T) {
	d := openTask(t)
	write(t, d, "subagent_plan.md", "- [ ] step")
	d.Close()
	if _, err := d.ReadPlan(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed directory was read: %v", err)
	}
}

func BenchmarkLook(b *testing.B) {
	d := openTask(b)
	for _, name := range []string{"input.txt", "output.txt", "output1.txt", "status.json", "events.jsonl", "history.json", "subagent_plan.md"} {
		write(b, d, name, "x")
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Look(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenAndLook(b *testing.B) {
	d := openTask(b)
	write(b, d, "input.txt", "x")
	b.ReportAllocs()
	for b.Loop() {
		again, err := d.root.Open(d.name)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := again.Look(); err != nil {
			b.Fatal(err)
		}
		again.Close()
	}
}
