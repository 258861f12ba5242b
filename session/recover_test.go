package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// copyTree copies a directory as a backup does: content and times, and not inodes.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		return os.Chtimes(filepath.Join(to, rel), fi.ModTime(), fi.ModTime())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (d *desk) goesOn(reply, answer string, n int) {
	d.t.Helper()
	d.put("a", "reply.txt", reply)
	output := taskdir.OutputName(n)
	d.until(output+" to end in the marker", func() bool {
		// A session with nothing to wait for may have returned before the reply came;
		// its caller starts it again for a look.
		select {
		case <-d.last.done:
			if d.last.err == nil {
				d.start("a", d.last.memo)
			}
		default:
		}
		return strings.HasSuffix(d.read("a", output), "\n\n[ROUND END]\n")
	})
	if text := d.read("a", output); !strings.Contains(text, answer) {
		d.t.Errorf("%s lacks %q:\n%s", output, answer, text)
	}
}

func TestLateReplyRevivesAfterARestart(t *testing.T) {
	d := finishedTask(t)
	l := d.start("a", nil)
	d.put("a", "_stop", "")
	<-l.done
	d.state("a", taskdir.Ended, round.Stopped)
	d.start("a", nil)
	d.goesOn("three", "heard three after 4", 2)
	d.start("b", nil) // A task of another name knows nothing of it.
}

