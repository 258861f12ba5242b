package session

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// A conversation that is longer than the distance between snapshots is not written
// again with every turn.
func TestJournalGrowsWithTheConversation(t *testing.T) {
	const turns, size = 100, 10 << 10
	d := newDesk(t, runnerFunc(func(_ context.Context, in round.Input, emit round.Emit) round.Outcome {
		for turn := range turns {
			for _, e := range []round.Event{
				round.TurnStarted{Turn: turn + 1},
				round.Answered{Turn: turn + 1, Message: llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "c", Name: "read_file", Arguments: "{}"}}}},
				round.Appended{Turn: turn + 1, Messages: []llm.Message{{Role: llm.ToolRole, ToolCallID: "c", Content: strings.Repeat("x", size)}}},
			} {
				if err := emit(e); err != nil {
					return round.Outcome{Reason: round.Interrupted}
				}
			}
		}
		return round.Outcome{Reason: round.Completed, Result: "done"}
	}))
	d.put("a", "input.txt", "go")
	d.start("a", nil)
	d.ended("a", "output.txt")
	fi, err := os.Stat(placeOf(d.cfg.StateDir, "a").current())
	if err != nil {
		t.Fatal(err)
	}
	// Each byte stands there once, and in snapshots that double about twice more.
	if most := int64(4 * turns * size); fi.Size() > most {
		t.Errorf("the journal has %d bytes for %d of conversation, want no more than %d", fi.Size(), turns*size, most)
	}
}
