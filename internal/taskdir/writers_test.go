//go:build unix

package taskdir

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// taker takes the replies of one task as a session does, and keeps their text
// where a session has its journal.
type taker struct {
	d       *Dir
	seq     uint64
	undone  []undone
	got     strings.Builder
	count   int
	rests   int
	dropped int
}

type undone struct {
	p  *Pending
	fp Fingerprint
	at time.Time
}

// step takes one message if there is one.
func (k *taker) step(t *testing.T) {
	s, err := k.d.Look()
	if err != nil {
		t.Fatal(err)
	}
	for len(k.undone) > 0 && time.Since(k.undone[0].at) > time.Second {
		k.drop(t, 0)
	}
	if s.Reply == nil || s.Reply.Size == 0 {
		return
	}
	k.seq++
	p, err := k.d.Take(ReplyFile, k.seq)
	if errors.Is(err, ErrEmpty) || errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	c, err := k.read(t, p)
	if err == nil {
		// What a writer added to an earlier file, it wrote before this one.
		for i := range k.undone {
			k.rest(t, i, k.d.Grown)
		}
		k.accept(c)
	}
	k.undone = append(k.undone, undone{p, c.Fingerprint(), at})
}

func (k *taker) read(t *testing.T, p *Pending) (Content, error) {
	for {
		c, err := k.d.Read(p, time.Now())
		var nw ErrNotWhole
		if errors.As(err, &nw) {
			time.Sleep(nw.RetryAfter)
			continue
		}
		if err != nil && !errors.Is(err, ErrEmpty) {
			t.Fatal(err)
		}
		return c, err
	}
}

func (k *taker) accept(c Content) {
	k.count++
	k.got.WriteString(c.Text)
}

// rest handles what was added to a file, if anything; false if nothing was.
func (k *taker) rest(t *testing.T, i int, fn func(*Pending, Fingerprint) (*Pending, error)) bool {
	u := &k.undone[i]
	for {
		rest, err := fn(u.p, u.fp)
		var nw ErrNotWhole
		if errors.As(err, &nw) {
			time.Sleep(nw.RetryAfter)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if rest == nil {
			return false
		}
		c, err := k.read(t, rest)
		if err == nil {
			k.rests++
			k.accept(c)
		}
		u.p, u.fp = rest, c.Fingerprint()
		return true
	}
}

func (k *taker) drop(t *testing.T, i int) {
	for k.rest(t, i, k.d.Drop) {
	}
	k.dropped++
	k.undone = slices.Delete(k.undone, i, i+1)
}

// finish takes what is left and checks that nothing remains.
func (k *taker) finish(t *testing.T) {
	for look(t, k.d).Reply != nil {
		k.step(t)
	}
	for len(k.undone) > 0 {
		k.drop(t, 0)
	}
	if left := append(glob(t, k.d, ".*"), glob(t, k.d, "*")...); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// wantLines checks that each writer's lines arrived once, in order.
func wantLines(t *testing.T, got string, writers, lines int) {
	t.Helper()
	next := make([]int, writers)
	for _, line := range strings.SplitAfter(got, "\n") {
		if line == "" {
			continue
		}
		var w, n int
		if _, err := fmt.Sscanf(line, "writer %d line %d.\n", &w, &n); err != nil || line != fmt.Sprintf("writer %d line %d.\n", w, n) {
			t.Fatalf("a broken line arrived: %q", line)
		}
		if n != next[w] {
			t.Fatalf("writer %d: line %d arrived where %d was due", w, n, next[w])
		}
		next[w]++
	}
	for w, n := range next {
		if n != lines {
			t.Errorf("writer %d: %d of %d lines arrived", w, n, lines)
		}
	}
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// Writers that open the file anew for every line, as >> does.
func TestEveryAppendedLineArrivesOnce(t *testing.T) {
	run := func(t *testing.T, d *Dir, writers, lines int) {
		var wg sync.WaitGroup
		done := make(chan struct{})
		for w := range writers {
			wg.Go(func() {
				for n := range lines {
					if err := appendLine(d.join(ReplyFile), fmt.Sprintf("writer %d line %d.\n", w, n)); err != nil {
						t.Error(err)
						return
					}
					// Leaves gaps in which the file can be found whole.
					time.Sleep(time.Duration(n%7) * 20 * time.Microsecond)
				}
			})
		}
		go func() { wg.Wait(); close(done) }()
		k := &taker{d: d}
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
				k.step(t)
			}
		}
		k.finish(t)
		wantLines(t, k.got.String(), writers, lines)
		t.Logf("%d lines in %d messages, %d of them additions", writers*lines, k.count, k.rests)
	}
	t.Run("leases", func(t *testing.T) { run(t, openTask(t), 4, 2000) })
	t.Run("settling", func(t *testing.T) {
		run(t, openTask(t, WithoutLeases(), WithSettle(10*time.Millisecond)), 4, 500)
	})
}

func runShell(t *testing.T, d *Dir, script string) <-chan struct{} {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(sh, "-c", script)
	cmd.Dir = d.Path()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	return done
}

func TestShellAppends(t *testing.T) {
	d := openTask(t)
	const lines = 2000
	done := runShell(t, d, `i=0; while [ $i -lt `+strconv.Itoa(lines)+` ]; do echo "writer 0 line $i." >>reply.txt; i=$((i+1)); done`)
	k := &taker{d: d}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			k.step(t)
		}
	}
	k.finish(t)
	wantLines(t, k.got.String(), 1, lines)
	t.Logf("%d lines in %d messages, %d of them additions", lines, k.count, k.rests)
}

