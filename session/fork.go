package session

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Latest, as a round, asks Conversation for all there is.
const Latest = -1

// Conversation reads a task's conversation from its journal, valid for any
// provider: as it was at the end of a round of the task's present session, or
// with Latest as it is now, also in the middle of a round. It only reads, and may
// be called while a daemon works on the task.
//
// fs.ErrNotExist says that the task has no journal.
func Conversation(stateDir, task string, round int) ([]llm.Message, error) {
	st := &state{}
	found := false
	_, err := replay(placeOf(stateDir, task).reading(), 0, st, func(r *record) error {
		if r.Closed != nil && st.Round == round {
			found = true
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("task %q has no journal in %s: %w", task, stateDir, err)
	case err != nil:
		return nil, fmt.Errorf("read conversation of task %q: %w", task, err)
	}
	if round != Latest && !found {
		return nil, fmt.Errorf("task %q has no finished round %d in its present session; the last one is round %d", task, round, st.Round)
	}
	return history.Repair(slices.Clone(st.Conversation)), nil
}

// errFound ends a reading at the round that was looked for.
var errFound = errors.New("round found")
