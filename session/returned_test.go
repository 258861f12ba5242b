package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// heard is a desk with a task that waits, after a reply whose taken file is still there.
func heard(t *testing.T, reply string) *desk {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard <"+in.Message+">")
	}))
	d.cfg.keep = time.Hour
	d.put("a", "input.txt", "one")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.put("a", "reply.txt", reply)
	d.ended("a", "output1.txt")
	d.until("rest", func() bool { st := d.status("a"); return st.Round == 1 && st.State == taskdir.AwaitingReply })
	l.end()
	d.cfg.keep = time.Millisecond
	return d
}

// A power failure takes the renaming of a message back, and perhaps its last bytes,
// and somebody adds to it before the daemon is up again.
func TestAdditionToAMessageThatCameBack(t *testing.T) {
	for _, c := range []struct{ name, left string }{
		{"reply.txt", "two\nmore\n"}, {".taken-1-reply.txt", "two\nmore\n"}, {"reply.txt", "two\n\x00\x00\x00\x00\x00"},
	} {
		d := heard(t, "two\nmore\n")
		if err := os.Rename(d.path("a", ".taken-1-reply.txt"), d.path("a", c.name)); err != nil {
			t.Fatal(err)
		}
		d.quiet("a", c.name, c.left+"three\n") // keeps the inode
		d.start("a", nil)
		d.ended("a", "output2.txt")
		if text := d.read("a", "output2.txt"); !strings.Contains(text, "<three\n>") {
			t.Errorf("%q as %s: the next round is about\n%s", c.left, c.name, text)
		}
	}
}

// A power failure takes the last bytes of a message back, or leaves zeros in their
// place.
func TestMessageThatCameBackInAnEarlierState(t *testing.T) {
	for _, name := range []string{"reply.txt", ".taken-1-reply.txt"} {
		for _, left := range []string{"two\n", "two\n\x00\x00\x00\x00\x00\x00", "tw"} {
			d := heard(t, "two\nthree\n")
			mtime := d.mtime("a", ".taken-1-reply.txt")
			if err := os.Rename(d.path("a", ".taken-1-reply.txt"), d.path("a", name)); err != nil {
				t.Fatal(err)
			}
			d.quiet("a", name, left) // keeps the inode
			d.aged("a", name, mtime)
			l := d.start("a", nil)
			d.gone("a", name)
			d.until("nothing to be left", func() bool { files, _ := filepath.Glob(d.path("a", ".taken-*")); return len(files) == 0 })
			l.end()
			if st := d.status("a"); st.Round != 1 || st.State != taskdir.AwaitingReply {
				t.Errorf("%q as %s was acted on: %+v", left, name, st)
			}
		}
	}
}

// What was added to a message that came back is taken as a message of its own. Then
// the power fails again, and takes the addition back, but not the time of its writing.
func TestAdditionThatIsTakenBack(t *testing.T) {
	for _, left := range []string{"two\nmore\n", "two\n", "two\nmore\nthr", "two\nmore\n\x00\x00\x00\x00\x00\x00"} {
		for _, later := range []time.Duration{0, time.Hour} {
			d := heard(t, "two\nmore\n")
			if err := os.Rename(d.path("a", ".taken-1-reply.txt"), d.path("a", "reply.txt")); err != nil {
				t.Fatal(err)
			}
			d.quiet("a", "reply.txt", "two\nmore\nthree\n") // keeps the inode
			d.cfg.keep = time.Hour
			l := d.start("a", nil)
			d.ended("a", "output2.txt")
			l.end()
			d.cfg.keep = time.Millisecond
			files, _ := filepath.Glob(d.path("a", ".taken-*"))
			if len(files) != 1 {
				t.Fatalf("taken: %q", files)
			}
			mtime := d.mtime("a", filepath.Base(files[0]))
			if err := os.Rename(files[0], d.path("a", "reply.txt")); err != nil {
				t.Fatal(err)
			}
			d.quiet("a", "reply.txt", left)
			d.aged("a", "reply.txt", mtime.Add(later))
			if later > 0 && !bytes.Contains(d.readJournal(), []byte(`"born"`)) {
				continue // the file may be another one that has got its inode
			}
			l = d.start("a", nil)
			d.gone("a", "reply.txt")
			d.until("nothing to be left", func() bool { files, _ := filepath.Glob(d.path("a", ".taken-*")); return len(files) == 0 })
			l.end()
			if st := d.status("a"); st.Round != 2 || st.State != taskdir.AwaitingReply {
				t.Errorf("%q, written %s later, was acted on: round %d, %s", left, later, st.Round, st.State)
			}
		}
	}
}

