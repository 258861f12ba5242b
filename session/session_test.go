package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// The sessions of these tests are real ones, on real directories and journals.
// Only the runner is a function of the test.

type runnerFunc func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome

func (f runnerFunc) Run(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
	return f(ctx, in, emit)
}

// answer is a runner that takes the message into the conversation and answers.
func answer(text string) runnerFunc {
	return func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, text)
	}
}

func oneTurn(in round.Input, emit round.Emit, text string) round.Outcome {
	var events []round.Event
	if in.Prepared == nil {
		events = append(events, round.HeadPrepared{Prepared: round.Prepared{Agent: "general", LLM: "test", System: "be good"}})
	}
	if in.Resumed == nil {
		events = append(events, round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
	}
	events = append(events, round.TurnStarted{Turn: 1}, round.TextStreamed{Text: text},
		round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: text}, Spent: llm.Usage{Requests: 1, InputTokens: 10}})
	for _, e := range events {
		if err := emit(e); err != nil {
			return round.Outcome{Reason: round.Interrupted}
		}
	}
	return round.Outcome{Reason: round.Completed, Result: text, CompletedBy: "text"}
}

// desk is a temp and a state directory with the sessions at work on them.
type desk struct {
	t         *testing.T
	cfg       *Config
	temp      string
	mu        sync.Mutex
	live      map[string]*Session
	held      []func()
	holdPlace bool
	last      *life // started last
}

func newDesk(t *testing.T, r Runner) *desk {
	t.Helper()
	d := &desk{t: t, temp: t.TempDir(), live: map[string]*Session{}}
	root, err := taskdir.OpenRoot(d.temp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	d.cfg = &Config{
		Root: root, StateDir: t.TempDir(), Runner: r, ReplyTimeout: time.Minute, Log: slog.New(slog.DiscardHandler),
		Ask: func(task string, ticket uint64, _ bool) {
			d.mu.Lock()
			defer d.mu.Unlock()
			s := d.live[task]
			if d.holdPlace {
				d.held = append(d.held, func() { s.Grant(ticket) })
				return
			}
			go s.Grant(ticket)
		},
		Leave: func(string, uint64) {},
	}
	return d
}

// life is one call of Session.Run.
type life struct {
	*Session
	stop func()
	done chan struct{}
	memo *Memo
	err  error
}

// start runs a session of the task and stops it when the test ends.
func (d *desk) start(task string, memo *Memo) *life {
	d.t.Helper()
	s := New(d.cfg, task, memo)
	d.mu.Lock()
	d.live[task] = s
	d.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	l := &life{Session: s, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.memo, l.err = s.Run(ctx)
	}()
	d.t.Cleanup(func() { l.end() })
	d.last = l
	return l
}

// end stops the session as a daemon's stop does, and waits for it.
func (l *life) end() {
	l.stop()
	<-l.done
}

func (d *desk) path(task string, names ...string) string {
	return filepath.Join(append([]string{d.temp, task}, names...)...)
}

// put writes a file of the task as a shell would, and has its session look.
func (d *desk) put(task, name, text string) {
	d.t.Helper()
	if err := os.MkdirAll(d.path(task), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(d.path(task, name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	d.look(task)
}

func (d *desk) look(task string) {
	d.mu.Lock()
	s := d.live[task]
	d.mu.Unlock()
	if s != nil {
		s.Look()
	}
}

func (d *desk) read(task string, names ...string) string {
	b, err := os.ReadFile(d.path(task, names...))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return string(b)
}

// until waits for something to become true.
func (d *desk) until(what string, ok func() bool) {
	d.t.Helper()
	if !waittest.Poll(ok) {
		d.t.Fatalf("waited in vain for %s\n%s", what, d.listing())
	}
}

func (d *desk) listing() string {
	var b strings.Builder
	filepath.WalkDir(d.temp, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			text, _ := os.ReadFile(path)
			fmt.Fprintf(&b, "--- %s\n%.2000s\n", path, text)
		}
		return nil
	})
	return b.String()
}

func (d *desk) ended(task, output string) {
	d.t.Helper()
	d.until(output+" to end in the marker", func() bool { return strings.HasSuffix(d.read(task, output), "\n\n[ROUND END]\n") })
}

func (d *desk) status(task string) *taskdir.Status {
	st, err := taskdir.ReadStatus(d.path(task))
	if err != nil {
		return taskdir.NewStatus(task)
	}
	return st
}

func (d *desk) state(task string, want taskdir.State, reason round.Reason) {
	d.t.Helper()
	d.until(fmt.Sprintf("state %s (%s)", want, reason), func() bool {
		st := d.status(task)
		return st.State == want && round.Reason(st.Reason) == reason
	})
}

func TestRoundsOneAfterAnother(t *testing.T) {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, fmt.Sprintf("answer to %q after %d messages, key info %q", in.Message, len(in.Conversation), in.KeyInfo))
	}))
	d.put("a", "input.txt", "first")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.put("a", "_keyinfo", "the budget is 3")
	d.until("the key info to be taken", func() bool { return d.read("a", "_keyinfo") == "" })
	d.put("a", "reply.txt", "second")
	d.ended("a", "output1.txt")
	if got := d.read("a", "output1.txt"); !strings.Contains(got, `answer to "second" after 2 messages, key info "[supervisor] the budget is 3"`) {
		t.Errorf("the second round did not see what came before:\n%s", got)
	}
	st := d.status("a")
	if st.State != taskdir.AwaitingReply || st.Round != 1 || st.Session != 1 || st.Usage.Requests != 2 || st.ReplyDeadline.IsZero() {
		t.Errorf("status: %+v", st)
	}
	var files []string
	for _, m := range st.Messages {
		files = append(files, m.File+": "+string(m.Outcome))
	}
	if got, want := strings.Join(files, "; "), "input.txt: began session 1; _keyinfo: joined the working memory; reply.txt: opened round 1"; got != want {
		t.Errorf("receipts %q, want %q", got, want)
	}
	if !strings.Contains(d.read("a", "history.json"), "second") {
		t.Error("history.json lacks the second round")
	}
	d.put("a", "_stop", "")
	<-l.done
	d.state("a", taskdir.Ended, round.Stopped)
	if l.err != nil || l.memo == nil || l.memo.Phase != Ended {
		t.Fatalf("ended with %+v, %v", l.memo, l.err)
	}

	// A late reply revives the session, with all that was said.
	d.put("a", "reply.txt", "third")
	d.start("a", l.memo)
	d.ended("a", "output2.txt")
	if got := d.read("a", "output2.txt"); !strings.Contains(got, `answer to "third" after 4 messages`) {
		t.Errorf("the revived session lost its conversation:\n%s", got)
	}
}

