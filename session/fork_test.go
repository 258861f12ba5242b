package session

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestForkFromAnyRound(t *testing.T) {
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		return oneTurn(in, emit, "heard "+in.Message)
	}))
	d.put("a", "input.txt", "one")
	d.start("a", nil)
	d.ended("a", "output.txt")
	d.put("a", "reply.txt", "two")
	d.ended("a", "output1.txt")

	for _, tc := range []struct {
		round int
		last  string
		n     int
	}{{0, "heard one", 2}, {1, "heard two", 4}, {Latest, "heard two", 4}} {
		msgs, err := Conversation(d.cfg.StateDir, "a", tc.round)
		if err != nil || len(msgs) != tc.n || msgs[len(msgs)-1].Content != tc.last {
			t.Errorf("round %d: %d messages, %v", tc.round, len(msgs), err)
		}
	}
	if _, err := Conversation(d.cfg.StateDir, "a", 7); err == nil || !strings.Contains(err.Error(), "last one is round 1") {
		t.Errorf("round 7: %v", err)
	}
	if _, err := Conversation(d.cfg.StateDir, "nobody", Latest); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such task: %v", err)
	}

	d.put("b", "context.json", `{"fork_from": "a"}`)
	d.put("b", "input.txt", "three")
	d.start("b", nil)
	d.ended("b", "output.txt")
	msgs, err := Conversation(d.cfg.StateDir, "b", Latest)
	if err != nil || len(msgs) != 6 || msgs[0].Content != "one" {
		t.Errorf("the fork has %d messages, %v", len(msgs), err)
	}

	d.put("c", "context.json", `{"fork_from": "nobody"}`)
	d.put("c", "input.txt", "x")
	d.start("c", nil)
	d.state("c", taskdir.AwaitingReply, round.Failed)
	if e := d.status("c").Error; e == nil || !strings.Contains(e.Message, "fork_from") {
		t.Errorf("error %+v", e)
	}
}

func TestForkOfARunningRoundIsBalanced(t *testing.T) {
	atWork := make(chan struct{})
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		emit(round.HeadPrepared{})
		emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		emit(round.TurnStarted{Turn: 1})
		emit(round.Answered{Turn: 1, Message: llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "c1", Name: "x", Arguments: "{}"}}}})
		close(atWork)
		<-ctx.Done()
		return round.Outcome{Reason: round.Interrupted}
	}))
	d.put("a", "input.txt", "one")
	d.start("a", nil)
	<-atWork
	msgs, err := Conversation(d.cfg.StateDir, "a", Latest)
	if err != nil || len(msgs) != 3 {
		t.Fatalf("%d messages, %v", len(msgs), err)
	}
	if err := history.Validate(msgs); err != nil {
		t.Error(err)
	}
}