// A power failure takes back the second of two messages that were read as one, and
// somebody adds a third before the daemon is up again. Later the third is taken back too.
func TestAdditionToAMessageThatWasTorn(t *testing.T) {
	for _, added := range []string{"other\n", "mother\n", "something\nlonger\n"} {
		d := heard(t, "two\nmore\n")
		if !bytes.Contains(d.readJournal(), []byte(`"born"`)) {
			t.Skip("this file system does not say when a file was made")
		}
		d.cfg.keep = time.Hour
		if err := os.Rename(d.path("a", ".taken-1-reply.txt"), d.path("a", "reply.txt")); err != nil {
			t.Fatal(err)
		}
		d.quiet("a", "reply.txt", "two\n"+added)
		l := d.start("a", nil)
		d.ended("a", "output2.txt")
		l.end()
		if text := d.read("a", "output2.txt"); !strings.Contains(text, "<"+added+">") {
			t.Errorf("with %q added the next round is about\n%s", added, text)
		}
		for _, left := range []string{"two\n" + added, "two\n" + added[:3], "two\n"} {
			files, _ := filepath.Glob(d.path("a", ".taken-*"))
			if len(files) != 1 {
				t.Fatalf("taken: %q", files)
			}
			if err := os.Rename(files[0], d.path("a", "reply.txt")); err != nil {
				t.Fatal(err)
			}
			d.quiet("a", "reply.txt", left)
			l = d.start("a", nil)
			d.gone("a", "reply.txt")
			l.end()
			if st := d.status("a"); st.Round != 2 || st.State != taskdir.AwaitingReply {
				t.Errorf("with %q left: round %d, %s", left, st.Round, st.State)
			}
		}
	}
}

// A power failure takes the message of a round that nothing was shown of, and leaves its
// empty output: nobody is to wait for the end of that.
func TestOutputOfARoundThatNobodyKnows(t *testing.T) {
	for text, there := range map[string]bool{"": false, "somebody's words": true} {
		d := heard(t, "two\n")
		d.quiet("a", "output2.txt", text)
		l := d.start("a", nil)
		d.gone("a", ".taken-1-reply.txt")
		l.end()
		if _, err := os.Lstat(d.path("a", "output2.txt")); (err == nil) != there {
			t.Errorf("output2.txt with %q: %v", text, err)
		}
	}
}

// What only looks like an earlier message is one of its own.
func TestRepetitionIsAMessage(t *testing.T) {
	d := heard(t, "go on\nplease\n")
	d.put("a", "reply.txt", "go on\n")
	d.start("a", nil)
	d.ended("a", "output2.txt")
	if text := d.read("a", "output2.txt"); !strings.Contains(text, "<go on\n>") {
		t.Errorf("the next round is about\n%s", text)
	}
}

func TestEarlierState(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"one\ntwo\n", true}, {"one\n", true}, {"on", true}, {"one\n\x00\x00", true}, {"\x00\x00\x00\ntwo\n", true}, {"on\uFFFD", true}, {"\x00\x00", true},
		{"", false}, {"one\ntwo\nthree", false}, {"two", false}, {"one\nt\x00o!", false},
	} {
		if got := earlierState("one\ntwo\n", c.text); got != c.want {
			t.Errorf("%q: %v", c.text, got)
		}
	}
}

// Two in a row stop one round, and both get their receipt.
func TestTwoStopsForOneRound(t *testing.T) {
	var st state
	apply := func(r record) {
		t.Helper()
		if err := st.apply(&r, 0); err != nil {
			t.Fatal(err)
		}
	}
	apply(record{Opened: &openedRecord{Version: formatVersion, Task: "a", Session: 1}})
	apply(record{Message: &messageRecord{Seq: 1, File: taskdir.StopFile}})
	apply(record{Message: &messageRecord{Seq: 2, File: taskdir.StopFile}})
	apply(record{Closed: &closedRecord{Outcome: round.Outcome{Reason: round.Stopped}}})
	for _, r := range st.Receipts {
		if r.Seq > 0 && r.Outcome != outcomeStopped {
			t.Errorf("the receipt of _stop %d says %q", r.Seq, r.Outcome)
		}
	}
}

