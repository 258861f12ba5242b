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
	if err := os.Rename(filepath.Join(p.TempDir, "old"), filepath.Join(p.TempDir, hiddenPrefix+"20260101T000000Z-"+place)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(p.Archived, 0o700); err != nil {
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
	if entries, _ := os.ReadDir(p.TempDir); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}
