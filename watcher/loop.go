package watcher

import (
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// stepSize is how many directories a pass handles between two events.
	stepSize = 32
	// listSize is how many entries of the directory of tasks are read at a time.
	listSize = 512
)

// task is what is kept of a task directory. There are thousands.
type task struct {
	name string
	id   fileID
	// poll is the state of comparison, nil unless the directory is polled; seen that
	// of the minute's, nil before the first.
	poll, seen *stamp
	why        Why
	// pass is the pass that saw the directory last.
	pass    uint32
	wanted  urgency
	known   bool // a directory or link was seen
	watched bool
	link    bool
	gone    bool // forgotten, or to be once its last look is taken
	waiting bool // in the backlog
}

// loop is the state of Run. Only its goroutine touches it.
type loop struct {
	cfg  Config
	dir  string // as configured, absolute
	log  *slog.Logger
	mode *atomic.Pointer[Mode]

	backend Backend // nil while none can be had
	// root is dir without links, "" while it is missing; prefix is root with a
	// separator, which every event begins with.
	root, prefix string
	rootID       fileID
	firstID      fileID // rootID as it was found first
	rootPoll     *stamp // nil unless the root is polled
	rootMissing  bool   // said so

	tasks           map[string]*task
	watched, polled int
	queue
	pass uint32
	// Work to do: backlog as soon as possible, round spread over time, compare is
	// what is left of a comparison of the polled.
	backlog, round, compare fifo

	began, nextRound, nextBatch, nextPoll, nextTry time.Time
	batch                                          int
	pause                                          time.Duration
	comparing                                      time.Time     // when the comparison began
	compared                                       time.Duration // what it took so far
	seed                                           maphash.Seed  // of its digests

	limits
}

func newLoop(cfg Config, dir string, mode *atomic.Pointer[Mode]) *loop {
	return &loop{
		cfg: cfg, dir: dir, log: cfg.Log, mode: mode,
		tasks:  map[string]*task{},
		seed:   maphash.MakeSeed(),
		limits: limits{backoff: firstBackoff(cfg)},
	}
}

func (l *loop) start(now time.Time) {
	l.began, l.nextRound = now, now.Add(l.cfg.Interval)
	l.openBackend(now)
	l.attach(now)
}

// soon puts a task into the backlog.
func (l *loop) soon(t *task) {
	if !t.waiting {
		t.waiting = true
		l.backlog.push(t)
	}
}

func (l *loop) close() {
	if l.backend != nil {
		if err := l.backend.Close(); err != nil {
			l.log.Warn("close file watcher", "err", err)
		}
	}
}

// busy reports whether there is work for step.
func (l *loop) busy() bool { return l.backlog.len() > 0 || l.compare.len() > 0 }

// step does a little of it.
func (l *loop) step() {
	if l.backlog.len() > 0 {
		for n := 0; n < stepSize && l.backlog.len() > 0; n++ {
			t := l.backlog.pop()
			t.waiting = false
			if !t.gone {
				l.ensure(t, Rescan, lazy)
			}
		}
		return
	}
	l.stepCompare()
}

// due returns when tick has to run next.
func (l *loop) due() time.Time {
	due := l.nextRound
	earlier := func(t time.Time) {
		if t.Before(due) {
			due = t
		}
	}
	if l.round.len() > 0 {
		earlier(l.nextBatch)
	}
	if l.pollsAnything() && l.compare.len() == 0 {
		earlier(l.nextPoll)
	}
	if l.wantsWatches() {
		earlier(l.nextTry)
	}
	return due
}

func (l *loop) tick(now time.Time) {
	if !now.Before(l.nextRound) {
		l.nextRound = now.Add(l.cfg.Interval)
		l.attach(now)
		l.startRound(now)
	}
	if l.round.len() > 0 && !now.Before(l.nextBatch) {
		for n := 0; n < l.batch && l.round.len() > 0; n++ {
			if t := l.round.pop(); !t.gone {
				l.ensure(t, Regular, lazy)
			}
		}
		l.nextBatch = now.Add(l.pause)
	}
	if l.pollsAnything() && l.compare.len() == 0 && !now.Before(l.nextPoll) {
		l.startCompare(now)
	}
	if l.wantsWatches() && !now.Before(l.nextTry) {
		l.tryAgain(now)
	}
}

