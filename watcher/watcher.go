// Package watcher turns file events into one kind of sentence: look at task X.
//
// It watches a directory whose subdirectories are tasks, and each of these. It
// knows nothing of what a task is for, nor of what a look finds: it is given the
// function that says which file names count, and drops every other event unread.
// That matters, since most events in a task's directory are the daemon's own
// doing: output that grows, status that is replaced, files that are put aside.
// None of them costs more than a comparison.
//
// # Events are hints
//
// File notification loses things. Its queue overflows, a directory is removed
// and made again before anyone reads of it, a mount goes away in silence. So no
// event is ever taken for what happened. It only says where to look, and whoever
// looks reads the directory. What follows from this:
//
// Watch first, then list. A directory is watched before it is looked at, so that
// what was written before is seen by the look, and what is written after is seen
// by an event. A directory that was born full, or moved in, needs no case of its
// own.
//
// Where something may have been lost, everything is looked at again: after an
// overflow or an error at once, and in any case once an Interval (the minute's
// look), then spread over some seconds so that thousands of waiting tasks do not
// wake together. Every such pass also compares inodes and adds each watch
// again, which costs a microsecond or two where it is in force and mends it
// where it is not.
//
// Most tasks wait, and most minutes nothing has happened to them. The minute's pass
// therefore compares a task's directory and the files in it that count with what
// they were a minute before, and whoever looks hears of it only where something has
// changed, where a file lies that nobody has dealt with (see Config.Rests), and
// every tenth time in any case.
//
// The parent's events tell of directories that come and go. A removed directory
// gives its watch back. One that is recreated under the same name has another
// watch, whatever its inode: file systems give a freed number out again at once.
// In a full pass removals come before additions, since a directory that was
// moved has kept its inode and with it a watch under its old name.
//
// # No debouncing
//
// An event becomes a look as fast as two goroutines can pass it on. Whether a
// file is whole yet is decided by those who read it; waiting here would only
// make everyone wait. What keeps looks few is that a task stands once in the
// queue of looks: while nobody has taken its look, further events add nothing.
// Nothing is lost by it, because a look comes after all events that it stands
// for. Looks that follow an event go ahead of those that follow from a pass.
//
// # When watches run out
//
// The number of watches and of watchers is limited for each user. A task whose
// directory cannot be watched is polled while all others are watched, and where
// no watcher can be had at all everything is polled. Polling compares the
// directory's inode and time, and those of the files in it whose names count.
// Times have a grain: what changed in the last seconds may change again without
// another time, and is compared again until it has aged. Polling takes a
// bounded share of one processor, by leaving longer pauses where much has to be
// compared. The log names the limit, what it is and what to set it to, once; Mode
// says how it stands. From time to time, and when a watch becomes free, it is
// tried again.
//
// Task directories that are symbolic links are neither followed nor watched nor
// polled; one look when they appear lets others say that they are refused. The
// directory of tasks itself may be a link, and may vanish: its tasks are gone
// then, and are found again when it is back.
//
// # One goroutine
//
// All state belongs to the goroutine of Run, so there are no locks. Long passes
// are done in small steps between which events are served.
package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The defaults of Config.
const (
	DefaultInterval = time.Minute
	DefaultPoll     = 250 * time.Millisecond
)

// Config says what to watch.
type Config struct {
	// Dir is the directory whose subdirectories are tasks. It need not exist yet.
	Dir string
	// Counts reports whether events of a file name (no path) matter. It is called
	// for every event, by more than one goroutine.
	Counts func(name string) bool
	// Rests reports whether a file of a name that counts may lie in a task's directory
	// with nothing to be done about it: a look that is due for no other reason is left
	// out where all of them may. nil is for none.
	Rests func(name string) bool
	// Replaced is called, by Run's goroutine, when another directory stands in the place
	// of the Dir that was found first; it does not block. nil is for nobody.
	Replaced func()
	// Interval is the time between two looks at every task; 0 is DefaultInterval.
	Interval time.Duration
	// Poll is the time between two comparisons of a directory that cannot be
	// watched; 0 is DefaultPoll.
	Poll time.Duration
	// Log gets what a person should know; nil discards it.
	Log *slog.Logger
	// NewBackend makes the source of events; nil is inotify on Linux and fsnotify
	// elsewhere. Tests inject limits and overflows here.
	NewBackend func() (Backend, error)
}

