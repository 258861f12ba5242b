package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// AppendJSON appends the provider's form of m to dst: the bytes that
// MarshalJSON returns. Requests are built with it, since json.Marshal would
// escape and copy each message once more.
func (m Message) AppendJSON(dst []byte) ([]byte, error) {
	dst = append(dst, `{"role":`...)
	dst = appendString(dst, string(m.Role))
	dst = append(dst, `,"content":`...)
	if m.Content == "" && len(m.ToolCalls) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, m.Content)
	}
	var err error
	if len(m.ToolCalls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for i, c := range m.ToolCalls {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = c.AppendJSON(dst); err != nil {
				return nil, fmt.Errorf("tool call %d: %w", i, err)
			}
		}
		dst = append(dst, ']')
	}
	if m.ToolCallID != "" {
		dst = append(dst, `,"tool_call_id":`...)
		dst = appendString(dst, m.ToolCallID)
	}
	dst, err = appendExtra(dst, m.Extra, "role", "content", "tool_calls", "tool_call_id")
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// AppendJSON appends the provider's form of c to dst: the bytes that
// MarshalJSON returns.
func (c ToolCall) AppendJSON(dst []byte) ([]byte, error) {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, c.ID)
	dst = append(dst, `,"type":"function","function":{"name":`...)
	dst = appendString(dst, c.Name)
	dst = append(dst, `,"arguments":`...)
	dst = appendString(dst, c.Arguments)
	dst = append(dst, '}')
	dst, err := appendExtra(dst, c.Extra, "id", "type", "index", "function")
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// AppendJSON appends the provider's form of t to dst. A tool without
// parameters gets the schema of an empty object.
func (t ToolSpec) AppendJSON(dst []byte) ([]byte, error) {
	dst = append(dst, `{"type":"function","function":{"name":`...)
	dst = appendString(dst, t.Name)
	dst = append(dst, `,"description":`...)
	dst = appendString(dst, t.Description)
	dst = append(dst, `,"parameters":`...)
	if len(t.Parameters) == 0 {
		return append(dst, `{"type":"object","properties":{}}}}`...), nil
	}
	dst, err := appendRaw(dst, t.Parameters)
	if err != nil {
		return nil, fmt.Errorf("parameters of tool %s: %w", t.Name, err)
	}
	return append(dst, `}}`...), nil
}

// appendExtra appends the fields in the order of their names, without those
// that the type has itself: a repeated name would make two readers see two
// different messages.
func appendExtra(dst []byte, extra map[string]RawJSON, own ...string) ([]byte, error) {
	if len(extra) == 0 {
		return dst, nil
	}
	names := make([]string, 0, len(extra))
	for k := range extra {
		if !slices.Contains(own, k) {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	for _, k := range names {
		dst = append(dst, ',')
		dst = appendString(dst, k)
		dst = append(dst, ':')
		var err error
		if dst, err = appendRaw(dst, extra[k]); err != nil {
			return nil, fmt.Errorf("field %s: %w", k, err)
		}
	}
	return dst, nil
}

// appendRaw appends a JSON value in one form: no white space around tokens, and
// strings as appendString writes them. A value that went through another
// encoder, as on its way to the journal and back, gives the same bytes again.
func appendRaw(dst []byte, v RawJSON) ([]byte, error) {
	if len(v) == 0 {
		return append(dst, "null"...), nil
	}
	start := len(dst)
	buf := bytes.NewBuffer(dst)
	if err := json.Compact(buf, v); err != nil {
		return nil, err
	}
	dst = buf.Bytes()
	if bytes.IndexByte(dst[start:], '\\') < 0 && utf8.Valid(dst[start:]) {
		return dst, nil
	}
	compact := bytes.Clone(dst[start:])
	dst = dst[:start]
	for i := 0; i < len(compact); {
		if compact[i] != '"' {
			dst = append(dst, compact[i])
			i++
			continue
		}
		end := i + 1
		for compact[end] != '"' {
			if compact[end] == '\\' {
				end++
			}
			end++
		}
		end++
		var s string
		if err := json.Unmarshal(compact[i:end], &s); err != nil {
			return nil, err
		}
		dst = appendString(dst, s)
		i = end
	}
	return dst, nil
}

// AppendString appends s as a JSON string. HTML is not escaped, so that the text
// a model sent is the text it gets back. Bytes that are not UTF-8 become the
// character U+FFFD itself, as it would be written after a round trip.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if b >= ' ' && b != '"' && b != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch b {
			case '"', '\\':
				dst = append(dst, '\\', b)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\t':
				dst = append(dst, '\\', 't')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\b':
				dst = append(dst, '\\', 'b')
			case '\f':
				dst = append(dst, '\\', 'f')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		// The two separators are escaped as encoding/json escapes them.
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
			dst = append(dst, s[start:i]...)
			if r == utf8.RuneError {
				dst = utf8.AppendRune(dst, r)
			} else {
				dst = append(dst, '\\', 'u', '2', '0', '2', hex[r&15])
			}
			i += size
			start = i
			continue
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
