package llmtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Reply is what the model answers to one request. The zero value is an answer
// without text. Methods return a changed copy, so that replies can be shared and
// built upon.
type Reply struct {
	text      string
	reasoning string
	// reasoningField is the delta's field for reasoning.
	reasoningField string
	calls          []call
	fields         []field
	finish         string
	usage          *usage
	noUsage        bool

	piece  int // runes of text per chunk
	after  time.Duration
	every  time.Duration
	gate   <-chan struct{}
	alive  int
	aliveD time.Duration

	end      ending
	endAfter int // content chunks before the ending

	noDone    bool
	noFinish  bool
	noIndex   bool
	noIDs     bool
	noRole    bool
	asJSON    bool
	noChoices bool
	inserts   []insert

	status  int
	apiErr  apiError
	header  http.Header
	isRaw   bool
	rawType string
	raw     string
}

type call struct {
	id, name, args string
	fields         []field
}

type field struct {
	name string
	json json.RawMessage
}

type usage struct{ in, out, cached int64 }

// insert is text that goes to the stream as it is, before content chunk at.
type insert struct {
	at   int
	text string
}

// ending is how a stream ends other than well.
type ending int

const (
	endsWell ending = iota
	endsCut
	endsReset
	endsStalled
)

// Text answers with text.
func Text(s string) Reply { return Reply{text: s} }

// Call answers with a tool call. args is sent as it is.
func Call(name, args string) Reply { return Reply{}.Call(name, args) }

// Done answers with attempt_completion(result).
func Done(result string) Reply {
	b, _ := json.Marshal(map[string]string{"result": result})
	return Call("attempt_completion", string(b))
}

// Thinking answers with reasoning in the field reasoning_content; chain Text or Call.
func Thinking(s string) Reply { return Reply{}.Reasoning(s) }

// NoChoices answers 200 with an empty list of choices.
func NoChoices() Reply { return Reply{noChoices: true} }

// Status answers with an HTTP status and OpenAI's error object.
func Status(status int, message string) Reply {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= 500:
		kind = "server_error"
	}
	return Reply{status: status, apiErr: apiError{Message: message, Type: kind}}
}

// Body answers with a status and a body as it is.
func Body(status int, contentType, body string) Reply {
	return Reply{status: status, isRaw: true, rawType: contentType, raw: body}
}

// Stream answers 200 with an event stream as it is, for shapes that no method covers.
func Stream(raw string) Reply { return Body(http.StatusOK, "text/event-stream", raw) }

// Overflow answers that the conversation is longer than the window, in OpenAI's words.
func Overflow(window, tokens int) Reply {
	return Status(http.StatusBadRequest, fmt.Sprintf("This model's maximum context length is %d tokens. "+
		"However, your messages resulted in %d tokens. Please reduce the length of the messages.", window, tokens)).
		Code("context_length_exceeded").param("messages")
}

// Text sets the text; it streams before any calls.
func (r Reply) Text(s string) Reply { r.text = s; return r }

// Call adds a tool call. Its id is unique in the server.
func (r Reply) Call(name, args string) Reply { return r.CallID("", name, args) }

// CallID adds a tool call with an id, which may repeat.
func (r Reply) CallID(id, name, args string) Reply {
	r.calls = append(r.calls[:len(r.calls):len(r.calls)], call{id: id, name: name, args: args})
	return r
}

// CallField adds a field to the newest call, as providers do with signatures.
func (r Reply) CallField(name, value string) Reply {
	r.calls = append([]call(nil), r.calls...)
	c := &r.calls[len(r.calls)-1]
	c.fields = append(c.fields[:len(c.fields):len(c.fields)], field{name, json.RawMessage(value)})
	return r
}

// Reasoning adds reasoning in the field reasoning_content.
func (r Reply) Reasoning(s string) Reply { return r.ReasoningIn("reasoning_content", s) }