func TestInterventionWithoutARoundIsAReplyAheadOfReply(t *testing.T) {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard "+in.Message)
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	os.WriteFile(d.path("a", "reply.txt"), []byte("the reply"), 0o644)
	d.put("a", "_intervene", "the intervention")
	d.ended("a", "output2.txt")
	if !strings.Contains(d.read("a", "output1.txt"), "heard the intervention") || !strings.Contains(d.read("a", "output2.txt"), "heard the reply") {
		t.Errorf("wrong order:\n%s", d.listing())
	}
}

// blocked is a runner that says when it is at work and waits for its end.
type blocked struct {
	began  chan round.Input
	notes  chan []round.Note
	finish chan struct{}
}

func newBlocked() *blocked {
	return &blocked{began: make(chan round.Input, 10), notes: make(chan []round.Note, 10), finish: make(chan struct{})}
}

func (b *blocked) Run(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
	b.began <- in
	select {
	case <-ctx.Done():
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, round.ErrStopped):
			return round.Outcome{Reason: round.Stopped}
		case errors.Is(cause, round.ErrReplaced):
			return round.Outcome{Reason: round.Replaced}
		}
		return round.Outcome{Reason: round.Interrupted}
	case <-b.finish:
	}
	return oneTurn(in, emit, "done")
}

func TestStopDuringARound(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	<-b.began
	d.put("a", "_stop", "")
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Stopped)
	if !strings.Contains(d.read("a", "output.txt"), "stopped by the supervisor") {
		t.Errorf("the output does not say so:\n%s", d.read("a", "output.txt"))
	}

	// One that is older than the round's end does not end the session.
	os.WriteFile(d.path("a", "_stop"), nil, 0o644)
	old := time.Now().Add(-time.Hour)
	os.Chtimes(d.path("a", "_stop"), old, old)
	d.look("a")
	d.until("the old stop to be consumed", func() bool { _, err := os.Lstat(d.path("a", "_stop")); return errors.Is(err, os.ErrNotExist) })
	d.put("a", "reply.txt", "go on")
	if in := <-b.began; in.Round != 1 || in.Message != "go on" {
		t.Errorf("got %+v", in)
	}
}

func TestStopInTheQueue(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.holdPlace = true
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.until("session 1", func() bool { return d.status("a").Session == 1 })
	d.put("a", "_stop", "")
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Stopped)
}

