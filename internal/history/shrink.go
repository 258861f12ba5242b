package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Estimate guesses how many tokens msgs take in a request. It counts rather too
// many than too few: about 3.5 ASCII bytes or one other character a token, and what
// the framing of messages and calls costs. The text of tool definitions is not
// part of it; see EstimateText.
func Estimate(msgs []llm.Message) int {
	n := 0
	for i := range msgs {
		n += estimate(&msgs[i])
	}
	return n
}

func estimate(m *llm.Message) int {
	n := 4 + EstimateText(m.Content) + EstimateText(m.ToolCallID)
	for _, call := range m.ToolCalls {
		n += 8 + EstimateText(call.ID) + EstimateText(call.Name) + EstimateText(call.Arguments)
		for _, v := range call.Extra {
			n += EstimateText(string(v))
		}
	}
	for _, v := range m.Extra {
		n += EstimateText(string(v))
	}
	return n
}

// EstimateText guesses how many tokens a text takes, as Estimate does.
func EstimateText(s string) int {
	ascii, other := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x80:
			ascii++
		case c >= 0xC0: // the first byte of a longer character
			other++
		}
	}
	return (ascii*2+6)/7 + other
}

// CutToolResults returns msgs with the results of tools shortened to capBytes,
// head and tail kept and what went between them named, but for those of the newest
// keepTurns turns; a turn is an assistant message and what follows it. cut counts
// the results that were shortened; msgs itself is returned where none was.
func CutToolResults(msgs []llm.Message, keepTurns, capBytes int) (out []llm.Message, cut int) {
	return rewrite(msgs, keepTurns, func(m *llm.Message) bool {
		if m.Role != llm.ToolRole {
			return false
		}
		short, ok := shorten(m.Content, capBytes)
		m.Content = short
		return ok
	})
}

// CutArguments returns msgs with the long texts in the arguments of calls shortened
// likewise, above all what was written to files. The arguments stay JSON objects.
func CutArguments(msgs []llm.Message, keepTurns, capBytes int) (out []llm.Message, cut int) {
	return rewrite(msgs, keepTurns, func(m *llm.Message) bool {
		changed := false
		for i, call := range m.ToolCalls {
			if len(call.Arguments) <= capBytes {
				continue
			}
			args, ok := shortenArguments(call.Arguments, capBytes)
			if !ok {
				continue
			}
			if !changed {
				m.ToolCalls = slices.Clone(m.ToolCalls)
				changed = true
			}
			m.ToolCalls[i].Arguments = args
		}
		return changed
	})
}

// rewrite applies change to copies of the messages before the newest keepTurns turns.
func rewrite(msgs []llm.Message, keepTurns int, change func(*llm.Message) bool) (out []llm.Message, changed int) {
	out = msgs
	for i := range msgs[:turnStart(msgs, keepTurns)] {
		m := msgs[i]
		if !change(&m) {
			continue
		}
		if changed == 0 {
			out = slices.Clone(msgs)
		}
		out[i] = m
		changed++
	}
	return out, changed
}

// turnStart returns where the newest n turns begin, which is the length of msgs for none.
func turnStart(msgs []llm.Message, n int) int {
	at := len(msgs)
	for i := len(msgs) - 1; i >= 0 && n > 0; i-- {
		if msgs[i].Role == llm.Assistant {
			at = i
			n--
		}
	}
	return at
}

// shorten keeps head and tail of s within about limit bytes; false where s fits.
func shorten(s string, limit int) (string, bool) {
	// A cut that saves less than the words about it costs is none.
	const notice = "\n[... %d bytes cut to save space ...]\n"
	limit = max(limit, 0)
	if len(s) <= limit+len(notice)+16 {
		return s, false
	}
	h, t := head(s, limit*2/3), tail(s, limit/3)
	return h + fmt.Sprintf(notice, len(s)-len(h)-len(t)) + t, true
}

func shortenArguments(args string, limit int) (string, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &fields) != nil {
		return args, false
	}
	cut := false
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if b.Len() == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.WriteString(jsonText(name) + ":")
		v := string(fields[name])
		var text string
		if len(v) > limit {
			if json.Unmarshal(fields[name], &text) != nil {
				text = v // lists and objects: their text is what can be shortened
			}
			if short, ok := shorten(text, limit); ok {
				v, cut = jsonText(short), true
			}
		}
		b.WriteString(v)
	}
	return b.String() + "}", cut
}

