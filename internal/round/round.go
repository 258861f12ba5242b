// Package round is the vocabulary of one round: what a runner is given (Input),
// what it reports while it works (Event, Emit), and how the round came out
// (Outcome). It stands between the session, which owns files and journal, and
// the agent loop, which owns model and tools; neither imports the other, and
// rounds can later run on other machines behind the same words.
//
// It is a leaf: it imports llm's vocabulary only and does no I/O.
package round

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Input is everything that a runner needs to run one round.
type Input struct {
	// Task is the task's name; Dir is the absolute path of its directory.
	Task string
	Dir  string
	// Session counts the lives of the task from 1, Round the rounds of a session from 0.
	Session int
	Round   int

	// Message is what the supervisor wrote: input.txt, reply.txt or an
	// intervention that came between rounds.
	Message string
	// Settings are the task's context.json.
	Settings Settings
	// KeyInfo is the session's working memory.
	KeyInfo string

	// Prepared holds the system prompt and tools of the session's earlier
	// requests, to be used verbatim; nil in a session that has made none.
	Prepared *Prepared
	// Conversation is what was recorded so far, without the system prompt. Where
	// Resumed is nil it does not hold Message yet.
	Conversation []llm.Message
	// Resumed is set where this round ran before and was cut short by a crash or
	// a restart: Conversation already holds its recorded part.
	Resumed *Resumed
	// Spent is what the session has spent before this call of Run.
	Spent llm.Usage
	// Estimated is what requests are taken to have cost beside Spent that did not
	// report it, such as one that was under way when the daemon died. It counts
	// against the budget alone.
	Estimated llm.Amount
	// Context is the size in tokens that the newest recorded answer reported; 0 where
	// there is none, or the conversation was rewritten since.
	Context int
	// LastLLM is the LLM that gave the newest recorded answer; "" where there is none.
	LastLLM string
	// Reserve sets aside what a request may cost, in budgets that the session shares
	// with others; nil where it shares none. It blocks while that does not fit but
	// may once others are through; an error says that it never will. settle is called
	// once, with what was spent.
	Reserve func(ctx context.Context, want llm.Amount) (settle func(actual llm.Amount), err error)
	// StartedAt is when the round began, before any restart.
	StartedAt time.Time

	// Inbox takes what the supervisor has written for this round by now. The
	// notes are durable once it returns, and recorded as applied by the Appended
	// event that names their Seq. It blocks no longer than a look at a directory.
	// The runner calls it after each turn, and once more when the model completes.
	Inbox func(context.Context) ([]Note, error)
	// ReadPlan returns the text of subagent_plan.md, "" where there is none.
	ReadPlan func() (string, error)
	// WritePlan replaces subagent_plan.md.
	WritePlan func(string) error
	// Spawn runs subagents; nil in a round that may have none.
	Spawn Spawn
	// Depth counts the tasks above this one; 0 for a task that a supervisor started.
	Depth int
}

// Resumed says how far a round had come when it was cut short.
type Resumed struct {
	// Turn is the last turn with a recorded answer; 0 where none was.
	Turn int
	// Begun holds the ids of recorded calls that change something and had begun
	// without a recorded result: their outcome is unknown and they are never run
	// again unasked.
	Begun map[string]bool
	// Cut is what the length limit took of the last recorded answer, where nothing
	// follows it yet.
	Cut Cut
}

// Cut says what the length limit took of an answer.
type Cut string

// What it can take.
const (
	NotCut Cut = ""
	// CutText is an answer whose text goes on.
	CutText Cut = "text"
	// CutCalls is one that has lost its calls, of which the last may have been half a
	// call, and perhaps some of its text.
	CutCalls Cut = "calls"
)

// Prepared is the constant head of every request of a session.
type Prepared struct {
	Agent  string         `json:"agent"`
	LLM    string         `json:"llm"`
	Model  string         `json:"model"`
	System string         `json:"system"`
	Tools  []llm.ToolSpec `json:"tools"`
}

// NoteKind says which control file a note came from.
type NoteKind string

// The two kinds of note that reach a round in progress.
const (
	NoteKeyInfo   NoteKind = "_keyinfo"
	NoteIntervene NoteKind = "_intervene"
)

// Note is a message from the supervisor to a round in progress.
type Note struct {
	// Seq identifies the note in the journal.
	Seq  uint64   `json:"seq"`
	Kind NoteKind `json:"kind"`
	Text string   `json:"text"`
}

// Emit reports an event. It returns once the event is durable (for events that
// have to be) and shown. An error means that nothing more can be stored: the
// runner ends the round at once, and what it did since the last successful Emit
// counts as not done. Only the goroutine that runs the round calls it.
type Emit func(Event) error

// Event is something that happened in a round: one of the types below.
type Event interface{ event() }

