package retention

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// place is a temp and a state directory with tasks in them.
type place struct {
	t *testing.T
	Config
}

func newPlace(t *testing.T) *place {
	state := t.TempDir()
	return &place{t, Config{
		TempDir: t.TempDir(), StateDir: state, Archived: filepath.Join(state, "archived"), Dest: filepath.Join(state, "archive"),
		After: time.Hour, Now: time.Now(),
	}}
}

// task makes a task whose session got to a state some time ago.
func (p *place) task(name string, state taskdir.State, ago time.Duration) {
	p.t.Helper()
	dir := filepath.Join(p.TempDir, name)
	p.write(filepath.Join(dir, "input.txt"), "do "+name)
	then := p.Now.Add(-ago)
	os.Chtimes(filepath.Join(dir, "input.txt"), then, then.Add(-time.Minute))
	st := taskdir.NewStatus(name)
	st.State, st.UpdatedAt = state, taskdir.Time{Time: then}
	b, err := st.Encode()
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(filepath.Join(dir, "status.json"), string(b))
	p.write(filepath.Join(p.StateDir, journal.Place(name), "session.jsonl"), "journal of "+name)
}

func (p *place) write(path, text string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(b) + h.Linkname
	}
}

func TestPruneTakesWhatIsLongOver(t *testing.T) {
	p := newPlace(t)
	p.task("old", taskdir.Ended, 2*time.Hour)
	p.task("fresh", taskdir.Ended, time.Minute)
	p.task("waiting", taskdir.AwaitingReply, 3*time.Hour)
	p.task("answered", taskdir.Ended, 2*time.Hour)
	p.write(filepath.Join(p.TempDir, "answered", "reply.txt"), "go on")
	p.write(filepath.Join(p.TempDir, "other", "input.txt"), "no session yet")
	victim := filepath.Join(t.TempDir(), "victim")
	p.write(victim, "secret")
	if err := os.Symlink(victim, filepath.Join(p.TempDir, "old", "link")); err != nil {
		t.Fatal(err)
	}

	dry := p.Config
	dry.DryRun = true
	if got, err := Prune(context.Background(), dry); err != nil || len(got) != 1 || got[0].Task != "old" || got[0].Archive != "" {
		t.Fatalf("dry run: %+v, %v", got, err)
	}
	got, err := Prune(context.Background(), p.Config)
	if err != nil || len(got) != 1 || got[0].Task != "old" {
		t.Fatalf("got %+v, %v", got, err)
	}
	files := contents(t, got[0].Archive)
	if files["task/input.txt"] != "do old" || files["journal/0/session.jsonl"] != "journal of old" {
		t.Errorf("the archive holds %v", files)
	}
	if files["task/link"] != victim {
		t.Errorf("the link was not kept as one: %q", files["task/link"])
	}
	var left []string
	entries, _ := os.ReadDir(p.TempDir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"answered", "fresh", "other", "waiting"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if _, err := os.Lstat(filepath.Join(p.StateDir, journal.Place("old"))); err == nil {
		t.Error("the journal is still there")
	}
}

func TestPruneFinishesWhatWasKilled(t *testing.T) {
	p := newPlace(t)
	p.task("old", taskdir.Ended, 2*time.Hour)
	// Killed after the directory was hidden, and a daemon had put the journal aside.
	place := journal.Place("old")
	hidden := hiddenPrefix + "20260101T000000Z-" + place
	p.write(filepath.Join(p.Archived, hidden), "")
	if err := os.Rename(filepath.Join(p.TempDir, "old"), filepath.Join(p.TempDir, hidden)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(p.StateDir, place), filepath.Join(p.Archived, place+".1")); err != nil {
		t.Fatal(err)
	}
	if _, err := Prune(context.Background(), p.Config); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(p.Dest, "*.tar.gz"))
	if err != nil || len(made) != 1 || !strings.Contains(made[0], place) {
		t.Fatalf("archives %v, %v", made, err)
	}
	if files := contents(t, made[0]); files["task/input.txt"] != "do old" || files["journal/0/session.jsonl"] != "journal of old" {
		t.Errorf("the archive holds %v", files)
	}
	for _, dir := range []string{p.TempDir, p.Archived} {
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("left: %v", entries)
		}
	}
}