// ReasoningIn adds reasoning in a field of that name.
func (r Reply) ReasoningIn(name, s string) Reply { r.reasoning, r.reasoningField = s, name; return r }

// Field adds a field with a JSON value to the message. A string is streamed in pieces.
func (r Reply) Field(name, value string) Reply {
	r.fields = append(r.fields[:len(r.fields):len(r.fields)], field{name, json.RawMessage(value)})
	return r
}

// Finish sets the finish reason; "" sends none.
func (r Reply) Finish(reason string) Reply { r.finish, r.noFinish = reason, reason == ""; return r }

// Usage sets the tokens reported. Without it they are counted as four bytes each.
func (r Reply) Usage(in, out, cached int64) Reply { r.usage = &usage{in, out, cached}; return r }

// NoUsage reports no tokens.
func (r Reply) NoUsage() Reply { r.noUsage = true; return r }

// Pieces streams n characters a chunk; without it 24.
func (r Reply) Pieces(n int) Reply { r.piece = n; return r }

// After waits before anything is sent.
func (r Reply) After(d time.Duration) Reply { r.after = d; return r }

// Every waits before each chunk but the first.
func (r Reply) Every(d time.Duration) Reply { r.every = d; return r }

// When waits for the channel to be closed before anything is sent.
func (r Reply) When(gate <-chan struct{}) Reply { r.gate = gate; return r }

// KeepAlive sends n comment lines before the first chunk, d apart.
func (r Reply) KeepAlive(n int, d time.Duration) Reply { r.alive, r.aliveD = n, d; return r }

// Insert sends text as it is before content chunk n (counted from 0).
func (r Reply) Insert(n int, text string) Reply {
	r.inserts = append(r.inserts[:len(r.inserts):len(r.inserts)], insert{n, text})
	return r
}

// Cut ends the stream cleanly after the content: no finish reason, no [DONE].
func (r Reply) Cut() Reply { return r.CutAfter(math.MaxInt) }

// CutAfter ends the stream cleanly after n chunks.
func (r Reply) CutAfter(n int) Reply { r.end, r.endAfter = endsCut, n; return r }

// Reset breaks the connection off after n chunks.
func (r Reply) Reset(n int) Reply { r.end, r.endAfter = endsReset, n; return r }

// Stall goes silent after the first chunk, with the connection open, until the
// client leaves or the server closes.
func (r Reply) Stall() Reply { return r.StallAfter(1) }

// StallAfter goes silent after n chunks. StallAfter(0) sends only the header.
func (r Reply) StallAfter(n int) Reply { r.end, r.endAfter = endsStalled, n; return r }

// NoDone leaves out the [DONE] that ends a stream.
func (r Reply) NoDone() Reply { r.noDone = true; return r }

// NoIndex leaves out the index of streamed calls and repeats their id in each chunk.
func (r Reply) NoIndex() Reply { r.noIndex = true; return r }

// NoIDs leaves out the ids of calls.
func (r Reply) NoIDs() Reply { r.noIDs = true; return r }

// NoRole leaves out the first chunk, which holds nothing but the role.
func (r Reply) NoRole() Reply { r.noRole = true; return r }

// AsJSON answers with one JSON object also where a stream was asked for.
func (r Reply) AsJSON() Reply { r.asJSON = true; return r }

// Code sets the error's code.
func (r Reply) Code(code string) Reply { r.apiErr.Code = code; return r }

// Type sets the error's type.
func (r Reply) Type(t string) Reply { r.apiErr.Type = t; return r }

func (r Reply) param(p string) Reply { r.apiErr.Param = p; return r }

// RetryAfter sets the header Retry-After, in whole seconds rounded up.
func (r Reply) RetryAfter(d time.Duration) Reply {
	if d <= 0 {
		return r
	}
	return r.Header("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
}

// Header sets a header of the response.
func (r Reply) Header(name, value string) Reply {
	h := maps.Clone(r.header)
	if h == nil {
		h = http.Header{}
	}
	h.Set(name, value)
	r.header = h
	return r
}
