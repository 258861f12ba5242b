package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Request is a chat request as it arrived. Scripts and tests only read it.
type Request struct {
	// Ordinal counts the server's chat requests from 1.
	Ordinal int
	// At is when the request's header had been read.
	At     time.Time
	Header http.Header
	// Body is the whole body, byte for byte.
	Body []byte
	// Fields are the body's top-level fields, byte for byte.
	Fields map[string]json.RawMessage

	Model    string
	Messages []llm.Message
	// Raw holds each message byte for byte.
	Raw        []json.RawMessage
	Tools      []llm.ToolSpec
	ToolChoice string
	// MaxTokens is max_completion_tokens or max_tokens.
	MaxTokens    int
	Stream       bool
	IncludeUsage bool

	// Refused is set where the server found the conversation invalid.
	Refused string
}

func parseRequest(body []byte) (*Request, error) {
	r := &Request{Body: body}
	bad := func(param, format string, args ...any) (*Request, error) {
		return r, &apiError{Message: fmt.Sprintf(format, args...), Type: "invalid_request_error", Param: param}
	}
	if err := json.Unmarshal(body, &r.Fields); err != nil {
		return bad("", "We could not parse the JSON body of your request: %v", err)
	}
	var b struct {
		Model               string
		Messages            []json.RawMessage
		Tools               []struct{ Function llm.ToolSpec }
		ToolChoice          json.RawMessage `json:"tool_choice"`
		MaxTokens           int             `json:"max_tokens"`
		MaxCompletionTokens int             `json:"max_completion_tokens"`
		Stream              bool
		StreamOptions       struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return bad("", "Invalid request: %v", err)
	}
	r.Model = b.Model
	r.Raw = b.Messages
	r.MaxTokens = max(b.MaxTokens, b.MaxCompletionTokens)
	r.Stream = b.Stream
	r.IncludeUsage = b.StreamOptions.IncludeUsage
	if json.Unmarshal(b.ToolChoice, &r.ToolChoice) != nil {
		r.ToolChoice = string(b.ToolChoice)
	}
	for _, t := range b.Tools {
		r.Tools = append(r.Tools, t.Function)
	}
	for i, raw := range b.Messages {
		var m llm.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			return bad(fmt.Sprintf("messages.[%d]", i), "Invalid 'messages[%d]': %v", i, err)
		}
		r.Messages = append(r.Messages, m)
	}
	return r, nil
}

// System returns the system prompt, "" where there is none.
func (r *Request) System() string {
	if len(r.Messages) > 0 && r.Messages[0].Role == llm.System {
		return r.Messages[0].Content
	}
	return ""
}

// FirstUser returns the conversation's first user message: the task.
func (r *Request) FirstUser() string {
	for _, m := range r.Messages {
		if m.Role == llm.User {
			return m.Content
		}
	}
	return ""
}

// LastUser returns the newest user message.
func (r *Request) LastUser() string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == llm.User {
			return r.Messages[i].Content
		}
	}
	return ""
}

// Last returns the newest message.
func (r *Request) Last() llm.Message {
	if len(r.Messages) == 0 {
		return llm.Message{}
	}
	return r.Messages[len(r.Messages)-1]
}

// Turn counts the model's answers in the conversation, plus one for the one asked for.
func (r *Request) Turn() int {
	n := 1
	for _, m := range r.Messages {
		if m.Role == llm.Assistant {
			n++
		}
	}
	return n
}

// Results returns the tool results that follow the newest answer, in order.
func (r *Request) Results() []string {
	var out []string
	for _, m := range r.Messages {
		switch m.Role {
		case llm.Assistant:
			out = nil
		case llm.ToolRole:
			out = append(out, m.Content)
		}
	}
	return out
}

// Has reports whether any message contains text.
func (r *Request) Has(text string) bool {
	for _, m := range r.Messages {
		if bytes.Contains([]byte(m.Content), []byte(text)) {
			return true
		}
	}
	return false
}

// ToolNames returns the names of the tools offered.
func (r *Request) ToolNames() []string {
	out := make([]string, 0, len(r.Tools))
	for _, t := range r.Tools {
		out = append(out, t.Name)
	}
	return out
}

// Size is the length in bytes of messages and tools.
func (r *Request) Size() int { return len(r.Fields["messages"]) + len(r.Fields["tools"]) }

// CheckPrefixes returns an error where a request does not begin with the one
// before it: the messages byte for byte, and the same tools. The requests are
// those of one conversation; see ByTask.
func CheckPrefixes(requests []*Request) error {
	for i := 1; i < len(requests); i++ {
		a, b := requests[i-1], requests[i]
		if !bytes.Equal(a.Fields["tools"], b.Fields["tools"]) {
			return fmt.Errorf("request %d offers other tools than request %d", b.Ordinal, a.Ordinal)
		}
		am := openArray(a.Fields["messages"])
		if n := SharedPrefix(a, b); n < len(am) {
			bm := b.Fields["messages"]
			from := max(0, n-40)
			return fmt.Errorf("messages of request %d differ from request %d at byte %d of %d: %q became %q",
				b.Ordinal, a.Ordinal, n, len(am), am[from:min(len(am), n+40)], bm[from:min(len(bm), n+40)])
		}
	}
	return nil
}

// SharedPrefix returns for how many bytes the messages of b are those of a.
func SharedPrefix(a, b *Request) int {
	am, bm := openArray(a.Fields["messages"]), openArray(b.Fields["messages"])
	n := 0
	for n < len(am) && n < len(bm) && am[n] == bm[n] {
		n++
	}
	return n
}

// openArray leaves out the bracket that ends an array.
func openArray(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSpace(b), []byte("]"))
}

// ByTask groups requests by their first user message.
func ByTask(requests []*Request) map[string][]*Request {
	out := map[string][]*Request{}
	for _, r := range requests {
		out[r.FirstUser()] = append(out[r.FirstUser()], r)
	}
	return out
}