func TestFilesThatArriveLateStartTheRoundOver(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	if in := <-b.began; len(in.Conversation) != 0 {
		t.Fatalf("got %+v", in)
	}
	d.put("a", "_history.json", `[{"role":"user","content":"earlier"},{"role":"assistant","content":"yes"}]`)
	if in := <-b.began; len(in.Conversation) != 2 || in.Message != "go" {
		t.Fatalf("the round did not start over with the history: %+v", in)
	}
	d.put("a", "context.json", `{"max_turns": 7}`)
	in := <-b.began
	if in.Settings.MaxTurns != 7 || len(in.Conversation) != 2 {
		t.Fatalf("the round did not start over with the context: %+v", in)
	}
	close(b.finish)
	d.ended("a", "output.txt")
	if n := strings.Count(d.read("a", "output.txt"), "[ROUND END]"); n != 1 {
		t.Errorf("%d markers", n)
	}
}

func TestBrokenContextEndsTheRoundBeforeItRuns(t *testing.T) {
	d := newDesk(t, runnerFunc(func(context.Context, round.Input, round.Emit) round.Outcome {
		t.Error("the runner was started")
		return round.Outcome{Reason: round.Failed}
	}))
	d.put("a", "context.json", `{"max_turns": "many"}`)
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Failed)
	st := d.status("a")
	if st.Error == nil || st.Error.Kind != "context" || !strings.Contains(st.Error.Message, "max_turns") {
		t.Errorf("error %+v does not name the key", st.Error)
	}
}

func TestInputAgainReplacesTheRound(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "one")
	d.start("a", nil)
	<-b.began
	d.put("a", "input.txt", "two")
	if in := <-b.began; in.Session != 2 || in.Message != "two" || in.Round != 0 {
		t.Fatalf("got %+v", in)
	}
	d.ended("a", "old/1/output.txt")
	if st, err := taskdir.ReadStatus(d.path("a", "old", "1")); err != nil || round.Reason(st.Reason) != round.Replaced {
		t.Errorf("the replaced session's status: %+v, %v", st, err)
	}
	close(b.finish)
	d.ended("a", "output.txt")
	d.until("session 2 in the status", func() bool { return d.status("a").Session == 2 })

	// The same text written again is a new input too; a touch of the mode is none.
	if err := os.Chmod(d.path("a", "input.txt"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.look("a")
	d.put("a", "input.txt", "two")
	if in := <-b.began; in.Session != 3 {
		t.Errorf("got session %d, want 3", in.Session)
	}
}

func TestStopOfTheDaemonResumesTheRound(t *testing.T) {
	for _, rest := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a turn %v", rest), func(t *testing.T) {
			atWork := make(chan struct{}, 1)
			first := true
			d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
				if !first {
					if rest && (in.Resumed == nil || in.Resumed.Turn != 1 || !in.Resumed.Begun["c1"] || in.Resumed.Cut != round.CutText || len(in.Conversation) != 2) {
						t.Errorf("resumed with %+v and %d messages", in.Resumed, len(in.Conversation))
					}
					return oneTurn(in, emit, "went on")
				}
				first = false
				if rest {
					emit(round.HeadPrepared{})
					emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
					emit(round.TurnStarted{Turn: 1})
					emit(round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "c1", Name: "x"}}}, Begun: []string{"c1"}, Cut: round.CutText})
				}
				atWork <- struct{}{}
				<-ctx.Done()
				return round.Outcome{Reason: round.Interrupted}
			}))
			d.put("a", "input.txt", "go")
			l := d.start("a", nil)
			<-atWork
			l.end()
			if l.err != nil {
				t.Fatal(l.err)
			}
			if strings.Contains(d.read("a", "output.txt"), "[ROUND END]") {
				t.Fatal("a round that goes on has a marker")
			}
			d.start("a", nil)
			d.ended("a", "output.txt")
			if got := d.read("a", "output.txt"); !strings.Contains(got, "went on") {
				t.Errorf("got:\n%s", got)
			}
		})
	}
}

func TestWaitingSessionWaitsOnAfterARestart(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.cfg.ReplyTimeout = minimumWait / 2
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	l.end()
	before := d.status("a")
	d.start("a", nil)
	// Of the wait less was left than a start grants, and readers are told of it.
	d.until("a later deadline in the status", func() bool {
		return d.status("a").ReplyDeadline.Sub(before.ReplyDeadline.Time) >= minimumWait/2
	})
	if after := d.status("a"); after.State != before.State || after.Session != before.Session || after.Reason != before.Reason {
		t.Errorf("the status was %+v and is %+v", before, after)
	}
	d.put("a", "reply.txt", "more")
	d.ended("a", "output1.txt")
}

func TestMarkerIsWrittenAfterACrashBeforeIt(t *testing.T) {
	d := newDesk(t, answer("hi"))
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	l.end()
	// As if the daemon had died between the journal and the marker.
	text := strings.TrimSuffix(d.read("a", "output.txt"), "\n\n[ROUND END]\n")
	os.WriteFile(d.path("a", "output.txt"), []byte(text), 0o644)
	os.Remove(d.path("a", "status.json"))
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
}

