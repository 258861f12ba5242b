package watcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

func TestOverflowLosesNothing(t *testing.T) {
	b := newLossy(t, nil)
	r := start(t, t.TempDir(), func(c *Config) { c.NewBackend = func() (Backend, error) { return b, nil } })
	for _, name := range []string{"stays", "goes", "again", "moves"} {
		r.mkdir(name)
		r.await(name, Appeared)
	}
	b.lose.Store(true)
	r.write("stays/input.txt", "x")
	r.removeAll("goes")
	r.removeAll("again")
	r.mkdir("again") // likely with the inode that was just freed
	r.rename("moves", "moved")
	var names []string
	for i := range 200 {
		name := fmt.Sprint("burst-", i)
		names = append(names, name)
		r.mkdir(name)
		r.write(name+"/input.txt", "x")
	}
	r.write("last", "x")
	r.check(os.Remove(r.path("last")))
	r.until("the lost events are past", func() bool { return *b.last.Load() == r.path("last") })
	b.lose.Store(false)
	b.errs <- fsnotify.ErrEventOverflow

	got := r.awaitTasks(append(names, "stays", "goes", "again", "moves", "moved")...)
	for name, why := range got {
		want := map[string]Why{"stays": Rescan, "again": Rescan, "goes": Removed, "moves": Removed}[name]
		if want == "" {
			want = Appeared
		}
		if len(why) != 1 || why[0] != want {
			t.Errorf("%s was looked at for %v, want %s once", name, why, want)
		}
	}
	r.quiet()
	for _, name := range []string{"stays", "again", "moved", "burst-7"} {
		r.changed(name, "reply.txt")
	}
	r.logged("faster than they were read")
	if runtime.GOOS == "linux" {
		r.logged(queueSetting)
	}
}

func TestOverflowAgainAndAgain(t *testing.T) {
	f := newFake()
	dir := t.TempDir()
	for i := range 300 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, dir, func(c *Config) { c.NewBackend = func() (Backend, error) { return f, nil } })
	for range 20 {
		f.errs <- fsnotify.ErrEventOverflow
	}
	r.mkdir("unheard of")
	f.errs <- fsnotify.ErrEventOverflow
	r.await("unheard of", Appeared)
	if n := strings.Count(r.logs.String(), "faster than"); n != 1 {
		t.Errorf("said %d times, want once", n)
	}
}

func TestOtherBackendErrors(t *testing.T) {
	f := newFake()
	r := start(t, t.TempDir(), func(c *Config) { c.NewBackend = func() (Backend, error) { return f, nil } })
	r.mkdir("t1")
	f.errs <- errors.New("something odd")
	r.await("t1", Appeared)
	r.logged("something odd")
}

func TestBackendDies(t *testing.T) {
	var made atomic.Int32
	first := newFake()
	r := start(t, t.TempDir(), func(c *Config) {
		c.NewBackend = func() (Backend, error) {
			if made.Add(1) == 1 {
				return first, nil
			}
			return newBackend(counts)
		}
	})
	close(first.events)
	r.until("another backend watches", func() bool { return made.Load() == 2 && !r.Mode().Polling })
	if !first.closed.Load() {
		t.Error("the dead backend was not closed")
	}
	r.mkdir("t1")
	r.await("t1", Appeared)
	r.write("t1/input.txt", "x")
	r.await("t1", Changed)
}

// change does to a task what a polled directory has to notice, one after the other.
func change(r *running, name string) {
	r.t.Helper()
	steps := []func(){
		func() { r.write(name+"/input.txt", "one") },
		func() { r.write(name+"/input.txt", "two") }, // in place, of the same length
		func() { r.write(name+"/.tmp", "new"); r.rename(name+"/.tmp", name+"/input.txt") },
		func() { r.write(name+"/_stop", "") },
		func() { r.check(os.Remove(r.path(name + "/_stop"))); r.write(name+"/_stop", "") },
	}
	for i, step := range steps {
		step()
		if before := r.await(name, Compared); len(before) > 10 {
			r.t.Errorf("step %d: %d looks before the one wanted", i, len(before))
		}
	}
}

func TestWatchesRunOutInTheMiddle(t *testing.T) {
	b := newLossy(t, os.NewSyscallError("inotify_add_watch", syscall.ENOSPC))
	b.limit.Store(5) // the root and four tasks
	r := start(t, t.TempDir(), func(c *Config) { c.NewBackend = func() (Backend, error) { return b, nil } })
	r.quiet() // the marker is one of them
	for i := range 6 {
		r.mkdir(fmt.Sprint("t", i))
		r.await(fmt.Sprint("t", i), Appeared)
	}
	r.until("three are polled", func() bool { m := r.Mode(); return m.Polling && m.Watched == 4 && m.Polled == 3 })
	if s := r.Mode().String(); !strings.HasPrefix(s, "polling 3 of 7 tasks: ") {
		t.Errorf("mode %q", s)
	}
	if runtime.GOOS == "linux" {
		current, ok := readSetting(watchesSetting)
		if !ok {
			t.Fatal("cannot read ", watchesSetting)
		}
		want := fmt.Sprintf("%s is %d; set it to %d or more", watchesSetting, current, better(current, 65536))
		if reason := r.Mode().Reason; !strings.Contains(reason, want) {
			t.Errorf("reason %q, want it to say %q", reason, want)
		}
		r.logged(want)
	}
	change(r, "t4")
	r.write("t1/input.txt", "x")
	r.await("t1", Changed)
	// A polled directory that is recreated, replaced, removed.
	r.removeAll("t5")
	r.mkdir("t5")
	r.awaitTasks("t5")
	r.quiet()
	r.removeAll("t5")
	r.await("t5", Removed)

	// A watch comes free: one of the polled gets it.
	r.removeAll("t0")
	r.until("the free watch is used", func() bool { m := r.Mode(); return m.Watched == 4 && m.Polled == 1 })

	b.limit.Store(0)
	r.until("all are watched again", func() bool { m := r.Mode(); return !m.Polling && m.Watched == 5 && m.Polled == 0 })
	r.logged("watching all tasks again")
	if n := strings.Count(r.logs.String(), "polling the others"); n != 1 {
		t.Errorf("said %d times that it polls, want once", n)
	}
	r.quiet()
	for _, name := range []string{"t1", "t2", "t3", "t4"} {
		r.changed(name, "reply.txt")
	}
}

