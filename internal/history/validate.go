// Package history keeps conversations valid. Providers refuse a whole request for
// one call without an answer, one repeated id or one blank message, so that a
// conversation which was imported, cut short or shortened must be put in order
// before it is sent, in the same way each time.
//
// Validate states the rules. Repair makes any list of messages keep them, and a
// Conversation keeps them while it grows, without ever touching what it already
// holds: prompt caches live from each request beginning with the bytes of the one
// before. Import and Export are the two ends of a fork; Shrink and its parts make
// a conversation fit a context window without splitting calls from results.
//
// Everything here is pure: no I/O, no clock, no randomness. Messages passed in are
// never changed.
package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// maxArgsDepth bounds the nesting of call arguments. Providers parse them with
// parsers that recurse.
const maxArgsDepth = 200

// InvalidError says what makes a conversation unfit for a strict provider.
type InvalidError struct {
	// Message is the index of the message that breaks a rule; the number of
	// messages where something is missing after the last one.
	Message int
	Why     string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("message %d: %s", e.Message, e.Why) }

// Validate reports the first breach of the rules that the strictest providers
// have, as an *InvalidError:
//
//   - a system message stands only at the very beginning, a user message is the
//     first of the others, and no assistant message follows another directly;
//   - no message is blank; an assistant message without text has calls;
//   - each call has an id that no other call of the conversation has, a name of up
//     to 64 ASCII letters, digits, "_" and "-", and a JSON object as arguments;
//   - each call is answered once, by a tool message among those that follow its
//     message directly, and every tool message answers one;
//   - all text is UTF-8, also where it is written with escapes, and other fields
//     hold JSON and do not repeat known ones.
//
// User messages may follow each other. No messages at all are valid.
func Validate(msgs []llm.Message) error {
	r := reader{ids: make(map[string]struct{})}
	for i, m := range msgs {
		why := r.place(msgs, i)
		if why == "" {
			why = contentProblem(m)
		}
		if why == "" {
			why = r.calls(m.ToolCalls)
		}
		if why != "" {
			return &InvalidError{Message: i, Why: why}
		}
	}
	if len(r.open) > 0 {
		return &InvalidError{Message: len(msgs), Why: fmt.Sprintf("call %q is not answered", r.open[0])}
	}
	return nil
}

// reader is what Validate knows of the messages before the one that it looks at.
type reader struct {
	ids     map[string]struct{} // of all calls
	open    []string            // of those that are not answered
	started bool                // there was a message other than the system's
}

// place says what speaks against message i where it stands; "" for nothing.
func (r *reader) place(msgs []llm.Message, i int) string {
	m := msgs[i]
	if len(r.open) > 0 && m.Role != llm.ToolRole {
		return fmt.Sprintf("call %q is not answered before it", r.open[0])
	}
	switch m.Role {
	case llm.System:
		if i > 0 {
			return "a system message that is not the first message"
		}
		return ""
	case llm.User:
	case llm.Assistant:
		if !r.started {
			return "an assistant message before any user message"
		}
		if msgs[i-1].Role == llm.Assistant {
			return "an assistant message follows another"
		}
	case llm.ToolRole:
		at := slices.Index(r.open, m.ToolCallID)
		if at < 0 {
			return fmt.Sprintf("answers call %q, which is not open", m.ToolCallID)
		}
		r.open = slices.Delete(r.open, at, at+1)
	default:
		return fmt.Sprintf("role %q", m.Role)
	}
	r.started = true
	return ""
}

// contentProblem says what is wrong with a message wherever it stands; "" for nothing.
func contentProblem(m llm.Message) string {
	switch {
	case blank(m.Content) && (len(m.ToolCalls) == 0 || m.Content != ""):
		return "blank"
	case !utf8.ValidString(m.Content):
		return "content is not UTF-8"
	case m.Role != llm.ToolRole && m.ToolCallID != "":
		return fmt.Sprintf("a %s message answers a call", m.Role)
	case m.Role != llm.Assistant && len(m.ToolCalls) > 0:
		return fmt.Sprintf("a %s message has calls", m.Role)
	}
	return extraProblem(m.Extra, messageFields)
}

