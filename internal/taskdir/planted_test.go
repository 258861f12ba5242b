//go:build unix

package taskdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

// What may be planted at a name, and must neither be followed nor block.
func plant(t *testing.T, victim string) map[string]func(path string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func(path string){
		"link":          func(path string) { must(os.Symlink(victim, path)) },
		"dangling link": func(path string) { must(os.Symlink(victim+"-not-there", path)) },
		"hard link":     func(path string) { must(os.Link(victim, path)) },
		"directory":     func(path string) { must(os.MkdirAll(filepath.Join(path, "full"), 0o755)) },
		"pipe":          func(path string) { mkfifo(t, path) },
	}
}

func TestPlantedMessages(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, put := range plant(t, victim) {
		for _, name := range []string{InputFile, ContextFile, ForkFile, ReplyFile, StopFile, KeyInfoFile, InterveneFile} {
			t.Run(what+" as "+name, func(t *testing.T) {
				d := openTask(t)
				put(d.join(name))
				s := look(t, d)
				if len(s.Refused) != 1 || s.Refused[0].Name != name || s.Refused[0].Why == "" {
					t.Errorf("refused: %+v", s.Refused)
				}
				if taken(name) {
					_, err := d.Take(name, 1)
					wantRefused(t, err)
				}
				if _, err := os.Lstat(d.join(name)); err != nil {
					t.Error("it was moved:", err)
				}
				_, err := d.Read(d.InPlace(name), time.Now())
				wantRefused(t, err)
				put(d.join(takenName(1, StopFile)))
				_, err = d.Read(d.Resume(TakenFile{Seq: 1, Name: StopFile, File: takenName(1, StopFile)}), time.Now())
				wantRefused(t, err)
			})
		}
	}
}

func TestPlantedOutputs(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, put := range plant(t, victim) {
		t.Run(what, func(t *testing.T) {
			d := openTask(t)
			for _, name := range []string{"output.txt", StatusFile, EventsFile, HistoryFile, ResultFile, PlanFile} {
				put(d.join(name))
			}
			if _, err := d.ReadPlan(); err == nil {
				t.Error("the plan was read")
			} else {
				wantRefused(t, err)
			}
			_, err := d.ReopenOutput(0, 0)
			wantRefused(t, err)
			if done, err := d.Finished(0); done || err != nil {
				t.Error(done, err)
			}
			o, err := d.CreateOutput(0)
			if err != nil {
				t.Fatal(err)
			}
			o.Text("hello")
			if err := errors.Join(o.End(), o.Close()); err != nil {
				t.Fatal(err)
			}
			e, err := d.Events()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(e.Append(time.Now(), "x", nil), e.Close()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.WriteStatus(NewStatus("x"), true), d.WriteHistory([]byte("[]")), d.WriteResult([]byte("{}")), d.WritePlan("- [ ] x")); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"output.txt", StatusFile, EventsFile, HistoryFile, ResultFile, PlanFile} {
				fi, err := os.Lstat(d.join(name))
				if err != nil || !fi.Mode().IsRegular() || fi.Size() == 0 {
					t.Errorf("%s: %v %v", name, fi, err)
				}
			}
			if got := read(t, d, "output.txt"); got != "hello"+ending {
				t.Errorf("output %q", got)
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != "precious" {
				t.Errorf("the victim holds %q, %v", data, err)
			}
			if _, err := os.Lstat(victim + "-not-there"); err == nil {
				t.Error("a file was created through a link")
			}
			if len(glob(t, d, ".stray-1-output.txt")) != 1 {
				t.Error("what stood in the way is gone")
			}
		})
	}
}

// A reader of the status must not hang or be led elsewhere either.
func TestPlantedStatus(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, put := range plant(t, victim) {
		d := openTask(t)
		put(d.join(StatusFile))
		_, err := ReadStatus(d.Path())
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPlantedArchive(t *testing.T) {
	outside := t.TempDir()
	d := openTask(t)
	write(t, d, "output.txt", "one")
	if err := os.Symlink(outside, d.join("old")); err != nil {
		t.Fatal(err)
	}
	if n, err := d.NextOld(); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := d.Archive(1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := read(t, d, "old/1/output.txt"); got != "one" {
		t.Errorf("got %q", got)
	}
	write(t, d, "output.txt", "two")
	if err := os.Symlink(outside, d.join("old/2")); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Archive(2); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("written outside: %v %v", entries, err)
	}
}

func TestLinkedTaskDirectory(t *testing.T) {
	root, err := OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	victim := t.TempDir()
	if err := os.Symlink(victim, filepath.Join(root.Path(), "linked")); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, filepath.Join(root.Path(), "pipe"))
	names, err := root.Names()
	if err != nil || !slices.Equal(names, []string{"linked"}) {
		t.Error(names, err)
	}
	_, err = root.Open("linked")
	wantRefused(t, err)
	_, err = root.Open("pipe")
	wantRefused(t, err)
	wantRefused(t, WriteInput(root.Path(), "linked", "x"))
	wantRefused(t, WriteReply(root.Path(), "linked", "x"))
	if entries, err := os.ReadDir(victim); err != nil || len(entries) != 0 {
		t.Errorf("written outside: %v %v", entries, err)
	}
	// Swapped for a link while it is open: the handle stays where it was.
	d, err := root.Create("task")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.Rename(d.Path(), d.Path()+" moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, d.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Look(); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if err := d.WriteStatus(NewStatus("task"), false); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(victim); err != nil || len(entries) != 0 {
		t.Errorf("written outside: %v %v", entries, err)
	}
}

func TestPlantedLogs(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	print := func(t *testing.T, temp, text string) {
		t.Helper()
		f, err := CreateLog(temp, "t", "stdout.log")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(temp, "t", "stdout.log")); err != nil || string(got) != text {
			t.Errorf("the log holds %q, %v; want %q", got, err, text)
		}
	}
	for what, put := range plant(t, victim) {
		t.Run(what, func(t *testing.T) {
			temp := t.TempDir()
			dir := filepath.Join(temp, "t")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			put(filepath.Join(dir, "stdout.log"))
			put(filepath.Join(dir, InputFile))
			print(t, temp, "first")
			print(t, temp, "2nd")
			_, err := ReadMessage(temp, "t", InputFile)
			wantRefused(t, err)
			if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
				t.Errorf("the victim holds %q, %v", got, err)
			}
		})
	}
}

func TestTakeRefused(t *testing.T) {
	d := openTask(t)
	mkfifo(t, d.join(ReplyFile))
	p, err := d.TakeRefused(ReplyFile, 3)
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := d.Read(p, time.Now()); !errors.As(err, &refused) {
		t.Errorf("read: %v", err)
	}
	if name, err := d.SetAside(p); name != ".refused-3-reply.txt" || err != nil {
		t.Errorf("set aside as %q, %v", name, err)
	}
	if _, err := d.TakeRefused(ReplyFile, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is gone: %v", err)
	}
	write(t, d, ReplyFile, "a message")
	if _, err := d.TakeRefused(ReplyFile, 4); !errors.Is(err, fs.ErrInvalid) || look(t, d).Reply == nil {
		t.Errorf("a message: %v", err)
	}
	if _, err := d.TakeRefused(InputFile, 4); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("what is never taken: %v", err)
	}
}
