package watcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestDirectoriesThatAreThere(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b c", "审计", ".hidden"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, nil)
	got := r.awaitTasks("a", "b c", "审计")
	for name, why := range got {
		if !slices.Equal(why, []Why{Appeared}) {
			t.Errorf("%q was looked at for %v", name, why)
		}
	}
	if rest := r.quiet(); len(rest) != 0 {
		t.Errorf("further looks: %v", rest)
	}
	if m := r.Mode(); m.Polling || m.Watched != 4 || m.String() != "watching" {
		t.Errorf("mode %+v", m)
	}
}

func TestNewDirectoryThenFile(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	r.mkdir("t1")
	r.await("t1", Appeared)
	r.write("t1/input.txt", "hello")
	r.await("t1", Changed)
}

func TestBornFull(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	outside := t.TempDir()
	for i := range 50 {
		name := fmt.Sprint("t", i)
		if i%2 == 0 { // made in place, the file renamed onto its name at once
			r.mkdir(name)
			r.write(name+"/.input.tmp", "x")
			r.rename(name+"/.input.tmp", name+"/input.txt")
		} else { // moved in with the file
			made := filepath.Join(outside, name)
			r.check(os.Mkdir(made, 0o755))
			r.check(os.WriteFile(filepath.Join(made, "input.txt"), []byte("x"), 0o644))
			r.check(os.Rename(made, r.path(name)))
		}
		// Whoever looks after this one sees the file, or gets another look.
		for seen := false; !seen; {
			if l := r.next(); l.Task == name {
				_, err := os.Stat(r.path(name + "/input.txt"))
				seen = err == nil
			}
		}
	}
}

func TestRecreatedDirectory(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held open %v", held), func(t *testing.T) {
			r := start(t, t.TempDir(), nil)
			r.mkdir("t1")
			r.await("t1", Appeared)
			for range 30 {
				var f *os.File
				if held { // as the daemon does: the old inode lives on
					var err error
					f, err = os.Open(r.path("t1"))
					r.check(err)
				}
				r.removeAll("t1")
				r.mkdir("t1")
				r.quiet()
				// The watch is that of the new directory: nothing but its event can
				// bring this look.
				r.write("t1/reply.txt", "x")
				r.await("t1", Changed)
				if f != nil {
					f.Close()
				}
			}
		})
	}
}

func TestRemovedDirectoryGivesItsWatchBack(t *testing.T) {
	var backend atomic.Pointer[system]
	r := start(t, t.TempDir(), capture(&backend))
	for range 3 {
		for i := range 20 {
			r.mkdir(fmt.Sprint("t", i))
			r.await(fmt.Sprint("t", i), Appeared)
		}
		for i := range 20 {
			r.removeAll(fmt.Sprint("t", i))
			r.await(fmt.Sprint("t", i), Removed)
		}
	}
	r.quiet()
	if list := backend.Load().watching(); len(list) != 2 {
		t.Errorf("watches left: %q, want those of the root and the marker", list)
	}
	if m := r.Mode(); m.Watched != 1 {
		t.Errorf("mode %+v, want 1 watched", m)
	}
}

func TestRenamedDirectory(t *testing.T) {
	var backend atomic.Pointer[system]
	r := start(t, t.TempDir(), capture(&backend))
	r.mkdir("a")
	r.await("a", Appeared)
	for range 10 {
		for _, to := range [][2]string{{"a", "b"}, {"b", "a"}} {
			r.quiet()
			r.rename(to[0], to[1])
			got := r.awaitTasks("a", "b")
			if !slices.Contains(got[to[0]], Removed) || !slices.Contains(got[to[1]], Appeared) {
				t.Fatalf("renamed %v: looks %v", to, got)
			}
			r.write(to[1]+"/input.txt", "x")
			r.await(to[1], Changed)
		}
	}
	r.quiet()
	if list := backend.Load().watching(); len(list) != 3 {
		t.Errorf("watches: %q, want root, a and marker", list)
	}
}

// A directory that is moved away and removed at once makes the backend fail
// while it holds its own lock.
func TestMovedAwayAndRemoved(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	trash := t.TempDir()
	for i := range 200 {
		name := fmt.Sprint("t", i)
		r.mkdir(name)
		r.write(name+"/input.txt", "x")
		if i%2 == 0 {
			r.await(name, Appeared)
		}
		r.check(os.Rename(r.path(name), filepath.Join(trash, name)))
		r.check(os.RemoveAll(filepath.Join(trash, name)))
	}
	r.quiet()
	r.until("nothing but the marker is watched", func() bool { return r.Mode().Watched == 1 })
}