// calls opens the calls of a message, and says what is wrong with one of them.
func (r *reader) calls(calls []llm.ToolCall) string {
	for _, call := range calls {
		switch _, used := r.ids[call.ID]; {
		case !validID(call.ID):
			return fmt.Sprintf("call id %q", call.ID)
		case used:
			return fmt.Sprintf("call id %q is used twice", call.ID)
		case !validName(call.Name):
			return fmt.Sprintf("call %q has the name %q", call.ID, call.Name)
		case !validArguments(call.Arguments):
			return fmt.Sprintf("arguments of call %q are not a JSON object", call.ID)
		}
		if why := extraProblem(call.Extra, callFields); why != "" {
			return fmt.Sprintf("call %q: %s", call.ID, why)
		}
		r.ids[call.ID] = struct{}{}
		r.open = append(r.open, call.ID)
	}
	return ""
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func validID(id string) bool {
	return !blank(id) && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}

func validName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) })
}

func nameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

func validArguments(args string) bool {
	return strings.HasPrefix(strings.TrimLeft(args, " \t\r\n"), "{") && validRaw(args) && tooDeep(args, maxArgsDepth) < 0
}

// validRaw reports whether s is JSON whose strings are valid Unicode.
func validRaw(s string) bool {
	return utf8.ValidString(s) && json.Valid([]byte(s)) && !hasLoneSurrogate(s)
}

// Extra fields of these names would stand twice in the message as it is sent.
var (
	messageFields = []string{"role", "content", "tool_calls", "tool_call_id"}
	callFields    = []string{"id", "type", "index", "function"}
)

func extraProblem(extra map[string]llm.RawJSON, known []string) string {
	for name, v := range extra {
		switch {
		case slices.Contains(known, name):
			return fmt.Sprintf("field %q is there twice", name)
		case !utf8.ValidString(name):
			return fmt.Sprintf("field name %q is not UTF-8", name)
		case !validRaw(string(v)):
			return fmt.Sprintf("field %q is not JSON", name)
		}
	}
	return ""
}

// tooDeep returns where in a JSON text arrays and objects nest more than limit
// deep, or -1.
func tooDeep[T string | []byte](text T, limit int) int {
	now := 0
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if now++; now > limit {
				return i
			}
		case c == '}' || c == ']':
			now--
		}
	}
	return -1
}

// eachSurrogate calls lone with the place of each \u escape in a JSON text that is
// half of a surrogate pair; Go reads those as U+FFFD, other parsers fail on them.
func eachSurrogate(s string, lone func(at int)) {
	if !strings.Contains(s, `\u`) {
		return
	}
	for i := 0; i < len(s)-1; i++ {
		if s[i] != '\\' {
			continue
		}
		u, ok := escape(s[i:])
		switch {
		case !ok:
			i++ // whatever is escaped, another backslash above all
		case u >= 0xD800 && u < 0xDC00:
			if low, ok := escape(s[i+6:]); ok && low >= 0xDC00 && low < 0xE000 {
				i += 11
				continue
			}
			lone(i)
			i += 5
		case u >= 0xDC00 && u < 0xE000:
			lone(i)
			i += 5
		default:
			i += 5
		}
	}
}

// escape reads the \uXXXX that s begins with.
func escape(s string) (u rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range []byte(s[2:6]) {
		u <<= 4
		switch {
		case '0' <= c && c <= '9':
			u |= rune(c - '0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			u |= rune(c|0x20-'a') + 10
		default:
			return 0, false
		}
	}
	return u, true
}

func hasLoneSurrogate(s string) bool {
	found := false
	eachSurrogate(s, func(int) { found = true })
	return found
}

// replaceSurrogates puts U+FFFD in place of halves of surrogate pairs.
func replaceSurrogates(s string) string {
	if !hasLoneSurrogate(s) {
		return s
	}
	b := []byte(s)
	eachSurrogate(s, func(at int) { copy(b[at:], `\ufffd`) })
	return string(b)
}
