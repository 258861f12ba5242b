// Package agent is the turn loop: it runs one round of a task, from the
// supervisor's message to the result.
//
// A round is a sequence of turns. A turn is one request to the model and the tool
// calls that answer it, and goes like this:
//
//	limits    Nothing is asked where the agent goes in circles or the budget is spent. A
//	          conversation that comes close to the model's window is made smaller.
//	ask       The request is the session's head (system prompt and tools, fixed when
//	          the session began) and the conversation so far. What streams in is shown.
//	answered  The complete answer is recorded, with the calls that will change
//	          something. Only then does any of them run.
//	act       Calls run in the order given; neighbours that only read run side by
//	          side. Whatever happens, every call gets an answer.
//	inbox     What the supervisor wrote meanwhile is taken.
//	appended  Results, the supervisor's notes and the daemon's reminders join the
//	          conversation together.
//
// So a turn has two commits, and the conversation only grows: each request begins
// with the one before it, byte for byte, which is what prompt caches live from. What
// must be said later (reminders, key info, limits) is appended. The exceptions are
// compaction and a change of the LLM, and each is recorded with its cause.
//
// All that a turn decides by is in the recorded conversation (see ledger), or is
// read anew (the plan, the output files). Nothing is remembered on the side, so a
// round that was cut short at any point goes on from its record as if nothing had
// been: an answer without results is acted on, results without a next answer are
// sent, a completion that was accepted stays accepted. Only calls that change
// something and had begun are not run again, since nobody knows how they came out.
//
// A turn ends the round, or it does not: methods that may end it return an outcome,
// which is nil where the round goes on.
//
// The package is longer than most, because what a turn decides, it decides of one
// state: the conversation, what it says (ledger), its size (compaction) and what it
// may cost (spending) change together, between one commit and the next, and parts
// that each held a piece of it would have to be kept in step. What needs none of
// it is elsewhere: loop, schema, history, budget, redact. A file is a step: head and
// open begin a round, turn is the loop, stream and calls are its two halves, complete
// says when it is over, compact and spend what stands before a request, and prompts
// is all that is said to the model.
package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/budget"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// Config joins the loop to the rest of the daemon. Models, Agents and Tools are
// called by many goroutines at once.
type Config struct {
	// Models returns the configured LLM of that name or number ("": the default), with
	// model in place of its own where that is not "". It may ask a server, and does
	// without its answer when ctx ends. Its error says which there are.
	Models func(ctx context.Context, name, model string) (llm.Model, error)
	// Agents returns the agent of that name ("": the default). Its error says which
	// there are.
	Agents func(name string) (agentdef.Definition, error)
	// Tools grants tools for one round. An error that has a method
	// FailureKind() string names the kind of failure by it ("policy"); any other
	// counts as a mistake in context.json.
	Tools  func(ToolRequest) (Toolset, error)
	Limits Limits
	// Reserve sets aside what a request may cost in a budget of all rounds, as
	// round.Input.Reserve does in those of the session's tree; nil for none.
	Reserve budget.Reserve
	// LearnWindow hears of a context window that turned out smaller than configured,
	// or that was not known; nil: nobody does.
	LearnWindow func(llm, model string, tokens int)
	// Redact replaces keys in all text that enters a conversation; nil replaces nothing.
	Redact *redact.Replacer
	// Now is the clock; nil for the real one.
	Now func() time.Time
	// Log takes what concerns the operator and not the task; nil for none.
	Log *slog.Logger
}

// Limits are the configured limits of a round, in force where neither context.json
// nor the agent says otherwise. Zero values mean the defaults.
type Limits struct {
	// MaxTurns per round by the kind of agent; a kind's own default where it is missing.
	MaxTurns map[agentdef.Kind]int
	// Timeout of a round; 0 for none.
	Timeout time.Duration
	// ParallelCalls bounds the read-only calls of a turn that run at once; 0 for 8.
	ParallelCalls int
}

// ToolRequest asks for the tools of one round.
type ToolRequest struct {
	Input round.Input
	// Agent is the agent that the round runs; Model is its model's name.
	Agent agentdef.Definition
	Model string
	// Names are the tools asked for; nil for all that a task may have, empty for none.
	Names []string
	// Without are names to leave out, also where Names is nil.
	Without []string
	// SetKeyInfo replaces the agent's part of the working memory. Tools may call
	// it at any time while they run.
	SetKeyInfo func(string)
	// Delegate is what the task tool does.
	Delegate func(ctx context.Context, call string, d tool.Delegation) tool.Result
}

// Toolset is what the tools of one round stand on.
type Toolset struct {
	Set *tool.Set
	// Close releases what the tools hold. It is called once, after the last call has
	// ended; nil where there is nothing to release.
	Close func() error
	// Exists returns when the file was last modified, and whether it is there. It is
	// asked about input and output files; nil: all are taken to be there.
	Exists func(path string) (time.Time, bool)
	// WorkDir is the absolute path of the working directory.
	WorkDir string
	// Facts is text for the first message, beside the paths of context.json.
	Facts string
	// Instructions is the text of the working directory's AGENTS.md, for general agents.
	Instructions string
	// Environment describes platform and checkout, for the prompt of custom agents.
	Environment string
	// Catalogue is what the agent can choose from, other agents and skills, and the
	// skills that it has from the start: the end of the system prompt of every kind.
	Catalogue string
}

// Runner runs rounds. It holds no state of any of them and may be used by any
// number of goroutines at once.
type Runner struct{ cfg Config }

// New returns a Runner. It starts nothing.
func New(cfg Config) *Runner {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Limits.ParallelCalls <= 0 {
		cfg.Limits.ParallelCalls = 8
	}
	return &Runner{cfg: cfg}
}

// Run runs one round and returns how it came out; the error is in the Outcome. It
// blocks until the round is over or ctx ends, and calls emit and in.Inbox on the
// calling goroutine only.
//
// Cancelled with round.ErrStopped or round.ErrReplaced as cause it records what it
// has and returns that reason. Cancelled with anything else, or when emit fails,
// it returns Interrupted at once and reports nothing more: the round is then as
// far as its recorded events say, and Run goes on from there when it is given them
// with in.Resumed.
func (r *Runner) Run(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
	in.Message, in.KeyInfo = r.cfg.Redact.String(in.Message), r.cfg.Redact.String(in.KeyInfo)
	s := &state{cfg: &r.cfg, in: in, send: emit, memory: memory{text: in.KeyInfo}}
	defer s.close()
	out := s.run(ctx)
	if out.Error != nil {
		out.Error.Message = r.cfg.Redact.Text(out.Error.Message)
	}
	return *out
}

func (s *state) run(ctx context.Context) *round.Outcome {
	if out := s.prepare(ctx); out != nil {
		return out
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	out := s.open(ctx)
	for out == nil {
		out = s.takeTurn(ctx)
	}
	return out
}
