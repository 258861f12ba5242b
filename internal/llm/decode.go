package llm

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// Conversations are read back from journals on the way from a reply to the model,
// and encoding/json goes over a message half a dozen times: once for each level
// that it stands in, and again to check, to skip and to copy. The reader below
// goes over it once. It knows the common form only (what AppendJSON writes, and
// what providers send); wherever it meets anything else it gives up, and
// encoding/json has the last word. FuzzMessageUnmarshal holds them to the same
// answers.

// scan reads JSON from b at i. After a failure it stays failed.
type scan struct {
	b   []byte
	i   int
	bad bool
}

func (s *scan) fail() { s.bad = true }

// space skips white space.
func (s *scan) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// take skips white space and the byte c, where that comes next.
func (s *scan) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// want is take that fails.
func (s *scan) want(c byte) {
	if !s.take(c) {
		s.fail()
	}
}

// null skips a null.
func (s *scan) null() bool {
	s.space()
	if bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		s.i += 4
		return true
	}
	return false
}

// object calls field for each field, which reads the value. A repeated name is a
// failure: encoding/json decides which of them counts.
func (s *scan) object(field func(name string)) {
	s.want('{')
	if s.take('}') || s.bad {
		return
	}
	var seen [16]string
	for n := 0; !s.bad; n++ {
		name := s.text()
		s.want(':')
		for _, earlier := range seen[:min(n, len(seen))] {
			if earlier == name {
				s.fail()
			}
		}
		if n == len(seen) || s.bad {
			s.fail()
			return
		}
		seen[n] = name
		field(name)
		if s.take('}') {
			return
		}
		s.want(',')
	}
}

// array calls element for each element, which reads it.
func (s *scan) array(element func()) {
	s.want('[')
	if s.take(']') || s.bad {
		return
	}
	for !s.bad {
		element()
		if s.take(']') {
			return
		}
		s.want(',')
	}
}

// text reads a string.
func (s *scan) text() string {
	s.want('"')
	if s.bad {
		return ""
	}
	start := s.i
	for i := start; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			text := s.b[start:i]
			if !utf8.Valid(text) {
				s.fail()
				return ""
			}
			return string(text)
		case c == '\\':
			return s.escaped(start, i)
		case c < ' ':
			s.fail()
			return ""
		}
	}
	s.fail()
	return ""
}

// escaped reads the string that began at start and has its first escape at i.
func (s *scan) escaped(start, i int) string {
	// What escapes stand for is never longer than they are.
	end := s.end(i)
	if s.bad {
		return ""
	}
	out := make([]byte, 0, end-start)
	for i < end {
		out = append(out, s.b[start:i]...)
		i++
		switch c := s.b[i]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			r, n := s.rune(i + 1)
			if n == 0 {
				s.fail()
				return ""
			}
			out = utf8.AppendRune(out, r)
			i += n
		default:
			s.fail()
			return ""
		}
		start = i + 1
		if n := bytes.IndexByte(s.b[start:end], '\\'); n >= 0 {
			i = start + n
		} else {
			i = end
		}
	}
	out = append(out, s.b[start:end]...)
	s.i = end + 1
	if !utf8.Valid(out) {
		s.fail()
		return ""
	}
	return string(out)
}

// end returns where the string ends that an escape at i stands in, and fails for
// characters that no string may have.
func (s *scan) end(i int) int {
	for ; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			return i
		case c == '\\':
			i++
		case c < ' ':
			s.fail()
			return 0
		}
	}
	s.fail()
	return 0
}

// rune reads the four digits of an escape at i, and the second half of a pair. n
// is how many bytes it has read, 0 where it is no character.
func (s *scan) rune(i int) (r rune, n int) {
	r, ok := s.hex(i)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if i+6 > len(s.b) || s.b[i+4] != '\\' || s.b[i+5] != 'u' {
		return 0, 0
	}
	low, ok := s.hex(i + 6)
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 10
}

func (s *scan) hex(i int) (r rune, ok bool) {
	if i+4 > len(s.b) {
		return 0, false
	}
	for _, c := range s.b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// raw reads any value and returns a copy of its bytes.
func (s *scan) raw() RawJSON {
	s.space()
	start := s.i
	depth := 0
	for s.i < len(s.b) && !s.bad {
		switch s.b[s.i] {
		case '"':
			s.i++
			if s.i = s.end(s.i); s.bad {
				return nil
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				return s.checked(start)
			}
		}
		if depth < 0 {
			return s.checked(start)
		}
		s.i++
		if depth == 0 && s.i > start {
			switch s.b[s.i-1] {
			case '"', '}', ']':
				return s.checked(start)
			}
		}
	}
	s.fail()
	return nil
}

// checked returns what was read since start, which has to be one value.
func (s *scan) checked(start int) RawJSON {
	v := bytes.TrimRight(s.b[start:s.i], " \t\r\n")
	if s.bad || !json.Valid(v) {
		s.fail()
		return nil
	}
	return bytes.Clone(v)
}

// read reads a message, and reports whether it could.
func (m *Message) read(b []byte) bool {
	s := &scan{b: b}
	*m = Message{}
	m.scan(s)
	s.space()
	return !s.bad && s.i == len(s.b)
}

func (m *Message) scan(s *scan) {
	s.object(func(name string) {
		switch name {
		case "role":
			m.Role = Role(s.text())
		case "content":
			if !s.null() {
				m.Content = s.text()
			}
		case "tool_calls":
			if s.null() {
				return
			}
			m.ToolCalls = []ToolCall{}
			s.array(func() {
				m.ToolCalls = append(m.ToolCalls, ToolCall{})
				m.ToolCalls[len(m.ToolCalls)-1].scan(s)
			})
		case "tool_call_id":
			if !s.null() {
				m.ToolCallID = s.text()
			}
		default:
			if m.Extra == nil {
				m.Extra = map[string]RawJSON{}
			}
			m.Extra[name] = s.raw()
		}
	})
}

func (c *ToolCall) scan(s *scan) {
	s.object(func(name string) {
		switch name {
		case "id":
			if !s.null() {
				c.ID = s.text()
			}
		case "type":
			s.text()
		case "function":
			s.object(func(name string) {
				switch name {
				case "name":
					c.Name = s.text()
				case "arguments":
					c.Arguments = s.text()
				default:
					s.fail()
				}
			})
		default:
			// An index is left out, and whatever is under another name is kept.
			s.fail()
		}
	})
}
