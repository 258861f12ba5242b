package agentdef

import (
	"fmt"
	"strings"
	"unicode"
)

// Bounds of a catalogue, which stands in every request.
const (
	catalogueText  = 300      // characters of one description
	catalogueBytes = 16 << 10 // of all of it; what is over is left to be named alone
)

// Catalogue tells a model which agents the task tool can start by name, one line
// each; "" where there are none. It is the same text for the same agents.
func Catalogue(agents []Definition) string {
	var b strings.Builder
	var rest []string
	for _, a := range agents {
		if a.Kind != KindCustom {
			continue
		}
		line := "- " + plainLine(a.Name, 100)
		if d := plainLine(a.Description, catalogueText); d != "" {
			line += ": " + d
		}
		if b.Len()+len(line) > catalogueBytes {
			rest = append(rest, plainLine(a.Name, 100))
			continue
		}
		b.WriteString(line + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	head := "# Agents that you can start\nThe task tool's subagent_type takes one of these names. Such an agent sees nothing of your conversation, so its prompt has to say all that it needs.\n"
	text := head + b.String()
	if len(rest) > 0 {
		text += fmt.Sprintf("- and %d more: %s\n", len(rest), plainLine(strings.Join(rest, ", "), 4000))
	}
	return strings.TrimRight(text, "\n")
}

// plainLine writes a text on one line of at most n characters. Descriptions for
// Claude Code often spell their line ends as \n.
func plainLine(s string, n int) string {
	s = strings.ReplaceAll(s, `\n`, " ")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > n {
		return strings.TrimRight(string(runes[:n-1]), " ") + "…"
	}
	return s
}

// Definitions are all agents of files, by name.
func (s *Snapshot) Definitions() []Definition {
	defs := make([]Definition, len(s.Agents))
	for i, a := range s.Agents {
		defs[i] = a.Definition
	}
	return defs
}
