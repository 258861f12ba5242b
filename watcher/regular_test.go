package watcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// The clock of these tests is not real, the directories are; a real fsnotify
// would hold the clock up.

func regular(t *testing.T, n int, f func(t *testing.T, w *Watcher, b *fake, dir string, next func() (Look, time.Duration))) {
	dir := t.TempDir()
	for i := range n {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("t", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newFake()
		w := New(Config{Dir: dir, Counts: counts, NewBackend: func() (Backend, error) { return b, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		f(t, w, b, dir, func() (Look, time.Duration) {
			l := <-w.Looks()
			return l, time.Since(began)
		})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if !b.closed.Load() {
			t.Error("the backend was not closed")
		}
	})
}

func TestRegularLook(t *testing.T) {
	for _, n := range []int{1, 40, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			regular(t, n, func(t *testing.T, w *Watcher, b *fake, dir string, next func() (Look, time.Duration)) {
				for range n {
					if l, at := next(); l.Why != Appeared || at != 0 {
						t.Fatalf("look %v at %v, want the tasks that are there at once", l, at)
					}
				}
				for minute := 1; minute <= 2; minute++ {
					seen := map[string]bool{}
					var last time.Duration
					for range n {
						l, at := next()
						if l.Why != Regular || seen[l.Task] {
							t.Fatalf("look %v, seen before: %v", l, seen[l.Task])
						}
						seen[l.Task] = true
						at -= time.Duration(minute) * DefaultInterval
						if at < 0 || at > DefaultInterval/6 {
							t.Fatalf("look %v %v after the minute", l, at)
						}
						last = at
					}
					if n >= 2000 && last < 2*time.Second {
						t.Errorf("%d looks within %v, want them spread", n, last)
					}
				}
				if n := b.watches[filepath.Join(dir, "t0")]; n != 3 {
					t.Errorf("a task's watch was made sure of %d times, want with every look", n)
				}
			})
		})
	}
}

// What no event has told of is found within a minute.
func TestRegularLookFindsWhatWasMissed(t *testing.T) {
	regular(t, 3, func(t *testing.T, w *Watcher, b *fake, dir string, next func() (Look, time.Duration)) {
		for range 3 {
			next()
		}
		keep := filepath.Join(dir, "kept inode")
		for _, err := range []error{
			os.Mkdir(filepath.Join(dir, "new"), 0o755),
			os.RemoveAll(filepath.Join(dir, "t0")),
			os.Rename(filepath.Join(dir, "t1"), keep), // so that the next one has another inode
			os.Mkdir(filepath.Join(dir, "t1"), 0o755),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := map[Look]bool{{"new", Appeared}: true, {"kept inode", Appeared}: true, {"t0", Removed}: true, {"t1", Regular}: true, {"t2", Regular}: true}
		for len(want) > 0 {
			l, at := next()
			if !want[l] {
				t.Errorf("look %v, want one of %v", l, want)
			}
			if at < DefaultInterval || at > DefaultInterval+DefaultInterval/6 {
				t.Errorf("look %v at %v", l, at)
			}
			delete(want, l)
		}
		if b.has(filepath.Join(dir, "t0")) || !b.has(filepath.Join(dir, "new")) {
			t.Error("watches do not follow")
		}
		if n := b.watches[filepath.Join(dir, "t1")]; n != 1 {
			t.Errorf("the watch of a directory with another inode was added %d times since it was removed, want anew", n)
		}
	})
}

func TestRegularLookWithoutReader(t *testing.T) {
	regular(t, 100, func(t *testing.T, w *Watcher, b *fake, dir string, next func() (Look, time.Duration)) {
		time.Sleep(5*time.Minute + 30*time.Second) // the fake clock's: nobody reads that long
		seen := map[string]int{}
		for range 100 {
			l, _ := next()
			seen[l.Task]++
		}
		if len(seen) != 100 {
			t.Errorf("%d tasks in 100 looks, want no duplicates", len(seen))
		}
		if _, at := next(); at < 6*time.Minute {
			t.Errorf("a further look at %v, before the next minute", at)
		}
	})
}

func TestIdleSleeps(t *testing.T) {
	regular(t, 10, func(t *testing.T, w *Watcher, b *fake, dir string, next func() (Look, time.Duration)) {
		for range 10 {
			next()
		}
		// Nothing but the minute's look wakes it: in a bubble the clock only moves
		// when all sleep, so a busy loop would hang here.
		if _, at := next(); at < DefaultInterval {
			t.Errorf("a look at %v without an event", at)
		}
	})
}
