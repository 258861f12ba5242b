package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// place is the directory in the state directory that holds a task's journals:
//
//	session.jsonl       of the session that the task has now
//	session.<n>.jsonl   of an earlier one, whose files are in old/<n>/
//	session.next.jsonl  of one that is about to take session.jsonl's place
//
// A new session's journal is begun beside the earlier one's and synced before
// either gets its name. So whatever a crash leaves behind, one of them is whole and
// says which number the session has.
type place string

func placeOf(stateDir, task string) place {
	return place(filepath.Join(stateDir, journal.Place(task)))
}

func (p place) current() string  { return filepath.Join(string(p), "session.jsonl") }
func (p place) next() string     { return filepath.Join(string(p), "session.next.jsonl") }
func (p place) old(n int) string { return filepath.Join(string(p), fmt.Sprintf("session.%d.jsonl", n)) }

// exists reports whether something has that name; an error counts as yes, so that
// nothing is overwritten for want of knowing.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// freeOld returns the lowest number from n on that no journal of an earlier session has.
func (p place) freeOld(n int) int {
	for exists(p.old(n)) {
		n++
	}
	return n
}

// lastOld returns the highest number that a journal of an earlier session has, 0
// where there is none.
func (p place) lastOld() (last int) {
	entries, _ := os.ReadDir(string(p))
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "session.%d.jsonl", &n); err == nil {
			last = max(last, n)
		}
	}
	return last
}

// discardNext removes what is left of a switch that did not come about.
func (p place) discardNext() error {
	if err := os.Remove(p.next()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("discard unused journal: %w", err)
	}
	return nil
}

// switchTo gives the present journal the number n, and its place to the next one.
// at is called between the two.
func (p place) switchTo(n int, at func(string)) error {
	err := os.Rename(p.current(), p.old(n))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put earlier journal aside: %w", err)
	}
	if err := journal.SyncDir(string(p)); err != nil {
		return err
	}
	at("journal_rotated")
	return p.finishSwitch()
}

// finishSwitch gives the next journal its place, which must be free.
func (p place) finishSwitch() error {
	if err := os.Rename(p.next(), p.current()); err != nil {
		return fmt.Errorf("put next journal in place: %w", err)
	}
	return journal.SyncDir(string(p))
}

// reading returns the path of the task's present journal for a reader that may
// come between the two renames of a switch.
func (p place) reading() string {
	if !exists(p.current()) && exists(p.next()) {
		return p.next()
	}
	return p.current()
}

// ArchivedName is the directory within the state directory that keeps the
// journals of tasks whose directories are gone.
const ArchivedName = "archived"

// archive moves the journals where no later task of that name meets them, under a
// number that grows with time.
func (p place) archive(now time.Time) error {
	if !exists(string(p)) {
		return nil
	}
	dir := filepath.Dir(p.archived(0))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("archive journal: %w", err)
	}
	n := now.UnixMilli()
	for exists(p.archived(n)) {
		n++
	}
	if err := os.Rename(string(p), p.archived(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("archive journal: %w", err)
	}
	return errors.Join(journal.SyncDir(dir), journal.SyncDir(filepath.Dir(string(p))))
}

func (p place) archived(n int64) string {
	return filepath.Join(filepath.Dir(string(p)), ArchivedName, filepath.Base(string(p))+"."+strconv.FormatInt(n, 10))
}

// lastArchived returns the highest number among the archived journals of the task,
// 0 where there are none.
func (p place) lastArchived() (last int64, err error) {
	entries, err := os.ReadDir(filepath.Dir(p.archived(0)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if number, ok := strings.CutPrefix(e.Name(), filepath.Base(string(p))+"."); ok {
			if n, err := strconv.ParseInt(number, 10, 64); err == nil {
				last = max(last, n)
			}
		}
	}
	return last, err
}

// restore brings the journals back that were archived last, if is says of the first
// record that they are those of a directory that has come back. It reports whether
// they are.
func (p place) restore(is func(first *record) bool) (bool, error) {
	n, err := p.lastArchived()
	if err != nil || n == 0 {
		return false, err
	}
	first, err := place(p.archived(n)).first()
	if err != nil || first == nil || !is(first) {
		return false, nil
	}
	if err := os.Rename(p.archived(n), string(p)); err != nil {
		return false, fmt.Errorf("bring journal back: %w", err)
	}
	return true, journal.SyncDir(filepath.Dir(string(p)))
}

// Known returns the tasks that have a journal in the state directory, other than
// those named: their directories may be gone. Journals that cannot be read are
// reported beside the names.
func Known(stateDir string, except []string) (names []string, err error) {
	places := make(map[string]bool, len(except))
	for _, name := range except {
		places[journal.Place(name)] = true
	}
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		return nil, fmt.Errorf("list journals: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || places[e.Name()] || e.Name() == ArchivedName {
			continue
		}
		first, err := place(filepath.Join(stateDir, e.Name())).first()
		if err != nil {
			errs = append(errs, err)
		}
		// A journal that lies elsewhere than its name says belongs to no task.
		if first != nil && first.Opened != nil && journal.Place(first.Opened.Task) == e.Name() {
			names = append(names, first.Opened.Task)
		}
	}
	return names, errors.Join(errs...)
}

// wasRead returns the text that was read when a file had this fingerprint, "" where no
// journal has it, and the byte of the file at which it begins.
func (p place) wasRead(fp taskdir.Fingerprint) (text string, from int64) {
	journals, err := filepath.Glob(filepath.Join(string(p), "session*.jsonl"))
	if err != nil {
		return "", 0
	}
	for _, path := range journals {
		_, _ = journal.Read(path, 0, func(_ int64, rec json.RawMessage) error {
			var r struct {
				Message *messageRecord `json:"message"`
			}
			if err := json.Unmarshal(rec, &r); err == nil && r.Message != nil && r.Message.Fingerprint == fp {
				text, from = r.Message.Text, fp.Size-r.Message.Bytes
			}
			return nil
		})
	}
	return text, from
}

// first returns the first record of the journal in use, nil where there is none.
func (p place) first() (first *record, err error) {
	_, err = journal.Read(p.reading(), 0, func(_ int64, rec json.RawMessage) error {
		first = &record{}
		if err := json.Unmarshal(rec, first); err != nil {
			return err
		}
		return errFirst
	})
	if errors.Is(err, errFirst) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return first, err
}

// errFirst ends a reading after the first record.
var errFirst = errors.New("first record read")