// A writer that overwrites must wait until its last message is taken, or it
// overwrites it; one that does so loses nothing.
func TestShellOverwrites(t *testing.T) {
	d := openTask(t)
	const lines = 2000
	done := runShell(t, d, `i=0; while [ $i -lt `+strconv.Itoa(lines)+` ]; do while [ -e reply.txt ]; do :; done; echo "writer 0 line $i." >reply.txt; i=$((i+1)); done`)
	k := &taker{d: d}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			k.step(t)
		}
	}
	k.finish(t)
	wantLines(t, k.got.String(), 1, lines)
	if k.count != lines {
		t.Errorf("%d messages, want %d", k.count, lines)
	}
}

// Overwriting without waiting loses what the writer itself overwrote, and
// nothing else: what arrives is whole, once, in order, and the last one arrives.
func TestOverwritesWithoutWaiting(t *testing.T) {
	d := openTask(t)
	const lines = 3000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range lines {
			if err := os.WriteFile(d.join(ReplyFile), fmt.Appendf(nil, "line %d.\n", n), 0o644); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	k := &taker{d: d}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			k.step(t)
		}
	}
	k.finish(t)
	last := -1
	for _, line := range strings.SplitAfter(k.got.String(), "\n") {
		if line == "" {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(line, "line %d.\n", &n); err != nil || n <= last || line != fmt.Sprintf("line %d.\n", n) {
			t.Fatalf("%q arrived after line %d", line, last)
		}
		last = n
	}
	if last != lines-1 {
		t.Errorf("the last line to arrive was %d", last)
	}
}

func TestManyTasksAtOnce(t *testing.T) {
	root, err := OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	const tasks, lines = 200, 20
	var takers []*taker
	for i := range tasks {
		d, err := root.Create(fmt.Sprintf("task %d", i))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		takers = append(takers, &taker{d: d})
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for _, k := range takers {
		wg.Go(func() {
			for n := range lines {
				if err := appendLine(k.d.join(ReplyFile), fmt.Sprintf("writer 0 line %d.\n", n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for _, k := range takers {
			k.step(t)
		}
	}
	for _, k := range takers {
		k.finish(t)
		wantLines(t, k.got.String(), 1, lines)
	}
}

// One handle, three pieces: whole only when the handle is closed. Where writers
// are not known, rest has to be longer than the writer's pauses.
func TestSlowWriter(t *testing.T) {
	d := openTask(t)
	for _, name := range []string{InputFile, ReplyFile} {
		f, err := os.Create(d.join(name))
		if err != nil {
			t.Fatal(err)
		}
		var p *Pending
		for i := range 3 {
			if _, err := f.WriteString("piece " + strconv.Itoa(i) + "\n"); err != nil {
				t.Fatal(err)
			}
			if p == nil && name == ReplyFile {
				p = take(t, d, name, 1)
			} else if p == nil {
				p = d.InPlace(name)
			}
			for range 3 {
				if !leasesWork(t, d) {
					break
				}
				_, err := d.Read(p, time.Now())
				wantNotWhole(t, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if c := readWhole(t, d, p); c.Text != "piece 0\npiece 1\npiece 2\n" {
			t.Errorf("%s: got %q", name, c.Text)
		}
	}
}

// Emptied, and filled only later.
func TestTruncatePauseWrite(t *testing.T) {
	d := openTask(t)
	if !leasesWork(t, d) {
		t.Skip("writers are not known here")
	}
	write(t, d, InputFile, "old")
	f, err := os.Create(d.join(InputFile))
	if err != nil {
		t.Fatal(err)
	}
	p := d.InPlace(InputFile)
	_, err = d.Read(p, time.Now())
	wantNotWhole(t, err)
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	_, err = d.Read(p, time.Now())
	wantNotWhole(t, err)
	f.Close()
	if c, err := d.Read(p, time.Now()); err != nil || c.Text != "new" {
		t.Error(c, err)
	}
	// Emptied and closed: no message, and no error that ends anything.
	write(t, d, InputFile, "")
	if _, err := d.Read(p, time.Now()); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
}

func leasesWork(t *testing.T, d *Dir) bool {
	t.Helper()
	write(t, d, "probe", "x")
	defer os.Remove(d.join("probe"))
	f, err := os.Open(d.join("probe"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, known := writers(f)
	return known
}
