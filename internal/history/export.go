package history

import (
	"bytes"
	"encoding/json"
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
	w.enc = json.NewEncoder(&w.buf)
	w.enc.SetEscapeHTML(false)
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
		for n < len(msgs) && msgs[n].Role == llm.ToolRole && bare(msgs[n]) && bare(msgs[i]) {
			n++
		}
		w.results(msgs[i:n])
		i = n - 1
	}
	w.buf.WriteString("\n]\n")
	return w.buf.Bytes(), w.err
}

// bare reports whether a result has no fields of its own beside text and call.
func bare(m llm.Message) bool { return len(m.Extra) == 0 }

type blockWriter struct {
	buf bytes.Buffer
	enc *json.Encoder
	err error
}

// value writes v; what it cannot encode is an error of the whole.
func (w *blockWriter) value(v any) {
	if err := w.enc.Encode(v); err != nil {
		if w.err == nil {
			w.err = err
		}
		return
	}
	w.buf.Truncate(w.buf.Len() - 1) // Encode ends with a newline
}

func (w *blockWriter) message(m llm.Message) {
	w.buf.WriteString(`{"role":`)
	w.value(m.Role)
	w.buf.WriteString(`,"content":[`)
	sep := ""
	next := func() { w.buf.WriteString(sep); sep = "," }

	extra := m.Extra
	if m.Role == llm.Assistant {
		var blocks []json.RawMessage
		blocks, extra = thinkingBlocks(extra)
		for _, b := range blocks {
			next()
			w.buf.Write(b)
		}
	}
	if m.Content != "" {
		next()
		w.buf.WriteString(`{"type":"text","text":`)
		w.value(m.Content)
		w.buf.WriteByte('}')
	}
	var callExtra map[string]map[string]llm.RawJSON
	for _, call := range m.ToolCalls {
		next()
		w.buf.WriteString(`{"type":"tool_use","id":`)
		w.value(call.ID)
		w.buf.WriteString(`,"name":`)
		w.value(call.Name)
		w.buf.WriteString(`,"input":`)
		// Verbatim, so that a fork's requests begin with the same bytes.
		w.buf.WriteString(strings.TrimSpace(call.Arguments))
		w.buf.WriteByte('}')
		if len(call.Extra) > 0 {
			if callExtra == nil {
				callExtra = make(map[string]map[string]llm.RawJSON)
			}
			callExtra[call.ID] = call.Extra
		}
	}
	w.buf.WriteByte(']')
	w.extra(extra)
	if callExtra != nil {
		w.buf.WriteString(`,"` + callExtraField + `":`)
		w.value(callExtra)
	}
	w.buf.WriteByte('}')
}

func (w *blockWriter) results(msgs []llm.Message) {
	if !bare(msgs[0]) {
		// Blocks have no place for the fields of a result: OpenAI's form has, and
		// GenericAgent answers a call itself whose result it does not see.
		w.value(msgs[0])
		return
	}
	w.buf.WriteString(`{"role":"user","content":[`)
	for i, m := range msgs {
		if i > 0 {
			w.buf.WriteByte(',')
		}
		w.buf.WriteString(`{"type":"tool_result","tool_use_id":`)
		w.value(m.ToolCallID)
		w.buf.WriteString(`,"content":`)
		w.value(m.Content)
		w.buf.WriteByte('}')
	}
	w.buf.WriteString(`]}`)
}

func (w *blockWriter) extra(extra map[string]llm.RawJSON) {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		w.buf.WriteByte(',')
		w.value(name)
		w.buf.WriteByte(':')
		w.value(extra[name])
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

// jsonText is s as a JSON string, without escapes for HTML.
func jsonText(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil { // a string cannot fail to encode
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

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
