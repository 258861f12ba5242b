package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// What the supervisor's files do in each state, and how they get on with each other.

// quiet writes a file without having the session look.
func (d *desk) quiet(task, name, text string) {
	d.t.Helper()
	if err := errors.Join(os.MkdirAll(d.path(task), 0o755), os.WriteFile(d.path(task, name), []byte(text), 0o644)); err != nil {
		d.t.Fatal(err)
	}
}

// aged gives a file an age.
func (d *desk) aged(task, name string, mtime time.Time) {
	d.t.Helper()
	if err := os.Chtimes(d.path(task, name), mtime, mtime); err != nil {
		d.t.Fatal(err)
	}
}

// remove takes a directory away, whatever is being written there.
func (d *desk) remove(task string) {
	d.t.Helper()
	if err := os.Rename(d.path(task), filepath.Join(d.t.TempDir(), "removed")); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) mtime(task, name string) time.Time {
	d.t.Helper()
	fi, err := os.Stat(d.path(task, name))
	if err != nil {
		d.t.Fatal(err)
	}
	return fi.ModTime()
}

func (d *desk) gone(task, name string) {
	d.t.Helper()
	d.until(name+" to be taken", func() bool { _, err := os.Lstat(d.path(task, name)); return errors.Is(err, os.ErrNotExist) })
}

// receipts lists file and outcome of the messages in status.json.
func (d *desk) receipts(task string) string {
	var all []string
	for _, m := range d.status(task).Messages {
		all = append(all, m.File+": "+string(m.Outcome))
	}
	return strings.Join(all, "\n")
}

func (d *desk) hasReceipt(task, want string) {
	d.t.Helper()
	d.until("the receipt "+want, func() bool { return strings.Contains(d.receipts(task)+"\n", want+"\n") })
}

func (d *desk) markers(task string, names ...string) {
	d.t.Helper()
	for _, name := range names {
		text := d.read(task, name)
		if strings.Count(text, taskdir.Marker) != 1 || !strings.HasSuffix(text, "\n\n"+taskdir.Marker+"\n") {
			d.t.Errorf("%s does not end in its only marker:\n%s", name, text)
		}
	}
}

func TestStopThatCameWithTheInput(t *testing.T) {
	for name, tc := range map[string]struct {
		age  time.Duration
		want round.Reason
		says string
	}{
		"after it":  {0, round.Stopped, "_stop: " + outcomeStopped},
		"before it": {-time.Minute, round.Completed, "_stop: " + outcomeStale},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, answer("hi"))
			d.quiet("a", "input.txt", "go")
			d.quiet("a", "_stop", "")
			d.aged("a", "_stop", d.mtime("a", "input.txt").Add(tc.age))
			d.start("a", nil)
			d.ended("a", "output.txt")
			d.state("a", taskdir.AwaitingReply, tc.want)
			d.hasReceipt("a", tc.says)
			if tc.want == round.Completed {
				return
			}
			// The message counts as said.
			d.put("a", "reply.txt", "then this")
			d.ended("a", "output1.txt")
			if text := d.read("a", "history.json"); !strings.Contains(text, "go") {
				t.Errorf("the stopped round's message is lost:\n%s", text)
			}
		})
	}
}

func TestStopAndReplyInOneLook(t *testing.T) {
	t.Run("while waiting", func(t *testing.T) {
		// The session ends, and the reply revives it: the order in which a look applies them.
		d := newDesk(t, answer("hi"))
		d.put("a", "input.txt", "go")
		d.start("a", nil)
		d.ended("a", "output.txt")
		d.state("a", taskdir.AwaitingReply, round.Completed)
		d.quiet("a", "_stop", "")
		d.put("a", "reply.txt", "still there?")
		d.ended("a", "output1.txt")
		d.hasReceipt("a", "_stop: "+outcomeEnded+"\nreply.txt: opened round 1")
	})
	t.Run("during a round", func(t *testing.T) {
		b := newBlocked()
		d := newDesk(t, b)
		d.put("a", "input.txt", "go")
		d.start("a", nil)
		<-b.began
		d.quiet("a", "_stop", "")
		d.put("a", "reply.txt", "do this instead")
		if in := <-b.began; in.Message != "do this instead" || in.Round != 1 {
			t.Errorf("got %+v", in)
		}
		d.markers("a", "output.txt")
		d.hasReceipt("a", "_stop: "+outcomeStopped+"\nreply.txt: opened round 1")
		close(b.finish)
		d.ended("a", "output1.txt")
	})
}

