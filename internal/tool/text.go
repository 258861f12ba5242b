package tool

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// summaryRunes bounds a summary, so that it fits one line of a terminal.
const summaryRunes = 120

// Cap returns text shortened to at most limit bytes, with its head and its tail
// kept on whole characters and a line between them that says what was cut. The
// head gets two thirds: it says what the text is, the tail how it came out. A
// limit too small to hold the note leaves the head alone.
func Cap(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	note := func(cut string) string {
		return fmt.Sprintf("\n[... %d bytes, %d lines cut here ...]\n", len(cut), strings.Count(cut, "\n"))
	}
	room := limit - len(note(text))
	if room < 16 {
		return bounded(text, max(limit, 0))
	}
	head := bounded(text, room*2/3)
	tail := text[len(text)-(room-len(head)):]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return head + note(text[len(head):len(text)-len(tail)]) + tail
}

// bounded returns the longest head of valid text that ends in a whole character
// and has at most n bytes.
func bounded(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// oneLine returns the first line of text that has something on it, without
// control characters and with at most n characters.
func oneLine(text string, n int) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			switch {
			case r == '\t':
				return ' '
			case unicode.IsControl(r), r == utf8.RuneError:
				return -1
			}
			return r
		}, line))
		if line == "" {
			continue
		}
		if runes := []rune(line); len(runes) > n {
			return string(runes[:n-1]) + "…"
		}
		return line
	}
	return ""
}