func TestAtomicSavers(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	r.mkdir("t1")
	r.await("t1", Appeared)
	for _, name := range []string{"input.txt", "reply.txt", "_intervene"} {
		for range 3 {
			r.write("t1/."+name+".tmp", "content")
			if looks := r.quiet(); len(looks) != 0 {
				t.Fatalf("the temporary file of %s brought %v", name, looks)
			}
			r.rename("t1/."+name+".tmp", "t1/"+name)
			r.await("t1", Changed)
		}
	}
	for _, name := range []string{".reply.txt.swp", "reply.txt~", "#reply.txt#", "4913", "reply.txt.bak", "output.txt", "status.json"} {
		r.write("t1/"+name, "x")
	}
	if looks := r.quiet(); len(looks) != 0 {
		t.Errorf("names that do not count brought %v", looks)
	}
}

func TestWhatIsNothing(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	r.mkdir("t1")
	r.write("t1/input.txt", "x")
	r.await("t1", Appeared)
	r.quiet()
	for what, do := range map[string]func(){
		"chmod of a file":      func() { r.check(os.Chmod(r.path("t1/input.txt"), 0o600)) },
		"chmod of a directory": func() { r.check(os.Chmod(r.path("t1"), 0o700)) },
		"times of a file":      func() { r.check(os.Chtimes(r.path("t1/input.txt"), time.Now(), time.Now())) },
		"reading":              func() { _, err := os.ReadFile(r.path("t1/input.txt")); r.check(err) },
		"taking a file away":   func() { r.rename("t1/input.txt", "t1/.taken"); r.check(os.Remove(r.path("t1/.taken"))) },
		"a directory inside":   func() { r.mkdir("t1/input.d"); r.write("t1/input.d/input.txt", "x") },
		"a file beside":        func() { r.write("notes.txt", "x"); r.check(os.Remove(r.path("notes.txt"))) },
		"a hidden directory":   func() { r.mkdir(".cache"); r.write(".cache/input.txt", "x") },
	} {
		r.write("t1/input.txt", "x")
		r.quiet()
		do()
		if looks := r.quiet(); len(looks) != 0 {
			t.Errorf("%s brought %v", what, looks)
		}
	}
	// A write beside a chmod counts.
	r.write("t1/reply.txt", "x")
	r.check(os.Chmod(r.path("t1/reply.txt"), 0o600))
	r.await("t1", Changed)
}

func TestBurst(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	var names []string
	for i := range 200 {
		name := fmt.Sprintf("burst-%03d", i)
		names = append(names, name)
		r.mkdir(name)
		r.write(name+"/input.txt", "x")
	}
	r.awaitTasks(names...)
	r.quiet()
	for _, name := range names {
		r.write(name+"/reply.txt", "x")
	}
	for name, why := range r.awaitTasks(names...) {
		if name != "marker" && why[0] != Changed {
			t.Errorf("%s: %v", name, why)
		}
	}
}

func TestSlowReaderLosesNothing(t *testing.T) {
	dir := t.TempDir()
	const n = 300
	for i := range n {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, dir, nil)
	r.until("all are watched", func() bool { return r.Mode().Watched == n })
	for range 5 {
		for i := range n {
			r.write(fmt.Sprint(i, "/input.txt"), "x")
		}
	}
	// Everything so far has been read by the loop once this look is ahead of all
	// others that nobody has taken.
	seen := map[string]int{}
	r.mkdir("last")
	for {
		l := r.next()
		seen[l.Task]++
		if l.Task == "last" {
			break
		}
	}
	for _, l := range r.quiet() {
		seen[l.Task]++
	}
	for i := range n {
		// One for all that nobody took, and one more where events came after it.
		if c := seen[fmt.Sprint(i)]; c < 1 || c > 2 {
			t.Errorf("task %d was looked at %d times, want once or twice", i, c)
		}
	}
}

func TestSymlinkedTask(t *testing.T) {
	elsewhere := t.TempDir()
	dir := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "early")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	var backend atomic.Pointer[system]
	r := start(t, dir, capture(&backend))
	r.await("early", Appeared)
	r.check(os.Symlink(elsewhere, r.path("late")))
	r.await("late", Appeared)
	r.check(os.WriteFile(filepath.Join(elsewhere, "input.txt"), []byte("x"), 0o644))
	if looks := r.quiet(); len(looks) != 0 {
		t.Errorf("a file behind a link brought %v", looks)
	}
	if list := backend.Load().watching(); len(list) != 2 {
		t.Errorf("watches: %q, want none of a link", list)
	}
	// A directory in a link's place is a task, and the other way round.
	r.check(os.Remove(r.path("late")))
	r.mkdir("late")
	r.quiet()
	r.write("late/input.txt", "x")
	r.await("late", Changed)
	r.removeAll("late")
	r.check(os.Symlink(elsewhere, r.path("late")))
	r.quiet()
	r.check(os.WriteFile(filepath.Join(elsewhere, "reply.txt"), []byte("x"), 0o644))
	if looks := r.quiet(); len(looks) != 0 {
		t.Errorf("a file behind the link brought %v", looks)
	}
}

