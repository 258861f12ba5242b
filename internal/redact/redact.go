// Package redact keeps keys out of what is written down and sent on.
//
// There are two ways, for two places. A Replacer knows the keys of the
// configuration and takes them out of whatever enters a conversation, so that
// request, journal and output agree: a key that a command printed or a model
// repeated stands nowhere. Shapes knows what keys of well-known providers look
// like and takes out all that looks so; it errs on the side of taking out, and is
// for logs and status, where nobody works with the text.
//
// The package is a pure leaf.
package redact

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Mark stands where a key was.
const Mark = "[redacted]"

// MinKey is the length in bytes from which on a key is replaced. What is shorter
// could be a word, and hides nothing.
const MinKey = 16

// Replacer replaces known keys. It may be used by many goroutines at once; nil
// replaces nothing.
type Replacer struct {
	// keys are sorted by length, the longest first, so that the first that fits is
	// the one to take.
	keys  []string
	first [256]bool // the bytes that keys begin with
}

// New returns a Replacer of the keys, leaving out those shorter than MinKey; nil
// where none is left.
func New(keys ...string) *Replacer {
	r := &Replacer{}
	add := func(k string) {
		if len(k) >= MinKey && !slices.Contains(r.keys, k) {
			r.keys = append(r.keys, k)
			r.first[k[0]] = true
		}
	}
	for _, k := range keys {
		// Files and variables end in line ends that the key does not have.
		k = strings.TrimSpace(k)
		add(k)
		add(inJSON(k))
	}
	if len(r.keys) == 0 {
		return nil
	}
	slices.SortFunc(r.keys, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	return r
}

// inJSON is a key as it stands in a JSON text, such as the arguments of a call.
func inJSON(k string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(k) != nil {
		return k
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// String returns s with Mark in place of every key: from the left, the longest that
// begins at a place. It returns s itself where there is none.
func (r *Replacer) String(s string) string {
	if r == nil || !r.in(s) {
		return s
	}
	var b strings.Builder
	r.scan(&b, s, true)
	return b.String()
}

func (r *Replacer) in(s string) bool {
	for _, k := range r.keys {
		if strings.Contains(s, k) {
			return true
		}
	}
	return false
}

// CutEnd returns the beginning of a text that was cut off behind s, without what may
// be the beginning of a key there: half a key is no key to String. Whole keys stay.
func (r *Replacer) CutEnd(s string) string {
	if r == nil {
		return s
	}
	return s[:len(s)-len(r.scan(nil, s, false))]
}

// CutStart returns the end of a text that was cut off before s, without what may be
// the end of a key there. Whole keys stay.
func (r *Replacer) CutStart(s string) string {
	if r == nil {
		return s
	}
	cut := 0
	for _, k := range r.keys {
		for n := min(len(k)-1, len(s)); n > cut; n-- {
			if s[:n] == k[len(k)-n:] {
				cut = n
			}
		}
	}
	// A whole key may begin in what is left out. Then it goes as a whole.
	for again := cut > 0; again; {
		again = false
		for _, k := range r.keys {
			from := max(cut-len(k)+1, 0)
			if i := strings.Index(s[from:min(cut+len(k)-1, len(s))], k); i >= 0 {
				cut, again = from+i+len(k), true
			}
		}
	}
	return s[cut:]
}

// scan writes s to b, if there is one, without its keys and returns what it left over:
// an end that may become a key with what follows. Where last is set nothing follows.
func (r *Replacer) scan(b *strings.Builder, s string, last bool) (rest string) {
	write := func(s string) {
		if b != nil {
			b.WriteString(s)
		}
	}
	from := 0
scan:
	for i := 0; i < len(s); {
		if !r.first[s[i]] {
			i++
			continue
		}
		at := s[i:]
		for _, k := range r.keys {
			switch {
			case strings.HasPrefix(at, k):
				write(s[from:i])
				write(Mark)
				i += len(k)
				from = i
				continue scan
			case !last && strings.HasPrefix(k, at):
				// Longer keys come first: a shorter one that fits has to wait for this one.
				write(s[from:i])
				return at
			}
		}
		i++
	}
	write(s[from:])
	return ""
}

// Stream replaces keys in text that comes in pieces. What it gives out adds up to
// what Replacer.String makes of the whole, however it was cut. One goroutine at a
// time may use it.
type Stream struct {
	r    *Replacer
	held string
}

// Stream returns a new stream. It may be made of a nil Replacer.
func (r *Replacer) Stream() *Stream { return &Stream{r: r} }

// Next takes a piece and returns what can be given out by now.
func (s *Stream) Next(piece string) string {
	if s.r == nil {
		return piece
	}
	var b strings.Builder
	s.held = s.r.scan(&b, s.held+piece, false)
	return b.String()
}

// End returns what was held back, and begins anew.
func (s *Stream) End() string {
	held := s.held
	s.held = ""
	if s.r == nil {
		return held
	}
	var b strings.Builder
	s.r.scan(&b, held, true)
	return b.String()
}
