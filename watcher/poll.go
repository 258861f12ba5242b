package watcher

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// grain is the age from which a file time tells every further change: some file
// systems count in seconds or two, and within a grain two changes look the same.
const grain = 2 * time.Second

// share bounds polling to one part in so many of a processor.
const share = 10

// stamp is what is remembered of a directory that is compared.
type stamp struct {
	mtime int64 // of the directory, ns
	young bool  // mtime was too young to be trusted
	// names are the files in it that count, files a digest of what they are.
	names []string
	files uint64
}

// dirChanged reports whether entries may have come or gone since it was asked
// last.
func (s *stamp) dirChanged(info fs.FileInfo, now time.Time) bool {
	mtime := info.ModTime()
	changed := s.young || mtime.UnixNano() != s.mtime
	s.mtime, s.young = mtime.UnixNano(), isYoung(mtime, now)
	return changed
}

func isYoung(mtime, now time.Time) bool { return now.Sub(mtime).Abs() < grain }

// pollTask has a task polled. What is there now is remembered before the task is
// looked at, so that no change falls between.
func (l *loop) pollTask(t *task, path string) {
	if t.poll != nil {
		return
	}
	t.poll = &stamp{}
	l.polled++
	now := time.Now()
	if info, err := os.Lstat(path); err == nil {
		l.differs(t.poll, path, info, now)
	}
	l.nextPoll = earliest(l.nextPoll, now.Add(l.cfg.Poll))
}

func (l *loop) unpoll(t *task) {
	if t.poll != nil {
		t.poll = nil
		l.polled--
	}
}

// pollsAnything reports whether comparisons have to go on. A missing root is
// looked for by them.
func (l *loop) pollsAnything() bool { return l.polled > 0 || l.rootPoll != nil || l.root == "" }

func (l *loop) startCompare(now time.Time) {
	l.comparing, l.compared = now, 0
	began := time.Now()
	if l.root == "" {
		l.attach(now)
	} else if l.rootPoll != nil {
		info, err := os.Stat(l.dir)
		if err != nil || idOf(info) != l.rootID {
			l.attach(now)
		} else if l.rootPoll.dirChanged(info, now) {
			l.list(func(*task) {})
		}
	}
	if l.polled > 0 {
		for _, t := range l.tasks {
			if t.poll != nil {
				l.compare.push(t)
			}
		}
	}
	l.compared += time.Since(began)
	l.endCompare()
}

func (l *loop) stepCompare() {
	began := time.Now()
	for n := 0; n < stepSize && l.compare.len() > 0; n++ {
		if t := l.compare.pop(); t.poll != nil {
			l.compareTask(t, began)
		}
	}
	l.compared += time.Since(began)
	l.endCompare()
}

func (l *loop) endCompare() {
	if l.compare.len() == 0 {
		l.nextPoll = l.comparing.Add(max(l.cfg.Poll, share*l.compared))
	}
}

func (l *loop) compareTask(t *task, now time.Time) {
	path := l.prefix + t.name
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.IsDir() || idOf(info) != t.id) {
		l.ensure(t, Appeared, urgent)
		return
	}
	if err == nil && l.differs(t.poll, path, info, now) {
		l.want(t, Compared, urgent)
	}
}

// differs compares a directory with what is remembered of it, and remembers it.
func (l *loop) differs(s *stamp, path string, info fs.FileInfo, now time.Time) bool {
	if s.dirChanged(info, now) {
		s.names = countedNames(path, l.cfg.Counts)
	}
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, name := range s.names {
		info, err := os.Lstat(path + string(filepath.Separator) + name)
		if err != nil {
			continue
		}
		// A young file's time does not tell the next change. That it has aged
		// counts as one, so that there is a comparison after its last.
		maphash.WriteComparable(&h, struct {
			name        string
			id          fileID
			size, mtime int64
			young       bool
		}{name, idOf(info), info.Size(), info.ModTime().UnixNano(), isYoung(info.ModTime(), now)})
	}
	sum := h.Sum64()
	changed := sum != s.files
	s.files = sum
	return changed
}

// countedNames lists the names in a directory that count. One that cannot be
// read has none.
func countedNames(path string, counts func(string) bool) []string {
	d, err := openDir(path)
	if err != nil {
		return nil
	}
	defer d.Close()
	var names []string
	for {
		batch, err := d.Readdirnames(listSize)
		for _, name := range batch {
			if counts(name) {
				names = append(names, name)
			}
		}
		if err != nil || len(batch) == 0 {
			slices.Sort(names)
			return names
		}
	}
}
