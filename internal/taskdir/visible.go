package taskdir

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible makes text fit to be shown in an output, piece by piece. Control
// characters but line break and tab become visible ones, bytes that are no UTF-8
// become U+FFFD, and what looks like the marker gets a visible space. How the text is
// split into pieces makes no difference: what cannot be decided yet is held
// back until the next piece or release. The zero value is ready to use.
type visible struct {
	// tail is an incomplete character or a carriage return at the end of a piece.
	tail []byte
	// held may be the beginning of a marker: letters of its words, and blanks.
	held    []rune
	letters int // of words that held has matched
	blanks  int // where in held the blanks begin
	// bracket is set after "[" and blanks: what follows is compared without case.
	bracket bool
	// midLine is set unless the text is at the beginning of a line.
	midLine bool
}

const (
	words = "ROUND END"
	// wordLength is where in words the blanks stand.
	wordLength = len("ROUND")
	// maxBlanks bounds what is held back.
	maxBlanks = 8
	// visibleSpace is the symbol for a space.
	visibleSpace = '␠'
)

// text appends s to dst, as far as it can be decided.
func (v *visible) text(dst []byte, s string) []byte {
	if len(v.tail) > 0 {
		s = string(v.tail) + s
		v.tail = v.tail[:0]
	}
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= ' ' && c < 0x7F, c == '\n', c == '\t':
			dst = v.put(dst, rune(c))
			i++
			continue
		case c == '\r':
			if i+1 == len(s) {
				v.tail = append(v.tail, c)
				return dst
			}
			if s[i+1] != '\n' {
				dst = v.put(dst, picture(rune(c)))
			}
			i++
			continue
		case c < utf8.RuneSelf:
			dst = v.control(dst, rune(c))
			i++
			continue
		}
		if !utf8.FullRuneInString(s[i:]) {
			v.tail = append(v.tail, s[i:]...)
			return dst
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = v.control(dst, r)
		i += n
	}
	return dst
}

// settle decides an incomplete character: there is no more of it.
func (v *visible) settle(dst []byte) []byte {
	tail := string(v.tail)
	v.tail = v.tail[:0]
	for _, r := range tail {
		dst = v.control(dst, r)
	}
	return dst
}

// release appends what was held back: no more text follows.
func (v *visible) release(dst []byte) []byte {
	dst = v.settle(dst)
	return v.flush(dst)
}

// picture returns the symbol for a control character below U+0020.
func picture(r rune) rune { return 0x2400 + r }

func (v *visible) control(dst []byte, r rune) []byte {
	switch {
	case r < ' ' && r != '\n' && r != '\t':
		return v.put(dst, picture(r))
	case r >= 0x7F && r <= 0x9F:
		const digits = "0123456789abcdef"
		for _, c := range [4]rune{'\\', 'x', rune(digits[r>>4]), rune(digits[r&15])} {
			dst = v.put(dst, c)
		}
		return dst
	}
	return v.put(dst, r)
}

// put appends one visible character, or holds it back. A reader may search for
// the marker as it is, for its words alone, without regard to case or to the kind
// and number of blanks: the words in capitals, and in brackets the words in any
// case, are written with a visible space.
func (v *visible) put(dst []byte, r rune) []byte {
	v.midLine = r != '\n'
	if len(v.held) > 0 {
		switch {
		case v.letters == wordLength && isBlank(r):
			if v.blanks == 0 {
				v.blanks = len(v.held)
			}
			if v.held = append(v.held, r); len(v.held)-v.blanks > maxBlanks {
				return v.disarm(dst)
			}
			return dst
		case v.letters == wordLength && v.blanks == 0, !v.matches(r):
			dst = v.flush(dst)
		default:
			v.held = append(v.held, r)
			if v.letters++; v.letters == len(words)-1 {
				return v.disarm(dst)
			}
			return dst
		}
	}
	if r == 'R' || r == 'r' && v.bracket {
		v.held = append(v.held, r)
		v.letters, v.blanks = 1, 0
		return dst
	}
	v.bracket = r == '[' || v.bracket && isBlank(r)
	return utf8.AppendRune(dst, r)
}

// matches says whether r continues the words that held begins.
func (v *visible) matches(r rune) bool {
	next := v.letters
	if next >= wordLength {
		next++ // the blank
	}
	want := rune(words[next])
	return r == want || v.bracket && r == want-'A'+'a'
}

func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) }

// flush appends what was held back, which is no marker.
func (v *visible) flush(dst []byte) []byte {
	for _, r := range v.held {
		dst = utf8.AppendRune(dst, r)
	}
	if len(v.held) > 0 {
		v.held, v.bracket = v.held[:0], false
	}
	return dst
}

// disarm appends what was held back, with a visible space in place of a blank.
func (v *visible) disarm(dst []byte) []byte {
	if v.held[v.blanks] == ' ' {
		v.held[v.blanks] = visibleSpace
		return v.flush(dst)
	}
	for i, r := range v.held {
		if i == v.blanks {
			dst = utf8.AppendRune(dst, visibleSpace)
		}
		dst = utf8.AppendRune(dst, r)
	}
	v.held, v.bracket = v.held[:0], false
	return dst
}

// EndsInMarker says whether an output whose last bytes are tail is finished. 64
// bytes suffice. Line ends of other systems after the marker do not matter.
func EndsInMarker(tail []byte) bool {
	text := strings.TrimRight(string(tail), "\r\n\t ")
	head, ok := strings.CutSuffix(text, Marker)
	return ok && (head == "" || head[len(head)-1] == '\n')
}