// startRound begins the look at everything that comes once an Interval. It is
// spread over a sixth of it at most, in batches that nobody notices.
func (l *loop) startRound(now time.Time) {
	if l.root == "" || l.round.len() > 0 {
		return
	}
	l.list(l.round.push)
	n := l.round.len()
	batches := min(max((n+15)/16, 1), 200)
	l.batch = (n + batches - 1) / batches
	l.pause = min(l.cfg.Interval/6/time.Duration(batches), 50*time.Millisecond)
	l.nextBatch = now
}

// event is the hot path: most events are dropped here, without a look at the
// file system and without an allocation.
func (l *loop) event(ev fsnotify.Event) {
	if ev.Op == fsnotify.Chmod || l.root == "" {
		return
	}
	rest, ok := strings.CutPrefix(ev.Name, l.prefix)
	if !ok {
		if ev.Name == l.root && ev.Has(fsnotify.Remove|fsnotify.Rename) {
			// It may be back already, even with the same inode.
			l.attach(time.Now())
			l.rescan()
		}
		return
	}
	i := strings.IndexByte(rest, filepath.Separator)
	if i < 0 {
		l.entryEvent(rest, ev.Op)
		return
	}
	// A file that goes away is nothing to look at; one that is renamed is created
	// under its new name.
	if ev.Op&(fsnotify.Create|fsnotify.Write) == 0 || !l.cfg.Counts(rest[i+1:]) {
		return
	}
	if t := l.tasks[rest[:i]]; t != nil && !t.gone {
		l.want(t, Changed, urgent)
	}
}

// entryEvent handles events about entries of the root: directories that come,
// go, or are replaced.
func (l *loop) entryEvent(name string, op fsnotify.Op) {
	if op&(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) == 0 || !isTask(name) {
		return
	}
	t := l.tasks[name]
	if t == nil {
		if !op.Has(fsnotify.Create) {
			return
		}
		t = l.newTask(strings.Clone(name))
	}
	if op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		// Even if there is a directory again: it is another one, perhaps with
		// the same inode, and the old one may live on in somebody's hands.
		l.unwatch(t)
	}
	l.ensure(t, Appeared, urgent)
}

// isTask reports whether a name can be a task's.
func isTask(name string) bool { return name != "" && name[0] != '.' }

func (l *loop) newTask(name string) *task {
	t := &task{name: name}
	l.tasks[name] = t
	return t
}

// ensure brings the watch of a task in line with what is there, and then wants a
// look at it. It is right at any time and any number of times.
func (l *loop) ensure(t *task, why Why, u urgency) {
	path := l.prefix + t.name
	info, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if l.mayRepeat(&l.lstatSaid) {
			l.log.Warn("look at task directory", "path", path, "err", err)
		}
		return
	}
	if err != nil || !info.IsDir() && info.Mode()&fs.ModeSymlink == 0 {
		l.drop(t, u)
		return
	}
	if !t.known || t.gone {
		why = Appeared
	}
	t.known, t.gone = true, false
	if !info.IsDir() {
		l.unwatch(t)
		l.unpoll(t)
		if !t.link {
			t.link = true
			l.want(t, why, u)
		}
		return
	}
	t.link = false
	if id := idOf(info); id != t.id {
		l.unwatch(t)
		l.unpoll(t)
		t.id, t.seen = id, nil
	}
	if !l.watch(t, path) {
		l.drop(t, u)
		return
	}
	if why == Regular && l.unchanged(t, path, info) {
		return
	}
	l.want(t, why, u)
}

// lookAnyway is the pass in which a task is looked at without a reason.
const lookAnyway = 10

