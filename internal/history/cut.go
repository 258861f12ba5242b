package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// CutToolResults returns msgs with the results of tools shortened to capBytes,
// head and tail kept and what went between them named, but for those of the newest
// keepTurns turns and of calls that pinned, where not nil, says yes to; a turn is an
// assistant message and what follows it. cut counts the results that were shortened;
// msgs itself is returned where none was.
func CutToolResults(msgs []llm.Message, keepTurns, capBytes int, pinned func(llm.ToolCall) bool) (out []llm.Message, cut int) {
	held := map[string]bool{} // ids of pinned calls
	return rewrite(msgs, keepTurns, func(m *llm.Message) bool {
		for _, call := range m.ToolCalls {
			if pinned != nil && pinned(call) {
				held[call.ID] = true
			}
		}
		if m.Role != llm.ToolRole || held[m.ToolCallID] {
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

// CutTexts returns msgs with the user messages shortened likewise, but for those
// before the first answer, which are the task, and those that must, where not nil,
// says yes to.
func CutTexts(msgs []llm.Message, capBytes int, must func(llm.Message) bool) (out []llm.Message, cut int) {
	answered := false
	return rewrite(msgs, 0, func(m *llm.Message) bool {
		answered = answered || m.Role == llm.Assistant
		if !answered || m.Role != llm.User || must != nil && must(*m) {
			return false
		}
		short, ok := shorten(m.Content, capBytes)
		m.Content = short
		return ok
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
