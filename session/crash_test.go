package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// A rich history is played once for each point at which a process may die: between
// any two steps that leave something on the disk, and in the middle of every commit
// with any number of its records written. The next process has to go on as if
// nothing had been.

// crashed is thrown at the point where the process is to die.
type crashed struct{ point string }

// fuse kills the process at the points with these numbers, counted over all
// processes from 1.
type fuse struct {
	mu     sync.Mutex
	at     []int
	passed []string
}

func (f *fuse) blows(point string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passed = append(f.passed, point)
	return slices.Contains(f.at, len(f.passed))
}

func (f *fuse) pass(point string) {
	if f.blows(point) {
		panic(crashed{point})
	}
}

// mortalFile is a journal's file whose process may die in a commit.
type mortalFile struct {
	*os.File
	fuse *fuse
}

func (f *fuse) open(path string) (journal.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return mortalFile{file, f}, nil
}

func (f mortalFile) WriteAt(b []byte, off int64) (int, error) {
	written := 0
	for i, line := range bytes.SplitAfter(b, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		for _, cut := range []int{0, len(line) / 2} {
			point := fmt.Sprintf("commit with %d records and %d bytes of one written", i, cut)
			if f.fuse.blows(point) {
				f.File.WriteAt(b[:written+cut], off)
				panic(crashed{point})
			}
		}
		written += len(line)
	}
	n, err := f.File.WriteAt(b, off)
	f.fuse.pass("commit written, not synced")
	return n, err
}

// Sync leaves out the sync: a process dies here, and not the machine.
func (f mortalFile) Sync() error {
	f.fuse.pass("commit synced, not acknowledged")
	return nil
}

// worker is a runner that takes two turns and runs one tool that changes something.
// It resumes as an agent does, from the conversation alone.
type worker struct {
	mu sync.Mutex
	// rounds counts, for each message, the rounds that it opened.
	rounds map[string]map[string]bool
	// ran counts the runs of each tool call.
	ran map[string]int
	// keyInfo is what each round was given.
	keyInfo map[string]string
}

func (w *worker) Run(ctx context.Context, in round.Input, emit round.Emit) (out round.Outcome) {
	name := fmt.Sprintf("%d.%d", in.Session, in.Round)
	w.mu.Lock()
	if w.rounds[in.Message] == nil {
		w.rounds[in.Message] = map[string]bool{}
	}
	w.rounds[in.Message][name] = true
	w.keyInfo[name] = in.KeyInfo
	w.mu.Unlock()

	errEnd := errors.New("over")
	defer func() {
		if p := recover(); p != nil {
			if p != errEnd {
				panic(p)
			}
			out = round.Outcome{Reason: round.Interrupted}
			if errors.Is(context.Cause(ctx), round.ErrStopped) {
				out.Reason = round.Stopped
			}
		}
	}()
	do := func(e round.Event) {
		if err := emit(e); err != nil {
			panic(errEnd)
		}
	}
	msgs := slices.Clone(in.Conversation)
	add := func(turn int, applied []uint64, more ...llm.Message) {
		msgs = append(msgs, more...)
		do(round.Appended{Turn: turn, Messages: more, Applied: applied})
	}
	user := func(text string) llm.Message { return llm.Message{Role: llm.User, Content: text} }
	if in.Prepared == nil {
		do(round.HeadPrepared{Prepared: round.Prepared{Agent: "general", LLM: "test", System: "be good"}})
	}
	turn := 0
	if in.Resumed == nil {
		add(0, nil, user(in.Message))
	} else {
		turn = in.Resumed.Turn
	}
	inbox := func() (steered bool) {
		notes, err := in.Inbox(ctx)
		if err != nil {
			panic(errEnd)
		}
		var more []llm.Message
		var seqs []uint64
		for _, n := range notes {
			more, seqs = append(more, user(string(n.Kind)+": "+n.Text)), append(seqs, n.Seq)
			steered = steered || n.Kind == round.NoteIntervene
		}
		if len(more) > 0 {
			add(turn, seqs, more...)
		}
		return steered
	}
	tool := func() {
		id := "call " + name
		result := llm.Message{Role: llm.ToolRole, ToolCallID: id, Content: "interrupted, outcome unknown"}
		if in.Resumed == nil || !in.Resumed.Begun[id] {
			w.mu.Lock()
			w.ran[id]++
			w.mu.Unlock()
			result.Content = "done"
		}
		if strings.Contains(in.Message, "until stopped") {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), round.ErrStopped) {
				panic(errEnd)
			}
			result.Content = "cut short"
		}
		add(turn, nil, result)
	}
	steered := func(m llm.Message) bool { return strings.HasPrefix(m.Content, "_intervene") }
	for {
		last := msgs[len(msgs)-1]
		switch {
		case last.Role == llm.Assistant && len(last.ToolCalls) > 0:
			tool()
			if ctx.Err() != nil {
				panic(errEnd)
			}
			inbox()
		case last.Role == llm.Assistant:
			if !inbox() {
				return round.Outcome{Reason: round.Completed, Result: last.Content, CompletedBy: "text"}
			}
		case turn > 0 && strings.Contains(in.Message, "until steered") && !slices.ContainsFunc(msgs, steered):
			inbox()
			time.Sleep(time.Millisecond)
		default:
			turn++
			do(round.TurnStarted{Turn: turn})
			a := llm.Message{Role: llm.Assistant, Content: fmt.Sprintf("answer to %q", in.Message)}
			var begun []string
			if turn == 1 {
				a.Content, a.ToolCalls = "", []llm.ToolCall{{ID: "call " + name, Name: "change", Arguments: "{}"}}
				begun = []string{"call " + name}
			} else {
				do(round.TextStreamed{Text: a.Content})
			}
			msgs = append(msgs, a)
			do(round.Answered{Turn: turn, Message: a, Spent: llm.Usage{Requests: 1}, Begun: begun})
		}
	}
}