func TestRemovedDirectoryEndsTheSession(t *testing.T) {
	b := newBlocked()
	d := newDesk(t, b)
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	<-b.began
	d.remove("a")
	d.look("a")
	<-l.done
	if l.err != nil || l.memo != nil {
		t.Fatalf("got %+v, %v", l.memo, l.err)
	}
	if _, err := os.Lstat(d.path("a")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the directory was made again")
	}
	d.put("a", "input.txt", "again")
	d.start("a", nil)
	if in := <-b.began; in.Session != 1 || in.Message != "again" {
		t.Errorf("got %+v", in)
	}
}

func TestFinishedElsewhereIsAdopted(t *testing.T) {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if in.Round != 2 || in.Message != "and now?" {
			t.Errorf("got %+v", in)
		}
		return oneTurn(in, emit, "now this")
	}))
	d.put("a", "input.txt", "go")
	d.put("a", "output.txt", "did it\n\n[ROUND END]\n")
	d.put("a", "output1.txt", "and that\n\n[ROUND END]\n")
	l := d.start("a", nil)
	<-l.done
	if l.err != nil || l.memo == nil || l.memo.Phase != Ended {
		t.Fatalf("got %+v, %v", l.memo, l.err)
	}
	if _, err := os.Lstat(d.path("a", "status.json")); err == nil {
		t.Error("a look that changes nothing wrote a status")
	}
	d.put("a", "reply.txt", "and now?")
	d.start("a", l.memo)
	d.ended("a", "output2.txt")
}

func TestPanicInARoundFailsThatRound(t *testing.T) {
	n := 0
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if n++; n == 1 {
			panic("oh")
		}
		return oneTurn(in, emit, "recovered")
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Failed)
	d.put("a", "reply.txt", "again")
	d.ended("a", "output1.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
}

func TestInterventionThatTheRoundDidNotApplyOpensTheNext(t *testing.T) {
	n := 0
	d := newDesk(t, nil)
	d.cfg.Runner = runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if n++; n == 1 {
			os.WriteFile(d.path("a", "_intervene"), []byte("look again"), 0o644)
			notes, err := in.Inbox(ctx)
			if err != nil || len(notes) != 1 || notes[0].Text != "look again" {
				t.Errorf("notes %+v, %v", notes, err)
			}
			return round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "network", Message: "gone"}}
		}
		return oneTurn(in, emit, "heard "+in.Message)
	})
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output1.txt")
	if got := d.read("a", "output1.txt"); !strings.Contains(got, "heard look again") {
		t.Errorf("got:\n%s", got)
	}
}

// Calls that are over before the output is written have a line each, however many
// work at the same time; one that takes longer has a line from its beginning on.
func TestLinesOfParallelCalls(t *testing.T) {
	call := func(id string) (round.ToolBegun, round.ToolEnded) {
		return round.ToolBegun{Turn: 1, ID: id, Name: "read_file", Args: "path=" + id},
			round.ToolEnded{Turn: 1, ID: id, Name: "read_file", Args: "path=" + id, Summary: "read " + id}
	}
	for name, long := range map[string]bool{"short": false, "long": true} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan struct{})
			d := newDesk(t, runnerFunc(func(_ context.Context, in round.Input, emit round.Emit) round.Outcome {
				a, aOver := call("a")
				b, bOver := call("b")
				c, cOver := call("c")
				for _, e := range []round.Event{round.TurnStarted{Turn: 1}, a, b, c, bOver, aOver, nil, cOver} {
					if e == nil {
						<-seen
						continue
					}
					if err := emit(e); err != nil {
						return round.Outcome{Reason: round.Interrupted}
					}
				}
				return oneTurn(in, emit, "done")
			}))
			if !long {
				d.cfg.flush = time.Hour
				close(seen)
			}
			d.put("a", "input.txt", "go")
			d.start("a", nil)
			if long {
				d.until("the long call is shown", func() bool { return strings.Contains(d.read("a", "output.txt"), "path=c)") })
				close(seen)
			}
			d.ended("a", "output.txt")
			text := d.read("a", "output.txt")
			for _, line := range []string{"🛠️ read_file(path=b) → read b\n", "🛠️ read_file(path=a) → read a\n", "🛠️ read_file(path=c) → read c\n"} {
				if !strings.Contains(text, line) {
					t.Errorf("the output lacks %q:\n%s", line, text)
				}
			}
			if n := strings.Count(text, "🛠️"); !long && n != 3 {
				t.Errorf("%d lines for three calls:\n%s", n, text)
			}
		})
	}
}
