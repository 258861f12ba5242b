package outline

import (
	"regexp"
	"strings"
)

var pythonHead = regexp.MustCompile(`^(?:async[ \t]+def|def|class)[ \t]+[\pL_]`)

// pythonDefinitions reads Python by its lines: what is defined in what is told by
// how far they are indented.
func pythonDefinitions(src string) []Definition {
	type block struct {
		indent int
		class  bool
	}
	var found []Definition
	var blocks []block
	for _, l := range pythonLines(src) {
		for len(blocks) > 0 && l.indent <= blocks[len(blocks)-1].indent {
			blocks = blocks[:len(blocks)-1]
		}
		if !pythonHead.MatchString(l.text) {
			continue
		}
		inFunction := len(blocks) > 0 && !blocks[len(blocks)-1].class
		class := strings.HasPrefix(l.text, "class")
		if !inFunction && len(found) < maxDefinitions {
			found = append(found, Definition{Line: l.line, Depth: len(blocks), Text: oneLine(pythonSignature(l.text))})
		}
		// What a function defines is its own affair, a class in it too.
		blocks = append(blocks, block{l.indent, class && !inFunction})
	}
	return found
}

// pythonSignature cuts a line of code at the colon that begins the body.
func pythonSignature(s string) string {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ':':
			if depth <= 0 {
				return s[:i]
			}
		}
	}
	return s
}

// pythonLine is a line of code, with those that go on with it, without comments;
// texts in it that span lines are left out.
type pythonLine struct {
	line, indent int
	text         string
}

func pythonLines(src string) []pythonLine {
	r := &pythonReader{src: src, line: 1, begun: 1, start: true}
	for r.i < len(src) {
		if !r.start || !r.indentation() {
			r.start = false
			r.step()
		}
	}
	r.flush()
	return r.lines
}

// pythonReader puts the lines of a text together.
type pythonReader struct {
	src   string
	i     int // where it reads
	line  int
	lines []pythonLine

	// The line of code so far: where it began, and how many brackets are open.
	text          strings.Builder
	begun, indent int
	depth         int
	start         bool // nothing but blanks yet
}

// flush ends the line of code.
func (r *pythonReader) flush() {
	if s := strings.TrimSpace(r.text.String()); s != "" {
		r.lines = append(r.lines, pythonLine{r.begun, r.indent, s})
	}
	r.text.Reset()
	r.start, r.indent, r.begun = true, 0, r.line
}

// indentation reads a blank at the beginning of a line; false where there is none.
func (r *pythonReader) indentation() bool {
	switch r.src[r.i] {
	case ' ':
		r.indent++
	case '\t':
		r.indent += 8 - r.indent%8
	case '\f', '\r':
	default:
		return false
	}
	r.i++
	return true
}

// step reads a piece of code: a character, a text, a comment, the end of a line.
func (r *pythonReader) step() {
	rest := r.src[r.i:]
	switch c := rest[0]; {
	case c == '\n':
		r.i++
		r.line++
		if r.depth == 0 {
			r.flush()
		} else {
			r.text.WriteByte(' ')
		}
	case c == '\\' && strings.HasPrefix(strings.TrimPrefix(rest[1:], "\r"), "\n"):
		r.i += strings.IndexByte(rest, '\n') + 1
		r.line++
		r.text.WriteByte(' ')
	case c == '#':
		if n := strings.IndexByte(rest, '\n'); n >= 0 {
			r.i += n
		} else {
			r.i = len(r.src)
		}
	case c == '"' || c == '\'':
		end := pythonStringEnd(r.src, r.i)
		if n := strings.Count(r.src[r.i:end], "\n"); n > 0 {
			r.line += n
			r.text.WriteString(`"..."`)
		} else {
			r.text.WriteString(r.src[r.i:end])
		}
		r.i = end
	default:
		r.bracket(c)
		r.text.WriteByte(c)
		r.i++
	}
}

// bracket counts those that are open. One that is never closed must not swallow the
// rest of the file: what begins a definition at the beginning of a line ends it.
func (r *pythonReader) bracket(c byte) {
	switch c {
	case '(', '[', '{':
		r.depth++
	case ')', ']', '}':
		r.depth = max(r.depth-1, 0)
	case 'd', 'c', 'a':
		if r.depth > 0 && (r.i == 0 || r.src[r.i-1] == '\n') && pythonHead.MatchString(r.src[r.i:min(len(r.src), r.i+80)]) {
			r.depth = 0
			r.flush()
			r.start = false
		}
	}
}

// pythonStringEnd returns the index behind the text whose quote is at i. A text
// that may not span lines ends with its line.
func pythonStringEnd(src string, i int) int {
	quote := src[i : i+1]
	triple := strings.HasPrefix(src[i:], strings.Repeat(quote, 3))
	if triple {
		quote = strings.Repeat(quote, 3)
	}
	for j := i + len(quote); j < len(src); j++ {
		switch {
		case src[j] == '\\':
			j++
		case strings.HasPrefix(src[j:], quote):
			return j + len(quote)
		case src[j] == '\n' && !triple:
			return j
		}
	}
	return len(src)
}
