package taskdir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestOutput(t *testing.T) {
	d := openTask(t)
	o, err := d.CreateOutput(1)
	if err != nil {
		t.Fatal(err)
	}
	if o.Path() != d.join("output1.txt") || o.Dirty() {
		t.Errorf("path %s, dirty %v", o.Path(), o.Dirty())
	}
	o.Line("Turn 1")
	o.Text("Let me say [ROU")
	if !o.Dirty() {
		t.Error("not dirty after text")
	}
	if got := read(t, d, "output1.txt"); got != "" {
		t.Errorf("written before the flush: %q", got)
	}
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, d, "output1.txt"); got != "Turn 1\nLet me say [" || o.Size() != int64(len(got)) || o.Dirty() {
		t.Errorf("got %q, size %d", got, o.Size())
	}
	o.Text("ND END]")
	o.Line("tool: read_file ok \x1b[0m")
	o.Line("next\n")
	o.Text("bye [ROUND")
	if done, err := d.Finished(1); done || err != nil {
		t.Error(done, err)
	}
	if err := o.End(); err != nil {
		t.Fatal(err)
	}
	o.Text("late")
	o.Line("late")
	if err := errors.Join(o.End(), o.Close()); err != nil {
		t.Fatal(err)
	}
	want := "Turn 1\nLet me say [ROUND␠END]\ntool: read_file ok ␛[0m\nnext\n\nbye [ROUND\n\n[ROUND END]\n"
	if got := read(t, d, "output1.txt"); got != want || o.Size() != int64(len(want)) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if done, err := d.Finished(1); !done || err != nil {
		t.Error(done, err)
	}
}

func TestOutputPutsAsideWhatIsThere(t *testing.T) {
	d := openTask(t)
	write(t, d, "output.txt", "somebody's")
	write(t, d, ".stray-1-output.txt", "earlier")
	o, err := d.CreateOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.End(), o.Close()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, d, "output.txt"); got != ending {
		t.Errorf("got %q", got)
	}
	if got := read(t, d, ".stray-1-output.txt") + read(t, d, ".stray-2-output.txt"); got != "earliersomebody's" {
		t.Errorf("got %q", got)
	}
}

func TestReopenOutput(t *testing.T) {
	d := openTask(t)
	if _, err := d.ReopenOutput(0, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, c := range []struct {
		name, before string
		size         int64
		want         string
		lost         int64
	}{
		{"whole lines", "one\n", 4, "one\ntwo", 0},
		{"within a line", "one", 3, "one\ntwo", 0},
		{"longer than known", "one and more\n", 3, "one and more\ntwo", 0},
		{"shorter than known", "one\n", 10, "one\ntwo", 6},
		{"empty", "", 0, "two", 0},
		{"a torn marker", "one\n\n[ROUND E", 3, "one\n\n[ROUND E\ntwo", 0},
		{"the marker is quoted", "x [ROUND␠END]\n", 3, "x [ROUND␠END]\ntwo", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, d, "output.txt", c.before)
			o, err := d.ReopenOutput(0, c.size)
			if err != nil {
				t.Fatal(err)
			}
			if o.Size() != int64(len(c.before)) || o.Lost() != c.lost {
				t.Errorf("size %d, lost %d", o.Size(), o.Lost())
			}
			o.Text("two")
			if err := errors.Join(o.End(), o.Close()); err != nil {
				t.Fatal(err)
			}
			if got := read(t, d, "output.txt"); got != c.want+ending || strings.Count(got, Marker) != 1 {
				t.Errorf("got %q", got)
			}
		})
	}
	if _, err := d.ReopenOutput(0, 0); !errors.Is(err, ErrFinished) {
		t.Errorf("a finished output: %v", err)
	}
}

func TestOutputClosedWithoutEnd(t *testing.T) {
	d := openTask(t)
	o, err := d.CreateOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	o.Text("half a w\xe4")
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, d, "output.txt"); got != "half a w\uFFFD" {
		t.Errorf("got %q", got)
	}
}

// flaky is a file on a full disk: it takes some bytes, then none until it has room.
type flaky struct {
	strings.Builder
	room  int
	syncs int
	fail  error
}

func (f *flaky) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.Builder.Write(p[:n])
	f.room -= n
	if n < len(p) {
		return n, &fs.PathError{Op: "write", Path: "output.txt", Err: syscall.ENOSPC}
	}
	return n, nil
}

func (f *flaky) Sync() error {
	f.syncs++
	return f.fail
}

func (f *flaky) Close() error { return nil }

