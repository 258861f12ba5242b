package taskdir

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// Both ways to know that a file is whole.
func bothWays(t *testing.T, fn func(t *testing.T, d *Dir)) {
	t.Run("leases", func(t *testing.T) { fn(t, openTask(t)) })
	t.Run("settling", func(t *testing.T) { fn(t, openTask(t, WithoutLeases(), WithSettle(20*time.Millisecond))) })
}

func TestTakeReadDrop(t *testing.T) {
	bothWays(t, func(t *testing.T, d *Dir) {
		write(t, d, "reply.txt", "go on\n")
		p := take(t, d, "reply.txt", 7)
		if exists(t, d, "reply.txt") || !exists(t, d, ".taken-7-reply.txt") {
			t.Fatal("the message was not renamed")
		}
		c := readWhole(t, d, p)
		if c.Text != "go on\n" || c.Encoding != UTF8 || c.Bytes != 6 || c.SHA256 != hash([]byte("go on\n")) {
			t.Errorf("content %+v", c)
		}
		if rest, err := d.Grown(p, c.Fingerprint()); rest != nil || err != nil {
			t.Error(rest, err)
		}
		if rest, err := d.Drop(p, c.Fingerprint()); rest != nil || err != nil {
			t.Error(rest, err)
		}
		if exists(t, d, ".taken-7-reply.txt") {
			t.Error("the message was not deleted")
		}
		if rest, err := d.Drop(p, c.Fingerprint()); rest != nil || err != nil {
			t.Error("a second time:", rest, err)
		}
	})
}

func TestTakeRefusals(t *testing.T) {
	d := openTask(t)
	if _, err := d.Take("reply.txt", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	write(t, d, "reply.txt", "")
	if _, err := d.Take("reply.txt", 1); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if !exists(t, d, "reply.txt") {
		t.Error("an empty message was renamed")
	}
	write(t, d, "input.txt", "x")
	if _, err := d.Take("input.txt", 1); !errors.Is(err, fs.ErrInvalid) {
		t.Error(err)
	}
	// A number that is in use must not cost the message that has it.
	write(t, d, ".taken-1-reply.txt", "earlier")
	write(t, d, "reply.txt", "later")
	if _, err := d.Take("reply.txt", 1); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if got := read(t, d, ".taken-1-reply.txt") + read(t, d, "reply.txt"); got != "earlierlater" {
		t.Errorf("got %q", got)
	}
}

func TestStopIsTakenAtOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, d *Dir) {
		f, err := os.Create(d.join("_stop"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := take(t, d, "_stop", 1)
		c, err := d.Read(p, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		// What is written later is not a second stop.
		if _, err := f.WriteString("stop"); err != nil {
			t.Fatal(err)
		}
		if rest, err := d.Drop(p, c.Fingerprint()); rest != nil || err != nil {
			t.Error(rest, err)
		}
		if len(glob(t, d, "*")) != 0 || len(glob(t, d, ".*")) != 0 {
			t.Error("the stop is still there")
		}
	})
}

func TestBackoff(t *testing.T) {
	var p Pending
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 50, 250, 250} {
		if got := p.backoff(); got != want*time.Millisecond {
			t.Errorf("try %d: %v, want %v ms", i, got, int(want))
		}
	}
}

