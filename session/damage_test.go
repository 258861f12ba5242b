package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// finishedTask is a desk with a task that waits after two rounds, and no session at work on it.
func finishedTask(t *testing.T) *desk {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, fmt.Sprintf("heard %s after %d", in.Message, len(in.Conversation)))
	}))
	d.put("a", "input.txt", "one")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.put("a", "reply.txt", "two")
	d.ended("a", "output1.txt")
	d.until("rest", func() bool { st := d.status("a"); return st.Round == 1 && st.State == taskdir.AwaitingReply })
	l.end()
	return d
}

func (d *desk) journal() string { return placeOf(d.cfg.StateDir, "a").current() }

func (d *desk) readJournal() []byte {
	d.t.Helper()
	b, err := os.ReadFile(d.journal())
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}

// rewriteJournal replaces the journal's file.
func (d *desk) rewriteJournal(b []byte) {
	d.t.Helper()
	if err := os.WriteFile(d.journal(), b, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// recordLine is a record as a line of a journal.
func recordLine(t *testing.T, text string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j", "x.jsonl")
	j, err := journal.Create(path)
	if err == nil {
		_, err = j.Commit(json.RawMessage(text))
		err = errors.Join(err, j.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDamagedJournals(t *testing.T) {
	lines := func(b []byte) []string { return strings.SplitAfter(string(b), "\n") }
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, b []byte) []byte
		says   string
		// session is the number that can still be told.
		session int
	}{
		{"a line of NULs in the middle", func(t *testing.T, b []byte) []byte {
			l := lines(b)
			l[3] = strings.Repeat("\x00", len(l[3])-1) + "\n"
			// The end is damaged as far as a memo goes, so that the rest has to be read.
			return []byte(strings.Join(l[:5], ""))
		}, "damaged at byte", 1},
		{"a line of NULs, found when the reply comes", func(t *testing.T, b []byte) []byte {
			l := lines(b)
			l[3] = strings.Repeat("\x00", len(l[3])-1) + "\n"
			return []byte(strings.Join(l, ""))
		}, "damaged at byte", 1},
		{"emptied", func(*testing.T, []byte) []byte { return nil }, "holds no record", 1},
		{"overwritten", func(t *testing.T, b []byte) []byte { return make([]byte, len(b)) }, "holds no record", 1},
		{"a record of an unknown kind", func(t *testing.T, b []byte) []byte {
			return append(b, recordLine(t, `{"at":"2030-01-01T00:00:00Z","teleported":{"to":"mars"}}`)...)
		}, "unknown kind", 1},
		{"a newer format", func(t *testing.T, b []byte) []byte {
			return recordLine(t, `{"at":"2030-01-01T00:00:00Z","opened":{"version":2,"task":"a","session":7}}`)
		}, "has format 2", 1},
		{"a record that is none", func(t *testing.T, b []byte) []byte {
			return append(b, recordLine(t, `["at"]`)...)
		}, "record at byte", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := finishedTask(t)
			before := d.status("a")
			damaged := tc.damage(t, d.readJournal())
			d.rewriteJournal(damaged)
			past := time.Now().Add(-time.Hour)
			d.aged("a", "input.txt", past)
			d.quiet("a", "reply.txt", "three")
			l := d.start("a", nil)
			<-l.done
			if l.err != nil || l.memo == nil || l.memo.Damaged == "" {
				t.Fatalf("got %+v, %v", l.memo, l.err)
			}
			st := d.status("a")
			if st.State != taskdir.Ended || round.Reason(st.Reason) != round.Failed || st.Error == nil || st.Error.Kind != "journal" ||
				!strings.Contains(st.Error.Message, tc.says) || !strings.Contains(st.Error.Message, d.journal()) {
				t.Errorf("status: %s %s, error %+v", st.State, st.Reason, st.Error)
			}
			if st.Session != tc.session || st.Usage.Requests != before.Usage.Requests || len(st.Messages) != len(before.Messages) {
				t.Errorf("what was known is gone: session %d, %d messages", st.Session, len(st.Messages))
			}
			if string(d.readJournal()) != string(damaged) {
				t.Error("the journal was changed")
			}
			if left, _ := filepath.Glob(d.path("a", "*reply.txt")); len(left) == 0 {
				if taken, _ := filepath.Glob(d.path("a", ".taken-*-reply.txt")); len(taken) == 0 {
					t.Error("the reply was consumed")
				}
			}

			// The next looks, and the next processes, find the same and write nothing.
			status := d.mtime("a", "status.json")
			for _, memo := range []*Memo{l.memo, nil} {
				l = d.start("a", memo)
				<-l.done
				if l.err != nil || l.memo == nil || l.memo.Damaged == "" {
					t.Fatalf("again: %+v, %v", l.memo, l.err)
				}
			}
			if !d.mtime("a", "status.json").Equal(status) {
				t.Error("status.json was written again")
			}

			// Input written again begins a session beside it.
			os.Remove(d.path("a", "reply.txt"))
			d.quiet("a", "input.txt", "afresh")
			d.start("a", l.memo)
			d.until("session 2", func() bool { st := d.status("a"); return st.Session == 2 && st.State == taskdir.AwaitingReply })
			d.ended("a", "output.txt")
			if text := d.read("a", "output.txt"); !strings.Contains(text, "heard afresh after 0") {
				t.Errorf("got:\n%s", text)
			}
			kept, err := os.ReadFile(placeOf(d.cfg.StateDir, "a").old(1))
			if err != nil || string(kept) != string(damaged) {
				t.Errorf("the damaged journal is not kept: %v", err)
			}
			d.markers("a", "old/1/output.txt", "old/1/output1.txt", "output.txt")
		})
	}
}

func TestInputWrittenWhileTheDaemonWasDownWithADamagedJournal(t *testing.T) {
	d := finishedTask(t)
	d.rewriteJournal(nil)
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.journal(), past, past); err != nil {
		t.Fatal(err)
	}
	d.quiet("a", "input.txt", "afresh")
	d.start("a", nil)
	d.until("session 2", func() bool { st := d.status("a"); return st.Session == 2 && st.State == taskdir.AwaitingReply })
}

func TestTornTailIsNoDamage(t *testing.T) {
	for name, tail := range map[string]string{"half a record": `500 0badc0de {"at":`, "NULs": strings.Repeat("\x00", 300)} {
		t.Run(name, func(t *testing.T) {
			d := finishedTask(t)
			d.rewriteJournal(append(d.readJournal(), tail...))
			d.start("a", nil)
			d.put("a", "reply.txt", "three")
			d.ended("a", "output2.txt")
			if text := d.read("a", "output2.txt"); !strings.Contains(text, "heard three after 4") {
				t.Errorf("got:\n%s", text)
			}
			if torn, _ := os.ReadFile(d.journal() + ".torn-1"); string(torn) != tail {
				t.Errorf("set aside: %q", torn)
			}
		})
	}
}

func TestJournalThatIsGone(t *testing.T) {
	d := finishedTask(t)
	l := d.start("a", nil)
	d.until("the first look", func() bool { return !l.HasLook() && d.status("a").State == taskdir.AwaitingReply })
	l.end()
	l = d.start("a", l.Session.memo)
	if err := os.RemoveAll(filepath.Dir(d.journal())); err != nil {
		t.Fatal(err)
	}
	d.put("a", "reply.txt", "three")
	<-l.done
	if st := d.status("a"); st.Error == nil || st.Error.Kind != "journal" {
		t.Errorf("status: %+v", st)
	}
	d.quiet("a", "input.txt", "afresh")
	d.start("a", l.memo)
	d.until("session 2", func() bool { st := d.status("a"); return st.Session == 2 && st.State == taskdir.AwaitingReply })
}