func TestStopMeantForTheRoundThatEndsMeanwhile(t *testing.T) {
	// The supervisor saw the round running. That it was over in the journal, and
	// not yet for readers, is nothing that it could know.
	d := newDesk(t, answer("hi"))
	d.cfg.at = func(point string) {
		if point == "status_written" {
			d.quiet("a", "_stop", "")
			// Files are stamped by a clock that lags some milliseconds.
			d.aged("a", "_stop", time.Now().Add(-20*time.Millisecond))
			stamp := fileTime()
			waittest.Poll(func() bool { return fileTime().After(stamp) })
		}
	}
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.hasReceipt("a", "_stop: "+outcomeStale)
	d.state("a", taskdir.AwaitingReply, round.Completed)
}

func TestStopWhileTheRoundWaitsForItsFiles(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.quiet("a", "input.txt", "go")
	writer, err := os.Create(d.path("a", "context.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	fmt.Fprint(writer, "{")
	d.start("a", nil)
	d.state("a", taskdir.Running, "")
	d.put("a", "_stop", "")
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Stopped)
	d.hasReceipt("a", "_stop: "+outcomeStopped)
}

func TestStopWithoutASessionWaits(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.quiet("a", "_stop", "")
	l := d.start("a", nil)
	<-l.done
	if l.memo != nil || l.err != nil || d.status("a").Session != 0 {
		t.Fatalf("got %+v, %v", l.memo, l.err)
	}
	d.aged("a", "_stop", time.Now().Add(-time.Minute))
	d.quiet("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	d.hasReceipt("a", "_stop: "+outcomeStale)
}

func TestStopOfAnEndedSession(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	d.put("a", "_stop", "")
	<-l.done
	d.state("a", taskdir.Ended, round.Stopped)
	d.quiet("a", "_stop", "")
	l = d.start("a", l.memo)
	<-l.done
	d.state("a", taskdir.Ended, round.Stopped)
	d.hasReceipt("a", "_stop: "+outcomeOver)
}

func TestStopThatTheRoundCompletesUnder(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		b.began <- in
		<-ctx.Done()
		return oneTurn(in, emit, "just done")
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	<-b.began
	d.put("a", "_stop", "")
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	d.hasReceipt("a", "_stop: "+outcomeCompleted)
}

// lateLeaver takes its time to end when it is cancelled.
type lateLeaver struct {
	began, cancelled chan round.Input
	leave            chan struct{}
}

func newLateLeaver() *lateLeaver {
	return &lateLeaver{make(chan round.Input, 10), make(chan round.Input, 10), make(chan struct{})}
}

// cancelled starts a task and writes a file that cancels its round, which then takes
// its time to end.
func cancelled(t *testing.T, file, text string) (*lateLeaver, *desk) {
	t.Helper()
	r := newLateLeaver()
	d := newDesk(t, r)
	d.put("a", "input.txt", "one")
	d.start("a", nil)
	<-r.began
	d.put("a", file, text)
	<-r.cancelled
	return r, d
}

func (l *lateLeaver) Run(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
	l.began <- in
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), round.ErrShutdown) {
		l.cancelled <- in
		<-l.leave
	}
	return round.Outcome{Reason: round.Interrupted}
}

func TestStopAndInputWhileTheRoundIsOnItsWayOut(t *testing.T) {
	t.Run("stop while replacing is for the new session", func(t *testing.T) {
		r, d := cancelled(t, "input.txt", "two")
		d.put("a", "_stop", "")
		close(r.leave) // The second round may run for a moment.
		d.ended("a", "output.txt")
		d.state("a", taskdir.AwaitingReply, round.Stopped)
		d.until("session 2", func() bool { return d.status("a").Session == 2 })
		d.markers("a", "old/1/output.txt", "output.txt")
	})
	t.Run("a second stop while stopping", func(t *testing.T) {
		r, d := cancelled(t, "_stop", "")
		d.put("a", "_stop", "")
		d.gone("a", "_stop")
		close(r.leave)
		d.ended("a", "output.txt")
		d.hasReceipt("a", "_stop: "+outcomeStopped+"\n_stop: "+outcomeStopped)
		d.state("a", taskdir.AwaitingReply, round.Stopped)
	})
	t.Run("a third input while replacing", func(t *testing.T) {
		r, d := cancelled(t, "input.txt", "two")
		d.put("a", "input.txt", "three")
		d.until("the look", func() bool { return !d.live["a"].HasLook() })
		r.leave <- struct{}{}
		if in := <-r.began; in.Message != "three" {
			t.Errorf("the round has %q", in.Message)
		}
		d.markers("a", "old/1/output.txt")
	})
	t.Run("input while stopping", func(t *testing.T) {
		r, d := cancelled(t, "_stop", "")
		d.put("a", "input.txt", "two")
		d.until("the files to be moved", func() bool { return d.read("a", "old/1/events.jsonl") != "" })
		r.leave <- struct{}{}
		if in := <-r.began; in.Message != "two" || in.Session != 2 {
			t.Errorf("got %+v", in)
		}
		d.markers("a", "old/1/output.txt")
		st, err := taskdir.ReadStatus(d.path("a", "old", "1"))
		if err != nil || st.State != taskdir.Ended || round.Reason(st.Reason) != round.Replaced {
			t.Errorf("status %+v, %v", st, err)
		}
	})
	t.Run("stop and input while restarting", func(t *testing.T) {
		r, d := cancelled(t, "context.json", "{}")
		d.put("a", "_stop", "")
		d.gone("a", "_stop")
		r.leave <- struct{}{}
		d.state("a", taskdir.AwaitingReply, round.Stopped)
		d.put("a", "input.txt", "two")
		<-r.began
		d.quiet("a", "_history.json", "[]")
		d.look("a")
		<-r.cancelled
		d.put("a", "input.txt", "three")
		d.until("the files to be moved", func() bool { return d.read("a", "old/2/events.jsonl") != "" })
		r.leave <- struct{}{}
		if in := <-r.began; in.Message != "three" || in.Session != 3 {
			t.Errorf("got %+v", in)
		}
		d.markers("a", "old/1/output.txt", "old/2/output.txt")
	})
	t.Run("the directory goes while stopping", func(t *testing.T) {
		r := newLateLeaver()
		d := newDesk(t, r)
		d.put("a", "input.txt", "one")
		l := d.start("a", nil)
		<-r.began
		d.put("a", "_stop", "")
		<-r.cancelled
		d.remove("a")
		d.look("a")
		r.leave <- struct{}{}
		<-l.done
		if l.err != nil || l.memo != nil {
			t.Errorf("got %+v, %v", l.memo, l.err)
		}
	})
}

func TestInputAgainInTheQueue(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.holdPlace = true
	d.put("a", "input.txt", "one")
	d.start("a", nil)
	d.until("session 1", func() bool { return d.status("a").Session == 1 })
	d.put("a", "input.txt", "two")
	d.until("session 2", func() bool { return d.status("a").Session == 2 })
	if st, err := taskdir.ReadStatus(d.path("a", "old", "1")); err != nil || st.State != taskdir.Ended || round.Reason(st.Reason) != round.Replaced {
		t.Errorf("the replaced session's status: %+v, %v", st, err)
	}
	d.mu.Lock()
	d.holdPlace = false
	held := d.held
	d.mu.Unlock()
	for _, grant := range held {
		grant() // The first one is for a request that was taken back.
	}
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
}

func TestInputAgainWhileWaiting(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.put("a", "input.txt", "one")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	d.put("a", "input.txt", "two")
	d.until("session 2", func() bool { st := d.status("a"); return st.Session == 2 && st.State == taskdir.AwaitingReply })
	d.ended("a", "output.txt")
	d.markers("a", "old/1/output.txt", "output.txt")
	if st, err := taskdir.ReadStatus(d.path("a", "old", "1")); err != nil || st.State != taskdir.Ended || round.Reason(st.Reason) != round.Replaced {
		t.Errorf("the replaced session's status: %+v, %v", st, err)
	}
}

func TestRepliesOneAfterTheOther(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	<-b.began
	d.put("a", "reply.txt", "first")
	b.finish <- struct{}{}
	if in := <-b.began; in.Message != "first" || in.Round != 1 {
		t.Fatalf("got %+v", in)
	}
	d.put("a", "reply.txt", "second")
	b.finish <- struct{}{}
	if in := <-b.began; in.Message != "second" || in.Round != 2 {
		t.Fatalf("got %+v", in)
	}
	close(b.finish)
	d.ended("a", "output2.txt")
	d.markers("a", "output.txt", "output1.txt", "output2.txt")
	d.hasReceipt("a", "reply.txt: opened round 1\nreply.txt: opened round 2")
}

func TestReplyThatIsWrittenSlowlyKeepsItsPlaceInTheOrder(t *testing.T) {
	// Two lines of one writer, and the second's handle closed before the first is read.
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard "+in.Message)
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	writer, err := os.Create(d.path("a", "_keyinfo"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(writer, "one")
	d.look("a")
	d.gone("a", "_keyinfo")
	d.put("a", "_keyinfo", "two")
	d.until("the look", func() bool { return !d.live["a"].HasLook() })
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	// Nobody looks again, and the second is taken all the same.
	d.gone("a", "_keyinfo")
	d.hasReceipt("a", "_keyinfo: joined the working memory\n_keyinfo: joined the working memory")
	d.until("both to be known", func() bool {
		d.put("a", "reply.txt", "what do you know?")
		d.gone("a", "reply.txt")
		return true
	})
	d.ended("a", "output1.txt")
}

func TestInterventionAsTheRoundCompletes(t *testing.T) {
	// It comes after the runner has asked for the last time.
	n := 0
	d := newDesk(t, nil)
	d.cfg.Runner = runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		out := oneTurn(in, emit, "heard "+in.Message)
		if n++; n == 1 {
			if notes, err := in.Inbox(ctx); len(notes) != 0 || err != nil {
				t.Errorf("notes %v, %v", notes, err)
			}
			d.quiet("a", "_intervene", "one thing more")
		}
		return out
	})
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output1.txt")
	if text := d.read("a", "output1.txt"); !strings.Contains(text, "heard one thing more") {
		t.Errorf("got:\n%s", text)
	}
	d.markers("a", "output.txt", "output1.txt")
	d.hasReceipt("a", "_intervene: opened round 1")
}

func TestFilesThatComeTooLateGetAReceipt(t *testing.T) {
	answered, finish := make(chan struct{}, 2), make(chan struct{})
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		out := oneTurn(in, emit, fmt.Sprintf("with %d turns", in.Settings.MaxTurns))
		answered <- struct{}{}
		<-finish
		return out
	}))
	d.put("a", "context.json", `{"max_turns": 5}`)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	<-answered
	d.put("a", "context.json", `{"max_turns": 70}`)
	d.hasReceipt("a", "context.json: "+outcomeLate)
	d.put("a", "context.json", `{"max_turns": 700}`)
	d.hasReceipt("a", "context.json: "+outcomeLate+"\ncontext.json: "+outcomeLate)
	finish <- struct{}{}
	d.ended("a", "output.txt")
	d.put("a", "reply.txt", "and now?")
	<-answered
	close(finish)
	d.ended("a", "output1.txt")
	if text := d.read("a", "output1.txt"); !strings.Contains(text, "with 5 turns") {
		t.Errorf("context.json was read again within the session:\n%s", text)
	}
	if n := strings.Count(d.receipts("a"), "context.json"); n != 3 {
		t.Errorf("%d receipts for context.json:\n%s", n, d.receipts("a"))
	}
	d.put("a", "input.txt", "anew")
	d.until("the new session", func() bool { return strings.Contains(d.read("a", "output.txt"), "with 700 turns") })
}

