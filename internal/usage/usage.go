// Package usage keeps account of what LLMs cost, per LLM and per day, and of how
// many sessions were started.
//
// The accounts are files in one directory, one a day: <date>.jsonl, a line of JSON
// for each request or start, appended as it happens, so that nothing is lost with
// the process. (It is not synced: a power failure may cost the last seconds, which
// no limit is worth a sync for each request.) Days that are long gone are summed up
// to a line for each LLM. Dates are those of the local time zone.
//
// Any number of processes may write, a daemon and others beside it, and read (see
// Read): a line is one write at the end of the file, and the sums of each process are
// those of the file. They know requests and starts, and not what limits there are; those are budget.Budget, which Accounts
// feeds, and the allowance that Start is given.
package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/budget"
	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// DirName is the directory of the accounts within the state directory.
const DirName = "usage"

const dateForm = time.DateOnly

// entry is a line of a file: a request, a start, or a day's sum of either.
type entry struct {
	At    time.Time  `json:"at,omitzero"`
	LLM   string     `json:"llm,omitempty"`
	Usage *llm.Usage `json:"usage,omitempty"`
	// Task is the task of a session that started.
	Task string `json:"task,omitempty"`
	// Started is the sum of starts.
	Started int `json:"started,omitempty"`
}

// Accounts is the writing side. It may be used by many goroutines at once.
type Accounts struct {
	dir string
	now func() time.Time
	// failed is told once of a file that cannot be written, and once more when it
	// can again (with nil). The sums in memory stay right meanwhile.
	failed func(error)

	mu     sync.Mutex
	date   string
	file   *os.File
	seen   int64 // how much of the file is in today
	torn   bool  // a write of ours may have ended within a line
	today  Day
	starts []started // of the last hour, in order
	broken bool
	closed bool
}

// New returns the accounts in dir, which are to be opened before they are used. now
// is the clock (nil: the real one), failed hears of files that cannot be written
// (nil: nobody does).
func New(dir string, now func() time.Time, failed func(error)) *Accounts {
	if now == nil {
		now = time.Now
	}
	if failed == nil {
		failed = func(error) {}
	}
	return &Accounts{dir: dir, now: now, failed: failed}
}

// Open makes the directory and takes up what there is of today and of the last hour.
func (a *Accounts) Open() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fmt.Errorf("open usage accounts: %w", err)
	}
	yesterday := a.now().AddDate(0, 0, -1).Format(dateForm)
	if err := readFile(filepath.Join(a.dir, yesterday+".jsonl"), a.start); err != nil {
		return fmt.Errorf("open usage accounts: %w", err)
	}
	a.date = a.now().Format(dateForm)
	a.today = Day{Date: a.date}
	if err := a.open(); err != nil {
		return fmt.Errorf("open usage accounts: %w", err)
	}
	return nil
}

// take adds an entry to what is known.
func (a *Accounts) take(e entry) {
	a.today.add(e)
	a.start(e)
}

// start notes the start of a session in the last hour.
func (a *Accounts) start(e entry) {
	if e.Task != "" && e.At.After(a.now().Add(-time.Hour)) {
		a.starts = append(a.starts, started{e.Task, e.At})
	}
}

// catchUp takes what was written to the file since the last time, by whichever
// process.
func (a *Accounts) catchUp() error {
	if a.file == nil {
		return nil
	}
	fi, err := a.file.Stat()
	if err != nil || fi.Size() <= a.seen {
		return err
	}
	left := fi.Size() - a.seen
	// After a request it is a line or two.
	n, err := readLines(io.NewSectionReader(a.file, a.seen, left), int(min(left, maxLine)), a.take)
	a.seen += n
	return err
}

