package watcher

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	// sayAgain is the least time between two log lines about the same trouble.
	sayAgain = 10 * time.Minute
	// tryAtOnce is how many watches are tried in a row when room may have come.
	tryAtOnce = 256
)

// limits is the part of the loop that deals with what cannot be watched.
type limits struct {
	// full is true from an Add that met a limit to the next try.
	full    bool
	reason  string // why something is polled
	backoff time.Duration
	said    bool // the log knows that something is polled

	// When each trouble was last said.
	pollingSaid, overflowSaid, errorSaid, lstatSaid, listSaid, diedSaid time.Time
}

func firstBackoff(cfg Config) time.Duration { return 4 * cfg.Poll }

// mayRepeat reports whether something may be said again, and notes that it is.
func (l *limits) mayRepeat(last *time.Time) bool {
	now := time.Now()
	if !last.IsZero() && now.Sub(*last) < sayAgain {
		return false
	}
	*last = now
	return true
}

// openBackend makes the backend. Where it cannot be had everything is polled.
func (l *loop) openBackend(now time.Time) {
	b, err := l.cfg.NewBackend()
	if err != nil {
		l.reason = describe(err, true, 0)
		l.nextTry = now.Add(l.backoff)
		return
	}
	l.backend, l.full = b, false
}

// backendDied goes on without a backend that has closed its channels; after a
// pause another one is tried, since it may die as well.
func (l *loop) backendDied(now time.Time) {
	if l.mayRepeat(&l.diedSaid) {
		l.log.Error("file watcher ended by itself, polling until another runs")
	}
	_ = l.backend.Close()
	l.backend, l.reason = nil, "the file watcher ended by itself"
	l.nextTry = now.Add(l.backoff)
	for _, t := range l.tasks {
		t.watched = false
	}
	l.watched = 0
	if l.root != "" && l.watchRoot(now) {
		l.rescan()
	}
}

// addFailed records why a directory could not be watched.
func (l *loop) addFailed(path string, err error) {
	if !isLimit(err) {
		err = fmt.Errorf("watch %s: %w", path, err)
	}
	if isLimit(err) {
		if !l.full {
			l.nextTry = time.Now().Add(l.backoff)
		}
		l.full = true
	} else if l.nextTry.Before(time.Now()) {
		l.nextTry = time.Now().Add(l.backoff)
	}
	l.reason = describe(err, false, len(l.tasks)+1)
}

// roomLeft is called when a watch was given back.
func (l *loop) roomLeft() {
	if l.full && l.backend != nil {
		l.nextTry = time.Now()
	}
}

// wantsWatches reports whether something is polled that could be watched.
func (l *loop) wantsWatches() bool {
	return l.backend == nil || l.rootPoll != nil || l.polled > 0
}

// tryAgain tries to watch what is polled. A watch that was added is followed by
// a look, as always.
func (l *loop) tryAgain(now time.Time) {
	if l.backlog.len() > 0 {
		l.nextTry = now.Add(l.cfg.Poll)
		return
	}
	l.full = false
	if l.backend == nil {
		if l.openBackend(now); l.backend != nil && l.root != "" && l.watchRoot(now) {
			l.rescan()
		}
	} else if l.rootPoll != nil {
		if l.watchRoot(now) && l.rootPoll == nil {
			l.rescan()
		}
	}
	added, tried := 0, 0
	if l.backend != nil && l.rootPoll == nil && l.backlog.len() == 0 {
		for _, t := range l.tasks {
			if t.poll == nil {
				continue
			}
			if tried++; tried > tryAtOnce || l.full {
				break
			}
			if !l.watch(t, l.prefix+t.name) {
				l.drop(t, urgent)
			} else if t.watched {
				added++
				l.want(t, Rescan, lazy)
			}
		}
	}
	switch {
	case !l.wantsWatches():
		l.backoff = firstBackoff(l.cfg)
	case added > 0:
		l.nextTry = now // events first, then the next ones
		l.backoff = firstBackoff(l.cfg)
	default:
		l.backoff = min(2*l.backoff, max(l.cfg.Interval, firstBackoff(l.cfg)))
		l.nextTry = now.Add(l.backoff)
	}
}

// report publishes the mode and tells the log when it changes. In the midst of a
// pass the numbers would change with every step.
func (l *loop) report() {
	if l.busy() {
		return
	}
	m := Mode{Watched: l.watched, Polled: l.polled}
	switch {
	case l.root == "":
		m.Polling, m.Reason = true, l.dir+" is missing"
	case l.wantsWatches():
		m.Polling, m.Reason = true, l.reason
	}
	if old := l.mode.Load(); old == nil || *old != m {
		published := m // only this one goes to the heap
		l.mode.Store(&published)
		if old == nil && l.root != "" {
			l.log.Info("tasks are watched", "watched", m.Watched, "polled", m.Polled, "after", time.Since(l.began).Round(time.Millisecond))
		}
	}
	// A missing root has its own lines.
	if l.root == "" || m.Polling == l.said {
		return
	}
	if !m.Polling {
		l.said = false
		l.log.Info("watching all tasks again", "tasks", m.Watched)
	} else if l.mayRepeat(&l.pollingSaid) {
		l.said = true
		l.log.Warn("not all tasks can be watched, polling the others",
			"polled", m.Polled, "watched", m.Watched, "every", l.cfg.Poll, "reason", m.Reason)
	}
}

func isLimit(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// describe says what stands against watching, with the setting that limits it,
// its value and a better one. creating is true where a whole watcher was to be
// had, else one more watch; need is how many watches there should be.
func describe(err error, creating bool, need int) string {
	switch {
	case errors.Is(err, syscall.EMFILE) && !canOpen():
		return fmt.Sprintf("%v: this process may open no more files; raise its limit (ulimit -n, LimitNOFILE)", err)
	case errors.Is(err, syscall.EMFILE) && creating && instancesSetting != "":
		return adviseSetting(err, instancesSetting, 256)
	case errors.Is(err, syscall.ENOSPC) && watchesSetting != "":
		return adviseSetting(err, watchesSetting, max(2*need, 65536))
	}
	return err.Error()
}

func adviseSetting(err error, name string, atLeast int) string {
	current, ok := readSetting(name)
	if !ok {
		return fmt.Sprintf("%v: set %s to %d or more (sysctl -w %[2]s=%[3]d)", err, name, atLeast)
	}
	return fmt.Sprintf("%v: %s is %d; set it to %d or more (sysctl -w %[2]s=%[4]d)", err, name, current, better(current, atLeast))
}

func overflowHint() string {
	const calm = "nothing is lost"
	if queueSetting == "" {
		return calm
	}
	n, _ := readSetting(queueSetting)
	return fmt.Sprintf("%s; if it happens often, raise %s, which is %d", calm, queueSetting, n)
}

// better returns a power of two that is twice the current value at least: the
// limit is shared with all other programs of the user.
func better(current, atLeast int) int {
	n := 1
	for n < atLeast || n < 2*current {
		n *= 2
	}
	return n
}

// canOpen tells the limit of watchers from that of open files, which answers the
// same.
func canOpen() bool {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
