package watcher

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// attach makes sure of the root: that it is there, that it is the directory it
// was, and that it is watched or polled. After a change everything is listed.
func (l *loop) attach(now time.Time) {
	root, id, err := resolve(l.dir)
	if err != nil {
		l.detach(now, err)
		return
	}
	changed := root != l.root || id != l.rootID
	if changed {
		l.release()
		l.root, l.rootID = root, id
		if l.firstID == (fileID{}) {
			l.firstID = id
		} else if id != l.firstID && l.cfg.Replaced != nil {
			l.cfg.Replaced()
		}
		l.prefix = root
		if !os.IsPathSeparator(root[len(root)-1]) {
			l.prefix += string(filepath.Separator)
		}
	}
	if !l.watchRoot(now) {
		return
	}
	if l.rootMissing {
		l.rootMissing = false
		l.log.Info("directory of tasks is back", "path", l.dir)
	}
	if changed {
		l.rescan()
	}
}

func resolve(dir string) (string, fileID, error) {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fileID{}, err
	}
	info, err := os.Stat(root)
	if err != nil {
		return "", fileID{}, err
	}
	if !info.IsDir() {
		return "", fileID{}, &fs.PathError{Op: "watch", Path: root, Err: errors.New("not a directory")}
	}
	return root, idOf(info), nil
}

// watchRoot adds the root's watch, or has it polled. It reports false where the
// root is gone.
func (l *loop) watchRoot(now time.Time) bool {
	if l.backend != nil {
		err := l.backend.Add(l.root)
		if err == nil {
			l.rootPoll = nil
			return true
		}
		if errors.Is(err, fs.ErrNotExist) {
			l.detach(now, err)
			return false
		}
		l.addFailed(l.root, err)
	}
	if l.rootPoll == nil {
		l.rootPoll = &stamp{}
		if info, err := os.Stat(l.root); err == nil {
			l.rootPoll.dirChanged(info, now)
		}
		l.nextPoll = earliest(l.nextPoll, now.Add(l.cfg.Poll))
	}
	return true
}

// detach lets go of a root that is gone. Its tasks are gone with it; it is looked
// for as often as a polled directory.
func (l *loop) detach(now time.Time, err error) {
	l.release()
	for _, t := range l.tasks {
		l.drop(t, urgent)
	}
	l.nextPoll = now.Add(l.cfg.Poll)
	if !l.rootMissing {
		l.rootMissing = true
		l.log.Warn("directory of tasks is missing, waiting for it", "path", l.dir, "err", err)
	}
}

// release gives back all watches under the root and forgets it.
func (l *loop) release() {
	if l.root == "" {
		return
	}
	for _, t := range l.tasks {
		l.unwatch(t)
		l.unpoll(t)
		t.waiting = false
	}
	if l.backend != nil && l.rootPoll == nil {
		_ = l.backend.Remove(l.root)
	}
	l.root, l.prefix, l.rootID, l.rootPoll = "", "", fileID{}, nil
	l.backlog, l.round, l.compare = fifo{}, fifo{}, fifo{}
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
