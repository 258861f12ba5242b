package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Role says who speaks in a message.
type Role string

// The four roles of OpenAI's chat shape.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// RawJSON is a JSON value kept as it came.
type RawJSON = json.RawMessage

// Message is one message of a conversation in OpenAI's chat shape.
//
// Its JSON form is the provider's: fields that this package does not know are
// kept in Extra and written back, so that what a provider wants returned
// (reasoning_content, signatures) survives the round trip and the disk. The
// encoding is deterministic: equal messages give equal bytes, which prompt
// caches and the prefix contract rely on.
type Message struct {
	Role    Role
	Content string
	// ToolCalls are the calls of an assistant message.
	ToolCalls []ToolCall
	// ToolCallID names the call that a message of role tool answers.
	ToolCallID string
	// Extra holds every other field by its JSON name; nil where there is none.
	Extra map[string]RawJSON
}

// ToolCall is a call that the model asked for.
type ToolCall struct {
	ID   string
	Name string
	// Arguments is the text that the model wrote, which need not be JSON.
	Arguments string
	// Extra holds every other field by its JSON name; nil where there is none.
	Extra map[string]RawJSON
}

// MarshalJSON writes the provider's form. An assistant message that only calls
// tools has content null, as OpenAI writes it; all others have a string.
func (m Message) MarshalJSON() ([]byte, error) { return m.AppendJSON(nil) }

// UnmarshalJSON reads the provider's form. Content may be null, a string or a
// list of parts, of which the text is kept and anything else is named.
func (m *Message) UnmarshalJSON(b []byte) error {
	if m.read(b) {
		return nil
	}
	return m.unmarshal(b)
}

// unmarshal is UnmarshalJSON for every form that there is.
func (m *Message) unmarshal(b []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	*m = Message{}
	for k, v := range fields {
		var err error
		switch k {
		case "role":
			err = json.Unmarshal(v, &m.Role)
		case "content":
			m.Content, err = contentText(v)
		case "tool_calls":
			err = json.Unmarshal(v, &m.ToolCalls)
		case "tool_call_id":
			err = unmarshalNullable(v, &m.ToolCallID)
		default:
			if m.Extra == nil {
				m.Extra = map[string]RawJSON{}
			}
			m.Extra[k] = bytes.Clone(v)
		}
		if err != nil {
			return fmt.Errorf("message field %s: %w", k, err)
		}
	}
	return nil
}

// MarshalJSON writes {"id", "type": "function", "function": {...}} and Extra.
func (c ToolCall) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil) }

// UnmarshalJSON reads the provider's form. Arguments that came as an object
// instead of a string are taken as its text.
func (c *ToolCall) UnmarshalJSON(b []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	*c = ToolCall{}
	for k, v := range fields {
		var err error
		switch k {
		case "id":
			err = unmarshalNullable(v, &c.ID)
		case "type", "index":
		case "function":
			var f struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			}
			err = json.Unmarshal(v, &f)
			c.Name = f.Name
			if err == nil && len(f.Arguments) > 0 {
				if unmarshalNullable(f.Arguments, &c.Arguments) != nil {
					c.Arguments = string(f.Arguments)
				}
			}
		default:
			if c.Extra == nil {
				c.Extra = map[string]RawJSON{}
			}
			c.Extra[k] = bytes.Clone(v)
		}
		if err != nil {
			return fmt.Errorf("tool call field %s: %w", k, err)
		}
	}
	return nil
}

// contentText flattens a content value to text. Parts that are not text leave a
// notice, so that the model knows that something stood there.
func contentText(v json.RawMessage) (string, error) {
	var s string
	if err := unmarshalNullable(v, &s); err == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(v, &parts); err != nil {
		return "", fmt.Errorf("want a string, null or a list of parts: %w", err)
	}
	var b bytes.Buffer
	for _, p := range parts {
		if p.Type == "text" || p.Type == "" || p.Type == "input_text" || p.Type == "output_text" {
			b.WriteString(p.Text)
		} else {
			fmt.Fprintf(&b, "[%s omitted]", p.Type)
		}
	}
	return b.String(), nil
}

func unmarshalNullable(v json.RawMessage, s *string) error {
	if string(v) == "null" {
		*s = ""
		return nil
	}
	return json.Unmarshal(v, s)
}
