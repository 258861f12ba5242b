package session

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// disk is what journals are on: it can be full.
type disk struct {
	full  atomic.Bool
	tries atomic.Int64
}

func (k *disk) options() []journal.Option {
	return []journal.Option{journal.WithOpener(func(path string) (journal.File, error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return diskFile{f, k}, err
	})}
}

type diskFile struct {
	*os.File
	disk *disk
}

func (f diskFile) WriteAt(b []byte, off int64) (int, error) {
	if f.disk.full.Load() {
		f.disk.tries.Add(1)
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, syscall.ENOSPC
	}
	return f.File.WriteAt(b, off)
}

func newDeskOnDisk(t *testing.T, r Runner) (*desk, *disk) {
	d, k := newDesk(t, r), &disk{}
	d.cfg.Journal = k.options()
	return d, k
}

func (d *desk) warned(task, text string) bool {
	return strings.Contains(strings.Join(d.status(task).Warnings, "\n"), text)
}

func TestFullDiskHoldsUpAndLosesNothing(t *testing.T) {
	d, k := newDeskOnDisk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard "+in.Message)
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)

	k.full.Store(true)
	d.put("a", "reply.txt", "more")
	d.until("status.json to say so", func() bool { return d.warned("a", "the journal cannot be written") })
	st := d.status("a")
	if st.Round != 0 || st.State != taskdir.AwaitingReply || len(st.Messages) != 1 || !d.warned("a", "no space left on device") {
		t.Errorf("status.json acknowledges what was not stored: %+v", st)
	}
	if text := d.read("a", "output1.txt"); strings.Contains(text, "heard more") || strings.Contains(text, taskdir.Marker) {
		t.Errorf("the round went on without its journal:\n%s", text)
	}
	// Others go on: here one that needs no journal yet.
	d.put("b", "_stop", "")
	other := d.start("b", nil)
	<-other.done

	tried := k.tries.Load()
	d.until("another try", func() bool { return k.tries.Load() > tried })
	k.full.Store(false)
	d.ended("a", "output1.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	if d.warned("a", "the journal cannot be written") {
		t.Error("the warning stays")
	}
	d.markers("a", "output.txt", "output1.txt")
	d.hasReceipt("a", "reply.txt: opened round 1")
}

func TestStopWorksWithAFullDisk(t *testing.T) {
	cancelled := make(chan error, 1)
	atWork := make(chan struct{})
	d, k := newDeskOnDisk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		emit(round.HeadPrepared{})
		emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		close(atWork)
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return round.Outcome{Reason: round.Stopped}
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	<-atWork
	k.full.Store(true)
	d.put("a", "_stop", "")
	if err := <-cancelled; !errors.Is(err, round.ErrStopped) {
		t.Errorf("cancelled for %v", err)
	}
	k.full.Store(false)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Stopped)
	d.hasReceipt("a", "_stop: "+outcomeStopped)
}

func TestStopCancelsARoundThatWaitsForTheDisk(t *testing.T) {
	// The session is in the middle of a commit when the _stop comes.
	ended := make(chan struct{})
	var k *disk
	d, k := newDeskOnDisk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		emit(round.HeadPrepared{})
		emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		k.full.Store(true)
		go func() { <-ctx.Done(); close(ended) }()
		emit(round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: "hi"}})
		<-ctx.Done()
		return round.Outcome{Reason: round.Stopped}
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.until("the disk to be tried", func() bool { return k.tries.Load() > 0 })
	d.put("a", "_stop", "")
	<-ended
	if text := d.read("a", "output.txt"); strings.Contains(text, taskdir.Marker) {
		t.Errorf("the round is over for readers, and not in the journal:\n%s", text)
	}
	k.full.Store(false)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Stopped)
	d.gone("a", "_stop")
}

func TestShutdownWithAFullDiskIsBounded(t *testing.T) {
	var k *disk
	first := true
	d, k := newDeskOnDisk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if !first {
			return oneTurn(in, emit, "went on")
		}
		first = false
		emit(round.HeadPrepared{})
		emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		k.full.Store(true)
		if err := emit(round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: "lost"}}); err == nil {
			t.Error("an answer was acknowledged that was not stored")
		}
		return round.Outcome{Reason: round.Interrupted}
	}))
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.until("the disk to be tried", func() bool { return k.tries.Load() > 0 })
	l.end()
	if l.err == nil || !errors.Is(l.err, syscall.ENOSPC) {
		t.Errorf("the stop reports %v, want that the disk is full", l.err)
	}
	if strings.Contains(d.read("a", "output.txt"), taskdir.Marker) {
		t.Error("the round has ended")
	}
	k.full.Store(false)
	d.start("a", nil)
	d.ended("a", "output.txt")
	st := &state{}
	if _, err := replay(placeOf(d.cfg.StateDir, "a").current(), 0, st, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(st.Conversation); n != 2 || st.Conversation[1].Content != "went on" {
		t.Errorf("the conversation is %v", st.Conversation)
	}
}

// A session that never got into its journal has shown nothing, and begins anew.
func TestFullDiskFromTheBeginning(t *testing.T) {
	d, k := newDeskOnDisk(t, answer("hi"))
	k.full.Store(true)
	d.put("a", "context.json", `{"max_turns": "many"}`)
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.until("the disk to be tried", func() bool { return k.tries.Load() > 0 })
	if text := d.read("a", "output.txt"); text != "" {
		t.Errorf("shown before anything is recorded: %q", text)
	}
	l.end()
	k.full.Store(false)
	d.quiet("a", "context.json", "{}")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	if st := d.status("a"); st.Session != 1 {
		t.Errorf("session %d", st.Session)
	}
	if _, err := os.Lstat(d.path("a", "old")); err == nil {
		t.Errorf("something was put aside:\n%s", d.listing())
	}
}