func TestRefusedMessageIsKeptWithAReceipt(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	if err := os.WriteFile(d.path("a", "reply.txt"), make([]byte, taskdir.MaxMessage+1), 0o644); err != nil {
		t.Fatal(err)
	}
	d.look("a")
	d.until("the refusal", func() bool {
		return strings.Contains(d.receipts("a"), "kept as .refused-1-reply.txt")
	})
	d.ended("a", "output1.txt")
	if _, err := os.Lstat(d.path("a", ".refused-1-reply.txt")); err != nil {
		t.Error(err)
	}
	d.put("a", "reply.txt", "shorter")
	d.ended("a", "output2.txt")
}

func TestReceiptsAreBounded(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	for i := range 120 {
		d.put("a", "_keyinfo", fmt.Sprint("note ", i))
		d.gone("a", "_keyinfo")
	}
	d.until("the last receipt", func() bool {
		m := d.status("a").Messages
		return len(m) == taskdir.MaxMessages && m[len(m)-1].Bytes == 8
	})
}

func TestContextThatVanishesIsNotForgotten(t *testing.T) {
	// Some scripts take their context.json back once the round runs; the daemon dies
	// before the first answer.
	first := true
	b := newBlocked()
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if !first {
			return oneTurn(in, emit, fmt.Sprintf("%d turns, %d messages, resumed %v", in.Settings.MaxTurns, len(in.Conversation), in.Resumed != nil))
		}
		first = false
		emit(round.HeadPrepared{})
		emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		b.began <- in
		<-ctx.Done()
		return round.Outcome{Reason: round.Interrupted}
	}))
	d.put("a", "context.json", `{"max_turns": 7}`)
	d.put("a", "_history.json", `[{"role":"user","content":"earlier"},{"role":"assistant","content":"yes"}]`)
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	<-b.began
	l.end()
	os.Remove(d.path("a", "context.json"))
	os.Remove(d.path("a", "_history.json"))
	d.start("a", nil)
	d.ended("a", "output.txt")
	if text := d.read("a", "output.txt"); !strings.Contains(text, "7 turns, 3 messages, resumed true") {
		t.Errorf("got:\n%s", text)
	}
	if n := strings.Count(d.receipts("a"), "context.json: read"); n != 1 {
		t.Errorf("receipts:\n%s", d.receipts("a"))
	}
}