// unchanged reports whether the minute's look at a task may be left out.
func (l *loop) unchanged(t *task, path string, info fs.FileInfo) bool {
	if l.cfg.Rests == nil || !t.watched {
		return false
	}
	first := t.seen == nil
	if first {
		t.seen = &stamp{}
	}
	if l.differs(t.seen, path, info, time.Now()) || first {
		return false
	}
	for _, name := range t.seen.names {
		if !l.cfg.Rests(name) {
			return false
		}
	}
	// Not all in the same minute.
	return (maphash.String(l.seed, t.name)+uint64(l.pass))%lookAnyway != 0
}

// watch adds the watch of a task, or has it polled. It reports false where the
// directory is gone.
func (l *loop) watch(t *task, path string) bool {
	if l.backend == nil || l.full && !t.watched {
		l.pollTask(t, path)
		return true
	}
	err := l.backend.Add(path)
	switch {
	case err == nil:
		if !t.watched {
			t.watched = true
			l.watched++
		}
		l.unpoll(t)
	case errors.Is(err, fs.ErrNotExist):
		return false
	default:
		l.unwatch(t)
		l.addFailed(path, err)
		l.pollTask(t, path)
	}
	return true
}

// unwatch gives a watch back. That it is gone already, with its directory, is
// the usual case and no error.
func (l *loop) unwatch(t *task) {
	if !t.watched {
		return
	}
	t.watched = false
	l.watched--
	if l.backend != nil {
		_ = l.backend.Remove(l.prefix + t.name)
	}
	l.roomLeft()
}

// drop forgets a task whose directory is gone, after a last look.
func (l *loop) drop(t *task, u urgency) {
	l.unwatch(t)
	l.unpoll(t)
	if !t.known && t.wanted == none {
		// It may stand in the backlog, where it is passed over: whatever gets the name
		// next is another task.
		t.gone = true
		delete(l.tasks, t.name)
		return
	}
	if t.gone {
		return
	}
	t.gone, t.link, t.id, t.seen = true, false, fileID{}, nil
	l.want(t, Removed, u)
}

// taken is called when the look at the front has a reader.
func (l *loop) taken() {
	if t := l.queue.pop(); t.gone {
		delete(l.tasks, t.name)
	}
}

// lost handles errors of the backend: events may be missing, so everything is
// looked at.
func (l *loop) lost(err error) {
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		if l.mayRepeat(&l.overflowSaid) {
			l.log.Warn("file events came faster than they were read, looking at all tasks", "hint", overflowHint())
		}
	} else if l.mayRepeat(&l.errorSaid) {
		l.log.Warn("file watcher failed, looking at all tasks", "err", err)
	}
	l.attach(time.Now())
	l.rescan()
}

// rescan has everything watched anew and looked at soon.
func (l *loop) rescan() {
	if l.root == "" {
		return
	}
	l.list(l.soon)
}

// list compares the tasks with the entries of the root. Tasks that are gone are
// dropped first; new ones go to the backlog, known ones to the given place.
func (l *loop) list(known func(*task)) {
	l.pass++
	var fresh, old []*task
	err := eachEntry(l.root, func(e fs.DirEntry) {
		if !isTask(e.Name()) || !e.IsDir() && e.Type()&fs.ModeSymlink == 0 {
			return
		}
		t := l.tasks[e.Name()]
		if t == nil {
			t = l.newTask(e.Name())
		}
		t.pass = l.pass
		if !t.known || t.gone {
			t.gone = false
			fresh = append(fresh, t)
		} else {
			old = append(old, t)
		}
	})
	if err != nil {
		// Half a list says nothing about what is gone.
		if l.mayRepeat(&l.listSaid) {
			l.log.Warn("list tasks", "path", l.root, "err", err)
		}
	} else {
		for _, t := range l.tasks {
			if t.pass != l.pass && !t.gone {
				l.drop(t, lazy)
			}
		}
	}
	for _, t := range fresh {
		l.soon(t)
	}
	for _, t := range old {
		known(t)
	}
}

func eachEntry(dir string, f func(fs.DirEntry)) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(listSize)
		for _, e := range entries {
			f(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