// Backend is a source of file events, in the words of package fsnotify. Add and
// Remove are called by one goroutine, which does not receive events meanwhile.
type Backend interface {
	// Add watches the entries of a directory. For one that is watched already it
	// makes sure of that. Its errors wrap ENOSPC or EMFILE where a limit is reached.
	Add(dir string) error
	Remove(dir string) error
	Events() <-chan fsnotify.Event
	// Errors reports that events may have been lost, fsnotify.ErrEventOverflow
	// among others.
	Errors() <-chan error
	Close() error
}

// Look says that a task should be looked at.
type Look struct {
	// Task is the name of its directory.
	Task string
	Why  Why
	// Urgent is true where an event led to the look, and not a pass over all tasks.
	Urgent bool
}

// Why is the cause of a look, for logs. Where several fell together it is the
// first.
type Why string

// The causes of a look.
const (
	Appeared Why = "appeared" // the directory is new, or was there at the start
	Changed  Why = "changed"  // a name that counts was created or written
	Removed  Why = "removed"  // the directory is gone
	Compared Why = "compared" // polling found a difference
	Rescan   Why = "rescan"   // events may have been lost, or a watch is new
	Regular  Why = "regular"  // the look that every task gets once an Interval
)

// Mode says how tasks are watched. The zero value is that of a Watcher that has
// not started.
type Mode struct {
	// Watched and Polled count task directories.
	Watched, Polled int
	// Polling is true while anything is polled, be it only the directory of tasks.
	Polling bool
	// Reason says what stands against watching it, and what to do.
	Reason string
}

// String returns "watching", or "polling" with the reason.
func (m Mode) String() string {
	switch {
	case !m.Polling:
		return "watching"
	case m.Watched == 0:
		return "polling: " + m.Reason
	default:
		return fmt.Sprintf("polling %d of %d tasks: %s", m.Polled, m.Polled+m.Watched, m.Reason)
	}
}

// Watcher watches tasks. Looks and Mode may be used by any goroutine.
type Watcher struct {
	cfg     Config
	looks   chan Look
	mode    atomic.Pointer[Mode]
	started atomic.Bool
}

// New returns a Watcher that does nothing until Run.
func New(cfg Config) *Watcher {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Poll <= 0 {
		cfg.Poll = DefaultPoll
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.NewBackend == nil {
		cfg.NewBackend = func() (Backend, error) { return newBackend(cfg.Counts) }
	}
	return &Watcher{cfg: cfg, looks: make(chan Look)}
}

// Looks hands out the looks, one for a task however many events there were since
// its last. A slow reader loses nothing and holds up nothing. The channel stays
// open when Run returns.
func (w *Watcher) Looks() <-chan Look { return w.looks }

// Mode returns how tasks are watched now.
func (w *Watcher) Mode() Mode {
	if m := w.mode.Load(); m != nil {
		return *m
	}
	return Mode{}
}

// Run watches until ctx ends, and returns nil then. Whatever goes wrong on the
// way is logged and recovered from; the error is for a Config that cannot work
// and for a second call.
func (w *Watcher) Run(ctx context.Context) error {
	if w.cfg.Dir == "" || w.cfg.Counts == nil {
		return errors.New("run watcher: Dir and Counts are required")
	}
	dir, err := filepath.Abs(w.cfg.Dir)
	if err != nil {
		return fmt.Errorf("run watcher: %w", err)
	}
	if w.started.Swap(true) {
		return errors.New("run watcher: it has run already")
	}
	l := newLoop(w.cfg, dir, &w.mode)
	defer l.close()
	l.start(time.Now())
	l.run(ctx, w.looks)
	return nil
}

// run is the one loop: it serves events and readers, works off what is due, and
// sleeps when nothing is.
func (l *loop) run(ctx context.Context, looks chan<- Look) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	always := make(chan struct{})
	close(always)
	var set time.Time // what the timer is set to
	for {
		l.report()
		if due := l.due(); due != set {
			set = due
			timer.Reset(time.Until(due))
		}
		var (
			events <-chan fsnotify.Event
			errs   <-chan error
			out    chan<- Look
			next   Look
			more   <-chan struct{}
		)
		if l.backend != nil {
			events, errs = l.backend.Events(), l.backend.Errors()
		}
		if t := l.front(); t != nil {
			out, next = looks, Look{t.name, t.why, t.wanted == urgent}
		}
		if l.busy() {
			more = always
		}
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-events:
			if !ok {
				l.backendDied(time.Now())
				continue
			}
			l.event(ev)
		case err, ok := <-errs:
			if !ok {
				l.backendDied(time.Now())
				continue
			}
			l.lost(err)
		case out <- next:
			l.taken()
		case <-more:
			l.step()
		case now := <-timer.C:
			set = time.Time{}
			l.tick(now)
		}
	}
}
