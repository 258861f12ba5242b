package usage

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gasupervisor/gasupervisor/internal/budget"
	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

func noon() *clock { return &clock{at: time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local)} }

func open(t testing.TB, dir string, c *clock) *Accounts {
	t.Helper()
	a := New(dir, c.now, func(err error) {
		if err != nil {
			t.Errorf("accounts: %v", err)
		}
	})
	if err := a.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func used(n int64, cost float64) llm.Usage {
	return llm.Usage{Requests: 1, InputTokens: n, OutputTokens: 1, CostUSD: cost}
}

func TestAccounts(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "usage"), noon()
	a := open(t, dir, c)
	a.Spent("big", used(100, 0.5))
	a.Spent("small", used(10, 0.25))
	a.Spent("small", llm.Usage{})
	a.Start("t1", c.now(), 0)
	// The process dies without closing anything, in the middle of a line.
	f, err := os.OpenFile(filepath.Join(dir, "2026-03-04.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"at":"2026-03-04T12:00`); err != nil {
		t.Fatal(err)
	}
	f.Close()

	a = open(t, dir, c)
	if got := a.Today(); got.CostUSD != 0.75 || got.Requests != 2 {
		t.Errorf("today after a restart: %+v", got)
	}
	a.Spent("big", used(1, 0.25))
	c.add(24 * time.Hour)
	if got := a.Today(); got != (llm.Usage{}) {
		t.Errorf("the next day begins with %+v", got)
	}
	a.Spent("big", used(7, 0.125))
	days, err := Read(dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []Day{
		{Date: "2026-03-04", Started: 1, LLMs: map[string]llm.Usage{
			"big":   {Requests: 2, InputTokens: 101, OutputTokens: 2, CostUSD: 0.75},
			"small": {Requests: 1, InputTokens: 10, OutputTokens: 1, CostUSD: 0.25}}},
		{Date: "2026-03-05", LLMs: map[string]llm.Usage{"big": used(7, 0.125)}},
	}
	if diff := cmp.Diff(want, days); diff != "" {
		t.Error(diff)
	}
	if days, _ = Read(dir, "2026-03-05", "2026-03-05"); len(days) != 1 || days[0].Date != "2026-03-05" {
		t.Errorf("one day: %+v", days)
	}
	if days, err := Read(filepath.Join(dir, "none"), "", ""); days != nil || err != nil {
		t.Errorf("no directory: %v, %v", days, err)
	}
}

func TestOldDaysAreSummedUp(t *testing.T) {
	dir, c := t.TempDir(), noon()
	a := open(t, dir, c)
	for i := range 500 {
		a.Spent("big", used(int64(i), 0.5))
		a.Start(fmt.Sprint("t", i), c.now(), 0)
	}
	before, err := Read(dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	c.add(48 * time.Hour)
	a.Spent("big", used(1, 1))
	after, err := Read(dir, "", "2026-03-04")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if fi, err := os.Stat(filepath.Join(dir, "2026-03-04.jsonl")); err != nil || fi.Size() > 1000 {
		t.Errorf("file of an old day: %v, %v", fi, err)
	}
}

func TestStart(t *testing.T) {
	dir, c := t.TempDir(), noon()
	a := open(t, dir, c)
	for i := range 3 {
		if w := a.Start("t", c.now(), 3); w != 0 {
			t.Fatalf("start %d has to wait %v", i, w)
		}
		c.add(10 * time.Minute)
	}
	if w := a.Start("t", c.now(), 3); w != 30*time.Minute {
		t.Errorf("the fourth waits %v", w)
	}
	a = open(t, dir, c) // nor does a restart help
	if w := a.Start("t", c.now(), 3); w != 30*time.Minute {
		t.Errorf("after a restart the fourth waits %v", w)
	}
	if w := a.Start("t", c.now(), 2); w != 40*time.Minute {
		t.Errorf("with a lower limit the fourth waits %v", w)
	}
	c.add(30 * time.Minute)
	opened := c.now()
	if w := a.Start("t", opened, 3); w != 0 {
		t.Errorf("after its time it waits %v", w)
	}
	// The session that was let in asks again, and is no further one.
	a = open(t, dir, c)
	c.add(time.Second)
	if w := a.Start("t", opened, 3); w != 0 {
		t.Errorf("a session that was let in waits %v", w)
	}
	if w := a.Start("other", opened, 3); w == 0 {
		t.Error("another task's session was taken for it")
	}
	// Over midnight, and the first days of an hour belong to it still.
	c = &clock{at: time.Date(2026, 3, 4, 23, 50, 0, 0, time.Local)}
	dir = t.TempDir()
	open(t, dir, c).Start("t", c.now(), 1)
	c.add(20 * time.Minute)
	if w := open(t, dir, c).Start("t", c.now(), 1); w != 40*time.Minute {
		t.Errorf("over midnight it waits %v", w)
	}
}

func TestDayBudget(t *testing.T) {
	c := noon()
	a := open(t, t.TempDir(), c)
	b := a.Budget(1)
	a.Spent("big", used(1, 0.75))
	if _, err := b.Reserve(t.Context(), llm.Amount{CostUSD: 0.5}); err == nil {
		t.Error("more than the day has was given")
	}
	settle, err := b.Reserve(t.Context(), llm.Amount{CostUSD: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	a.Spent("big", used(1, 0.25))
	settle(llm.Amount{CostUSD: 0.25})
	var spent *budget.SpentError
	if _, err := b.Reserve(t.Context(), llm.Amount{CostUSD: 0.01}); !errors.As(err, &spent) || math.Abs(spent.Spent.CostUSD-1) > 1e-9 {
		t.Errorf("spent: %v", err)
	}
	c.add(12 * time.Hour)
	if _, err := b.Reserve(t.Context(), llm.Amount{CostUSD: 0.5}); err != nil {
		t.Errorf("the next day gives nothing: %v", err)
	}
}

func TestTroubleIsToldOnce(t *testing.T) {
	dir, c := t.TempDir(), noon()
	var told []error
	a := New(dir, c.now, func(err error) { told = append(told, err) })
	if err := a.Open(); err != nil {
		t.Fatal(err)
	}
	a.file.Close() // as if the disk were full
	for range 3 {
		a.Spent("big", used(1, 1))
	}
	if len(told) != 1 || told[0] == nil || a.Today().CostUSD != 3 {
		t.Fatalf("told %v, today %+v", told, a.Today())
	}
	c.add(24 * time.Hour) // a new file, which can be written
	a.Spent("big", used(1, 1))
	if n := len(told); n < 2 || told[n-1] != nil {
		t.Errorf("told %v, want the end of the trouble last", told)
	}
}

func FuzzReadFile(f *testing.F) {
	f.Add([]byte(`{"at":"2026-03-04T12:00:00Z","llm":"a","usage":{"requests":1}}` + "\n" + `{"task":"t"}` + "\n{"))
	f.Add([]byte("\x00\n[]\nnull\n\"x\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "2026-03-04.jsonl"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir, "", ""); err != nil {
			t.Fatal(err)
		}
		a := open(t, dir, noon())
		before := a.Today()
		a.Spent("x", llm.Usage{Requests: 1})
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if after := open(t, dir, noon()).Today(); after.Requests != before.Requests+1 {
			t.Fatalf("%d requests, then %d", before.Requests, after.Requests)
		}
	})
}

func BenchmarkSpent(b *testing.B) {
	a := open(b, b.TempDir(), noon())
	b.ReportAllocs()
	for b.Loop() {
		a.Spent("big", used(1000, 0.01))
	}
}

// What one process enters, the others count: their limits hold over all of them.
func TestAccountsOfSeveralProcesses(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "usage"), noon()
	a, b := open(t, dir, c), open(t, dir, c)
	a.Spent("big", used(100, 0.5))
	b.Spent("big", used(10, 0.25))
	a.Spent("small", used(1, 0.125))
	b.Start("t1", c.now(), 0)
	for name, acc := range map[string]*Accounts{"the first": a, "the second": b, "a third": open(t, dir, c)} {
		if got := acc.Today(); got.Requests != 3 || got.CostUSD != 0.875 {
			t.Errorf("%s: %+v", name, got)
		}
		if wait := acc.Start("t2", c.now(), 1); wait != time.Hour {
			t.Errorf("%s lets a second start through, or after %s", name, wait)
		}
	}
	var group sync.WaitGroup
	for range 4 {
		acc := open(t, dir, c)
		group.Go(func() {
			for range 250 {
				acc.Spent("many", used(1, 0))
			}
		})
	}
	group.Wait()
	if got := a.Today(); got.Requests != 1003 {
		t.Errorf("%d requests, want 1003", got.Requests)
	}
	days, err := Read(dir, "", "")
	if err != nil || len(days) != 1 || days[0].Total().Requests != 1003 || days[0].Started != 1 {
		t.Errorf("%+v, %v", days, err)
	}
	c.add(24 * time.Hour)
	b.Spent("big", used(10, 0.25))
	if got := a.Today(); got.Requests != 1 {
		t.Errorf("on the next day %+v", got)
	}
}
