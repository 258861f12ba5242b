package watcher

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// openGrace is how long a file that was created may stay open for writing until it
// is an event nevertheless.
const openGrace = 250 * time.Millisecond

// What is asked of the kernel. In the directory of a task nothing is worth an
// event but a file that a writer is done with: one that was closed, or renamed
// onto its name. fsnotify asks for every write instead, which are the daemon's own
// by far the most: hundreds of rounds that stream their outputs. Links, pipes and
// directories are never closed, and some writers keep a file open, so that what
// was created is an event too, but later (see openGrace).
const (
	taskMask = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	rootMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// inotify is the Backend for Linux. It tells the root from the tasks by their
// paths: tasks lie in a directory that is watched.
type inotify struct {
	counts func(name string) bool
	file   *os.File
	events chan fsnotify.Event
	errs   chan error
	done   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	watches map[int32]watched
	known   map[string]int32 // by path

	// held are files that were created and not closed yet, with the time at which
	// they are an event all the same; queue has them in that order. They belong to
	// the goroutine of read.
	held  map[string]time.Time
	queue []heldFile
}

type watched struct {
	path string
	task bool
}

type heldFile struct {
	path string
	due  time.Time
}

// newBackend makes the Backend of this system. counts reports which names in the
// directories of tasks are worth an event.
func newBackend(counts func(name string) bool) (Backend, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make inotify instance: %w", err)
	}
	n := &inotify{
		counts: counts, file: os.NewFile(uintptr(fd), "inotify"),
		events: make(chan fsnotify.Event, 64), errs: make(chan error, 16), done: make(chan struct{}),
		watches: map[int32]watched{}, known: map[string]int32{}, held: map[string]time.Time{},
	}
	n.wg.Go(n.read)
	return n, nil
}

func (n *inotify) Events() <-chan fsnotify.Event { return n.events }
func (n *inotify) Errors() <-chan error          { return n.errs }

func (n *inotify) Close() error {
	close(n.done)
	err := n.file.Close()
	n.wg.Wait()
	return err
}

func (n *inotify) Add(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	mask := uint32(rootMask)
	_, task := n.known[filepath.Dir(dir)]
	if task {
		mask = taskMask
	}
	wd, err := n.control(func(fd int) (int, error) { return unix.InotifyAddWatch(fd, dir, mask) })
	if err != nil {
		return &fs.PathError{Op: "watch", Path: dir, Err: err}
	}
	watch := int32(wd)
	if before, ok := n.watches[watch]; ok && before.path != dir {
		// A directory that was moved: its watch has moved with it.
		delete(n.known, before.path)
	}
	if before, ok := n.known[dir]; ok && before != watch {
		// Another directory has the path now.
		delete(n.watches, before)
		_, _ = n.control(func(fd int) (int, error) { return unix.InotifyRmWatch(fd, uint32(before)) })
	}
	n.watches[watch], n.known[dir] = watched{dir, task}, watch
	return nil
}

func (n *inotify) Remove(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	watch, ok := n.known[dir]
	if !ok {
		return &fs.PathError{Op: "unwatch", Path: dir, Err: fs.ErrNotExist}
	}
	delete(n.known, dir)
	delete(n.watches, watch)
	if _, err := n.control(func(fd int) (int, error) { return unix.InotifyRmWatch(fd, uint32(watch)) }); err != nil {
		return &fs.PathError{Op: "unwatch", Path: dir, Err: err}
	}
	return nil
}

// control makes a system call on the instance, which Close may be about to close.
func (n *inotify) control(call func(fd int) (int, error)) (result int, err error) {
	raw, err := n.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) {
		for {
			if result, err = call(int(fd)); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return result, errors.Join(err, cerr)
}

// watching lists the directories that are watched.
func (n *inotify) watching() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []string
	for _, w := range n.watches {
		list = append(list, w.path)
	}
	return list
}

// read passes events on until Close.
func (n *inotify) read() {
	defer close(n.events)
	defer close(n.errs)
	buf := make([]byte, 64<<10)
	for {
		if err := n.file.SetReadDeadline(n.overdue(time.Now())); err != nil {
			return
		}
		size, err := n.file.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			n.failed(fmt.Errorf("read file events: %w", err))
			return
		}
		for b := buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			end := unix.SizeofInotifyEvent + int(event.Len)
			name := b[unix.SizeofInotifyEvent:end]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			n.handle(event.Wd, event.Mask, name)
			b = b[end:]
		}
	}
}

// overdue makes events of files that have been open for long enough, and returns
// when the next one will be; zero where there is none.
func (n *inotify) overdue(now time.Time) time.Time {
	for len(n.queue) > 0 {
		h := n.queue[0]
		if due, still := n.held[h.path]; still && due.Equal(h.due) {
			if h.due.After(now) {
				return h.due
			}
			delete(n.held, h.path)
			n.send(fsnotify.Event{Name: h.path, Op: fsnotify.Create})
		}
		n.queue = n.queue[1:]
	}
	n.queue = nil
	return time.Time{}
}

func (n *inotify) handle(watch int32, mask uint32, name []byte) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		n.failed(fsnotify.ErrEventOverflow)
		return
	}
	n.mu.Lock()
	w, ok := n.watches[watch]
	if ok && mask&unix.IN_IGNORED != 0 {
		// The directory is gone, or what it stood on was unmounted.
		delete(n.watches, watch)
		delete(n.known, w.path)
	}
	n.mu.Unlock()
	switch {
	case !ok:
		return
	case len(name) == 0:
		// The directory itself. That of a task is its parent's affair.
		if !w.task {
			n.send(fsnotify.Event{Name: w.path, Op: fsnotify.Remove})
		}
		return
	case w.task && !n.counts(string(name)):
		return
	}
	path := w.path + string(filepath.Separator) + string(name)
	var op fsnotify.Op
	switch {
	case w.task && mask&unix.IN_CREATE != 0:
		due := time.Now().Add(openGrace)
		n.held[path] = due
		n.queue = append(n.queue, heldFile{path, due})
		return
	case mask&unix.IN_CLOSE_WRITE != 0:
		op = fsnotify.Write
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		op = fsnotify.Create
	case mask&unix.IN_DELETE != 0:
		op = fsnotify.Remove
	case mask&unix.IN_MOVED_FROM != 0:
		op = fsnotify.Rename
	}
	delete(n.held, path)
	n.send(fsnotify.Event{Name: path, Op: op})
}

func (n *inotify) send(e fsnotify.Event) {
	select {
	case n.events <- e:
	case <-n.done:
	}
}

// failed tells that events may have been lost. Where there is no room, somebody is
// about to hear of it already.
func (n *inotify) failed(err error) {
	select {
	case n.errs <- err:
	default:
	}
}
