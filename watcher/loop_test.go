package watcher

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// still returns a loop that knows some tasks of a directory that does not exist.
func still(names ...string) *loop {
	w := New(Config{Dir: "/no/such/temp", Counts: counts})
	l := newLoop(w.cfg, w.cfg.Dir, &w.mode)
	l.backend = newFake()
	l.root, l.prefix = filepath.FromSlash("/no/such/temp"), filepath.FromSlash("/no/such/temp/")
	for _, n := range names {
		l.newTask(n).known = true
	}
	return l
}

func TestEventFilter(t *testing.T) {
	const in = "/no/such/temp"
	tests := []struct {
		name string
		op   fsnotify.Op
		want Why
	}{
		{in + "/t1/input.txt", fsnotify.Create, Changed},
		{in + "/t1/input.txt", fsnotify.Write, Changed},
		{in + "/t1/input.txt", fsnotify.Write | fsnotify.Chmod, Changed},
		{in + "/t1/input.txt", fsnotify.Chmod, ""},
		{in + "/t1/input.txt", fsnotify.Remove, ""},
		{in + "/t1/input.txt", fsnotify.Rename, ""},
		{in + "/t1/input.txt.tmp", fsnotify.Write, ""},
		{in + "/t1/output.txt", fsnotify.Write, ""},
		{in + "/t1/sub/input.txt", fsnotify.Write, ""},
		{in + "/unknown/input.txt", fsnotify.Write, ""},
		{in + "/.hidden/input.txt", fsnotify.Write, ""},
		{in + "/t1", fsnotify.Write, ""},
		{in + "/t1", fsnotify.Chmod, ""},
		{in + "/t1", fsnotify.Remove, Removed},
		{in + "/t1", fsnotify.Rename, Removed},
		{in + "/t1", fsnotify.Create, Removed}, // there is nothing by now
		{in + "/new", fsnotify.Create, ""},
		{in + "/new", fsnotify.Remove, ""},
		{in + "/.t1", fsnotify.Create, ""},
		{in + "/", fsnotify.Create, ""},
		{in, fsnotify.Chmod, ""},
		{in + "x/t1/input.txt", fsnotify.Write, ""},
		{"/t1/input.txt", fsnotify.Write, ""},
		{"", fsnotify.Write, ""},
	}
	for _, tt := range tests {
		l := still("t1")
		l.event(fsnotify.Event{Name: filepath.FromSlash(tt.name), Op: tt.op})
		var got Why
		if f := l.front(); f != nil {
			got = f.why
		}
		if got != tt.want {
			t.Errorf("%v of %q: look for %q, want %q", tt.op, tt.name, got, tt.want)
		}
		if len(l.tasks) != 1 {
			t.Errorf("%v of %q: %d tasks are kept", tt.op, tt.name, len(l.tasks))
		}
	}
}

func TestDroppedEventsAllocateNothing(t *testing.T) {
	l := still("t1")
	l.report()
	for _, ev := range []fsnotify.Event{
		{Name: filepath.FromSlash("/no/such/temp/t1/output.txt"), Op: fsnotify.Write},
		{Name: filepath.FromSlash("/no/such/temp/t1/.gasupervisor-00.tmp"), Op: fsnotify.Create},
		{Name: filepath.FromSlash("/no/such/temp/t1/input.txt"), Op: fsnotify.Chmod},
		{Name: filepath.FromSlash("/no/such/temp/notes.txt"), Op: fsnotify.Write},
	} {
		if n := testing.AllocsPerRun(100, func() { l.event(ev); l.report() }); n != 0 {
			t.Errorf("%v allocates %v times", ev, n)
		}
	}
}

func TestQueueHoldsEachTaskOnce(t *testing.T) {
	var q queue
	rnd := rand.New(rand.NewPCG(1, 2))
	tasks := make([]*task, 20)
	for i := range tasks {
		tasks[i] = &task{name: fmt.Sprint(i)}
	}
	wanted := map[*task]urgency{}
	for range 20000 {
		if rnd.IntN(3) > 0 {
			task, u := tasks[rnd.IntN(len(tasks))], urgency(1+rnd.IntN(2))
			q.want(task, Changed, u)
			wanted[task] = max(wanted[task], u)
			continue
		}
		front := q.front()
		if (front == nil) != (len(wanted) == 0) {
			t.Fatalf("front %v with %d wanted", front, len(wanted))
		}
		if front == nil {
			continue
		}
		if front.wanted == lazy {
			for other, u := range wanted {
				if u == urgent {
					t.Fatalf("%s goes ahead of %s, which is urgent", front.name, other.name)
				}
			}
		}
		if _, ok := wanted[front]; !ok {
			t.Fatalf("%s is handed out, which nobody wants", front.name)
		}
		if q.pop() != front {
			t.Fatal("pop is not front")
		}
		delete(wanted, front)
	}
}

func TestQueueKeepsOrderAndFirstCause(t *testing.T) {
	var q queue
	a, b, c := &task{name: "a"}, &task{name: "b"}, &task{name: "c"}
	q.want(a, Regular, lazy)
	q.want(b, Regular, lazy)
	q.want(c, Changed, urgent)
	q.want(b, Changed, urgent)
	q.want(b, Removed, urgent)
	var got []string
	for q.front() != nil {
		f := q.pop()
		got = append(got, f.name+" "+string(f.why))
	}
	if s := strings.Join(got, ", "); s != "c changed, b regular, a regular" {
		t.Errorf("handed out %s", s)
	}
}

func TestFifoGivesMemoryBack(t *testing.T) {
	var f fifo
	for range 10000 {
		f.push(&task{})
	}
	for f.len() > 0 {
		f.pop()
	}
	if cap(f.items) > 64 || f.front() != nil {
		t.Errorf("an empty queue holds %d places", cap(f.items))
	}
}

// A pass over thousands of new directories takes a while, and meanwhile one of them is
// removed and made again.
func TestDirectoryRemovedBeforeItsFirstLookIsForgotten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t1")
	mkdir := func() {
		t.Helper()
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mkdir()
	w := New(Config{Dir: dir, Counts: counts})
	l := newLoop(w.cfg, w.cfg.Dir, &w.mode)
	l.backend = newFake()
	l.attach(time.Now())
	if l.backlog.len() != 1 {
		t.Fatalf("%d tasks wait for their first look", l.backlog.len())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	event := filepath.Join(l.root, "t1")
	l.event(fsnotify.Event{Name: event, Op: fsnotify.Remove})
	mkdir()
	l.event(fsnotify.Event{Name: event, Op: fsnotify.Create})
	for l.busy() {
		l.step()
	}
	looks := 0
	for l.front() != nil {
		l.taken()
		looks++
	}
	l.report()
	if m := w.Mode(); m.Watched != 1 || looks != 1 {
		t.Errorf("%d directories are watched and %d looks were made, of one task", m.Watched, looks)
	}
}
