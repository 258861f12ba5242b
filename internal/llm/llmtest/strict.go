package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
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
	bad := func(i int, field, format string, args ...any) *apiError {
		param := fmt.Sprintf("messages.[%d].%s", i, field)
		return &apiError{
			Message: fmt.Sprintf("Invalid '%s': ", param) + fmt.Sprintf(format, args...),
			Type:    "invalid_request_error", Param: param}
	}
	if len(msgs) == 0 {
		return &apiError{Message: "Invalid 'messages': empty array.", Type: "invalid_request_error", Param: "messages"}
	}
	seen := map[string]bool{} // ids of all calls so far
	var open []string         // calls of the newest answer without a result
	answered := func(id string) bool {
		for k, o := range open {
			if o == id {
				open = append(open[:k:k], open[k+1:]...)
				return true
			}
		}
		return false
	}
	for i, m := range msgs {
		if m.Role != llm.ToolRole && len(open) > 0 {
			return bad(i, "role", "An assistant message with 'tool_calls' must be followed by tool messages responding to each "+
				"'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
		}
		blank := strings.TrimSpace(m.Content) == ""
		switch m.Role {
		case llm.System:
			if i > 0 && msgs[i-1].Role != llm.System {
				return bad(i, "role", "System message must be at the beginning.")
			}
			if blank {
				return bad(i, "content", "system content must not be empty.")
			}
		case llm.User:
			if blank {
				return bad(i, "content", "user content must not be empty.")
			}
		case llm.Assistant:
			if i == 0 || msgs[i-1].Role == llm.System {
				return bad(i, "role", "the first message after the system prompt must be of role 'user'.")
			}
			if msgs[i-1].Role == llm.Assistant {
				return bad(i, "role", "roles must alternate: an assistant message follows an assistant message.")
			}
			if blank && len(m.ToolCalls) == 0 {
				return bad(i, "content", "assistant message must have either content or tool_calls, but not none.")
			}
			if len(m.ToolCalls) == 0 && bytes.Contains(raw[i], []byte(`"tool_calls":[]`)) {
				return bad(i, "tool_calls", "[] is too short.")
			}
			for k, c := range m.ToolCalls {
				field := fmt.Sprintf("tool_calls[%d].", k)
				if c.ID == "" {
					return bad(i, field+"id", "empty string.")
				}
				if seen[c.ID] {
					return bad(i, field+"id", "duplicate tool call id %q.", c.ID)
				}
				seen[c.ID] = true
				if !toolName.MatchString(c.Name) {
					return bad(i, field+"function.name", "%q does not match pattern %s.", c.Name, toolName)
				}
				var args map[string]json.RawMessage
				if json.Unmarshal([]byte(c.Arguments), &args) != nil || args == nil {
					return bad(i, field+"function.arguments", "invalid tool call arguments: not a JSON object.")
				}
				open = append(open, c.ID)
			}
		case llm.ToolRole:
			if m.ToolCallID == "" {
				return bad(i, "tool_call_id", "missing.")
			}
			if !answered(m.ToolCallID) {
				return bad(i, "role", "messages with role 'tool' must be a response to a preceding message with 'tool_calls': "+
					"no open call %q.", m.ToolCallID)
			}
		default:
			return bad(i, "role", "%q is not one of 'system', 'user', 'assistant', 'tool'.", m.Role)
		}
	}
	last := len(msgs) - 1
	if len(open) > 0 {
		return bad(last, "role", "An assistant message with 'tool_calls' must be followed by tool messages responding to each "+
			"'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
	}
	if msgs[last].Role == llm.Assistant || msgs[last].Role == llm.System {
		return bad(last, "role", "the last message must be of role 'user' or 'tool'.")
	}
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
