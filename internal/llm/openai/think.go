package openai

import "strings"

const (
	openTag  = "<think>"
	closeTag = "</think>"
)

// thinkSplitter parts reasoning that a model writes inline, between <think> and
// </think>, from the text of its answer. It is fed pieces of any size; what the
// pieces add up to decides, not how they were cut.
//
// Only what stands before the answer is reasoning: an opening tag counts where no
// text came before it. Where there is none, a closing tag that ends or begins a
// line closes reasoning whose opening tag was part of the prompt; tags in the
// middle of a line are text, since models also write about tags. Reasoning that
// is never closed stays reasoning.
type thinkSplitter struct {
	// unopened starts in reasoning without a tag. Where no closing tag follows
	// it was text after all.
	unopened bool

	state thinkState
	held  string // not yet decided
	// shown is the text given out while a closing tag without opening may still come.
	shown   strings.Builder
	thought strings.Builder
	text    strings.Builder
	raw     strings.Builder // reasoning with its tags, as the model wrote it
}

type thinkState int

const (
	thinkStart    thinkState = iota // nothing but white space so far
	thinkInside                     // after an opening tag
	thinkUnopened                   // in reasoning that began without a tag
	thinkText                       // text, without any tag before it
	thinkAfter                      // after a closing tag: everything is text
)

// feed takes a piece and returns what can be shown of it.
func (s *thinkSplitter) feed(piece string) (text, reasoning string) {
	s.held += piece
	for {
		before := s.state
		t, r := s.advance(false)
		text += t
		reasoning += r
		if s.state == before {
			return text, reasoning
		}
	}
}

// end takes what is still held and returns what can be shown of it.
func (s *thinkSplitter) end() (text, reasoning string) {
	for {
		before := s.state
		t, r := s.advance(true)
		text += t
		reasoning += r
		if s.state == before {
			break
		}
	}
	if s.state == thinkUnopened {
		// It was text after all, which nobody has seen as text.
		t := s.thought.String()
		s.thought.Reset()
		s.raw.Reset()
		s.text.WriteString(t)
		text += t
	}
	return text, reasoning
}

// result returns the whole text and reasoning, and the reasoning with its tags.
// It is valid after end.
func (s *thinkSplitter) result() (text, reasoning, raw string) {
	return s.text.String(), strings.TrimSpace(s.thought.String()), s.raw.String()
}

// wasUnopened reports whether reasoning without an opening tag was found.
func (s *thinkSplitter) wasUnopened() bool {
	return s.raw.Len() > 0 && !strings.HasPrefix(strings.TrimLeft(s.raw.String(), " \t\r\n"), openTag)
}

// advance decides about held as far as it can, within one state.
func (s *thinkSplitter) advance(last bool) (text, reasoning string) {
	switch s.state {
	case thinkStart:
		s.start(last)
		return "", ""
	case thinkInside:
		return "", s.inside(last)
	case thinkUnopened, thinkText:
		return s.untagged(last)
	}
	return s.after(), ""
}

// start looks for an opening tag at the very beginning.
func (s *thinkSplitter) start(last bool) {
	rest := strings.TrimLeft(s.held, " \t\r\n")
	switch {
	case strings.HasPrefix(rest, openTag):
		cut := len(s.held) - len(rest) + len(openTag)
		s.raw.WriteString(s.held[:cut])
		s.held = s.held[cut:]
		s.state = thinkInside
	case !last && strings.HasPrefix(openTag, rest):
		// White space or the beginning of a tag.
	case s.unopened && rest != "":
		s.state = thinkUnopened
	case rest != "" || last:
		s.state = thinkText
	}
}

// inside takes reasoning up to the closing tag.
func (s *thinkSplitter) inside(last bool) (reasoning string) {
	if i := strings.Index(s.held, closeTag); i >= 0 {
		reasoning = s.held[:i]
		s.think(reasoning)
		s.close(i)
		return reasoning
	}
	n := len(s.held)
	if !last {
		n -= partialSuffix(s.held, closeTag)
	}
	reasoning = s.held[:n]
	s.think(reasoning)
	s.held = s.held[n:]
	return reasoning
}

// untagged takes what no tag has opened: text, or reasoning that began in the prompt.
// A closing tag makes reasoning of what came before it.
func (s *thinkSplitter) untagged(last bool) (text, reasoning string) {
	i, end, undecided := s.lineClose(last)
	if i >= 0 {
		reasoning = s.held[:i]
		if s.state == thinkText {
			// What was shown as text was reasoning.
			s.think(s.shown.String())
			s.shown.Reset()
			s.text.Reset()
		}
		s.think(reasoning)
		s.close(i)
		return "", reasoning
	}
	n := end
	if undecided >= 0 {
		n = undecided
	}
	out := s.held[:n]
	s.held = s.held[n:]
	if s.state == thinkUnopened {
		s.think(out)
		return "", out
	}
	s.shown.WriteString(out)
	s.text.WriteString(out)
	return out, ""
}

// after takes the answer that follows the reasoning.
func (s *thinkSplitter) after() (text string) {
	text = s.held
	if s.text.Len() == 0 {
		// The blank lines between the two.
		text = strings.TrimLeft(text, " \t\r\n")
	}
	s.text.WriteString(text)
	s.held = ""
	return text
}

func (s *thinkSplitter) think(t string) {
	s.thought.WriteString(t)
	s.raw.WriteString(t)
}

// close ends the reasoning with the closing tag at held[i].
func (s *thinkSplitter) close(i int) {
	s.raw.WriteString(closeTag)
	s.held = s.held[i+len(closeTag):]
	s.state = thinkAfter
}

// lineClose looks in held for a closing tag that begins or ends a line. It
// returns its place or -1; how much of held is settled where there is none; and
// where a possible tag begins about which more must be read, or -1.
func (s *thinkSplitter) lineClose(last bool) (at, end, undecided int) {
	from := 0
	for {
		i := strings.Index(s.held[from:], closeTag)
		if i < 0 {
			break
		}
		i += from
		after := strings.TrimLeft(s.held[i+len(closeTag):], " \t\r")
		switch {
		case s.atLineStart(i), strings.HasPrefix(after, "\n"):
			return i, 0, -1
		case after == "" && last:
			return i, 0, -1
		case after == "":
			return -1, 0, s.lineKeep(i)
		}
		from = i + len(closeTag)
	}
	n := len(s.held)
	if !last {
		if p := partialSuffix(s.held[from:], closeTag); p > 0 {
			return -1, 0, s.lineKeep(n - p)
		}
		// The white space that may stand between a line's start and a tag.
		return -1, s.lineKeep(n), -1
	}
	return -1, n, -1
}

// lineKeep moves i to before the blanks in front of it, so that a tag is
// judged together with them.
func (s *thinkSplitter) lineKeep(i int) int {
	return len(strings.TrimRight(s.held[:i], " \t"))
}

// atLineStart reports whether only blanks stand between a line's start and
// held[i]. What came before held was cut so that the blanks are still in it.
func (s *thinkSplitter) atLineStart(i int) bool {
	b := strings.TrimRight(s.held[:i], " \t")
	if b != "" {
		return strings.HasSuffix(b, "\n")
	}
	gone := s.shown.String()
	if s.state == thinkUnopened {
		gone = s.thought.String()
	}
	return gone == "" || strings.HasSuffix(gone, "\n")
}

// partialSuffix returns the length of the longest end of s that begins tag.
func partialSuffix(s, tag string) int {
	for n := min(len(s), len(tag)-1); n > 0; n-- {
		if strings.HasPrefix(tag, s[len(s)-n:]) {
			return n
		}
	}
	return 0
}
