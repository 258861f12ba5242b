package llm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Sent is a conversation in the form in which it last went to a model. Each request
// of a conversation begins with the one before it, so that with a Sent only what
// was added has to be encoded, and nothing is copied. A zero Sent is ready for use. It
// belongs to one conversation, whose requests follow one another; what it returns
// stays as it is.
type Sent struct {
	by    any
	msgs  []Message
	ends  []int // where each message ends in bytes, with the comma after it
	bytes []byte

	tools     []ToolSpec
	toolBytes []byte
}

// Messages returns msgs as a JSON array, each as encode appends it. Where by, which
// must be comparable, is the same as at the last call, messages that have not changed
// since are not encoded again. A nil Sent encodes all of them.
//
// The array is returned without the bracket that ends it: another one with more
// messages goes on in the same memory.
func (s *Sent) Messages(by any, msgs []Message, encode func([]byte, Message) ([]byte, error)) ([]byte, error) {
	if s == nil {
		s = new(Sent)
	}
	if s.by != by || s.bytes == nil {
		s.by, s.msgs, s.ends, s.bytes = by, nil, nil, []byte{'['}
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
	return bytes.TrimSuffix(slices.Clip(s.bytes), []byte{','}), nil
}

// Tools returns tools as a JSON array.
func (s *Sent) Tools(tools []ToolSpec) ([]byte, error) {
	if s == nil {
		s = new(Sent)
	}
	if s.toolBytes != nil && slices.EqualFunc(s.tools, tools, ToolSpec.equal) {
		return s.toolBytes, nil
	}
	dst := []byte{'['}
	for i, t := range tools {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = t.AppendJSON(dst); err != nil {
			return nil, fmt.Errorf("encode tool %d: %w", i, err)
		}
	}
	s.tools, s.toolBytes = slices.Clone(tools), append(dst, ']')
	return s.toolBytes, nil
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

// cut keeps the first n messages. What was returned with more of them may still be
// on its way to a server, and is not written over.
func (s *Sent) cut(n int) {
	if n == len(s.msgs) {
		return
	}
	end := 1
	if n > 0 {
		end = s.ends[n-1]
	}
	s.msgs, s.ends, s.bytes = s.msgs[:n], s.ends[:n], bytes.Clone(s.bytes[:end])
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

func (t ToolSpec) equal(o ToolSpec) bool {
	return t.Name == o.Name && t.Description == o.Description && bytes.Equal(t.Parameters, o.Parameters)
}

func equalFields(a, b map[string]RawJSON) bool {
	return maps.EqualFunc(a, b, func(x, y RawJSON) bool { return bytes.Equal(x, y) })
}