// A daemon that dies on a full disk leaves an empty journal, and a status that says
// why: no reason to take the task for one that has run.
func TestFirstSessionThatNeverGotARecord(t *testing.T) {
	d, k := newDeskOnDisk(t, answer("hi"))
	k.full.Store(true)
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.until("status.json to say so", func() bool { return d.warned("a", "the journal cannot be written") })
	l.end()
	k.full.Store(false)
	if err := os.MkdirAll(filepath.Dir(d.journal()), 0o700); err != nil {
		t.Fatal(err)
	}
	d.rewriteJournal(nil)
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
}

// A marker that waits for the disk while the session is replaced is written once.
func TestMarkerThatWaitsIsWrittenOnceAside(t *testing.T) {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard "+in.Message)
	}))
	d.startBlocked("a", "go")
	d.put("a", "input.txt", "again")
	d.until("the files to be moved", func() bool { return d.read("a", "old/1/output.txt") != "" })
	for _, name := range strayNames()[1:] {
		if err := os.Remove(d.path("a", name)); err != nil {
			t.Fatal(err)
		}
	}
	d.ended("a", "output.txt")
	d.ended("a", "old/1/output.txt")
	d.markers("a", "output.txt", "old/1/output.txt")
}

// A round that fails before anything of it is recorded shows nothing while the disk
// does not take that: a start after a crash would find an output that it knows
// nothing of.
func TestNothingIsShownOfARoundThatIsNotRecorded(t *testing.T) {
	d, k := newDeskOnDisk(t, runnerFunc(func(context.Context, round.Input, round.Emit) round.Outcome {
		return round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "policy", Message: "no"}}
	}))
	k.full.Store(true)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.until("status.json to say so", func() bool { return d.warned("a", "the journal cannot be written") })
	if text := d.read("a", "output.txt"); text != "" {
		t.Errorf("shown: %q", text)
	}
	k.full.Store(false)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Failed)
}

// The number of a device may be another one after every start of the machine. Taken
// files are deleted all the same.
func TestTakenFilesAreDeletedOnAnotherDevice(t *testing.T) {
	d := heard(t, "two\n")
	st := &state{}
	if _, err := replay(d.journal(), 0, st, nil); err != nil {
		t.Fatal(err)
	}
	id := st.Dir
	id.Dev++
	line, err := encode(&record{At: time.Now(), Moved: &id})
	if err != nil {
		t.Fatal(err)
	}
	d.rewriteJournal(append(d.readJournal(), recordLine(t, string(line))...))
	l := d.start("a", nil)
	d.gone("a", ".taken-1-reply.txt")
	l.end()
	if l.memo == nil || l.memo.Dir.Dev == id.Dev {
		t.Errorf("the session is known as %+v", l.memo)
	}
}

// The message of a round that never asked a model joins the conversation with the
// round's end, or not at all: were it there alone, it would be said again.
func TestMessageJoinsWithTheEndOfItsRound(t *testing.T) {
	st := &state{}
	apply := func(r record) {
		t.Helper()
		if err := st.apply(&r, 0); err != nil {
			t.Fatal(err)
		}
	}
	d := newDesk(t, runnerFunc(func(context.Context, round.Input, round.Emit) round.Outcome {
		return round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "policy", Message: "no"}}
	}))
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Failed)
	l.end()
	joined := 0
	if _, err := replay(d.journal(), 0, st, func(r *record) error {
		if len(st.Conversation) > joined {
			joined = len(st.Conversation)
			if r.Closed == nil {
				t.Errorf("it joined with %+v", r)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if joined != 1 || st.Conversation[0].Content != "[supervisor]\ngo" {
		t.Errorf("the conversation is %+v", st.Conversation)
	}
	apply(record{Round: &roundRecord{Round: 1}})
	apply(record{Closed: &closedRecord{Outcome: round.Outcome{Reason: round.Stopped}}})
	if len(st.Conversation) != 1 {
		t.Errorf("a round without a message added to the conversation: %+v", st.Conversation)
	}
}

// A daemon that was killed while it owed replaced sessions their markers pays at the
// next start.
func TestMarkerAsideIsWrittenAtTheNextStart(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "one")
	l := d.start("a", nil)
	<-b.began
	for i, text := range []string{"two", "three", "four"} {
		d.put("a", "input.txt", text)
		<-b.began
		d.ended("a", fmt.Sprintf("old/%d/output.txt", i+1))
	}
	l.end()
	d.quiet("a", "old/2/output.txt", "Turn 1")
	d.quiet("a", "old/3/output.txt", "Turn 1")
	d.start("a", nil)
	<-b.began
	d.ended("a", "old/2/output.txt")
	d.ended("a", "old/3/output.txt")
	close(b.finish)
	d.ended("a", "output.txt")
}
