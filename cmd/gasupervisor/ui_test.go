package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestShow(t *testing.T) {
	for in, want := range map[string]string{
		"plain":             "plain",
		"名字 🚀":              "名字 🚀",
		"a\x1b]0;evil\x07b": "a␛]0;evil␇b",
		"a\nb\tc\rd":        "a␊b␉c␍d",
		"\x7f\u009b\u202e":  "␡\uFFFD\uFFFD",
		"bad \xff":          "bad \uFFFD",
	} {
		if got := show(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestVisibleWriter(t *testing.T) {
	const in = "one\r\ntwo\x1b[2J 三\t\u202e\xff四"
	const want = "one\ntwo␛[2J 三\t\uFFFD\uFFFD四"
	for size := 1; size < len(in); size++ {
		var out bytes.Buffer
		w := &visibleWriter{w: &out}
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		// A carriage return that is cut off from its line end is shown; both are safe.
		if got := strings.ReplaceAll(out.String(), "␍", ""); got != want {
			t.Errorf("in pieces of %d: got %q", size, got)
		}
	}
}

func TestTextInPipesIsRaw(t *testing.T) {
	var out bytes.Buffer
	u := newUI(strings.NewReader(""), &out, &out, func(string) string { return "" })
	fmt.Fprint(u.text(), "\x1b[2J\r\n\xff")
	if out.String() != "\x1b[2J\r\n\xff" || u.outTTY || u.colour {
		t.Errorf("got %q", out.String())
	}
}

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{{"hello", 5, "hello"}, {"hello", 4, "hel…"}, {"数据结构", 8, "数据结构"}, {"数据结构", 7, "数据结…"}, {"数据结构", 6, "数据…"}, {"ab", 1, "."}, {"ab", 0, ""}, {"e\u0301a", 2, "e\u0301a"}} {
		if got := fit(tt.in, tt.n); got != tt.want || cells(got) > tt.n {
			t.Errorf("fit(%q, %d) = %q", tt.in, tt.n, got)
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	u := &ui{out: &out, columns: func() int { return 20 }}
	rows := [][]string{{"审计", "running", "x\ny"}, {"a", "", "a long text that does not fit"}}
	u.table([]string{"NAME", "STATE", "RESULT"}, rows)
	want := "NAME  STATE    RESULT\n审计  running  x␊y\na              a long text that does not fit\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	out.Reset()
	u.outTTY = true
	u.table([]string{"NAME", "STATE", "RESULT"}, rows)
	if got := strings.Split(out.String(), "\n")[2]; got != "a              a lo…" {
		t.Errorf("got %q", got)
	}
	// One long name does not push everything else off the screen, and what no row
	// has takes no room.
	out.Reset()
	u.columns = func() int { return 40 }
	u.table([]string{"NAME", "STATE", "PLAN", "RESULT"}, [][]string{
		{strings.Repeat("审", 80), "running", "", "a result"}, {"b", "ended", "", "a long text that does not fit"}})
	want = "NAME                 STATE    RESULT\n" +
		"审审审审审审审审审…  running  a result\n" +
		"b                    ended    a long te…\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// screen is a terminal of a certain width: it knows what \r and \n do, and that
// a line that is too long wraps.
type screen struct {
	width int
	lines [][]rune
	col   int
}

func (s *screen) Write(p []byte) (int, error) {
	if len(s.lines) == 0 {
		s.lines = [][]rune{nil}
	}
	for rest := p; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		switch r {
		case '\r':
			s.col = 0
			continue
		case '\n':
			s.lines, s.col = append(s.lines, nil), 0
			continue
		}
		for range runeCells(r) {
			if s.col == s.width {
				s.lines, s.col = append(s.lines, nil), 0
			}
			line := &s.lines[len(s.lines)-1]
			for len(*line) <= s.col {
				*line = append(*line, ' ')
			}
			(*line)[s.col] = r
			s.col++
		}
	}
	return len(p), nil
}

func (s *screen) text() string {
	var lines []string
	for _, l := range s.lines {
		lines = append(lines, strings.TrimRight(string(l), " "))
	}
	return strings.Join(lines, "\n")
}

func TestProgressOnATerminal(t *testing.T) {
	now := time.Unix(0, 0)
	s := &screen{width: 60}
	p := newProgress(s, true, func() int { return s.width }, 3, func() time.Time { return now })
	step := func(want string) {
		t.Helper()
		if diff := cmp.Diff(want, s.text()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	p.begin("a.txt")
	p.begin("b.txt")
	step("[                      ] 0/3, 0.0s  a.txt, b.txt")
	now = now.Add(12 * time.Second)
	p.end("a.txt", "completed", false)
	step("[1/3] a.txt: completed (12s)\n[=======               ] 1/3, about 24s left  b.txt")
	p.begin("c.txt with a name that is too long for the line, far too long")
	step("[1/3] a.txt: completed (12s)\n[=======               ] 1/3, about 24s left  b.txt, c.txt…")
	p.end("b.txt", "failed: \x1b[2J", true)
	step("[1/3] a.txt: completed (12s)\n[2/3] b.txt: failed: ␛[2J (12s)\n[==============        ] 2/3, 1 failed, about 6.0s left")
	s.width = 20
	p.end("c.txt with a name that is too long for the line, far too long", "completed", false)
	if got := s.lines[len(s.lines)-1]; len(got) > 20 {
		t.Errorf("bar is %q", string(got))
	}
	s.width = 60
	p.close()
	p.end("late", "x", false)
	got := strings.Split(s.text(), "\n")
	if last := got[len(got)-1]; last != "" {
		t.Errorf("the bar is still there: %q", last)
	}
	if len(got) != 4 {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

func TestProgressInAPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, false, func() int { return 10 }, 2, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.run(ctx) }()
		p.begin("a")
		p.begin("b\nc")
		time.Sleep(90 * time.Second)
		p.end("a", "completed", false)
		p.end("b\nc", "failed", true)
		cancel()
		<-done
		p.close()
		want := "[1/2] a: completed (1m30s)\n[2/2] b␊c: failed (1m30s)\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// countingWriter fails the test if two writes overlap.
type countingWriter struct {
	t    *testing.T
	busy sync.Mutex
	n    int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	if !w.busy.TryLock() {
		w.t.Error("two writes at once")
		return len(p), nil
	}
	defer w.busy.Unlock()
	w.n += strings.Count(string(p), "\n")
	return len(p), nil
}

func TestProgressTogether(t *testing.T) {
	w := &countingWriter{t: t}
	p := newProgress(w, true, func() int { return 40 }, 200, time.Now)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 25 {
				name := fmt.Sprint(i, "-", j)
				p.begin(name)
				p.end(name, "completed", j%5 == 0)
			}
		})
	}
	group.Wait()
	p.close()
	if p.done != 200 || p.failed != 40 || len(p.running) != 0 || w.n != 200 {
		t.Errorf("done %d, failed %d, running %d, lines %d", p.done, p.failed, len(p.running), w.n)
	}
}

func TestShortTime(t *testing.T) {
	for d, want := range map[time.Duration]string{-1: "0s", 340 * time.Millisecond: "0.3s", 59 * time.Second: "59s", 200 * time.Second: "3m20s", 125 * time.Minute: "2h05m", 100 * time.Hour: "4d"} {
		if got := shortTime(d); got != want {
			t.Errorf("%s: got %s", d, got)
		}
	}
}
