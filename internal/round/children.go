package round

import (
	"context"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Job is what a subagent is to do: the first round of a child task.
type Job struct {
	// Prompt is its input.
	Prompt string
	// Settings stand in for a context.json: agent, LLM, limits, and paths, which
	// are its parent's.
	Settings Settings
	// Prepared and Conversation make a fork: the head of its parent's requests, and
	// its parent's conversation with every call answered. Nil otherwise.
	Prepared     *Prepared
	Conversation []llm.Message
	// Reserve is to be the Input.Reserve of the child's rounds, while the round runs
	// that asks for it; nil where there is no budget. It is no part of the journal.
	Reserve func(ctx context.Context, want llm.Amount) (settle func(actual llm.Amount), err error) `json:"-"`
}

// JobResult is how a subagent came out.
type JobResult struct {
	// Task is the child task's name.
	Task    string
	Outcome Outcome
	Spent   llm.Usage
}

// Spawn starts a subagent and returns how to wait for it. call and n name it
// within the round: the call that asked for it and its number there. Asked again
// for the same, after a restart, it finds the child that was started before.
//
// wait blocks until the child's first round is over. When ctx ends the child is
// stopped, and wait returns once it has ended. It is called once; several may be
// under way at once, and while one is the round has given its place to others.
//
// An error means that there is no child, or nothing to know of it: it could not
// be started, or the daemon is stopping.
type Spawn func(ctx context.Context, call string, n int, job Job) (wait func() (JobResult, error), err error)
