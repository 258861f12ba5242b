package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// check returns the answer for a request that breaks a rule of some strict
// provider, nil for one that none would refuse. The rules are the union of what
// OpenAI, Anthropic, DeepSeek, vLLM and Ollama ask of a conversation.
func check(r *Request) *apiError {
	bad := func(param, format string, args ...any) *apiError {
		return &apiError{Message: fmt.Sprintf(format, args...), Type: "invalid_request_error", Param: param}
	}
	if r.Model == "" {
		return bad("model", "you must provide a model parameter")
	}
	if !utf8.Valid(r.Body) {
		return bad("", "We could not parse the JSON body of your request: it is not UTF-8.")
	}
	if i := loneSurrogate(r.Body); i >= 0 {
		return bad("", "We could not parse the JSON body of your request: lone surrogate at byte %d%s.", i, inMessage(r, i))
	}
	if !r.Stream && r.Fields["stream_options"] != nil {
		return bad("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	names := map[string]bool{}
	for i, t := range r.Tools {
		param := fmt.Sprintf("tools[%d].function", i)
		if !toolName.MatchString(t.Name) {
			return bad(param+".name", "Invalid '%s.name': %q does not match pattern %s.", param, t.Name, toolName)
		}
		if names[t.Name] {
			return bad(param+".name", "Tool names must be unique: %q is repeated.", t.Name)
		}
		names[t.Name] = true
		var schema struct{ Type string }
		if json.Unmarshal(t.Parameters, &schema) != nil || schema.Type != "object" {
			return bad(param+".parameters", "Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"'.", t.Name)
		}
	}
	if r.Fields["tools"] != nil && len(r.Tools) == 0 {
		return bad("tools", "Invalid 'tools': empty array.")
	}
	if r.Fields["tool_choice"] != nil && len(r.Tools) == 0 {
		return bad("tool_choice", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
	}
	return checkMessages(r.Messages, r.Raw)
}

func checkMessages(msgs []llm.Message, raw []json.RawMessage) *apiError {
	if len(msgs) == 0 {
		return &apiError{Message: "Invalid 'messages': empty array.", Type: "invalid_request_error", Param: "messages"}
	}
	j := judge{msgs: msgs, raw: raw, seen: map[string]bool{}}
	for i := range msgs {
		if e := j.message(i); e != nil {
			return e
		}
	}
	last := len(msgs) - 1
	if len(j.open) > 0 {
		return j.unanswered(last)
	}
	if msgs[last].Role == llm.Assistant || msgs[last].Role == llm.System {
		return badMessage(last, "role", "the last message must be of role 'user' or 'tool'.")
	}
	return nil
}

func badMessage(i int, field, format string, args ...any) *apiError {
	param := fmt.Sprintf("messages.[%d].%s", i, field)
	return &apiError{
		Message: fmt.Sprintf("Invalid '%s': ", param) + fmt.Sprintf(format, args...),
		Type:    "invalid_request_error", Param: param}
}

// judge reads a conversation from its beginning.
type judge struct {
	msgs []llm.Message
	raw  []json.RawMessage
	seen map[string]bool // ids of all calls so far
	open []string        // calls of the newest answer without a result
}

func (j *judge) unanswered(i int) *apiError {
	return badMessage(i, "role", "An assistant message with 'tool_calls' must be followed by tool messages responding to each "+
		"'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(j.open, ", "))
}

func (j *judge) message(i int) *apiError {
	m := j.msgs[i]
	if m.Role != llm.ToolRole && len(j.open) > 0 {
		return j.unanswered(i)
	}
	blank := strings.TrimSpace(m.Content) == ""
	switch m.Role {
	case llm.System:
		if i > 0 && j.msgs[i-1].Role != llm.System {
			return badMessage(i, "role", "System message must be at the beginning.")
		}
		if blank {
			return badMessage(i, "content", "system content must not be empty.")
		}
	case llm.User:
		if blank {
			return badMessage(i, "content", "user content must not be empty.")
		}
	case llm.Assistant:
		return j.answer(i)
	case llm.ToolRole:
		return j.result(i)
	default:
		return badMessage(i, "role", "%q is not one of 'system', 'user', 'assistant', 'tool'.", m.Role)
	}
	return nil
}

func (j *judge) answer(i int) *apiError {
	m := j.msgs[i]
	switch {
	case i == 0 || j.msgs[i-1].Role == llm.System:
		return badMessage(i, "role", "the first message after the system prompt must be of role 'user'.")
	case j.msgs[i-1].Role == llm.Assistant:
		return badMessage(i, "role", "roles must alternate: an assistant message follows an assistant message.")
	case len(m.ToolCalls) > 0:
	case strings.TrimSpace(m.Content) == "":
		return badMessage(i, "content", "assistant message must have either content or tool_calls, but not none.")
	case bytes.Contains(j.raw[i], []byte(`"tool_calls":[]`)):
		return badMessage(i, "tool_calls", "[] is too short.")
	}
	for k, c := range m.ToolCalls {
		field := fmt.Sprintf("tool_calls[%d].", k)
		if c.ID == "" {
			return badMessage(i, field+"id", "empty string.")
		}
		if j.seen[c.ID] {
			return badMessage(i, field+"id", "duplicate tool call id %q.", c.ID)
		}
		j.seen[c.ID] = true
		if !toolName.MatchString(c.Name) {
			return badMessage(i, field+"function.name", "%q does not match pattern %s.", c.Name, toolName)
		}
		var args map[string]json.RawMessage
		if json.Unmarshal([]byte(c.Arguments), &args) != nil || args == nil {
			return badMessage(i, field+"function.arguments", "invalid tool call arguments: not a JSON object.")
		}
		j.open = append(j.open, c.ID)
	}
	return nil
}

func (j *judge) result(i int) *apiError {
	id := j.msgs[i].ToolCallID
	if id == "" {
		return badMessage(i, "tool_call_id", "missing.")
	}
	at := slices.Index(j.open, id)
	if at < 0 {
		return badMessage(i, "role", "messages with role 'tool' must be a response to a preceding message with 'tool_calls': "+
			"no open call %q.", id)
	}
	j.open = slices.Delete(j.open, at, at+1)
	return nil
}

// loneSurrogate returns where a \u escape stands for half a character, -1 where none does.
func loneSurrogate(b []byte) int {
	unit := func(i int) int {
		if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return -1
		}
		n := 0
		for _, c := range b[i+2 : i+6] {
			switch {
			case c >= '0' && c <= '9':
				n = n<<4 | int(c-'0')
			case c >= 'a' && c <= 'f':
				n = n<<4 | int(c-'a'+10)
			case c >= 'A' && c <= 'F':
				n = n<<4 | int(c-'A'+10)
			default:
				return -1
			}
		}
		return n
	}
	for i := 0; i < len(b); {
		k := bytes.IndexByte(b[i:], '\\')
		if k < 0 {
			return -1
		}
		i += k
		u := unit(i)
		switch {
		case u >= 0xD800 && u < 0xDC00:
			if low := unit(i + 6); low < 0xDC00 || low > 0xDFFF {
				return i
			}
			i += 12
		case u >= 0xDC00 && u <= 0xDFFF:
			return i
		default:
			i += 2
		}
	}
	return -1
}

// inMessage says in which message the body's byte i lies.
func inMessage(r *Request, i int) string {
	from := 0
	for k, raw := range r.Raw {
		at := bytes.Index(r.Body[from:], raw)
		if at < 0 {
			break
		}
		from += at
		if i >= from && i < from+len(raw) {
			return fmt.Sprintf(" in messages.[%d]", k)
		}
		from += len(raw)
	}
	return ""
}