type (
	// HeadPrepared fixes the session's system prompt and tools. Durable; the first
	// event of a session.
	HeadPrepared struct{ Prepared Prepared }

	// TurnStarted comes before each model request. Turns count from 1 in each round.
	TurnStarted struct{ Turn int }

	// TextStreamed is visible text of the answer as it arrives.
	TextStreamed struct{ Text string }

	// AnswerRestarted voids the text of this turn so far: the answer broke off
	// and is asked for again.
	AnswerRestarted struct{ Reason string }

	// Waits says that the turn's request is held back, by a rate limit or between
	// attempts, and why; with an empty Why, that it no longer is. Until is zero where
	// nobody knows.
	Waits struct {
		Since, Until time.Time
		Why          string
	}

	// Answered records a complete answer of the model. Durable before any of its
	// calls runs.
	Answered struct {
		Turn    int
		Message llm.Message
		Spent   llm.Usage
		// Context is the conversation's size in tokens as the provider counted it; 0 if it did not.
		Context int
		LLM     string
		Model   string
		// Window is the model's context window in tokens; 0 if unknown.
		Window int
		// Begun names the calls that will change something.
		Begun []string
		// Cut is what the length limit took of the answer.
		Cut Cut
		// Estimated is what requests of this answer are taken to have cost that did not
		// report it, where a budget is in force.
		Estimated llm.Amount
		// Break says why the request did not begin with the one before, as prompt
		// caches have it, where no Rewritten says so; "" where it did.
		Break string
	}

	// ToolBegun and ToolEnded frame one tool call, for those who watch.
	ToolBegun struct {
		Turn int
		ID   string
		Name string
		// Args is a short form of the arguments on one line.
		Args string
	}
	// ToolEnded reports how a call came out.
	ToolEnded struct {
		Turn int
		ID   string
		Name string
		Args string
		// FullArgs and Result are the whole texts, for verbose output.
		FullArgs string
		Result   string
		// Summary is the outcome on one line.
		Summary string
		Failed  bool
		Took    time.Duration
	}

	// Appended records messages that joined the conversation other than answers:
	// the round's first message, tool results, nudges, hints, notes. Durable.
	Appended struct {
		Turn     int
		Messages []llm.Message
		// Applied names the notes that these messages carry.
		Applied []uint64
		// KeyInfo, when not nil, is the session's working memory from now on.
		KeyInfo *string
	}

	// Rewritten replaces the whole conversation, as compaction does. Durable.
	Rewritten struct {
		Messages []llm.Message
		// Cause says why the prefix of the next request differs; Dropped what went.
		Cause   string
		Dropped string
	}

	// SpentBeside records usage that belongs to no answer: attempts of a request
	// that failed for good. Durable.
	SpentBeside struct {
		Spent llm.Usage
		// Estimated is as in Answered.
		Estimated llm.Amount
	}

	// Reserved sets aside what the next request may cost, where a budget is in force.
	// Durable. It holds until the next Answered, SpentBeside or Reserved, or the end
	// of the round; a round that is cut short before any of them has to count it as
	// Estimated.
	Reserved struct{ Amount llm.Amount }

	// Warned adds a line to status.json's warnings.
	Warned struct{ Text string }
)

func (HeadPrepared) event()    {}
func (TurnStarted) event()     {}
func (TextStreamed) event()    {}
func (AnswerRestarted) event() {}
func (Waits) event()           {}
func (Answered) event()        {}
func (ToolBegun) event()       {}
func (ToolEnded) event()       {}
func (Appended) event()        {}
func (Rewritten) event()       {}
func (SpentBeside) event()     {}
func (Reserved) event()        {}
func (Warned) event()          {}

// Reason says why a round or a session ended.
type Reason string

// The reasons, as they stand in status.json.
const (
	Completed    Reason = "completed"
	ReplyTimeout Reason = "reply_timeout"
	Stopped      Reason = "stopped"
	Failed       Reason = "failed"
	MaxTurns     Reason = "max_turns"
	Budget       Reason = "budget"
	Loop         Reason = "loop"
	Replaced     Reason = "replaced"
	Interrupted  Reason = "interrupted"
)

// Outcome is how a round came out.
type Outcome struct {
	Reason Reason `json:"reason"`
	// Result is what the agent handed over; for a failure, nothing.
	Result string `json:"result,omitempty"`
	// CompletedBy is "tool" where the agent called attempt_completion, "text"
	// where its text was taken as the result, "" otherwise.
	CompletedBy string `json:"completed_by,omitempty"`
	// Error is set for Failed, and where a limit ended the round.
	Error *Failure `json:"error,omitempty"`
	// OpenPoints is what stood against completion and was left open.
	OpenPoints []string `json:"open_points,omitempty"`
	// Data is the result as JSON, where context.json gave an output_schema and the
	// result satisfies it.
	Data json.RawMessage `json:"data,omitempty"`
	// MissingOutputs names output_files of context.json that are not there.
	MissingOutputs []string `json:"missing_outputs,omitempty"`
}

// Failure is a readable cause: what, where, and what to do.
type Failure struct {
	// Kind is an llm.ErrorKind, or one of those that docs/protocol.md lists beside the
	// reasons.
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// SupervisorMark begins a round's message in the conversation, where models see it.
const SupervisorMark = "[supervisor]\n"

// The causes with which a session cancels a runner's context. A runner that is
// stopped or replaced records what it has (a partial answer, results of tools
// that were cut short), so that the conversation stays valid; one that is told of a
// shutdown or a restart returns at once and records nothing more.
var (
	ErrStopped  = errors.New("stopped by the supervisor")
	ErrReplaced = errors.New("replaced by a new input")
	ErrShutdown = errors.New("the daemon is stopping")
	ErrRestart  = errors.New("the round starts over with files that arrived late")
)