// theatre is a task on the disk, with daemons that work on it one after the other.
type theatre struct {
	*desk
	worker *worker
	fuse   *fuse
}

const actor = "a"

func newTheatre(t *testing.T, dieAt ...int) *theatre {
	w := &worker{rounds: map[string]map[string]bool{}, ran: map[string]int{}, keyInfo: map[string]string{}}
	th := &theatre{desk: newDesk(t, w), worker: w, fuse: &fuse{at: dieAt}}
	th.cfg.keep = 10 * time.Millisecond
	th.cfg.at = th.fuse.pass
	th.cfg.Journal = []journal.Option{journal.WithOpener(th.fuse.open)}
	return th
}

// daemons keeps a session of the task running until ctx ends. A crash is followed
// by another process, which knows what is on the disk.
func (d *desk) daemons(ctx context.Context, task string) {
	var memo *Memo
	for ctx.Err() == nil {
		s := New(d.cfg, task, memo)
		d.mu.Lock()
		d.live[task] = s
		d.mu.Unlock()
		func() {
			defer func() {
				if p := recover(); p != nil {
					if _, ok := p.(crashed); !ok {
						panic(p)
					}
					memo = nil
				}
			}()
			var err error
			if memo, err = s.Run(ctx); err != nil && ctx.Err() == nil {
				d.t.Errorf("the session ended with: %v", err)
			}
		}()
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// play runs daemons while the script writes and reads files.
func (th *theatre) play(script func()) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { th.daemons(ctx, actor) })
	wg.Go(func() {
		for ctx.Err() == nil {
			th.look(actor)
			time.Sleep(time.Millisecond)
		}
	})
	defer func() { stop(); wg.Wait() }()
	script()
}

// write puts a whole file there, as a careful script does.
func (th *theatre) write(name, text string) {
	th.t.Helper()
	temp := th.path(actor, ".tmp-"+name)
	if err := errors.Join(os.MkdirAll(th.path(actor), 0o755), os.WriteFile(temp, []byte(text), 0o644), os.Rename(temp, th.path(actor, name))); err != nil {
		th.t.Fatal(err)
	}
}

func (th *theatre) shows(output, text string) {
	th.t.Helper()
	th.until(fmt.Sprintf("%s to show %q", output, text), func() bool { return strings.Contains(th.read(actor, output), text) })
}

