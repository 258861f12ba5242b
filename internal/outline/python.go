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
	var lines []pythonLine
	var b strings.Builder
	line, depth, indent, begun := 1, 0, 0, 1
	start := true
	flush := func() {
		if s := strings.TrimSpace(b.String()); s != "" {
			lines = append(lines, pythonLine{begun, indent, s})
		}
		b.Reset()
		start, indent, begun = true, 0, line
	}
	for i := 0; i < len(src); {
		c := src[i]
		if start {
			switch c {
			case ' ':
				indent++
				i++
				continue
			case '\t':
				indent += 8 - indent%8
				i++
				continue
			case '\f', '\r':
				i++
				continue
			}
			start = false
		}
		switch {
		case c == '\n':
			i++
			line++
			if depth == 0 {
				flush()
			} else {
				b.WriteByte(' ')
			}
		case c == '\\' && strings.HasPrefix(strings.TrimPrefix(src[i+1:], "\r"), "\n"):
			i += 1 + strings.IndexByte(src[i+1:], '\n') + 1
			line++
			b.WriteByte(' ')
		case c == '#':
			if n := strings.IndexByte(src[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(src)
			}
		case c == '"' || c == '\'':
			end := pythonStringEnd(src, i)
			if n := strings.Count(src[i:end], "\n"); n > 0 {
				line += n
				b.WriteString(`"..."`)
			} else {
				b.WriteString(src[i:end])
			}
			i = end
		default:
			switch c {
			case '(', '[', '{':
				depth++
			case ')', ']', '}':
				depth = max(depth-1, 0)
			case 'd', 'c', 'a':
				// A bracket that is never closed must not swallow the rest of the file.
				if depth > 0 && (i == 0 || src[i-1] == '\n') && pythonHead.MatchString(src[i:min(len(src), i+80)]) {
					depth = 0
					flush()
					start = false
				}
			}
			b.WriteByte(c)
			i++
		}
	}
	flush()
	return lines
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