func TestOutputOnAFullDisk(t *testing.T) {
	const text = "Some words, and then the end."
	// The disk is full after any number of bytes, the marker's included.
	for room := range len(text) + len(ending) {
		f := &flaky{room: room}
		o := &Output{f: f, path: "output.txt"}
		o.Text(text)
		if err := o.End(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("room for %d: %v", room, err)
		}
		if err := o.End(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("room for %d, again: %v", room, err)
		}
		if o.Size() != int64(room) {
			t.Errorf("room for %d: size %d", room, o.Size())
		}
		f.room = 1 << 20
		if err := o.End(); err != nil {
			t.Fatal(err)
		}
		if got := f.String(); got != text+ending {
			t.Errorf("room for %d: %q", room, got)
		}
	}
}

func TestMarkerOnlyAfterSync(t *testing.T) {
	f := &flaky{room: 1 << 20, fail: io.ErrUnexpectedEOF}
	o := &Output{f: f, path: "output.txt"}
	o.Text("words")
	if err := o.End(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if got := f.String(); got != "words" {
		t.Errorf("shown before it was durable: %q", got)
	}
	f.fail, f.syncs = nil, 0
	if err := o.End(); err != nil || f.syncs != 2 {
		t.Error(err, f.syncs)
	}
	if got := f.String(); got != "words"+ending {
		t.Errorf("got %q", got)
	}
}

// Whatever the pieces and wherever it is flushed, the file is the same.
func FuzzOutput(f *testing.F) {
	f.Add("say [ROUND END] twice [ROUND END]", uint64(0b1001), uint64(0b11))
	f.Add("\n\n[ROUND END]\n", uint64(0xffff), uint64(0xff))
	f.Add("\xe4\xbd\xa0\r\n[round\u00a0end]\r", uint64(0x5555), uint64(0x3333))
	f.Fuzz(func(t *testing.T, s string, cuts, flushes uint64) {
		end := func(o *Output) string {
			if err := o.End(); err != nil {
				t.Fatal(err)
			}
			return o.f.(*flaky).String()
		}
		fresh := func() *Output { return &Output{f: &flaky{room: 1 << 30}} }
		whole := fresh()
		whole.Text(s)
		want := end(whole)
		pieces := fresh()
		from := 0
		for i := range len(s) {
			if cuts>>(i%64)&1 == 1 {
				pieces.Text(s[from:i])
				from = i
			}
			if flushes>>(i%64)&1 == 1 {
				if err := pieces.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		pieces.Text(s[from:])
		if got := end(pieces); got != want {
			t.Errorf("in pieces %q, whole %q", got, want)
		}
		if strings.Count(want, Marker) != 1 || !strings.HasSuffix(want, ending) || !EndsInMarker([]byte(want)) {
			t.Errorf("%q became %q", s, want)
		}
		// Lines of the daemon that quote the text, in between.
		lines := fresh()
		for i := 0; i < len(s); i += 5 {
			piece := s[i:min(i+5, len(s))]
			if cuts>>(i%64)&1 == 1 {
				lines.Line(piece)
			} else {
				lines.Text(piece)
			}
		}
		if got := end(lines); strings.Count(got, Marker) != 1 || likeMarker.MatchString(strings.TrimSuffix(got, ending)) {
			t.Errorf("%q in lines became %q", s, got)
		}
	})
}

func BenchmarkStreamedOutput(b *testing.B) {
	f, err := os.Create(b.TempDir() + "/output.txt")
	if err != nil {
		b.Fatal(err)
	}
	o := &Output{f: f}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		o.Text(" token")
		if n++; n%20 == 0 {
			if err := o.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	f.Close()
}

func TestOutputThatEndsInZeros(t *testing.T) {
	// What a power failure leaves of text that had not reached the disk.
	for _, c := range []struct{ name, left, goesOn string }{
		{"after text", "Turn 1\nhel" + strings.Repeat("\x00", 9000), "Turn 1\nhel\n[goes on]\n"},
		{"nothing else", strings.Repeat("\x00", 100), "[goes on]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openTask(t)
			write(t, d, "output.txt", c.left)
			o, err := d.ReopenOutput(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			o.Line("[goes on]")
			if err := errors.Join(o.Flush(), o.Close()); err != nil {
				t.Fatal(err)
			}
			if got := read(t, d, "output.txt"); got != c.goesOn {
				t.Errorf("got %q, want %q", got, c.goesOn)
			}
		})
	}
	d := openTask(t)
	write(t, d, "output.txt", "done\n\n[ROUND END]\n\x00\x00")
	if _, err := d.ReopenOutput(0, 0); !errors.Is(err, ErrFinished) {
		t.Errorf("a finished one with zeros behind it: %v", err)
	}
}
