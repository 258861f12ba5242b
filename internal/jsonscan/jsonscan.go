// Package jsonscan reads JSON of a known form in one go.
//
// Conversations are read back from journals on the way from a reply to the model,
// and encoding/json goes over each text in them half a dozen times: once for every
// level that it stands in, and again to check, to skip and to copy. A Scanner goes
// over it once, and knows the common forms only. Wherever it meets anything else it
// fails, and its caller asks encoding/json: an error is never a Scanner's to report.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Scanner reads one JSON text from its beginning. After a failure it stays failed,
// and what it returns means nothing.
type Scanner struct {
	b   []byte
	i   int
	bad bool
}

// New returns a Scanner of b, which it does not change.
func New(b []byte) *Scanner { return &Scanner{b: b} }

// Fail makes the Scanner fail, for a caller that meets what it does not know.
func (s *Scanner) Fail() { s.bad = true }

// Done reports whether the whole text was read, without a failure.
func (s *Scanner) Done() bool {
	s.space()
	return !s.bad && s.i == len(s.b)
}

// space skips white space.
func (s *Scanner) space() {
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
func (s *Scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// want is take that fails.
func (s *Scanner) want(c byte) {
	if !s.take(c) {
		s.Fail()
	}
}

// Null skips a null, and reports whether there was one.
func (s *Scanner) Null() bool {
	s.space()
	if bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		s.i += 4
		return true
	}
	return false
}

// Object reads an object: it calls field for each field, which reads the value. A repeated name is a
// failure: encoding/json decides which of them counts.
func (s *Scanner) Object(field func(name string)) {
	s.want('{')
	if s.take('}') || s.bad {
		return
	}
	const most = 64
	seen := make([]string, 0, 16)
	for !s.bad {
		name := s.Text()
		s.want(':')
		if len(seen) == most || slices.Contains(seen, name) {
			s.Fail()
		}
		if s.bad {
			return
		}
		seen = append(seen, name)
		field(name)
		if s.take('}') {
			return
		}
		s.want(',')
	}
}

// Array reads an array: it calls element for each element, which reads it.
func (s *Scanner) Array(element func()) {
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

// Text reads a string.
func (s *Scanner) Text() string {
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
				s.Fail()
				return ""
			}
			return string(text)
		case c == '\\':
			return s.escaped(start, i)
		case c < ' ':
			s.Fail()
			return ""
		}
	}
	s.Fail()
	return ""
}

// escaped reads the string that began at start and has its first escape at i.
func (s *Scanner) escaped(start, i int) string {
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
				s.Fail()
				return ""
			}
			out = utf8.AppendRune(out, r)
			i += n
		default:
			s.Fail()
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
		s.Fail()
		return ""
	}
	return string(out)
}

// end returns where the string ends that an escape at i stands in, and fails for
// characters that no string may have.
func (s *Scanner) end(i int) int {
	for ; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			return i
		case c == '\\':
			i++
		case c < ' ':
			s.Fail()
			return 0
		}
	}
	s.Fail()
	return 0
}

// rune reads the four digits of an escape at i, and the second half of a pair. n
// is how many bytes it has read, 0 where it is no character.
func (s *Scanner) rune(i int) (r rune, n int) {
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

func (s *Scanner) hex(i int) (r rune, ok bool) {
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

// Raw reads any value and returns a copy of its bytes.
func (s *Scanner) Raw() json.RawMessage {
	v := s.Skip()
	if s.bad || !json.Valid(v) {
		s.Fail()
		return nil
	}
	return bytes.Clone(v)
}

// Skip goes over any value and returns its bytes, which are part of the text. It
// makes sure of strings and brackets, and of nothing else.
func (s *Scanner) Skip() []byte {
	s.space()
	start := s.i
	depth := 0
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch c {
		case '"':
			if s.i = s.end(s.i + 1); s.bad {
				return nil
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth < 0 || depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r') {
			break // after a number or a word
		}
		s.i++
		if depth == 0 && (c == '"' || c == '}' || c == ']') {
			return s.b[start:s.i]
		}
	}
	if s.i == start {
		s.Fail()
	}
	return s.b[start:s.i]
}