// Killed between the note and the rename: the task is as it was, and packed again.
// Who packs the same task at the same time would archive what is being deleted.
func TestPruneIsAlone(t *testing.T) {
	p := newPlace(t)
	p.task("old", taskdir.Ended, 2*time.Hour)
	if err := os.MkdirAll(p.Dest, 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := lock.Acquire(p.Dest)
	if err != nil {
		t.Fatal(err)
	}
	if packed, err := Prune(t.Context(), p.Config); !errors.Is(err, lock.ErrHeld) || len(packed) > 0 {
		t.Errorf("beside another one: %v, %v", packed, err)
	}
	p.DryRun = true
	if packed, err := Prune(t.Context(), p.Config); err != nil || len(packed) != 1 {
		t.Errorf("a dry run beside another one: %v, %v", packed, err)
	}
	p.DryRun = false
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
	if packed, err := Prune(t.Context(), p.Config); err != nil || len(packed) != 1 {
		t.Errorf("afterwards: %v, %v", packed, err)
	}
}

func TestPruneForgetsWhatWasNotBegun(t *testing.T) {
	p := newPlace(t)
	p.task("waiting", taskdir.AwaitingReply, 2*time.Hour)
	note := filepath.Join(p.Archived, hiddenPrefix+"20260101T000000Z-"+journal.Place("waiting"))
	p.write(note, "")
	if got, err := Prune(context.Background(), p.Config); err != nil || len(got) > 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(p.StateDir, journal.Place("waiting"), "session.jsonl")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(note); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note: %v", err)
	}
}

// Whoever writes to the temp directory can make directories that look like those
// that are being packed. They are nobody's, and cost nobody a journal.
func TestPruneLeavesPlantedNames(t *testing.T) {
	p := newPlace(t)
	p.task("waiting", taskdir.AwaitingReply, 2*time.Hour)
	keep := []string{
		filepath.Join(p.StateDir, journal.Place("waiting"), "session.jsonl"),
		filepath.Join(p.StateDir, "usage", "2026-01-01.jsonl"),
	}
	p.write(keep[1], "{}")
	for _, names := range []string{journal.Place("waiting"), "usage", "..", ".", ""} {
		p.write(filepath.Join(p.TempDir, hiddenPrefix+"20260101T000000Z-"+names, "x"), "planted")
	}
	if got, err := Prune(context.Background(), p.Config); err != nil || len(got) > 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, path := range keep {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// midway is a context that calls then when the directory of a task has been hidden and
// is about to be read.
type midway struct {
	context.Context
	hidden string
	then   func()
}

func (m *midway) Err() error {
	if found, _ := filepath.Glob(m.hidden); m.then != nil && len(found) > 0 {
		then := m.then
		m.then = nil
		then()
	}
	return m.Context.Err()
}

// A daemon that runs sees that the directory is gone, and puts the journal aside while
// it is being packed; a supervisor may begin a task of the same name at once.
func TestPruneBesideADaemon(t *testing.T) {
	for _, again := range []bool{false, true} {
		p := newPlace(t)
		p.task("old", taskdir.Ended, 2*time.Hour)
		place := journal.Place("old")
		fresh := filepath.Join(p.StateDir, place, "session.jsonl")
		ctx := &midway{Context: t.Context(), hidden: filepath.Join(p.TempDir, hiddenPrefix+"*")}
		ctx.then = func() {
			if err := os.Rename(filepath.Join(p.StateDir, place), filepath.Join(p.Archived, place+".1")); err != nil {
				t.Fatal(err)
			}
			if again {
				p.write(filepath.Join(p.TempDir, "old", "input.txt"), "do it again")
				p.write(fresh, "a new session")
			}
		}
		got, err := Prune(ctx, p.Config)
		if err != nil || len(got) != 1 || ctx.then != nil {
			t.Fatalf("begun again %t: got %+v, %v", again, got, err)
		}
		if files := contents(t, got[0].Archive); files["task/input.txt"] != "do old" || files["journal/0/session.jsonl"] != "journal of old" {
			t.Errorf("begun again %t: the archive holds %v", again, files)
		}
		if entries, _ := os.ReadDir(p.Archived); len(entries) != 0 {
			t.Errorf("begun again %t: left in archived: %v", again, entries)
		}
		if text, _ := os.ReadFile(fresh); again && string(text) != "a new session" {
			t.Errorf("the journal of the new session holds %q", text)
		}
	}
}

// What was killed is finished when a new task has its name: that one keeps its journal.
func TestPruneFinishesBesideANewTask(t *testing.T) {
	for _, noted := range []string{"old", ""} {
		p := newPlace(t)
		p.task("old", taskdir.Ended, 2*time.Hour)
		place := journal.Place("old")
		hidden := hiddenPrefix + "20260101T000000Z-" + place
		p.write(filepath.Join(p.Archived, hidden), noted)
		if err := os.Rename(filepath.Join(p.TempDir, "old"), filepath.Join(p.TempDir, hidden)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(p.StateDir, place), filepath.Join(p.Archived, place+".1")); err != nil {
			t.Fatal(err)
		}
		p.task("old", taskdir.AwaitingReply, time.Minute)
		if _, err := Prune(t.Context(), p.Config); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(p.StateDir, place, "session.jsonl")); err != nil {
			t.Errorf("note %q: the journal of the new session: %v", noted, err)
		}
		made, _ := filepath.Glob(filepath.Join(p.Dest, "*.tar.gz"))
		if len(made) != 1 {
			t.Fatalf("note %q: archives %v", noted, made)
		}
		if files := contents(t, made[0]); files["journal/0/session.jsonl"] != "journal of old" || files["journal/1/session.jsonl"] != "" {
			t.Errorf("note %q: the archive holds %v", noted, files)
		}
	}
}