func TestRootMayBeALink(t *testing.T) {
	base := t.TempDir()
	one, two, link := filepath.Join(base, "one"), filepath.Join(base, "two"), filepath.Join(base, "temp")
	for _, d := range []string{one, filepath.Join(one, "t1"), two, filepath.Join(two, "t2")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(one, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	r := start(t, link, func(c *Config) { c.Interval = 20 * time.Millisecond })
	r.await("t1", Appeared)
	r.write("t1/input.txt", "x")
	r.await("t1", Changed)
	// Led elsewhere, which no event tells: the regular look finds out.
	r.check(os.Remove(link))
	r.check(os.Symlink(two, link))
	r.awaitTasks("t2")
	// A look at t1 that nobody had taken keeps its cause, so that none tells of this.
	r.until("t1 is let go of", func() bool { return r.Mode().Watched == 1 })
	r.write("t2/input.txt", "x")
	r.await("t2", Changed)
}

func TestRootMissingAtFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later", "temp")
	r := start(t, dir, nil)
	r.logged("missing", dir)
	if m := r.Mode(); !m.Polling || !strings.Contains(m.Reason, dir) {
		t.Errorf("mode %+v, want it to say what is missing", m)
	}
	r.check(os.MkdirAll(r.path("t1"), 0o755))
	r.await("t1", Appeared)
	r.logged("is back")
	r.write("t1/input.txt", "x")
	r.await("t1", Changed)
	r.until("it is watched", func() bool { return !r.Mode().Polling })
}

func TestRootVanishesAndReturns(t *testing.T) {
	vanish := map[string]func(r *running){
		"removed": func(r *running) { r.check(os.RemoveAll(r.dir)) },
		"moved":   func(r *running) { r.check(os.Rename(r.dir, r.dir+".away")) },
	}
	for how, do := range vanish {
		t.Run(how, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "temp")
			if err := os.MkdirAll(filepath.Join(dir, "t1"), 0o755); err != nil {
				t.Fatal(err)
			}
			var backend atomic.Pointer[system]
			r := start(t, dir, capture(&backend))
			r.await("t1", Appeared)
			for range 3 {
				do(r)
				r.await("t1", Removed)
				r.logged("missing, waiting")
				r.check(os.MkdirAll(r.path("t1"), 0o755))
				r.await("t1", Appeared)
				r.write("t1/input.txt", "x")
				r.await("t1", Changed)
				r.quiet()
				if list := backend.Load().watching(); len(list) != 3 {
					t.Errorf("watches: %q, want root, t1 and marker", list)
				}
				r.check(os.RemoveAll(r.dir + ".away"))
			}
		})
	}
}

// The root is replaced faster than anyone can notice that it was gone.
func TestRootIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "temp")
	if err := os.MkdirAll(filepath.Join(dir, "t1"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, nil)
	r.await("t1", Appeared)
	for range 20 {
		r.check(os.RemoveAll(dir))
		r.check(os.MkdirAll(r.path("t1"), 0o755))
		r.check(os.MkdirAll(r.path("t2"), 0o755))
		r.awaitTasks("t2")
		for done := false; !done; {
			r.write("t1/input.txt", "x")
			select {
			case l := <-r.Looks():
				done = l.Task == "t1" && l.Why == Changed
			case <-time.After(5 * time.Millisecond): // the watch may not be there yet
			}
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, cfg := range []Config{{}, {Dir: "x"}, {Counts: counts}} {
		if err := New(cfg).Run(t.Context()); err == nil {
			t.Errorf("config %+v was accepted", cfg)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := New(Config{Dir: t.TempDir(), Counts: counts})
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run with an ended context: %v", err)
	}
	if err := w.Run(ctx); err == nil {
		t.Error("Run ran twice")
	}
}

// The line tells operators, and whoever measures it, from when on nothing is missed.
func TestLogSaysWhenAllIsWatched(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("task", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, dir, nil)
	r.stop()
	if got := r.logs.String(); strings.Count(got, "tasks are watched") != 1 || !strings.Contains(got, "watched=3 polled=0") {
		t.Errorf("the log says:\n%s", got)
	}
}

func TestLookOfAnEventIsUrgent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "t1"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, nil)
	if l := r.next(); l.Task != "t1" || l.Urgent {
		t.Errorf("at the start: %+v, want a look at t1 that has time", l)
	}
	r.write("t1/input.txt", "x")
	if l := r.next(); l.Task != "t1" || !l.Urgent {
		t.Errorf("after a file was written: %+v, want an urgent look at t1", l)
	}
}
