package history

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Export writes a conversation as a list of messages with content blocks, one
// message a line: the form that GenericAgent loads, and that Import reads back to
// the same messages. msgs are repaired first. What content blocks have no place
// for stands in further fields of the message, which GenericAgent passes over.
//
// A system message is written like the others, since it would be lost else;
// leave it out of msgs where the reader has its own.
func Export(msgs []llm.Message) ([]byte, error) {
	w := &blockWriter{}
	w.buf.WriteByte('[')
	msgs = Repair(msgs)
	for i := 0; i < len(msgs); i++ {
		if i > 0 {
			w.buf.WriteByte(',')
		}
		w.buf.WriteByte('\n')
		if msgs[i].Role != llm.ToolRole {
			w.message(msgs[i])
			continue
		}
		// The results of one assistant message share a message.
		n := i + 1
		for n < len(msgs) && msgs[n].Role == llm.ToolRole {
			n++
		}
		w.results(msgs[i:n])
		i = n - 1
	}
	w.buf.WriteString("\n]\n")
	return w.buf.Bytes(), w.err
}

type blockWriter struct {
	buf bytes.Buffer
	err error
}

func (w *blockWriter) text(s string) {
	w.buf.Write(llm.AppendString(w.buf.AvailableBuffer(), s))
}

func (w *blockWriter) raw(v []byte) {
	if err := json.Compact(&w.buf, v); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *blockWriter) message(m llm.Message) {
	w.buf.WriteString(`{"role":`)
	w.text(string(m.Role))
	w.buf.WriteString(`,"content":[`)
	sep := ""
	next := func() { w.buf.WriteString(sep); sep = "," }

	extra := m.Extra
	if m.Role == llm.Assistant {
		var blocks []json.RawMessage
		blocks, extra = thinkingBlocks(extra)
		for _, b := range blocks {
			next()
			w.raw(b)
		}
	}
	if m.Content != "" {
		next()
		w.buf.WriteString(`{"type":"text","text":`)
		w.text(m.Content)
		w.buf.WriteByte('}')
	}
	for _, call := range m.ToolCalls {
		next()
		w.buf.WriteString(`{"type":"tool_use","id":`)
		w.text(call.ID)
		w.buf.WriteString(`,"name":`)
		w.text(call.Name)
		w.buf.WriteString(`,"input":`)
		// Verbatim, so that a fork's requests begin with the same bytes.
		w.buf.WriteString(strings.TrimSpace(call.Arguments))
		w.buf.WriteByte('}')
	}
	w.buf.WriteByte(']')
	w.extra(",", extra)
	w.extraByID(callExtraField, func(yield func(string, map[string]llm.RawJSON) bool) {
		for _, call := range m.ToolCalls {
			if !yield(call.ID, call.Extra) {
				return
			}
		}
	})
	w.buf.WriteByte('}')
}

func (w *blockWriter) results(msgs []llm.Message) {
	w.buf.WriteString(`{"role":"user","content":[`)
	for i, m := range msgs {
		if i > 0 {
			w.buf.WriteByte(',')
		}
		w.buf.WriteString(`{"type":"tool_result","tool_use_id":`)
		w.text(m.ToolCallID)
		w.buf.WriteString(`,"content":`)
		w.text(m.Content)
		w.buf.WriteByte('}')
	}
	w.buf.WriteByte(']')
	w.extraByID(resultExtraField, func(yield func(string, map[string]llm.RawJSON) bool) {
		for _, m := range msgs {
			if !yield(m.ToolCallID, m.Extra) {
				return
			}
		}
	})
	w.buf.WriteByte('}')
}

// extraByID writes the fields of calls or results into one field of their message:
// providers refuse blocks with fields that they do not know.
func (w *blockWriter) extraByID(name string, each iter.Seq2[string, map[string]llm.RawJSON]) {
	end := ""
	for id, extra := range each {
		if len(extra) == 0 {
			continue
		}
		if end == "" {
			w.buf.WriteString(`,"` + name + `":{`)
		} else {
			w.buf.WriteByte(',')
		}
		w.text(id)
		w.buf.WriteString(":{")
		w.extra("", extra)
		w.buf.WriteByte('}')
		end = "}"
	}
	w.buf.WriteString(end)
}

// extra writes fields in the order of their names, sep before the first.
func (w *blockWriter) extra(sep string, extra map[string]llm.RawJSON) {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		w.buf.WriteString(sep)
		w.text(name)
		w.buf.WriteByte(':')
		w.raw(extra[name])
		sep = ","
	}
}

// thinkingBlocks returns the thinking in the fields of a message as content blocks,
// and the fields that these do not say.
func thinkingBlocks(extra map[string]llm.RawJSON) (list []json.RawMessage, rest map[string]llm.RawJSON) {
	if extra[thinkingField] == nil && extra[reasoningField] == nil && extra[altReasoning] == nil {
		return nil, extra
	}
	var read blocks
	said := json.Unmarshal(extra[thinkingField], &list) == nil && len(list) > 0
	for _, b := range list {
		said = said && len(b) > 0 && b[0] == '{' && read.block(b) == nil
	}
	// What Import would not take as signed thinking again stays a field.
	said = said && read.signed && len(read.thinking) == len(list)
	if !said {
		list, read = nil, blocks{}
		for _, name := range []string{reasoningField, altReasoning} {
			var text string
			if json.Unmarshal(extra[name], &text) == nil && text != "" {
				raw := json.RawMessage(`{"type":"thinking","thinking":` + jsonText(text) + `}`)
				list, read.thoughts = []json.RawMessage{raw}, []string{text}
				break
			}
		}
	}
	rest = make(map[string]llm.RawJSON, len(extra))
	for name, v := range extra {
		var text string
		switch {
		case name == thinkingField && said:
		case name == reasoningField && extra[altReasoning] == nil && len(read.thoughts) > 0 &&
			json.Unmarshal(v, &text) == nil && text == strings.Join(read.thoughts, "\n"):
		default:
			rest[name] = v
		}
	}
	return list, rest
}

// jsonText is s as a JSON string.
func jsonText(s string) string { return string(llm.AppendString(nil, s)) }

// head is the beginning of s, at most n bytes of whole characters.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// tail is the end of s, at most n bytes of whole characters.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	at := len(s) - n
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	return s[at:]
}
