package taskdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSupervisorFiles(t *testing.T) {
	temp := t.TempDir()
	const name = "审计 two\nlines"
	for _, err := range []error{WriteReply(temp, name, "x"), WriteStop(temp, name)} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no such task: %v", err)
		}
	}
	if err := errors.Join(WriteContext(temp, name, []byte("{}")), WriteHistory(temp, name, []byte("[]")), WriteInput(temp, name, "do it")); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{WriteInput(temp, name, ""), WriteReply(temp, name, "")} {
		if !errors.Is(err, ErrEmpty) {
			t.Errorf("no text: %v", err)
		}
	}
	var ne *NameError
	for _, bad := range []string{"", "..", "a/b", ".x"} {
		if err := WriteInput(temp, bad, "x"); !errors.As(err, &ne) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := errors.Join(WriteReply(temp, name, "one"), WriteReply(temp, name, "two\n"), WriteReply(temp, name, "three"),
		WriteIntervene(temp, name, "i"), WriteKeyInfo(temp, name, "k"), WriteStop(temp, name), WriteStop(temp, name)); err != nil {
		t.Fatal(err)
	}
	root, err := OpenRoot(temp)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	d, err := root.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for file, want := range map[string]string{"reply.txt": "one\ntwo\nthree", "_intervene": "i", "_keyinfo": "k", "_stop": "", "input.txt": "do it", "context.json": "{}", "_history.json": "[]"} {
		if got := read(t, d, file); got != want {
			t.Errorf("%s holds %q", file, got)
		}
	}
	if left := glob(t, d, ".*"); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
	if names, err := List(temp); err != nil || !slices.Equal(names, []string{name}) {
		t.Error(names, err)
	}
}

