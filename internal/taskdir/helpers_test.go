package taskdir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// openTask opens a new task in a new temp directory.
func openTask(t testing.TB, options ...Option) *Dir {
	t.Helper()
	root, err := OpenRoot(t.TempDir(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	d, err := root.Create("task")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func write(t testing.TB, d *Dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(d.join(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, d *Dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(d.join(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func exists(t testing.TB, d *Dir, name string) bool {
	t.Helper()
	_, err := os.Lstat(d.join(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func look(t testing.TB, d *Dir) Sight {
	t.Helper()
	s, err := d.Look()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func take(t testing.TB, d *Dir, name string, seq uint64) *Pending {
	t.Helper()
	p, err := d.Take(name, seq)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// readWhole reads as a session does, waiting as long as it is told to.
func readWhole(t testing.TB, d *Dir, p *Pending) Content {
	t.Helper()
	c, err := readAtLast(d, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readAtLast returns the first answer that is not to wait.
func readAtLast(d *Dir, p *Pending) (Content, error) {
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := d.Read(p, time.Now())
		var nw ErrNotWhole
		if !errors.As(err, &nw) || time.Now().After(deadline) {
			return c, err
		}
		time.Sleep(nw.RetryAfter)
	}
}

func wantNotWhole(t testing.TB, err error) ErrNotWhole {
	t.Helper()
	var nw ErrNotWhole
	if !errors.As(err, &nw) {
		t.Fatalf("got %v, want ErrNotWhole", err)
	}
	return nw
}

func wantRefused(t testing.TB, err error) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a *RefusedError", err)
	}
}

// eventually waits for something that another goroutine or process does.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !waittest.Poll(cond) {
		t.Fatalf("waited in vain for %s", what)
	}
}

// glob lists the names in a task that match.
func glob(t testing.TB, d *Dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(d.join(pattern))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range paths {
		paths[i] = filepath.Base(p)
	}
	return paths
}