// DropMiddle returns msgs without the turns in the middle: what stays is what comes
// before the first assistant message (the system message, the task), the newest
// keepTurns turns (at least one), and from between the user messages that keep,
// where not nil, says yes to. One user message with the text notice stands where
// turns went. Calls and their results go together. dropped counts the messages
// that went; msgs itself is returned where none can go.
func DropMiddle(msgs []llm.Message, keepTurns int, notice string, keep func(llm.Message) bool) (out []llm.Message, dropped int) {
	first := slices.IndexFunc(msgs, func(m llm.Message) bool { return m.Role == llm.Assistant })
	end := turnStart(msgs, max(keepTurns, 1))
	// What the supervisor said to bring about the first turn that stays belongs to it.
	for end > 0 && msgs[end-1].Role == llm.User {
		end--
	}
	if first < 0 || end <= first {
		return msgs, 0
	}
	for _, m := range msgs[:first] {
		if m.Role != llm.User || m.Content != notice { // from an earlier time
			out = append(out, m)
		}
	}
	out = append(out, llm.Message{Role: llm.User, Content: notice})
	for _, m := range msgs[first:end] {
		if m.Role == llm.User && m.Content != notice && keep != nil && keep(m) {
			out = append(out, m)
		} else {
			dropped++
		}
	}
	return append(out, msgs[end:]...), dropped
}

// DroppedNotice stands where Shrink dropped turns.
const DroppedNotice = "[daemon] Earlier turns of this conversation were dropped here to save space. What they did to files is done; look again at what you need."

// Shrunk says what Shrink did, in numbers; the zero value is nothing.
type Shrunk struct {
	Results   int // tool results shortened
	Arguments int // messages whose calls were shortened
	Messages  int // messages dropped
	Before    int // tokens, as Estimate has them
	After     int
}

// String is for journals and logs.
func (s Shrunk) String() string {
	return fmt.Sprintf("%d tool results and %d calls shortened, %d messages dropped, about %d tokens instead of %d", s.Results, s.Arguments, s.Messages, s.After, s.Before)
}

// Shrink makes a valid conversation fit into limit tokens, as Estimate has them, and
// stops as soon as it does. It shortens old results first, then long arguments of
// old calls, then drops turns in the middle as DropMiddle does, then what the
// newest turns hold. It returns msgs itself where they fit or nothing helps; After
// tells whether it was enough. Calls and results stay together, and the system
// message and the first messages stay whole.
func Shrink(msgs []llm.Message, limit int, keep func(llm.Message) bool) ([]llm.Message, Shrunk) {
	did := Shrunk{Before: Estimate(msgs)}
	did.After = did.Before
	fits := func() bool {
		did.After = Estimate(msgs)
		return did.After <= limit
	}
	steps := []func(){
		func() { cut(&msgs, &did.Results, CutToolResults, 6, 2000) },
		func() { cut(&msgs, &did.Arguments, CutArguments, 6, 1000) },
		func() { cut(&msgs, &did.Results, CutToolResults, 3, 500) },
		func() { cut(&msgs, &did.Arguments, CutArguments, 3, 500) },
		func() { drop(&msgs, &did.Messages, 6, keep) },
		func() { drop(&msgs, &did.Messages, 3, keep) },
		func() { cut(&msgs, &did.Results, CutToolResults, 1, 2000) },
		func() { drop(&msgs, &did.Messages, 1, keep) },
		func() { cut(&msgs, &did.Results, CutToolResults, 0, 8000) },
		func() { cut(&msgs, &did.Results, CutToolResults, 0, 2000) },
		func() { cut(&msgs, &did.Arguments, CutArguments, 0, 1000) },
		func() { cut(&msgs, &did.Results, CutToolResults, 0, 500) },
		func() { drop(&msgs, &did.Messages, 1, nil) },
		func() { cut(&msgs, &did.Results, CutToolResults, 0, 200) },
	}
	for _, step := range steps {
		if fits() {
			break
		}
		step()
	}
	fits()
	return msgs, did
}

func cut(msgs *[]llm.Message, count *int, by func([]llm.Message, int, int) ([]llm.Message, int), keepTurns, capBytes int) {
	out, n := by(*msgs, keepTurns, capBytes)
	*msgs, *count = out, *count+n
}

func drop(msgs *[]llm.Message, count *int, keepTurns int, keep func(llm.Message) bool) {
	out, n := DropMiddle(*msgs, keepTurns, DroppedNotice, keep)
	*msgs, *count = out, *count+n
}