// open opens the file of a.date for appending, and takes what stands in it.
func (a *Accounts) open() error {
	path := filepath.Join(a.dir, a.date+".jsonl")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// A line that a crash tore is ended, so that it does not spoil the next.
	if fi, err := f.Stat(); err == nil && fi.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, fi.Size()-1); err == nil && last[0] != '\n' {
			if _, err := f.WriteString("\n"); err != nil {
				return errors.Join(err, f.Close())
			}
		}
	}
	a.file, a.seen = f, 0
	sumUpBefore(a.dir, a.now().AddDate(0, 0, -1).Format(dateForm))
	return a.catchUp()
}

// Close closes the file of the day.
func (a *Accounts) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}

// Spent enters what requests to an LLM cost. It is called for every attempt, also
// for those that failed.
func (a *Accounts) Spent(name string, u llm.Usage) {
	if u == (llm.Usage{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(entry{At: a.now(), LLM: name, Usage: &u})
}

// started is the start of a task's session.
type started struct {
	task string
	at   time.Time
}

// Start enters the start of the task's session that was opened at that time, where
// fewer than perHour (0: any number) have started in the last hour, and returns 0.
// Else it enters nothing and returns after what time to ask again. A session may ask
// again after a restart: what was entered for it stands.
func (a *Accounts) Start(task string, opened time.Time, perHour int) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	now := a.now()
	for len(a.starts) > 0 && !a.starts[0].at.After(now.Add(-time.Hour)) {
		a.starts = a.starts[1:]
	}
	if a.entered(task, opened) {
		return 0
	}
	if perHour > 0 && len(a.starts) >= perHour {
		return a.starts[len(a.starts)-perHour].at.Add(time.Hour).Sub(now)
	}
	a.enter(entry{At: now, Task: task})
	return 0
}

// entered reports whether a start of the task is on record since then.
func (a *Accounts) entered(task string, since time.Time) bool {
	return slices.ContainsFunc(a.starts, func(s started) bool { return s.task == task && !s.at.Before(since) })
}

// Today returns what today's requests cost so far, over all LLMs and processes.
func (a *Accounts) Today() llm.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	return a.today.Total()
}

// Budget is a budget of so much money a day, over all LLMs, that follows these
// accounts.
func (a *Accounts) Budget(costPerDay float64) *budget.Budget {
	return budget.New(budget.Config{
		What: "cost_per_day of the daemon", Hint: "raise it in [limits] of config.toml, or reply tomorrow to go on",
		Limit: llm.Amount{CostUSD: costPerDay}, Elsewhere: func() llm.Amount { return a.Today().Amount() },
	})
}

// turn brings the sums up to date, and begins a new day where it is one.
func (a *Accounts) turn() {
	var err error
	if date := a.now().Format(dateForm); date != a.date {
		a.date, a.today = date, Day{Date: date}
		if a.file != nil {
			err = a.file.Close()
			a.file = nil
			// A clock that was set back comes to a day of which there is something already.
			err = errors.Join(err, a.open())
		}
	} else {
		err = a.catchUp()
	}
	if err != nil {
		a.report(err)
	}
}

func (a *Accounts) enter(e entry) {
	a.turn()
	if a.closed {
		a.take(e)
		return
	}
	err := a.write(e)
	if err != nil {
		a.take(e) // what is in no file is known to this process at least
	} else {
		err = a.catchUp()
	}
	a.report(err)
}

// write appends an entry to the file.
func (a *Accounts) write(e entry) error {
	line, err := json.Marshal(e)
	if err == nil && a.file == nil {
		err = a.open() // it failed before
	}
	if err != nil {
		return err
	}
	if a.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := a.file.Write(append(line, '\n'))
	a.torn = err != nil && (a.torn || n > 0)
	return err
}

// report tells of trouble once, and of its end.
func (a *Accounts) report(err error) {
	switch {
	case err != nil && !a.broken:
		a.broken = true
		a.failed(fmt.Errorf("write usage accounts in %s: %w", a.dir, err))
	case err == nil && a.broken:
		a.broken = false
		a.failed(nil)
	}
}
