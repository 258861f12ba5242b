package llm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Sent is a conversation in the form in which it last went to a model. Each request
// of a conversation begins with the one before it, so that with a Sent only what
// was added has to be encoded: the rest is copied. A zero Sent is ready for use. It
// belongs to one conversation, whose requests follow one another.
type Sent struct {
	by    any
	msgs  []Message
	ends  []int // where each message ends in bytes, with the comma after it
	bytes []byte
}

// AppendJSON appends msgs to dst as a JSON array, each as encode appends it. Where
// by, which must be comparable, is the same as at the last call, messages that have
// not changed since are not encoded again. A nil Sent encodes all of them.
func (s *Sent) AppendJSON(dst []byte, by any, msgs []Message, encode func([]byte, Message) ([]byte, error)) ([]byte, error) {
	if s == nil {
		s = new(Sent)
	}
	if s.by != by {
		*s = Sent{by: by}
	}
	s.cut(s.common(msgs))
	for i := len(s.msgs); i < len(msgs); i++ {
		grown, err := encode(s.bytes, msgs[i])
		if err != nil {
			return nil, fmt.Errorf("encode message %d: %w", i, err)
		}
		s.bytes = append(grown, ',')
		s.msgs, s.ends = append(s.msgs, msgs[i]), append(s.ends, len(s.bytes))
	}
	dst = append(dst, '[')
	dst = append(dst, bytes.TrimSuffix(s.bytes, []byte{','})...)
	return append(dst, ']'), nil
}

// common is how many messages at the beginning of msgs are those of s.
func (s *Sent) common(msgs []Message) int {
	n := min(len(s.msgs), len(msgs))
	for i := range n {
		if !s.msgs[i].equal(msgs[i]) {
			return i
		}
	}
	return n
}

// cut keeps the first n messages.
func (s *Sent) cut(n int) {
	end := 0
	if n > 0 {
		end = s.ends[n-1]
	}
	s.msgs, s.ends, s.bytes = s.msgs[:n], s.ends[:n], s.bytes[:end]
}

// equal takes next to no time for a message and its copy, whose texts are the same
// memory.
func (m Message) equal(o Message) bool {
	return m.Role == o.Role && m.Content == o.Content && m.ToolCallID == o.ToolCallID &&
		slices.EqualFunc(m.ToolCalls, o.ToolCalls, ToolCall.equal) && equalFields(m.Extra, o.Extra)
}

func (c ToolCall) equal(o ToolCall) bool {
	return c.ID == o.ID && c.Name == o.Name && c.Arguments == o.Arguments && equalFields(c.Extra, o.Extra)
}

func equalFields(a, b map[string]RawJSON) bool {
	return maps.EqualFunc(a, b, func(x, y RawJSON) bool { return bytes.Equal(x, y) })
}