func TestNoWatchAtAll(t *testing.T) {
	b := newLossy(t, syscall.ENOSPC)
	dir := t.TempDir()
	b.limit.Store(1)
	r := start(t, dir, func(c *Config) {
		c.NewBackend = func() (Backend, error) {
			// Something else holds the only one.
			return b, b.system.Add(t.TempDir())
		}
	})
	if m := r.Mode(); !m.Polling {
		t.Fatalf("mode %+v", m)
	}
	r.mkdir("t1")
	r.await("t1", Appeared)
	change(r, "t1")
	b.limit.Store(0)
	r.until("all are watched", func() bool { m := r.Mode(); return !m.Polling && m.Watched == 1 })
	r.mkdir("t2")
	r.await("t2", Appeared)
	r.write("t2/input.txt", "x")
	r.await("t2", Changed)
}

func TestInstancesRunOut(t *testing.T) {
	var give atomic.Bool
	r := start(t, t.TempDir(), func(c *Config) {
		c.NewBackend = func() (Backend, error) {
			if !give.Load() {
				return nil, fmt.Errorf("couldn't initialize: %w", syscall.EMFILE)
			}
			return newBackend(counts)
		}
	})
	r.until("it polls", func() bool { return r.Mode().Polling })
	r.logged("too many open files")
	if runtime.GOOS == "linux" {
		current, _ := readSetting(instancesSetting)
		r.logged(fmt.Sprintf("%s is %d; set it to %d or more", instancesSetting, current, better(current, 256)))
	}
	if s := r.Mode().String(); !strings.HasPrefix(s, "polling: ") {
		t.Errorf("mode %q", s)
	}
	for _, name := range []string{"t1", "t2"} {
		r.mkdir(name)
		r.await(name, Appeared)
	}
	change(r, "t1")
	r.removeAll("t2")
	r.await("t2", Removed)
	give.Store(true)
	r.until("it watches", func() bool { m := r.Mode(); return !m.Polling && m.Watched == 1 })
	r.logged("watching all tasks again")
	r.changed("t1", "reply.txt")
}

func TestPollingLooksOnlyWhereSomethingChanged(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"t1", "t2"} {
		p := filepath.Join(dir, name)
		for _, err := range []error{
			os.Mkdir(p, 0o755),
			os.WriteFile(filepath.Join(p, "input.txt"), nil, 0o644),
			os.Chtimes(filepath.Join(p, "input.txt"), old, old),
			os.Chtimes(p, old, old),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	r := start(t, dir, func(c *Config) {
		c.Poll = time.Millisecond
		c.NewBackend = func() (Backend, error) { return nil, syscall.EMFILE }
	})
	r.awaitTasks("t1", "t2")
	for i := range 20 {
		r.write("t1/output.txt", strings.Repeat("x", i))
		r.write("t2/input.txt", fmt.Sprint(i))
		if before := r.await("t2", Compared); len(before) != 0 {
			t.Fatalf("looks at %v, of which nothing that counts has changed", before)
		}
	}
}

func TestUnreadableDirectoryIsPolledAndNamed(t *testing.T) {
	f := newFake()
	f.failing(func(dir string, _ int) error {
		if strings.HasSuffix(dir, "locked") {
			return syscall.EACCES
		}
		return nil
	})
	dir := t.TempDir()
	for _, name := range []string{"locked", "open"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, dir, func(c *Config) { c.NewBackend = func() (Backend, error) { return f, nil } })
	r.awaitTasks("locked", "open")
	r.until("one is polled", func() bool { m := r.Mode(); return m.Watched == 1 && m.Polled == 1 })
	if reason := r.Mode().Reason; !strings.Contains(reason, "locked") || strings.Contains(reason, "sysctl") {
		t.Errorf("reason %q, want it to name the directory and no setting", reason)
	}
	r.write("locked/input.txt", "x")
	r.await("locked", Compared)
	f.failing(nil)
	r.until("it is watched", func() bool { return !r.Mode().Polling })
}

func TestBetterSetting(t *testing.T) {
	for _, tt := range []struct{ current, atLeast, want int }{
		{128, 256, 256}, {256, 256, 512}, {8192, 65536, 65536}, {65536, 65536, 131072}, {192536, 65536, 524288}, {0, 1, 1},
	} {
		if got := better(tt.current, tt.atLeast); got != tt.want {
			t.Errorf("better(%d, %d) = %d, want %d", tt.current, tt.atLeast, got, tt.want)
		}
	}
}
