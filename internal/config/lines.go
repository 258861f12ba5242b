package config

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// keyLines returns the line, from 1, on which each key and table of a valid TOML
// document stands. Paths are written as Key writes them, with the index of
// arrays: `llm[1].base_url`.
//
// The TOML library keeps no positions for keys once a document is parsed, and
// tells the entries of an array of tables apart only by order.
func keyLines(data string) map[string]int {
	s := &lineScanner{data: data, line: 1, lines: map[string]int{}, tables: map[string]int{}}
	s.document()
	return s.lines
}

// lineScanner walks over a document that a parser has accepted. Where it meets
// something unexpected it stops: a key without a line is no harm.
type lineScanner struct {
	data string
	pos  int
	line int
	// lines is the result; the first mention of a path counts.
	lines map[string]int
	// tables counts the entries of each array of tables.
	tables map[string]int
}

func (s *lineScanner) document() {
	prefix := ""
	for {
		s.blank(true)
		if s.pos >= len(s.data) {
			return
		}
		if s.data[s.pos] == '[' {
			var ok bool
			if prefix, ok = s.header(); !ok {
				return
			}
			continue
		}
		if !s.keyValue(prefix) {
			return
		}
	}
}

// header reads [a.b] or [[a.b]] and returns the path that it opens.
func (s *lineScanner) header() (string, bool) {
	line := s.line
	s.pos++
	array := s.accept('[')
	parts, ok := s.key()
	if !ok || !s.accept(']') || array && !s.accept(']') {
		return "", false
	}
	path := ""
	for i, part := range parts {
		path = join(path, part)
		last := i == len(parts)-1
		switch n := s.tables[path]; {
		case last && array:
			s.tables[path] = n + 1
			s.mark(path, line)
			path = index(path, n)
		case n > 0:
			path = index(path, n-1)
		}
		s.mark(path, line)
	}
	return path, true
}

// keyValue reads one `a.b = value` below prefix.
func (s *lineScanner) keyValue(prefix string) bool {
	line := s.line
	parts, ok := s.key()
	if !ok || !s.accept('=') {
		return false
	}
	path := prefix
	for _, part := range parts {
		path = join(path, part)
		s.mark(path, line)
	}
	return s.value(path)
}

// key reads a dotted key; what it returns is quoted as in a path.
func (s *lineScanner) key() ([]string, bool) {
	var parts []string
	for {
		s.blank(false)
		start := s.pos
		if s.pos >= len(s.data) {
			return nil, false
		}
		var part string
		switch c := s.data[s.pos]; c {
		case '"', '\'':
			if !s.text() {
				return nil, false
			}
			part = s.data[start+1 : s.pos-1]
			if c == '"' {
				part = unescape(part)
			}
		default:
			for s.pos < len(s.data) && isBare(s.data[s.pos]) {
				s.pos++
			}
			if part = s.data[start:s.pos]; part == "" {
				return nil, false
			}
		}
		parts = append(parts, toml.Key{part}.String())
		s.blank(false)
		if !s.accept('.') {
			return parts, true
		}
	}
}

// value passes over a value and marks the keys inside it.
func (s *lineScanner) value(path string) bool {
	s.blank(false)
	if s.pos >= len(s.data) {
		return false
	}
	switch s.data[s.pos] {
	case '"', '\'':
		return s.text()
	case '[':
		s.pos++
		for i := 0; ; i++ {
			s.blank(true)
			if s.accept(']') {
				return true
			}
			s.mark(index(path, i), s.line)
			if !s.value(index(path, i)) {
				return false
			}
			s.blank(true)
			s.accept(',')
		}
	case '{':
		s.pos++
		for {
			s.blank(true)
			if s.accept('}') {
				return true
			}
			if !s.keyValue(path) {
				return false
			}
			s.blank(true)
			s.accept(',')
		}
	}
	start := s.pos
	for s.pos < len(s.data) && !strings.ContainsRune(",]}#\r\n", rune(s.data[s.pos])) {
		s.pos++
	}
	return s.pos > start
}

// text passes over a string of any of the four kinds.
func (s *lineScanner) text() bool {
	quote := s.data[s.pos]
	triple := strings.Repeat(string(quote), 3)
	long := strings.HasPrefix(s.data[s.pos:], triple)
	if long {
		s.pos += 3
	} else {
		s.pos++
	}
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '\\' && quote == '"':
			s.pos++
			if s.pos < len(s.data) && s.data[s.pos] == '\n' {
				s.line++
			}
		case c == '\n':
			s.line++
		case c == quote && !long:
			s.pos++
			return true
		case c == quote && strings.HasPrefix(s.data[s.pos:], triple):
			s.pos += 3
			// Up to two quotes of the content may touch the closing three.
			for range 2 {
				s.accept(quote)
			}
			return true
		}
		s.pos++
	}
	return false
}

// blank passes over white space, and over comments and line ends where they may stand.
func (s *lineScanner) blank(lines bool) {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == ' ' || c == '\t' || c == '\r':
		case c == '\n' && lines:
			s.line++
		case c == '#' && lines:
			for s.pos < len(s.data) && s.data[s.pos] != '\n' {
				s.pos++
			}
			continue
		default:
			return
		}
		s.pos++
	}
}

func (s *lineScanner) accept(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *lineScanner) mark(path string, line int) {
	if _, ok := s.lines[path]; !ok {
		s.lines[path] = line
	}
}

func isBare(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// unescape resolves what a quoted key holds.
func unescape(s string) string {
	s = strings.ReplaceAll(s, `\e`, `\x1b`)
	if t, err := strconv.Unquote(`"` + s + `"`); err == nil {
		return t
	}
	return s
}

func join(path, part string) string {
	if path == "" {
		return part
	}
	return path + "." + part
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
