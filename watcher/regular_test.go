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
		want := map[Look]bool{{Task: "new", Why: Appeared}: true, {Task: "kept inode", Why: Appeared}: true, {Task: "t0", Why: Removed}: true, {Task: "t1", Why: Regular}: true, {Task: "t2", Why: Regular}: true}
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

// Of most tasks the minute's pass finds that nothing has happened to them.
func TestRegularLookIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	const n = 40
	path := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	write := func(task, name, text string) {
		t.Helper()
		// Old enough to be trusted by the clock of the test, which is another one.
		if err := os.WriteFile(path(task, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{path(task, name), path(task)} {
			if err := os.Chtimes(p, time.Time{}, time.Now().Add(time.Duration(len(text))-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n {
		task := fmt.Sprint("t", i)
		if err := os.Mkdir(path(task), 0o755); err != nil {
			t.Fatal(err)
		}
		write(task, "input.txt", "x")
	}
	write("t1", "reply.txt", "x") // that nobody has taken
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Dir: dir, Counts: counts, Rests: func(name string) bool { return name == "input.txt" },
			NewBackend: func() (Backend, error) { return newFake(), nil }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		// minute returns the tasks that are looked at in the next one.
		minute := func() map[string]bool {
			end := time.After(DefaultInterval)
			seen := map[string]bool{}
			for {
				select {
				case l := <-w.Looks():
					seen[l.Task] = true
				case <-end:
					return seen
				}
			}
		}
		time.Sleep(DefaultInterval / 2) // halfway between two passes
		if got := minute(); len(got) != n {
			t.Fatalf("%d looks at first, want %d", len(got), n)
		}
		minute() // remembers
		total := map[string]int{}
		for range lookAnyway {
			got := minute()
			if !got["t1"] {
				t.Error("a message that nobody has taken was not looked at")
			}
			if len(got) > n/2 {
				t.Errorf("%d looks at %d tasks to which nothing happened", len(got), n)
			}
			for task := range got {
				total[task]++
			}
		}
		for i := range n {
			if task := fmt.Sprint("t", i); total[task] == 0 {
				t.Errorf("%s was not looked at in %d minutes", task, lookAnyway)
			}
		}
		for what, do := range map[string]func(){
			"a file that is there": func() { write("t2", "input.txt", "another") },
			"a new file":           func() { write("t3", "_intervene", "new") },
			"another directory": func() {
				if err := os.Rename(path("t4"), path(".away")); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(path("t4"), 0o755); err != nil {
					t.Fatal(err)
				}
				write("t4", "input.txt", "x")
			},
		} {
			do()
			task := map[string]string{"a file that is there": "t2", "a new file": "t3", "another directory": "t4"}[what]
			if got := minute(); !got[task] {
				t.Errorf("%s was not noticed; looks: %v", what, got)
			}
		}
	})
}
