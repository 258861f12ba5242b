package llm

import "github.com/gasupervisor/gasupervisor/internal/jsonscan"

// The common form of messages (what AppendJSON writes, and what providers send) is
// read by package jsonscan, all others by encoding/json. FuzzMessageUnmarshal holds
// them to the same answers.

// read reads a message, and reports whether it could.
func (m *Message) read(b []byte) bool {
	s := jsonscan.New(b)
	*m = Message{}
	m.Scan(s)
	return s.Done()
}

// Scan reads a message that is part of a longer text.
func (m *Message) Scan(s *jsonscan.Scanner) {
	s.Object(func(name string) {
		switch name {
		case "role":
			m.Role = Role(s.Text())
		case "content":
			if !s.Null() {
				m.Content = s.Text()
			}
		case "tool_calls":
			if s.Null() {
				return
			}
			m.ToolCalls = []ToolCall{}
			s.Array(func() {
				m.ToolCalls = append(m.ToolCalls, ToolCall{})
				m.ToolCalls[len(m.ToolCalls)-1].scan(s)
			})
		case "tool_call_id":
			if !s.Null() {
				m.ToolCallID = s.Text()
			}
		default:
			if m.Extra == nil {
				m.Extra = map[string]RawJSON{}
			}
			m.Extra[name] = s.Raw()
		}
	})
}

func (c *ToolCall) scan(s *jsonscan.Scanner) {
	s.Object(func(name string) {
		switch name {
		case "id":
			if !s.Null() {
				c.ID = s.Text()
			}
		case "type":
			s.Text()
		case "function":
			s.Object(func(name string) {
				switch name {
				case "name":
					c.Name = s.Text()
				case "arguments":
					c.Arguments = s.Text()
				default:
					s.Fail()
				}
			})
		default:
			// An index is left out, and whatever is under another name is kept.
			s.Fail()
		}
	})
}