func TestSessionThatMayNotStartYetWaitsInTheQueue(t *testing.T) {
	d := newDesk(t, answer("hi"))
	var asked atomic.Int32
	d.cfg.Admit = func(string, time.Time) time.Duration {
		if asked.Add(1) < 3 {
			return 50 * time.Millisecond
		}
		return 0
	}
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.state("a", taskdir.Queued, "")
	d.until("the warning", func() bool { return strings.Contains(strings.Join(d.status("a").Warnings, "\n"), "tasks_per_hour") })
	d.ended("a", "output.txt")
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

func TestRefusedContextDoesNotCountAsAbsent(t *testing.T) {
	var got []round.Settings
	d := newDesk(t, runnerFunc(func(_ context.Context, in round.Input, emit round.Emit) round.Outcome {
		got = append(got, in.Settings)
		return oneTurn(in, emit, fmt.Sprintf("heard %q after %d", in.Message, len(in.Conversation)))
	}))
	d.put("a", "context.json", `{"tools": ["read_file"], "max_turns": "ten"}`)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Failed)
	d.put("a", "reply.txt", "go on")
	d.ended("a", "output1.txt")
	d.state("a", taskdir.AwaitingReply, round.Failed)
	if len(got) != 0 {
		t.Fatalf("a round ran without the limits that its context.json names: %+v", got)
	}

	// Put right, it counts from the next round on, which knows what was said before.
	d.put("a", "context.json", `{"tools": ["read_file"], "max_turns": 10}`)
	d.put("a", "reply.txt", "now")
	d.ended("a", "output2.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	if len(got) != 1 || got[0].MaxTurns != 10 || len(got[0].Tools) != 1 {
		t.Errorf("settings %+v", got)
	}
	wants := `heard "now" after 2`
	if out := d.read("a", "output2.txt"); !strings.Contains(out, wants) {
		t.Errorf("got:\n%s\nwant %s", out, wants)
	}
}

