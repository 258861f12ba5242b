package texttools

import (
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// stream gives out the text of an answer while it comes, but for what may be a
// call: from the first such place on everything is held until the end, since calls
// come last and what follows them is decided by the whole.
type stream struct {
	tools []llm.ToolSpec
	built strings.Builder
	text  string // what is built so far
	shown int    // bytes of text that were given out
	// scanned is up to where no block can begin, and solid the end of the last text
	// before it that is no blank: blanks before a block are part of it or of nothing.
	scanned, solid int
	// held says that a block begins at scanned, whatever follows.
	held bool
}

func (s *stream) reset() { *s = stream{tools: s.tools} }

func (s *stream) next(piece string) string {
	s.built.WriteString(piece)
	s.text = s.built.String()
	from := s.shown
	s.shown = s.safe()
	return s.text[from:s.shown]
}

// end returns what is left of the text without its calls.
func (s *stream) end() string {
	rest := without(s.text, parse(s.text, s.tools), s.shown)
	s.reset()
	return strings.TrimRight(rest, " \t\r\n")
}

// safe returns up to where text is sure to be text. It looks at each byte once, but
// for the few of a beginning that may yet come to something.
func (s *stream) safe() int {
	for ; !s.held && s.scanned < len(s.text); s.scanned++ {
		var may bool
		if may, s.held = s.mayBegin(s.scanned); may {
			break
		}
		switch s.text[s.scanned] {
		case ' ', '\t', '\r', '\n':
		default:
			s.solid = s.scanned + 1
		}
	}
	return s.solid
}

// mayBegin reports whether a block begins at i or may come to; sure is true where
// nothing that follows changes that.
func (s *stream) mayBegin(i int) (may, sure bool) {
	switch c := s.text[i]; {
	case c == '<':
		return s.mayOpen(s.text[i:])
	case c == '{' && lineStart(s.text, i):
		return true, true
	case c == '`' && lineStart(s.text, i):
		return s.mayFence(s.text[i:])
	}
	return false, false
}

// mayOpen reports whether text, which begins with "<", begins a call or may come to.
func (s *stream) mayOpen(text string) (may, sure bool) {
	if t, ok := readTag(text); ok {
		opens := s.opens(t.name) || s.opens(t.written)
		return opens, opens
	}
	if len(text) >= maxTag || strings.ContainsAny(text, ">\n") {
		return false, false
	}
	name := strings.TrimPrefix(text[1:], "/")
	n := 0
	for n < len(name) && nameByte(name[n]) {
		n++
	}
	if n < len(name) {
		return s.opens(strings.ToLower(name[:n])) || s.opens(name[:n]), false
	}
	begins := func(known string) bool {
		return strings.HasPrefix(known, name) || strings.HasPrefix(known, strings.ToLower(name))
	}
	return slices.ContainsFunc(callTags, begins) || slices.ContainsFunc(groupTags, begins) ||
		slices.ContainsFunc(s.tools, func(t llm.ToolSpec) bool { return begins(t.Name) }), false
}

func (s *stream) opens(name string) bool {
	return slices.Contains(callTags, name) || slices.Contains(groupTags, name) ||
		slices.ContainsFunc(s.tools, func(t llm.ToolSpec) bool { return t.Name == name })
}

// mayFence reports whether a code fence may be one around a call.
func (s *stream) mayFence(text string) (may, sure bool) {
	text = text[:min(len(text), maxFence+maxTag)]
	if len(text) < 3 {
		return strings.HasPrefix("```", text), false
	}
	if !strings.HasPrefix(text, "```") {
		return false, false
	}
	line, rest, whole := strings.Cut(text, "\n")
	if !whole {
		return len(line) < maxFence && !strings.ContainsAny(line[3:], " `"), false
	}
	rest = strings.TrimLeft(rest, " \t\r\n")
	switch {
	case rest == "":
		return len(text) < maxFence+maxTag, false
	case rest[0] == '<':
		return s.mayOpen(rest)
	}
	return rest[0] == '{', rest[0] == '{'
}