func (th *theatre) history() {
	th.write("context.json", `{"max_turns": 9}`)
	th.write("_history.json", `[{"role":"user","content":"earlier"},{"role":"assistant","content":"yes"}]`)
	th.write("input.txt", "the task")
	th.ended(actor, "output.txt")

	th.write("_keyinfo", "the budget is 3")
	th.until("the key info to be taken", func() bool { return th.read(actor, "_keyinfo") == "" })
	th.write("reply.txt", "the reply")
	th.ended(actor, "output1.txt")

	th.write("reply.txt", "work until steered")
	th.shows("output2.txt", "Turn 1")
	th.write("_intervene", "left, please")
	th.ended(actor, "output2.txt")

	th.write("reply.txt", "work until stopped")
	th.shows("output3.txt", "Turn 1")
	th.write("_stop", "")
	th.ended(actor, "output3.txt")

	th.write("reply.txt", "again, until stopped")
	th.shows("output4.txt", "Turn 1")
	th.write("input.txt", "another task")
	th.ended(actor, "old/1/output4.txt")
	th.ended(actor, "output.txt")

	th.until("the session to wait", func() bool { return th.status(actor).State == taskdir.AwaitingReply })
	th.write("_stop", "")
	th.until("the session to end", func() bool { return th.status(actor).State == taskdir.Ended })
	th.write("reply.txt", "a late one")
	th.ended(actor, "output1.txt")
	th.until("everything to be put away", func() bool {
		left, _ := filepath.Glob(th.path(actor, ".taken-*"))
		return len(left) == 0 && th.status(actor).State == taskdir.AwaitingReply
	})
}

// check asserts that what happened is what would have happened without a crash.
func (th *theatre) check() {
	t := th.t
	w := th.worker
	for msg, round := range map[string]string{
		"the task": "1.0", "the reply": "1.1", "work until steered": "1.2", "work until stopped": "1.3",
		"again, until stopped": "1.4", "another task": "2.0", "a late one": "2.1",
	} {
		if got := w.rounds[msg]; len(got) != 1 || !got[round] {
			t.Errorf("message %q opened the rounds %v, want %s only", msg, got, round)
		}
	}
	if len(w.rounds) != 7 {
		t.Errorf("%d messages opened rounds: %v", len(w.rounds), w.rounds)
	}
	for id, n := range w.ran {
		if n != 1 {
			t.Errorf("tool %q ran %d times", id, n)
		}
	}
	for name, keyInfo := range w.keyInfo {
		want := "[supervisor] the budget is 3"
		if name == "1.0" || strings.HasPrefix(name, "2.") {
			want = ""
		}
		if keyInfo != want {
			t.Errorf("round %s had the key info %q, want %q", name, keyInfo, want)
		}
	}
	outputs := map[string]string{
		"old/1/output.txt": "the task", "old/1/output1.txt": "the reply", "old/1/output2.txt": "work until steered",
		"old/1/output3.txt": "", "old/1/output4.txt": "", "output.txt": "another task", "output1.txt": "a late one",
	}
	for name, message := range outputs {
		text := th.read(actor, name)
		if n := strings.Count(text, "[ROUND END]"); n != 1 || !strings.HasSuffix(text, "\n\n[ROUND END]\n") {
			t.Errorf("%s has %d markers:\n%s", name, n, text)
		}
		if message != "" && !strings.Contains(text, fmt.Sprintf("answer to %q", message)) {
			t.Errorf("%s lacks its answer:\n%s", name, text)
		}
	}
	var files []string
	filepath.WalkDir(th.path(actor), func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(th.path(actor), path)
		if !e.IsDir() && outputs[rel] == "" && !strings.Contains(rel, "output") {
			files = append(files, rel)
		}
		return err
	})
	slices.Sort(files)
	want := []string{"_history.json", "context.json", "events.jsonl", "history.json", "input.txt",
		"old/1/events.jsonl", "old/1/history.json", "old/1/status.json", "status.json"}
	if !slices.Equal(files, want) {
		t.Errorf("the directory holds %q, want %q", files, want)
	}
	th.checkStatus("", 2, 1, taskdir.AwaitingReply, round.Completed,
		"input.txt: began session 2", "context.json: read", "_history.json: read", "_stop: ended the session", "reply.txt: opened round 1")
	th.checkStatus("old/1", 1, 4, taskdir.Ended, round.Replaced,
		"input.txt: began session 1", "context.json: read", "_history.json: read", "_keyinfo: joined the working memory", "reply.txt: opened round 1",
		"reply.txt: opened round 2", "_intervene: applied", "reply.txt: opened round 3", "_stop: stopped the round", "reply.txt: opened round 4")
	th.checkJournals()
}