func TestThingsInPlaceOfAReply(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	<-b.began
	// During a round it waits, as a reply does.
	if err := os.Symlink("input.txt", d.path("a", "reply.txt")); err != nil {
		t.Skip("no links here: ", err)
	}
	d.look("a")
	d.until("the warning", func() bool { return strings.Contains(strings.Join(d.status("a").Warnings, "\n"), "reply.txt: it is") })
	b.finish <- struct{}{}
	d.ended("a", "output1.txt")
	d.markers("a", "output.txt", "output1.txt")
	if text := d.read("a", "output1.txt"); !strings.Contains(text, "it is a symbolic link") {
		t.Errorf("the output does not say what is wrong:\n%s", text)
	}
	if to, err := os.Readlink(d.path("a", ".refused-1-reply.txt")); to != "input.txt" {
		t.Errorf("the link was not kept: %q, %v", to, err)
	}
	d.state("a", taskdir.AwaitingReply, round.Failed)

	// A file that is about to lose its other name is no refusal yet.
	d.quiet("a", "draft", "go on")
	if err := os.Link(d.path("a", "draft"), d.path("a", "reply.txt")); err != nil {
		t.Fatal(err)
	}
	d.look("a")
	d.until("the warning", func() bool { return strings.Contains(strings.Join(d.status("a").Warnings, "\n"), "2 names") })
	if err := os.Remove(d.path("a", "draft")); err != nil {
		t.Fatal(err)
	}
	d.look("a")
	if in := <-b.began; in.Message != "go on" || in.Round != 2 {
		t.Errorf("got %+v", in)
	}
	b.finish <- struct{}{}
	d.ended("a", "output2.txt")
}