// Replies that are written at once, while others are taken, all arrive.
func TestConcurrentReplies(t *testing.T) {
	temp := t.TempDir()
	if err := WriteInput(temp, "x", "go"); err != nil {
		t.Fatal(err)
	}
	root, err := OpenRoot(temp)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	d, err := root.Open("x")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var wg sync.WaitGroup
	done := make(chan struct{})
	const writers, lines = 3, 30
	for w := range writers {
		wg.Go(func() {
			for n := range lines {
				if err := WriteReply(temp, "x", fmt.Sprintf("%d-%d\n", w, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	got := map[string]int{}
	type takenMessage struct {
		p  *Pending
		fp Fingerprint
	}
	var all []takenMessage
	accept := func(p *Pending) {
		c := readWhole(t, d, p)
		for line := range strings.Lines(c.Text) {
			got[line]++
		}
		all = append(all, takenMessage{p, c.Fingerprint()})
	}
	for seq, running := uint64(1), true; running || look(t, d).Reply != nil; {
		select {
		case <-done:
			running = false
		default:
		}
		if look(t, d).Reply != nil {
			accept(take(t, d, ReplyFile, seq))
			seq++
		}
	}
	for i := 0; i < len(all); i++ {
		rest, err := d.Drop(all[i].p, all[i].fp)
		if err != nil {
			t.Fatal(err)
		}
		if rest != nil {
			accept(rest)
		}
	}
	if len(got) != writers*lines {
		t.Errorf("%d replies arrived, want %d", len(got), writers*lines)
	}
	for line, n := range got {
		if n != 1 {
			t.Errorf("%q arrived %d times", line, n)
		}
	}
}

func TestMoveForNewInput(t *testing.T) {
	temp := t.TempDir()
	if n, err := MoveForNewInput(temp, "x"); n != 0 || err != nil {
		t.Error("no task:", n, err)
	}
	if err := WriteInput(temp, "x", "one"); err != nil {
		t.Fatal(err)
	}
	if n, err := MoveForNewInput(temp, "x"); n != 0 || err != nil {
		t.Error("nothing to move:", n, err)
	}
	for i := 1; i <= 2; i++ {
		if err := os.WriteFile(OutputPath(temp, "x", 0), []byte("answer"), 0o644); err != nil {
			t.Fatal(err)
		}
		if n, err := MoveForNewInput(temp, "x"); n != i || err != nil {
			t.Error(n, err)
		}
		if count, _, err := Rounds(temp, "x"); count != 0 || err != nil {
			t.Error("an old answer is still there:", count, err)
		}
	}
}

func TestRoundsAndReadOutput(t *testing.T) {
	d := openTask(t)
	temp := d.root.Path()
	write(t, d, "output.txt", "zero"+ending)
	write(t, d, "output1.txt", "one\nmo")
	if n, finished, err := Rounds(temp, "task"); n != 2 || finished || err != nil {
		t.Error(n, finished, err)
	}
	if text, finished, err := ReadOutput(temp, "task", 0); text != "zero\n" || !finished || err != nil {
		t.Errorf("%q %v %v", text, finished, err)
	}
	if text, finished, err := ReadOutput(temp, "task", 1); text != "one\nmo" || finished || err != nil {
		t.Errorf("%q %v %v", text, finished, err)
	}
	if _, _, err := ReadOutput(temp, "task", 2); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestTail(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"hello" + ending, "hello\n"},
		{"hello\n" + ending, "hello\n"},
		{"a\n\nb\n\n\n" + ending, "a\n\nb\n"},
		{ending, ""},
		{"[ROUND␠END]" + ending, "[ROUND␠END]\n"},
		{"[[ROUND]\n[ROUND" + ending, "[[ROUND]\n[ROUND\n"},
	} {
		for size := 1; size <= len(c.in); size++ {
			var out, kept bytes.Buffer
			a, b := tail{w: &out}, tail{w: &kept, keep: true}
			done := false
			for i := 0; i < len(c.in) && !done; i += size {
				piece := []byte(c.in[i:min(i+size, len(c.in))])
				var err error
				if done, err = a.write(piece); err != nil {
					t.Fatal(err)
				}
				if _, err := b.write(piece); err != nil {
					t.Fatal(err)
				}
			}
			if !done || out.String() != c.want {
				t.Errorf("%q by %d: done %v, %q, want %q", c.in, size, done, out.String(), c.want)
			}
			if want := strings.TrimRight(c.in, "\r\n") + "\n"; kept.String() != want {
				t.Errorf("%q by %d with marker: %q", c.in, size, kept.String())
			}
		}
	}
	// A complete line is passed on at once.
	var out bytes.Buffer
	a := tail{w: &out}
	if _, err := a.write([]byte("Turn 1\n")); err != nil || out.String() != "Turn 1\n" {
		t.Errorf("%q %v", out.String(), err)
	}
}

// lines collects what is written, for another goroutine to see.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestFollow(t *testing.T) {
	d := openTask(t)
	temp := d.root.Path()
	var out lines
	res := make(chan error, 1)
	go func() { res <- Follow(t.Context(), temp, "task", 0, &out) }()
	o, err := d.CreateOutput(0)
	if err != nil {
		t.Fatal(err)
	}
	o.Line("Turn 1")
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first line", func() bool { return out.String() == "Turn 1\n" })
	// A new input moves the file away; the follower stays with it.
	if _, err := d.Archive(1); err != nil {
		t.Fatal(err)
	}
	o.Text("words")
	if err := errors.Join(o.End(), o.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-res; err != nil || out.String() != "Turn 1\nwords\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestFollowAllRounds(t *testing.T) {
	d := openTask(t)
	var out lines
	res := make(chan error, 1)
	st := NewStatus("task")
	st.Session, st.State = 1, AwaitingReply
	if err := d.WriteStatus(st, false); err != nil {
		t.Fatal(err)
	}
	write(t, d, "output.txt", "zero"+ending)
	go func() { res <- Follow(t.Context(), d.root.Path(), "task", 0, &out, AllRounds(), KeepMarker()) }()
	eventually(t, "round 0", func() bool { return out.String() == "zero"+ending })
	// Ended, but a reply is there that revives it.
	write(t, d, "reply.txt", "more")
	st.State = Ended
	if err := d.WriteStatus(st, false); err != nil {
		t.Fatal(err)
	}
	write(t, d, "output1.txt", "one"+ending)
	eventually(t, "round 1", func() bool { return out.String() == "zero"+ending+"one"+ending })
	if err := os.Remove(d.join("reply.txt")); err != nil {
		t.Fatal(err)
	}
	if err := <-res; err != nil {
		t.Error(err)
	}
}

func TestFollowEnds(t *testing.T) {
	d := openTask(t)
	temp := d.root.Path()
	if err := Follow(t.Context(), temp, "nothing", 0, io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	cause := errors.New("detached")
	ctx, cancel := context.WithCancelCause(t.Context())
	res := make(chan error, 1)
	go func() { res <- Follow(ctx, temp, "task", 3, io.Discard) }()
	cancel(cause)
	if err := <-res; !errors.Is(err, cause) {
		t.Error(err)
	}
	write(t, d, "output.txt", "zero"+ending)
	if err := Follow(t.Context(), temp, "task", 0, io.Discard); err != nil {
		t.Error(err)
	}
	write(t, d, "output1.txt", "one\n")
	r, w := io.Pipe()
	go func() { res <- Follow(t.Context(), temp, "task", 1, w) }()
	buf := make([]byte, 10)
	if n, err := r.Read(buf); string(buf[:n]) != "one\n" {
		t.Errorf("%q %v", buf[:n], err)
	}
	if err := os.Remove(d.join("output1.txt")); err != nil {
		t.Fatal(err)
	}
	if err := <-res; !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	// Nobody reads any more.
	r.Close()
	if err := Follow(t.Context(), temp, "task", 0, w); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// Who follows a task that was just written begins before there is a status.json to say
// which session it is.
func TestFollowKnowsASessionThatBeganLater(t *testing.T) {
	d := openTask(t)
	write(t, d, "output.txt", "zero\n")
	var out lines
	tick := make(chan time.Time)
	f := &follower{ctx: t.Context(), tempDir: d.root.Path(), name: "task", w: &out, all: true, tick: tick}
	f.session = f.sessionNow()
	res := make(chan error, 1)
	go func() {
		n := 0
		_, err := f.round(&n)
		if err == nil {
			n++
			_, err = f.round(&n)
		}
		res <- err
	}()
	tick <- time.Time{}
	st := NewStatus("task")
	st.Session, st.State = 1, Running
	if err := d.WriteStatus(st, false); err != nil {
		t.Fatal(err)
	}
	tick <- time.Time{}
	tick <- time.Time{} // it has looked again since
	o, err := d.ReopenOutput(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A new input begins another session, whose output takes its time.
	if _, err := d.Archive(1); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.End(), o.Close()); err != nil {
		t.Fatal(err)
	}
	st.Session = 2
	if err := d.WriteStatus(st, false); err != nil {
		t.Fatal(err)
	}
	tick <- time.Time{}
	tick <- time.Time{} // it waits for the next round
	write(t, d, "output.txt", "new zero"+ending)
	write(t, d, "output1.txt", "new one"+ending)
	close(tick)
	if err := <-res; err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "zero\nnew zero\n"; got != want {
		t.Errorf("showed %q, want %q", got, want)
	}
}
