package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestParentGivesItsPlaceToItsChildren(t *testing.T) {
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if in.Depth > 0 {
			return echo(ctx, in, emit)
		}
		var waits []func() (round.JobResult, error)
		for n := range 3 {
			wait, err := in.Spawn(ctx, "c1", n, round.Job{Prompt: fmt.Sprint("part ", n)})
			if err != nil {
				return round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "spawn", Message: err.Error()}}
			}
			waits = append(waits, wait)
		}
		text := ""
		for _, wait := range waits {
			r, err := wait()
			if err != nil {
				return round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "spawn", Message: err.Error()}}
			}
			text += r.Task + ": " + r.Outcome.Result + "; "
		}
		return answers(in, emit, text)
	}))
	w.cfg.MaxRunning = 1
	w.cfg.Session.Children.MaxDepth = 1
	w.start()
	w.tell("p", "input.txt", "go")
	w.ended("p", "output.txt")
	if text := w.read("p", "output.txt"); !strings.Contains(text, "p.1: heard part 0; p.2: heard part 1; p.3: heard part 2; ") {
		t.Errorf("got:\n%s\n%s", text, w.read("p", "status.json"))
	}
	for n := 1; n <= 3; n++ {
		child := fmt.Sprint("p.", n)
		w.ended(child, "output.txt")
		w.state(child, taskdir.Ended, round.Completed)
		if st := w.status(child); st.Parent != "p" {
			t.Errorf("parent of %s: %q", child, st.Parent)
		}
	}
	if st := w.status("p"); len(st.Children) != 3 || st.Usage.Requests != 4 {
		t.Errorf("children %q, %d requests", st.Children, st.Usage.Requests)
	}
	w.snapshotIs(Snapshot{Tasks: 4})
	// A later reply revives a child like any other task.
	w.tell("p.2", "reply.txt", "more")
	w.ended("p.2", "output1.txt")
	w.state("p.2", taskdir.AwaitingReply, round.Completed)
}

func TestChildrenEndWithTheirParentsRound(t *testing.T) {
	atWork := make(chan string, 10)
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if in.Depth > 0 {
			emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
			atWork <- in.Task
			<-ctx.Done()
			emit(round.SpentBeside{Spent: llm.Usage{Requests: 1}})
			if errors.Is(context.Cause(ctx), round.ErrStopped) {
				return round.Outcome{Reason: round.Stopped}
			}
			return round.Outcome{Reason: round.Interrupted}
		}
		emit(round.HeadPrepared{})
		emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		for n := range 2 {
			if _, err := in.Spawn(ctx, "c1", n, round.Job{Prompt: "wait"}); err != nil {
				t.Error(err)
			}
		}
		<-ctx.Done()
		return round.Outcome{Reason: round.Stopped}
	}))
	// One child runs, the other one waits for its place.
	w.cfg.MaxRunning = 1
	w.cfg.Session.Children.MaxDepth = 1
	w.start()
	w.tell("p", "input.txt", "go")
	w.until("both children", func() bool { return len(w.status("p").Children) == 2 })
	w.look("p.1")
	w.look("p.2")
	<-atWork
	w.until("the other one to wait", func() bool { s := w.snapshot(); return s.Running == 1 && s.Queued == 1 })
	w.tell("p", "_stop", "")
	w.state("p", taskdir.AwaitingReply, round.Stopped)
	for _, child := range []string{"p.1", "p.2"} {
		w.state(child, taskdir.Ended, round.Stopped)
		w.ended(child, "output.txt")
	}
	w.snapshotIs(Snapshot{Tasks: 3})
	// What they spent after the round had given them up is the session's all the same.
	w.tell("p", "_stop", "")
	w.state("p", taskdir.Ended, round.Stopped)
	if n := w.status("p").Usage.Requests; n != 1 {
		t.Errorf("the session has spent %d requests, want the one of its subagent", n)
	}
}

// A subagent whose directory was removed while no daemon ran is not sent out again.
func TestChildRemovedMeanwhile(t *testing.T) {
	atWork := make(chan struct{}, 10)
	w := newWorld(t, t.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if in.Depth > 0 {
			emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
			atWork <- struct{}{}
			<-ctx.Done()
			return round.Outcome{Reason: round.Interrupted}
		}
		if in.Resumed == nil {
			emit(round.HeadPrepared{})
			emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		}
		wait, err := in.Spawn(ctx, "c1", 0, round.Job{Prompt: "do it"})
		if err == nil {
			_, err = wait()
		}
		if ctx.Err() != nil {
			return round.Outcome{Reason: round.Interrupted}
		}
		return answers(in, emit, fmt.Sprint("I hear: ", err))
	}))
	w.cfg.Session.Children.MaxDepth = 1
	w.start()
	w.tell("p", "input.txt", "go")
	<-atWork
	if err := w.halt(); err != nil {
		t.Fatal(err)
	}
	w.remove("p.1")
	w.start("p", "p.1")
	w.ended("p", "output.txt")
	if text := w.read("p", "output.txt"); !strings.Contains(text, "its directory was removed before it was done") {
		t.Errorf("got:\n%s", text)
	}
	if names, err := w.cfg.Session.Root.Names(); err != nil || len(names) != 1 || len(atWork) > 0 {
		t.Errorf("tasks %q, %v", names, err)
	}
}