func TestStatusIsPutRightAfterACrash(t *testing.T) {
	for name, break_ := range map[string]func(d *desk){
		"missing":  func(d *desk) { os.Remove(d.path("a", "status.json")) },
		"empty":    func(d *desk) { d.quiet("a", "status.json", "") },
		"not JSON": func(d *desk) { d.quiet("a", "status.json", "{") },
		"too early": func(d *desk) {
			d.quiet("a", "status.json", `{"task":"a","session":1,"round":1,"state":"awaiting_reply"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := finishedTask(t)
			l := d.start("a", nil)
			d.put("a", "_stop", "")
			<-l.done
			break_(d)
			l = d.start("a", nil)
			<-l.done
			st := d.status("a")
			if st.State != taskdir.Ended || round.Reason(st.Reason) != round.Stopped || st.Round != 1 || st.Usage.Requests != 2 || len(st.Messages) != 3 {
				t.Errorf("status: %+v", st)
			}
			before := d.mtime("a", "status.json")
			l = d.start("a", nil)
			<-l.done
			if !d.mtime("a", "status.json").Equal(before) {
				t.Error("a status that is right was written again")
			}
		})
	}
}

func TestOutputThatAPowerFailureTook(t *testing.T) {
	for name, tc := range map[string]struct {
		left string
		want string
	}{
		"all of it":           {"", "\nheard two after 2\n\n[ROUND END]\n"},
		"the end of it":       {"Turn 1 ...\n\nhea", "Turn 1 ...\n\nhea\n\nheard two after 2\n\n[ROUND END]\n"},
		"nothing but marker":  {"Turn 1 ...\n\nheard two after 2", "Turn 1 ...\n\nheard two after 2\n\n\n[ROUND END]\n"},
		"the file altogether": {"-", "\nheard two after 2\n\n[ROUND END]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := finishedTask(t)
			if tc.left == "-" {
				os.Remove(d.path("a", "output1.txt"))
			} else {
				d.quiet("a", "output1.txt", tc.left)
			}
			d.start("a", nil)
			d.ended("a", "output1.txt")
			if got := d.read("a", "output1.txt"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			d.markers("a", "output1.txt")
		})
	}
}

func TestMessageThatComesBackIsNotActedOnTwice(t *testing.T) {
	// A power failure has undone the renaming, or the deletion, of a file that the
	// journal knows.
	for _, replaced := range []bool{false, true} {
		for _, name := range []string{"reply.txt", ".taken-1-reply.txt"} {
			t.Run(fmt.Sprintf("as %s, session replaced %v", name, replaced), func(t *testing.T) {
				d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
					return oneTurn(in, emit, "heard "+in.Message)
				}))
				d.cfg.keep = time.Hour
				d.put("a", "input.txt", "one")
				l := d.start("a", nil)
				d.ended("a", "output.txt")
				d.put("a", "reply.txt", "two")
				d.ended("a", "output1.txt")
				last, session := "output1.txt", 1
				if replaced {
					d.put("a", "input.txt", "another")
					d.ended("a", "old/1/output1.txt")
					last, session = "output.txt", 2
				}
				d.until("rest", func() bool { st := d.status("a"); return st.Session == session && st.State == taskdir.AwaitingReply })
				d.ended("a", last)
				l.end()
				if err := os.Rename(d.path("a", ".taken-1-reply.txt"), d.path("a", name)); err != nil {
					t.Fatal(err)
				}
				d.cfg.keep = time.Millisecond
				l = d.start("a", nil)
				d.gone("a", name)
				d.until("nothing to be left", func() bool { left, _ := filepath.Glob(d.path("a", ".taken-*")); return len(left) == 0 })
				l.end()
				st := d.status("a")
				if st.Session != session || st.State != taskdir.AwaitingReply || d.read("a", taskdir.OutputName(st.Round+1)) != "" {
					t.Errorf("it was acted on again: %+v", st)
				}
				d.markers("a", last)
			})
		}
	}
}

func TestDirectoryThatIsGoneAtTheStart(t *testing.T) {
	d := finishedTask(t)
	d.remove("a")
	names, err := Known(d.cfg.StateDir, []string{"b"})
	if err != nil || !slices.Equal(names, []string{"a"}) {
		t.Fatalf("known: %q, %v", names, err)
	}
	if names, err = Known(d.cfg.StateDir, []string{"a"}); err != nil || len(names) != 0 {
		t.Errorf("known beside a: %q, %v", names, err)
	}
	l := d.start("a", nil)
	<-l.done
	if l.err != nil || l.memo != nil {
		t.Fatalf("got %+v, %v", l.memo, l.err)
	}
	if names, err = Known(d.cfg.StateDir, nil); err != nil || len(names) != 0 {
		t.Errorf("still known: %q, %v", names, err)
	}
	archived, _ := filepath.Glob(filepath.Join(d.cfg.StateDir, ArchivedName, journal.Place("a")+".*", "session.jsonl"))
	if len(archived) != 1 {
		t.Errorf("archived: %q", archived)
	}
	if _, err := os.Lstat(d.path("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory was made again")
	}
}

func TestDirectoryThatComesBack(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("daemon running %v", running), func(t *testing.T) {
			d := finishedTask(t)
			var l *life
			if running {
				l = d.start("a", nil)
			}
			away := filepath.Join(t.TempDir(), "away")
			if err := os.Rename(d.path("a"), away); err != nil {
				t.Fatal(err)
			}
			if !running {
				l = d.start("a", nil)
			}
			d.look("a")
			<-l.done
			if l.memo != nil || l.err != nil {
				t.Fatalf("got %+v, %v", l.memo, l.err)
			}
			if err := os.Rename(away, d.path("a")); err != nil {
				t.Fatal(err)
			}
			d.start("a", nil)
			d.goesOn("three", "heard three after 4", 2)
			if st := d.status("a"); st.Session != 1 || st.Usage.Requests != 3 {
				t.Errorf("status: %+v", st)
			}
		})
	}
}

func TestDirectoryRestoredFromABackup(t *testing.T) {
	d := finishedTask(t)
	backup := filepath.Join(t.TempDir(), "backup")
	copyTree(t, d.path("a"), backup)
	d.remove("a")
	copyTree(t, backup, d.path("a"))
	d.start("a", nil)
	d.goesOn("three", "heard three after 4", 2)
	st := &state{}
	if _, err := replay(d.journal(), 0, st, nil); err != nil {
		t.Fatal(err)
	}
	dir, err := d.cfg.Root.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if st.Dir != dir.ID() {
		t.Errorf("the journal speaks of directory %+v, it is %+v", st.Dir, dir.ID())
	}
}

func TestAnotherDirectoryOfThatName(t *testing.T) {
	d := finishedTask(t)
	l := d.start("a", nil)
	d.until("the first look", func() bool { return !l.HasLook() })
	// Both exist at once, so that they differ for sure.
	if err := os.Mkdir(d.path("fresh"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.remove("a")
	if err := os.Rename(d.path("fresh"), d.path("a")); err != nil {
		t.Fatal(err)
	}
	d.put("a", "input.txt", "anew")
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	if st := d.status("a"); st.Session != 1 || st.Round != 0 || !strings.Contains(d.read("a", "output.txt"), "heard anew after 0") {
		t.Errorf("status: %+v", st)
	}
}

func TestAdoptedSessionGoesOnFromItsHistory(t *testing.T) {
	// A daemon on another machine ran it: there is a history.json and no journal.
	d := finishedTask(t)
	if err := os.RemoveAll(filepath.Dir(d.journal())); err != nil {
		t.Fatal(err)
	}
	l := d.start("a", nil)
	<-l.done
	if l.memo == nil || !l.memo.Adopted || l.memo.Round != 1 {
		t.Fatalf("got %+v, %v", l.memo, l.err)
	}
	d.quiet("a", "reply.txt", "three")
	d.start("a", nil)
	d.ended("a", "output2.txt")
	if text := d.read("a", "output2.txt"); !strings.Contains(text, "heard three after 4") {
		t.Errorf("got:\n%s", text)
	}
}

func TestAdditionIsNotActedOnTwiceAfterARestart(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.cfg.keep = time.Hour
	d.put("a", "input.txt", "one")
	l := d.start("a", nil)
	<-b.began
	b.finish <- struct{}{}
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	d.put("a", "reply.txt", "two")
	if in := <-b.began; in.Message != "two" {
		t.Fatalf("got %+v", in)
	}
	l.end()
	// A writer that had the file open adds a line after all.
	f, err := os.OpenFile(d.path("a", ".taken-1-reply.txt"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, " and a half")
	f.Close()
	d.cfg.keep = time.Millisecond
	d.start("a", nil)
	if in := <-b.began; in.Message != "two" || in.Round != 1 {
		t.Fatalf("got %+v", in)
	}
	d.until("the addition to be taken", func() bool { return strings.Contains(d.receipts("a"), "reply.txt: taken") })
	b.finish <- struct{}{}
	if in := <-b.began; in.Message != " and a half" && in.Message != "and a half" || in.Round != 2 {
		t.Fatalf("got %q in round %d", in.Message, in.Round)
	}
	close(b.finish)
	d.ended("a", "output2.txt")
}

// The two halves of a switch from one session's journal to the next.
func TestSwitchThatWasCut(t *testing.T) {
	d := finishedTask(t)
	p := placeOf(d.cfg.StateDir, "a")
	copyFile := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("before the first rename", func(t *testing.T) {
		// The next journal is complete, and nothing has been done with it.
		copyFile(p.current(), p.next())
		if _, err := Conversation(d.cfg.StateDir, "a", Latest); err != nil {
			t.Error(err)
		}
		l := d.start("a", nil)
		d.until("the first look", func() bool { return !l.HasLook() })
		l.end()
		if l.Session.memo == nil || l.Session.memo.Session != 1 || l.Session.memo.Phase != Awaiting {
			t.Errorf("memo %+v", l.Session.memo)
		}
	})
	t.Run("between the renames", func(t *testing.T) {
		copyFile(p.current(), p.next())
		if err := os.Rename(p.current(), p.old(1)); err != nil {
			t.Fatal(err)
		}
		if msgs, err := Conversation(d.cfg.StateDir, "a", Latest); err != nil || len(msgs) != 4 {
			t.Errorf("a reader in between finds %d messages, %v", len(msgs), err)
		}
		if names, err := Known(d.cfg.StateDir, nil); err != nil || !slices.Equal(names, []string{"a"}) {
			t.Errorf("known: %q, %v", names, err)
		}
		d.start("a", nil)
		d.goesOn("three", "heard three after 4", 2)
		if exists(p.next()) || !exists(p.current()) || !exists(p.old(1)) {
			t.Error("the journals are not where they belong")
		}
	})
}

func TestChildWhoseFirstRoundIsOverEnds(t *testing.T) {
	// The daemon died between the end of the round and that of the session.
	d := newDesk(t, answer("hi"))
	over := make(chan string, 1)
	d.cfg.Children.Over = func(child string) { over <- child }
	unborn, err := d.cfg.Root.Unborn("do this")
	if err != nil {
		t.Fatal(err)
	}
	defer unborn.Discard()
	j, err := journal.Create(placeOf(d.cfg.StateDir, "a").current())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*record{
		{Opened: &openedRecord{Version: 1, Task: "a", Session: 1, Dir: unborn.ID(), Input: inputMark{markOf(unborn.Input, "x"), time.Now()},
			Text: "do this", Parent: "p", Depth: 1, Settings: &round.Settings{}}},
		{Began: &beganRecord{}},
		{Append: &appendRecord{Messages: []llm.Message{{Role: llm.User, Content: "do this"}}}},
		{Answer: &answerRecord{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: "done"}}},
		{Closed: &closedRecord{Outcome: round.Outcome{Reason: round.Completed, Result: "done"}, Deadline: time.Now().Add(time.Hour)}},
	} {
		r.At = time.Now()
		line, err := encode(r)
		if err == nil {
			_, err = j.Commit(line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.Close(), unborn.Publish("a")); err != nil {
		t.Fatal(err)
	}
	l := d.start("a", nil)
	<-l.done
	if l.err != nil || l.memo == nil || l.memo.Phase != Ended {
		t.Fatalf("got %+v, %v", l.memo, l.err)
	}
	if child := <-over; child != "a" {
		t.Errorf("%q is over", child)
	}
	d.ended("a", "output.txt")
	d.state("a", taskdir.Ended, round.Completed)
	if r, err := FirstResult(d.cfg.StateDir, "a"); err != nil || r.Outcome.Result != "done" {
		t.Errorf("result %+v, %v", r, err)
	}
}

// A session that panicked owes the markers of earlier rounds, too.
func TestPanickedSessionEndsItsRounds(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	<-b.began
	b.finish <- struct{}{}
	d.ended("a", "output.txt")
	d.put("a", "reply.txt", "more")
	<-b.began
	l.end()
	d.quiet("a", "output.txt", "Turn 1")
	memo := New(d.cfg, "a", nil).Abort(errors.New("defect"))
	if memo == nil || memo.Phase != Awaiting || memo.Round != 1 {
		t.Errorf("memo %+v", memo)
	}
	d.markers("a", "output.txt", "output1.txt")
	d.state("a", taskdir.AwaitingReply, round.Failed)
}
