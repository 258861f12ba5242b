// Package llm is the vocabulary of model traffic: messages in the shape of
// OpenAI's chat API, tool calls, usage, typed errors, and the one-method
// interface behind which every model sits.
//
// It is a leaf: it imports nothing of this project and does no I/O. The client
// over HTTP is llm/openai, retries and fallback are llm/pool, and llm/llmtest is
// the scripted server that tests share.
package llm

import (
	"context"
	"time"
)

// Client asks a model for one assistant message.
//
// Complete blocks until the answer is complete, has failed for good, or ctx
// ends. It may be called from many goroutines at once. onDelta, when not nil,
// is called on the goroutine of the caller, in order, with every piece of the
// answer as it streams; it must not block for long, since the connection is
// read by the same goroutine.
//
// An error is an *Error, or ctx.Err() wrapped where ctx ended. Response.Spent is
// valid beside an error too: what failed attempts cost has been paid.
type Client interface {
	Complete(ctx context.Context, req Request, onDelta func(Delta)) (Response, error)
}

// Model is a configured LLM: how it is called, what it holds, what it costs.
type Model struct {
	// Name is the entry's name in the configuration, the word that users choose it by.
	Name string
	// ID is the provider's name for the model, as sent in requests.
	ID string
	// ContextWindow in tokens; 0 while it is unknown.
	ContextWindow int
	// Priced says whether the configuration has a price, so that cost is known.
	Priced bool
	// Price is what is paid where Priced.
	Price Price
	// CompactAt is the part of ContextWindow from which on the conversation is made
	// smaller before a request; 0 is DefaultCompactAt.
	CompactAt float64
	// ReplyReserve is how many tokens are kept free for an answer, in the window and
	// in budgets; 0 is DefaultReplyReserve, or a quarter of a small window. It is never
	// more than half of the window.
	ReplyReserve int
	// TextTools is true where tools are described in the prompt and parsed from
	// the text, for models without function calling.
	TextTools bool
	// Client reaches it, with retries and fallback inside.
	Client Client
}

// The thresholds of a Model that names none.
const (
	DefaultCompactAt    = 0.75
	DefaultReplyReserve = 4096
)

// Reserve is how many tokens are kept free for an answer.
func (m Model) Reserve() int {
	if m.ReplyReserve > 0 {
		if half := m.ContextWindow / 2; half > 0 {
			return min(m.ReplyReserve, half)
		}
		return m.ReplyReserve
	}
	if m.ContextWindow > 0 {
		return min(DefaultReplyReserve, m.ContextWindow/4)
	}
	return DefaultReplyReserve
}

// CompactFrom is the size in tokens from which on a conversation is to be made
// smaller: the smaller of CompactAt of the window and the window less Reserve; 0
// where the window is unknown.
func (m Model) CompactFrom() int {
	if m.ContextWindow <= 0 {
		return 0
	}
	at := m.CompactAt
	if at <= 0 || at > 1 {
		at = DefaultCompactAt
	}
	return max(1, min(int(at*float64(m.ContextWindow)), m.ContextWindow-m.Reserve()))
}

// Request is one request to a model. The slices are not changed, nor are they retained
// but by Sent.
type Request struct {
	Messages []Message
	Tools    []ToolSpec
	// ToolChoice is "" (the provider's default), "auto", "none" or "required".
	ToolChoice string
	// MaxTokens bounds the answer; 0 leaves it to the provider.
	MaxTokens int
	// Sent, where not nil, is the conversation's, and saves encoding it anew.
	Sent *Sent
}

// ToolSpec describes a tool to the model. Parameters is a JSON Schema object.
type ToolSpec struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Parameters  RawJSON `json:"parameters"`
}

// Delta is a piece of an answer as it streams.
type Delta struct {
	// Text is visible text of the answer.
	Text string
	// Reasoning is thinking that the provider sent apart from the text.
	Reasoning string
	// Restarted, when set, voids every delta before it: the answer broke off for
	// this reason and is asked for again.
	Restarted *Error
	// Waits, when set, says what the request waits for before it is made, or made
	// again; the zero Wait says that it waits no more.
	Waits *Wait
}

// Wait is a request that is held back: by a provider's rate limit, between attempts,
// or for others that are under way.
type Wait struct {
	Since time.Time
	// Until is zero where nobody knows.
	Until time.Time
	Why   string
}

// Response is a complete answer.
type Response struct {
	Message      Message
	FinishReason FinishReason
	// Spent counts every attempt that this answer took.
	Spent Usage
	// Context is the size in tokens of the conversation with this answer, as
	// the provider counted it; 0 where it did not say.
	Context int
	// LLM is the name of the entry that answered, which differs from the one
	// asked after a fallback.
	LLM string
}

// FinishReason is why the model stopped, in OpenAI's words.
type FinishReason string

// The reasons that matter to callers; others are passed through.
const (
	FinishStop      FinishReason = "stop"
	FinishToolCalls FinishReason = "tool_calls"
	// FinishLength marks an answer that was cut off: its last call may be half
	// a call, and is never executed.
	FinishLength FinishReason = "length"
)

// Usage counts what was spent. Values add up over attempts, turns, rounds and
// children; the zero value is "nothing yet".
type Usage struct {
	Requests     int   `json:"requests"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// CachedTokens is the part of InputTokens that the provider read from its
	// prompt cache.
	CachedTokens int64   `json:"cached_tokens"`
	CostUSD      float64 `json:"cost_usd"`
	// Unpriced counts requests whose cost is unknown; CostUSD is the whole cost
	// only where it is 0.
	Unpriced int `json:"unpriced_requests"`
	// Unreported counts requests whose tokens the provider did not report. They
	// are never guessed as zero.
	Unreported int `json:"unreported_requests"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	u.Requests += v.Requests
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CachedTokens += v.CachedTokens
	u.CostUSD += v.CostUSD
	u.Unpriced += v.Unpriced
	u.Unreported += v.Unreported
	return u
}