func (th *theatre) checkStatus(dir string, session, n int, state taskdir.State, reason round.Reason, receipts ...string) {
	th.t.Helper()
	st, err := taskdir.ReadStatus(th.path(actor, dir))
	if err != nil {
		th.t.Error(err)
		return
	}
	if st.Session != session || st.Round != n || st.State != state || round.Reason(st.Reason) != reason || st.Error != nil {
		th.t.Errorf("status %q: session %d, round %d, %s, %s, error %v", dir, st.Session, st.Round, st.State, st.Reason, st.Error)
	}
	var got []string
	for _, m := range st.Messages {
		got = append(got, m.File+": "+string(m.Outcome))
	}
	if !slices.Equal(got, receipts) {
		th.t.Errorf("status %q has the receipts\n%q, want\n%q", dir, got, receipts)
	}
}

// checkJournals reads both sessions from their journals.
func (th *theatre) checkJournals() {
	p := placeOf(th.cfg.StateDir, actor)
	for path, want := range map[string]int{p.current(): 2, p.old(1): 1} {
		st := &state{}
		if _, err := replay(path, 0, st, nil); err != nil || st.Session != want || len(st.Notes) > 0 || st.Stop || len(st.Begun) > 0 {
			th.t.Errorf("journal %s: session %d, notes %v, stop %v, begun %v, %v", path, st.Session, st.Notes, st.Stop, st.Begun, err)
		}
		calls := map[string]int{}
		for _, m := range st.Conversation {
			for _, c := range m.ToolCalls {
				calls[c.ID]++
			}
			if m.Role == llm.ToolRole {
				calls[m.ToolCallID]--
			}
		}
		for id, n := range calls {
			// A round that was stopped or replaced may have ended in the middle of its call,
			// which the next one answers before it goes on.
			if n != 0 && (n < 0 || id != "call 1.3" && id != "call 1.4") {
				th.t.Errorf("journal %s: call %q has %d results too few", path, id, n)
			}
		}
	}
	left, _ := filepath.Glob(filepath.Join(string(p), "*"))
	if left = slices.DeleteFunc(left, func(name string) bool { return strings.Contains(name, ".torn-") }); len(left) != 2 {
		th.t.Errorf("journals %q", left)
	}
}

func TestCrashAtEveryPoint(t *testing.T) {
	th := newTheatre(t)
	th.play(th.history)
	th.check()
	if t.Failed() {
		t.Fatalf("without any crash:\n%s", th.listing())
	}
	points := len(th.fuse.passed)
	t.Logf("%d points", points)
	step := 1
	if testing.Short() || raceEnabled {
		step = 5
	}
	for n := 1; n <= points; n += step {
		t.Run(fmt.Sprint(n), func(t *testing.T) { playWithCrashes(t, n) })
	}
	// The process that puts things in order dies too, some points later.
	for n := 1; n <= points; n += 4 * step {
		t.Run(fmt.Sprint(n, " and soon after"), func(t *testing.T) { playWithCrashes(t, n, n+1+n/2%9) })
	}
}

func playWithCrashes(t *testing.T, at ...int) {
	t.Parallel()
	th := newTheatre(t, at...)
	t.Cleanup(func() {
		passed := th.fuse.passed
		for _, n := range at {
			if t.Failed() && n <= len(passed) {
				t.Logf("died at %q, after %q", passed[n-1], passed[max(0, n-4):n-1])
			}
		}
	})
	th.play(th.history)
	th.check()
}