// Whether a writer is there is not known: the clock decides.
func TestSettling(t *testing.T) {
	d := openTask(t, WithoutLeases())
	write(t, d, "input.txt", "one")
	p := d.InPlace("input.txt")
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	_, err := d.Read(p, at(0))
	if nw := wantNotWhole(t, err); nw.RetryAfter != 250*time.Millisecond {
		t.Errorf("retry after %v", nw.RetryAfter)
	}
	_, err = d.Read(p, at(200))
	if nw := wantNotWhole(t, err); nw.RetryAfter != 50*time.Millisecond {
		t.Errorf("retry after %v", nw.RetryAfter)
	}
	write(t, d, "input.txt", "one two")
	_, err = d.Read(p, at(260))
	if nw := wantNotWhole(t, err); nw.RetryAfter != 250*time.Millisecond {
		t.Errorf("retry after %v", nw.RetryAfter)
	}
	_, err = d.Read(p, at(509))
	if nw := wantNotWhole(t, err); nw.Waited != 509*time.Millisecond {
		t.Errorf("waited %v", nw.Waited)
	}
	c, err := d.Read(p, at(510))
	if err != nil || c.Text != "one two" {
		t.Fatal(c, err)
	}
	if !p.Since.Equal(start) {
		t.Errorf("since %v", p.Since)
	}
	// Nothing has changed: at once.
	if _, err := d.Read(p, at(511)); err != nil {
		t.Error(err)
	}
	write(t, d, "input.txt", "another")
	_, err = d.Read(p, at(520))
	wantNotWhole(t, err)
	d.SetSettle(5 * time.Millisecond)
	if _, err := d.Read(p, at(525)); err != nil {
		t.Error(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsAddedAfterReadingIsAMessage(t *testing.T) {
	bothWays(t, func(t *testing.T, d *Dir) {
		write(t, d, "reply.txt", "one\n")
		p := take(t, d, "reply.txt", 3)
		first := readWhole(t, d, p)
		appendTo(t, d.join(".taken-3-reply.txt"), "two\n")
		rest, err := d.Grown(p, first.Fingerprint())
		if err != nil || rest == nil {
			t.Fatal(rest, err)
		}
		if rest.Seq() != 3 || rest.Name() != "reply.txt" {
			t.Errorf("rest is %d %s", rest.Seq(), rest.Name())
		}
		second := readWhole(t, d, rest)
		if second.Text != "two\n" || second.Bytes != 4 || second.SHA256 != hash([]byte("two\n")) || second.Stat.Size != 8 {
			t.Errorf("second %+v", second)
		}
		// The first fingerprint holds no longer, the second does, and a third message is found by it.
		if again, err := d.Drop(p, first.Fingerprint()); err != nil || again == nil {
			t.Error(again, err)
		}
		if !exists(t, d, ".taken-3-reply.txt") {
			t.Fatal("deleted although the fingerprint does not hold")
		}
		appendTo(t, d.join(".taken-3-reply.txt"), "three\n")
		rest, err = d.Drop(rest, second.Fingerprint())
		if err != nil || rest == nil {
			t.Fatal(rest, err)
		}
		third := readWhole(t, d, rest)
		if third.Text != "three\n" {
			t.Errorf("third %+v", third)
		}
		// As after a restart: the journal's last fingerprint of this file is the third.
		resumed := d.Resume(look(t, d).Taken[0])
		if rest, err := d.Drop(resumed, third.Fingerprint()); rest != nil || err != nil {
			t.Error(rest, err)
		}
		if exists(t, d, ".taken-3-reply.txt") {
			t.Error("not deleted")
		}
	})
}

func TestWhatIsWrittenOverIsAMessage(t *testing.T) {
	for _, text := range []string{"longer than the first\n", "two", "one!\n"} {
		bothWays(t, func(t *testing.T, d *Dir) {
			write(t, d, "reply.txt", "one\n")
			p := take(t, d, "reply.txt", 1)
			c := readWhole(t, d, p)
			write(t, d, ".taken-1-reply.txt", text)
			rest, err := d.Drop(p, c.Fingerprint())
			if err != nil || rest == nil {
				t.Fatal(rest, err)
			}
			if got := readWhole(t, d, rest).Text; got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		})
	}
}

func TestTouchedMessageIsDropped(t *testing.T) {
	bothWays(t, func(t *testing.T, d *Dir) {
		write(t, d, "reply.txt", "one\n")
		p := take(t, d, "reply.txt", 1)
		c := readWhole(t, d, p)
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(d.join(".taken-1-reply.txt"), later, later); err != nil {
			t.Fatal(err)
		}
		if rest, err := d.Drop(p, c.Fingerprint()); rest != nil || err != nil {
			t.Error(rest, err)
		}
		if exists(t, d, ".taken-1-reply.txt") {
			t.Error("not deleted")
		}
	})
}

func TestEmptiedMessage(t *testing.T) {
	bothWays(t, func(t *testing.T, d *Dir) {
		write(t, d, "reply.txt", "one\n")
		p := take(t, d, "reply.txt", 1)
		c := readWhole(t, d, p)
		write(t, d, ".taken-1-reply.txt", "")
		rest, err := d.Drop(p, c.Fingerprint())
		if err != nil {
			t.Fatal(err)
		}
		if rest == nil {
			return // known to have no writer
		}
		// It may be about to be filled: deleted only once it has stood still.
		c, err = readAtLast(d, rest)
		if !errors.Is(err, ErrEmpty) {
			t.Fatal(err)
		}
		if rest, err := d.Drop(rest, c.Fingerprint()); rest != nil || err != nil {
			t.Error(rest, err)
		}
		if exists(t, d, ".taken-1-reply.txt") {
			t.Error("not deleted")
		}
	})
}

func TestAddedTextKeepsTheEncoding(t *testing.T) {
	d := openTask(t)
	write(t, d, "reply.txt", "\xFF\xFEa\x00")
	p := take(t, d, "reply.txt", 1)
	c := readWhole(t, d, p)
	appendTo(t, d.join(".taken-1-reply.txt"), "b\x00")
	rest, err := d.Grown(p, c.Fingerprint())
	if err != nil || rest == nil {
		t.Fatal(rest, err)
	}
	if c := readWhole(t, d, rest); c.Text != "b" || c.Encoding != UTF16LE || c.Bytes != 2 {
		t.Errorf("%+v", c)
	}
}

func TestTooLarge(t *testing.T) {
	d := openTask(t)
	for _, c := range []struct {
		name  string
		limit int64
	}{{"input.txt", MaxMessage}, {"context.json", MaxContext}, {"_history.json", MaxHistory}, {"_keyinfo", MaxKeyInfo}} {
		write(t, d, c.name, "x")
		// Sparse: ten gigabytes that take no space.
		if err := os.Truncate(d.join(c.name), 10<<30); err != nil {
			t.Skip(err)
		}
		_, err := d.Read(d.InPlace(c.name), time.Now())
		var tl *TooLargeError
		if !errors.As(err, &tl) || tl.Limit != c.limit || tl.Stat.Size != 10<<30 || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	write(t, d, "reply.txt", "x")
	if err := os.Truncate(d.join("reply.txt"), MaxMessage+1); err != nil {
		t.Fatal(err)
	}
	p := take(t, d, "reply.txt", 4)
	var tl *TooLargeError
	if _, err := d.Read(p, time.Now()); !errors.As(err, &tl) {
		t.Fatal(err)
	}
	name, err := d.SetAside(p)
	if err != nil || name != ".refused-4-reply.txt" || !exists(t, d, name) {
		t.Error(name, err)
	}
	if s := look(t, d); len(s.Taken) != 0 {
		t.Error("it is tried again")
	}
	write(t, d, "subagent_plan.md", strings.Repeat("x", MaxPlan+1))
	if _, err := d.ReadPlan(); !errors.As(err, &tl) {
		t.Error(err)
	}
}

// What is in a file is for others to judge; here it is read as it is, and stays.
func TestDamagedFiles(t *testing.T) {
	for _, text := range []string{`[{"role":"user","content":"cut of`, "[]\x00\x00\x00", "\x00"} {
		d := openTask(t)
		write(t, d, ForkFile, text)
		if c := readWhole(t, d, d.InPlace(ForkFile)); c.Text != text || c.Bytes != int64(len(text)) {
			t.Errorf("%q was read as %q", text, c.Text)
		}
		if got := read(t, d, ForkFile); got != text {
			t.Errorf("the file holds %q", got)
		}
	}
	d := openTask(t)
	write(t, d, ForkFile, "")
	if _, err := readAtLast(d, d.InPlace(ForkFile)); !errors.Is(err, ErrEmpty) || !exists(t, d, ForkFile) {
		t.Error(err)
	}
	write(t, d, ForkFile, "\xEF\xBB\xBF")
	c, err := readAtLast(d, d.InPlace(ForkFile))
	if !errors.Is(err, ErrEmpty) || c.Fingerprint().Size != 3 {
		t.Error(c, err)
	}
}

// An editor's or a script's atomic save, and a bare change of mode.
func TestAtomicSavers(t *testing.T) {
	bothWays(t, func(t *testing.T, d *Dir) {
		write(t, d, ".input.txt.tmp", "atomic")
		write(t, d, "input.txt~", "backup")
		write(t, d, ".input.txt.swp", "swap")
		if s := look(t, d); s.Input != nil {
			t.Error("a temporary file counts as input")
		}
		if err := os.Rename(d.join(".input.txt.tmp"), d.join("input.txt")); err != nil {
			t.Fatal(err)
		}
		c := readWhole(t, d, d.InPlace("input.txt"))
		if c.Text != "atomic" {
			t.Errorf("got %q", c.Text)
		}
		if err := os.Chmod(d.join("input.txt"), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := look(t, d); s.Input == nil || !c.Fingerprint().Matches(*s.Input) {
			t.Error("a change of mode changes the fingerprint")
		}
		if again := readWhole(t, d, d.InPlace("input.txt")); again.SHA256 != c.SHA256 || !again.Stat.Mtime.Equal(c.Stat.Mtime) {
			t.Error("a change of mode looks like a new input")
		}
		later := c.Stat.Mtime.Add(time.Second)
		write(t, d, "input.txt", "atomic")
		if err := os.Chtimes(d.join("input.txt"), later, later); err != nil {
			t.Fatal(err)
		}
		if again := readWhole(t, d, d.InPlace("input.txt")); !again.Stat.Mtime.After(c.Stat.Mtime) {
			t.Error("written again looks like no new input")
		}
	})
}

func BenchmarkTakeReadDrop(b *testing.B) {
	d := openTask(b)
	b.ReportAllocs()
	for seq := uint64(1); b.Loop(); seq++ {
		b.StopTimer()
		write(b, d, "reply.txt", "go on")
		b.StartTimer()
		p, err := d.Take("reply.txt", seq)
		if err != nil {
			b.Fatal(err)
		}
		c, err := d.Read(p, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		if rest, err := d.Drop(p, c.Fingerprint()); rest != nil || err != nil {
			b.Fatal(rest, err)
		}
	}
}

func TestEarlierStateIsNoAddition(t *testing.T) {
	for _, left := range []string{"one\n", "one\n\x00\x00\x00\x00", ""} {
		d := openTask(t)
		write(t, d, ReplyFile, "one\ntwo\n")
		p := take(t, d, ReplyFile, 1)
		c := readWhole(t, d, p)
		// A power failure takes the last bytes back, and leaves the time as it was or
		// as it had been before.
		for _, mtime := range []time.Time{c.Stat.Mtime, c.Stat.Mtime.Add(-time.Second)} {
			write(t, d, p.file, left)
			if err := os.Chtimes(d.join(p.file), mtime, mtime); err != nil {
				t.Fatal(err)
			}
			if rest, err := d.Grown(p, c.Fingerprint()); rest != nil || err != nil {
				t.Errorf("%q with its time less %v: an addition, %v", left, c.Stat.Mtime.Sub(mtime), err)
			}
		}
		if rest, err := d.Drop(p, c.Fingerprint()); rest != nil || err != nil || exists(t, d, p.file) {
			t.Errorf("%q is not deleted: %v, %v", left, rest, err)
		}
	}
}

// An inode says which file it is only until the file is deleted; its birth tells.
func TestFingerprintOfAnotherFileWithTheInode(t *testing.T) {
	f := Fingerprint{Ino: 7, Size: 4, Mtime: 100, SHA256: "a", Born: 50}
	for _, c := range []struct {
		name                         string
		of                           func(*Fingerprint)
		sameFile, certain, sameState bool
	}{
		{"the same", func(*Fingerprint) {}, true, true, true},
		{"grown", func(o *Fingerprint) { o.Size, o.SHA256 = 9, "b" }, true, true, false},
		{"another with its inode", func(o *Fingerprint) { o.Born = 60 }, false, true, false},
		{"another with its time", func(o *Fingerprint) { o.Ino = 8 }, false, true, false},
		{"no birth known", func(o *Fingerprint) { o.Born = 0 }, true, false, true},
		{"no birth known, another inode", func(o *Fingerprint) { o.Born, o.Ino = 0, 8 }, false, false, false},
	} {
		o := f
		c.of(&o)
		if same, certain := f.SameFile(o); same != c.sameFile || certain != c.certain {
			t.Errorf("%s: the same file %v, for certain %v", c.name, same, certain)
		}
		if got := f.SameState(o); got != c.sameState {
			t.Errorf("%s: the same state %v", c.name, got)
		}
	}
}
