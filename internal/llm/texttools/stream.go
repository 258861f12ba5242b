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
}

func (s *stream) reset() {
	s.built.Reset()
	s.text, s.shown = "", 0
}

func (s *stream) next(piece string) string {
	s.built.WriteString(piece)
	s.text = s.built.String()
	from := s.shown
	s.shown = s.safe(from)
	return s.text[from:s.shown]
}

// end returns what is left of the text without its calls.
func (s *stream) end() string {
	rest := without(s.text, parse(s.text, s.tools), s.shown)
	s.reset()
	return strings.TrimRight(rest, " \t\r\n")
}

// safe returns up to where, from on, text is sure to be text.
func (s *stream) safe(from int) int {
	for i := from; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '<' && s.mayOpen(s.text[i:]),
			c == '{' && lineStart(s.text, i),
			c == '`' && lineStart(s.text, i) && s.mayFence(s.text[i:]):
			// The blanks before it are part of it or of nothing.
			return from + len(strings.TrimRight(s.text[from:i], " \t\r\n"))
		}
	}
	return from + len(strings.TrimRight(s.text[from:], " \t\r\n"))
}

// mayOpen reports whether s, which begins with "<", begins a call or may come to.
func (s *stream) mayOpen(text string) bool {
	if t, ok := readTag(text); ok {
		return s.opens(t.name) || s.opens(t.written)
	}
	if len(text) >= maxTag || strings.ContainsAny(text, ">\n") {
		return false
	}
	name := strings.TrimPrefix(text[1:], "/")
	n := 0
	for n < len(name) && nameByte(name[n]) {
		n++
	}
	if n < len(name) {
		return s.opens(strings.ToLower(name[:n])) || s.opens(name[:n])
	}
	begins := func(known string) bool {
		return strings.HasPrefix(known, name) || strings.HasPrefix(known, strings.ToLower(name))
	}
	return slices.ContainsFunc(callTags, begins) || slices.ContainsFunc(groupTags, begins) ||
		slices.ContainsFunc(s.tools, func(t llm.ToolSpec) bool { return begins(t.Name) })
}

func (s *stream) opens(name string) bool {
	return slices.Contains(callTags, name) || slices.Contains(groupTags, name) ||
		slices.ContainsFunc(s.tools, func(t llm.ToolSpec) bool { return t.Name == name })
}

// mayFence reports whether a code fence may be one around a call.
func (s *stream) mayFence(text string) bool {
	if len(text) < 3 {
		return strings.HasPrefix("```", text)
	}
	if !strings.HasPrefix(text, "```") {
		return false
	}
	line, rest, whole := strings.Cut(text, "\n")
	if !whole {
		return !strings.ContainsAny(line[3:], " `")
	}
	rest = strings.TrimLeft(rest, " \t\r\n")
	return rest == "" || rest[0] == '{' || rest[0] == '<' && s.mayOpen(rest)
}