func TestReadOnlyStateDirectory(t *testing.T) {
	var locked atomic.Bool
	locked.Store(true)
	d := newDesk(t, answer("hi"))
	d.cfg.Journal = []journal.Option{journal.WithOpener(func(path string) (journal.File, error) {
		if locked.Load() {
			return nil, syscall.EROFS
		}
		return os.OpenFile(path, os.O_WRONLY, 0)
	})}
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.until("status.json to say so", func() bool { return d.warned("a", "read-only file system") })
	locked.Store(false)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	if d.warned("a", "read-only") {
		t.Error("the warning stays")
	}
}

// Readers are told of a round's end as soon as the task's own disk takes it, and a
// reply does not wait for that.
func TestMarkerThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard "+in.Message)
	}))
	d.startBlocked("a", "go")
	d.put("a", "reply.txt", "more")
	d.until("the next round to run", func() bool { return strings.Contains(d.read("a", "output1.txt"), "heard more") })
	for _, name := range strayNames() {
		if err := os.Remove(d.path("a", name)); err != nil {
			t.Fatal(err)
		}
	}
	d.ended("a", "output.txt")
	d.ended("a", "output1.txt")
	d.markers("a", "output.txt", "output1.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
}

// startBlocked starts a task whose round ends without being shown: when it is over,
// directories are in the way of that, until they are removed (strayNames).
func (d *desk) startBlocked(task, input string) {
	d.t.Helper()
	var blocked atomic.Bool
	d.cfg.at = func(point string) {
		if point == "round_closed" && blocked.CompareAndSwap(false, true) {
			for _, name := range strayNames() {
				if err := os.MkdirAll(d.path(task, name), 0o755); err != nil {
					d.t.Error(err)
				}
			}
		}
	}
	d.put(task, "input.txt", input)
	d.start(task, nil)
	d.until("the status to stay behind", func() bool { return blocked.Load() && d.read(task, "output.txt") != "" })
}

// strayNames are the names that have to be taken to keep history.json from being
// written: a directory in its place cannot be replaced, nor put aside while a thousand
// others have all the names for that.
func strayNames() []string {
	names := []string{"history.json"}
	for i := range 1000 {
		names = append(names, ".stray-"+strconv.Itoa(i+1)+"-history.json")
	}
	return names
}

func TestPlaceIsWaitedForWithoutConversation(t *testing.T) {
	// Whoever waits for a place for longer than a moment holds no more than a Memo.
	d := newDesk(t, answer("hi"))
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	d.mu.Lock()
	d.holdPlace = true
	d.mu.Unlock()
	d.put("a", "reply.txt", "more")
	d.until("round 1 in the queue", func() bool { st := d.status("a"); return st.Round == 1 && st.State == taskdir.Queued })
	l.end()
	if l.Session.memo == nil || l.Session.memo.Phase != Queued {
		t.Errorf("memo %+v", l.Session.memo)
	}
	// The restart finds the round in the queue again.
	d.mu.Lock()
	d.holdPlace = false
	d.mu.Unlock()
	d.start("a", nil)
	d.ended("a", "output1.txt")
	d.hasReceipt("a", "reply.txt: opened round 1")
}

func TestPausesOfTheDaemonAreNoCrashes(t *testing.T) {
	n := 0
	atWork := make(chan struct{}, 1)
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if n++; n > 2*maxCrashes {
			return oneTurn(in, emit, "at last")
		}
		atWork <- struct{}{}
		<-ctx.Done()
		return round.Outcome{Reason: round.Interrupted}
	}))
	d.put("a", "input.txt", "go")
	for range 2 * maxCrashes {
		l := d.start("a", nil)
		<-atWork
		l.end()
	}
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
}

func TestRoundThatCrashesTheDaemonIsGivenUp(t *testing.T) {
	for name, firstWords := range map[string][]round.Event{
		"before it says anything": nil,
		"before the first answer": {round.HeadPrepared{}, round.Appended{Messages: []llm.Message{{Role: llm.User, Content: "go"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var armed atomic.Bool
			var runs atomic.Int64
			d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
				runs.Add(1)
				if in.Resumed == nil {
					for _, e := range firstWords {
						emit(e)
					}
				} else {
					emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: "the daemon was restarted"}}})
				}
				armed.Store(true)
				emit(round.SpentBeside{Spent: llm.Usage{Requests: 1}})
				return round.Outcome{Reason: round.Interrupted}
			}))
			d.cfg.at = func(point string) {
				if point == "committed" && armed.CompareAndSwap(true, false) {
					panic(crashed{point})
				}
			}
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { d.daemons(ctx, "a") })
			defer func() { stop(); wg.Wait() }()
			d.put("a", "input.txt", "go")
			d.ended("a", "output.txt")
			if n := runs.Load(); n != maxCrashes {
				t.Errorf("the round ran %d times, want %d", n, maxCrashes)
			}
			st := d.status("a")
			if st.Error == nil || st.Error.Kind != "crash" || round.Reason(st.Reason) != round.Interrupted || st.Usage.Requests != maxCrashes {
				t.Errorf("status %+v, error %+v", st, st.Error)
			}
		})
	}
}
