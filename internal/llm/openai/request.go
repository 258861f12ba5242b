package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// maxBadArguments bounds what is sent back of arguments that were not JSON.
const maxBadArguments = 500

// appendMessage appends a message as this LLM wants it. It depends on the message
// alone, so that a conversation that grew begins with the same bytes.
func (c *Client) appendMessage(dst []byte, m llm.Message) ([]byte, error) {
	return c.wire(m).AppendJSON(dst)
}

// wire returns m as this LLM wants it: with the reasoning that it wants back, and
// with calls that no server refuses. m itself is not changed.
func (c *Client) wire(m llm.Message) llm.Message {
	if m.Role != llm.Assistant {
		return m
	}
	if raw, ok := m.Extra[thinkField]; ok && c.echo != echoDrop {
		var inline string
		if json.Unmarshal(raw, &inline) == nil && inline != "" {
			m.Content = inline + m.Content
		}
	}
	m.Extra = c.wireFields(m.Extra)
	copied := false
	for i, call := range m.ToolCalls {
		name, args, extra := wireName(call.Name), wireArguments(call.Arguments), call.Extra
		if c.strict {
			extra = nil
		}
		if name == call.Name && args == call.Arguments && (extra == nil) == (call.Extra == nil) {
			continue
		}
		if !copied {
			m.ToolCalls, copied = slices.Clone(m.ToolCalls), true
		}
		m.ToolCalls[i] = llm.ToolCall{ID: call.ID, Name: name, Arguments: args, Extra: extra}
	}
	return m
}

// wireFields returns the further fields of an answer that go back.
func (c *Client) wireFields(extra map[string]llm.RawJSON) map[string]llm.RawJSON {
	if len(extra) == 0 && c.echo != echoFill {
		return nil
	}
	var out map[string]llm.RawJSON
	if !c.strict {
		out = maps.Clone(extra)
	}
	if out == nil {
		out = map[string]llm.RawJSON{}
	}
	if c.strict && extra["name"] != nil {
		out["name"] = extra["name"]
	}
	delete(out, thinkField)
	if c.echo == echoDrop {
		for _, name := range reasoningFields {
			delete(out, name)
		}
		delete(out, detailsField)
		return out
	}
	// The same reasoning under several names goes back under the first.
	first := ""
	for _, name := range reasoningFields {
		switch {
		case out[name] == nil:
		case first == "":
			first = name
		case string(out[name]) == string(out[first]):
			delete(out, name)
		}
	}
	if c.echo == echoFill {
		if first != "" && first != "reasoning_content" {
			out["reasoning_content"] = out[first]
			delete(out, first)
		}
		if v := string(out["reasoning_content"]); v == "" || v == `""` || v == "null" {
			out["reasoning_content"] = llm.RawJSON(`" "`)
		}
	}
	return out
}

// wireName makes a tool name that every server accepts. Models invent names with
// spaces or none at all, and the conversation keeps them.
func wireName(name string) string {
	ok := len(name) > 0 && len(name) <= 64
	for i := 0; ok && i < len(name); i++ {
		ok = nameByte(name[i])
	}
	if ok {
		return name
	}
	b := []byte(name[:min(len(name), 64)])
	for i := range b {
		if !nameByte(b[i]) {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "unnamed"
	}
	return string(b)
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// wireArguments returns arguments that every server accepts. vLLM and Ollama
// parse those of earlier calls and refuse the whole conversation where they are
// no JSON object, long after the model was told of its mistake.
func wireArguments(args string) string {
	t := strings.TrimSpace(args)
	if t == "" {
		return "{}"
	}
	if t[0] == '{' && json.Valid([]byte(t)) {
		return args
	}
	return string(append(llm.AppendString([]byte(`{"invalid_arguments":`), clip(args, maxBadArguments)), '}'))
}

// body is a request's: what differs from the request before stands at its end, and
// the conversation is sent from where it is kept.
type body struct{ head, messages, tail []byte }

func (b body) size() int64 { return int64(len(b.head) + len(b.messages) + len(b.tail)) }

func (b body) reader() io.ReadCloser {
	return io.NopCloser(&net.Buffers{b.head, b.messages, b.tail})
}

// body merges the parts of a request into one object: what go-openai's type
// gave, the configured extra fields, tools, and the messages.
func (c *Client) body(base []byte, req llm.Request) (b body, err error) {
	fields, err := c.fields(base, req)
	if err != nil {
		return body{}, err
	}
	b.head = append(make([]byte, 0, 1024), '{')
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		b.head = append(llm.AppendString(b.head, name), ':')
		b.head = append(append(b.head, fields[name]...), ',')
	}
	if len(req.Tools) > 0 {
		tools, err := req.Sent.Tools(req.Tools)
		if err != nil {
			return body{}, err
		}
		b.head = append(append(append(b.head, `"tools":`...), tools...), ',')
	}
	b.head = append(b.head, `"messages":`...)
	b.messages, err = req.Sent.Messages(c, req.Messages, c.appendMessage)
	b.tail = []byte("]}")
	return b, err
}

// fields are those of a request beside tools and messages.
func (c *Client) fields(base []byte, req llm.Request) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(base, &fields); err != nil {
		return nil, fmt.Errorf("read base request: %w", err)
	}
	delete(fields, "messages")
	delete(fields, "tools")
	if len(req.Tools) == 0 {
		delete(fields, "tool_choice")
	}
	if c.cfg.Temperature != nil {
		fields["temperature"], _ = json.Marshal(*c.cfg.Temperature)
	}
	if req.MaxTokens > 0 {
		fields[c.maxTokens], _ = json.Marshal(req.MaxTokens)
	}
	for name, v := range c.cfg.Extra {
		if v == nil {
			delete(fields, name)
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode extra field %s: %w", name, err)
		}
		fields[name] = b
	}
	if string(fields["stream"]) != "true" {
		delete(fields, "stream_options")
	}
	return fields, nil
}

// maxTokensField returns the name under which a model takes its limit.
func maxTokensField(configured, base, model string) string {
	switch configured {
	case "max_tokens", "max_completion_tokens":
		return configured
	}
	if strings.Contains(base, "//api.openai.com") || strings.Contains(base, ".openai.azure.com") {
		return "max_completion_tokens"
	}
	model = strings.ToLower(model)
	model = model[strings.LastIndexByte(model, '/')+1:]
	for _, family := range []string{"o1", "o3", "o4", "gpt-5"} {
		if strings.HasPrefix(model, family) {
			return "max_completion_tokens"
		}
	}
	return "max_tokens"
}
