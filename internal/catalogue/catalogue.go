// Package catalogue tells a model what it can choose from, agents or skills: a line
// for each, in a text that is the same for the same choice, since it stands in every
// request.
//
// The package is a pure leaf.
package catalogue

import (
	"fmt"
	"strings"
	"unicode"
)

// Bounds of a catalogue.
const (
	nameText        = 100      // characters of one name
	descriptionText = 300      // and of one description
	maxBytes        = 16 << 10 // of all entries; what is over is left to be named alone
	restText        = 4000     // characters of the names of those
)

// Entry is one of the things to choose from.
type Entry struct{ Name, Description string }

// Text returns head and the entries below it, in their order; "" where there are none.
func Text(head string, entries []Entry) string {
	var b strings.Builder
	var rest []string
	for _, e := range entries {
		name := Line(e.Name, nameText)
		line := "- " + name
		if d := Line(e.Description, descriptionText); d != "" {
			line += ": " + d
		}
		if b.Len()+len(line) > maxBytes {
			rest = append(rest, name)
			continue
		}
		b.WriteString("\n" + line)
	}
	if b.Len() == 0 {
		return ""
	}
	if len(rest) > 0 {
		fmt.Fprintf(&b, "\n- and %d more: %s", len(rest), Line(strings.Join(rest, ", "), restText))
	}
	return head + b.String()
}

// Line writes a text on one line of at most n characters. Descriptions for Claude
// Code often spell their line ends as \n.
func Line(s string, n int) string {
	s = strings.ReplaceAll(s, `\n`, " ")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
	}), " ")
	if runes := []rune(s); len(runes) > n {
		return strings.TrimRight(string(runes[:n-1]), " ") + "…"
	}
	return s
}
