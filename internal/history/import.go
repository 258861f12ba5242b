package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Bounds of what Import reads.
const (
	// MaxImport is the size in bytes. It is far more than any context window holds.
	MaxImport = 64 << 20
	// maxImportDepth is how deeply arrays and objects may nest.
	maxImportDepth = 1000
	// maxMessages is how many messages there may be: small ones take many times their
	// size in memory.
	maxMessages = 100_000
	// maxCalls is how many calls a message may have.
	maxCalls = 500
	// maxQuoted is how often a conversation may be wrapped into a JSON string.
	maxQuoted = 3
)

// ImportError says where a conversation could not be read, and what was expected.
type ImportError struct {
	// Line and Offset say where, counted from 1 and in bytes from 0. They count
	// within the quoted text where Quoted.
	Line   int
	Offset int64
	Quoted bool
	// Message is the number of the message from 1; 0 where none was reached.
	Message int
	Why     string
}

func (e *ImportError) Error() string {
	where := fmt.Sprintf("line %d, byte %d", e.Line, e.Offset)
	if e.Quoted {
		where += " of the quoted text"
	}
	if e.Message > 0 {
		where += fmt.Sprintf(", message %d", e.Message)
	}
	return "read conversation: " + where + ": " + e.Why
}

const wantForm = "want a list of messages, an object with a list \"messages\", or either of them in a JSON string"

// Import reads a conversation in any of these forms: a list of messages of OpenAI's
// chat API; a list of messages with content blocks (text, tool_use, tool_result,
// thinking), as Anthropic's API and GenericAgent have them; {"messages": list}; a
// JSON string that holds one of these. Forms may be mixed.
//
// The result is valid and has no system message: the one who goes on with the
// conversation brings its own, and what stood in the imported one becomes a user
// message. Images and the like leave a notice. Signed thinking is kept as the
// field "thinking_blocks", all thinking as "reasoning_content"; other fields that
// are not mere bookkeeping are kept by their names. Assistant messages that follow
// each other are the pieces of one answer and become one message. An error is an *ImportError.
func Import(data []byte) ([]llm.Message, error) {
	if len(data) > MaxImport {
		return nil, &ImportError{Line: 1, Why: fmt.Sprintf("the conversation has %d bytes; %d are the limit", len(data), MaxImport)}
	}
	msgs, err := (&source{text: bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))}).read(0)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		if m := &msgs[i]; m.Role == llm.System && !blank(m.Content) {
			m.Role, m.Content = llm.User, fmt.Sprintf(strayMessage, llm.System)+m.Content
		}
	}
	return Repair(joinAnswers(msgs)), nil
}

// joinAnswers makes one message of assistant messages that follow each other, as
// some write the pieces of one answer.
func joinAnswers(msgs []llm.Message) []llm.Message {
	var joined []llm.Message
	for _, m := range msgs {
		last := len(joined) - 1
		if m.Role != llm.Assistant || last < 0 || joined[last].Role != llm.Assistant || len(joined[last].ToolCalls)+len(m.ToolCalls) > maxCalls {
			joined = append(joined, m)
			continue
		}
		into := &joined[last]
		if into.Content != "" && m.Content != "" {
			into.Content += "\n"
		}
		into.Content += m.Content
		into.ToolCalls = append(into.ToolCalls, m.ToolCalls...)
		for name, v := range m.Extra {
			if into.Extra == nil {
				into.Extra = make(map[string]llm.RawJSON)
			}
			if into.Extra[name] == nil {
				into.Extra[name] = v
			}
		}
	}
	return joined
}

// source is a JSON text that positions are counted in.
type source struct {
	text   []byte
	quoted bool
}

func (s *source) fail(offset, message int, format string, args ...any) error {
	offset = min(max(offset, 0), len(s.text))
	return &ImportError{
		Line:    1 + bytes.Count(s.text[:offset], []byte("\n")),
		Offset:  int64(offset),
		Quoted:  s.quoted,
		Message: message,
		Why:     fmt.Sprintf(format, args...),
	}
}

func (s *source) read(unquoted int) ([]llm.Message, error) {
	text := bytes.TrimLeft(s.text, " \t\r\n")
	start := len(s.text) - len(text)
	if len(text) == 0 {
		return nil, s.fail(start, 0, "there is nothing; %s", wantForm)
	}
	// Checked before anything that recurses sees it.
	if at := tooDeep(text, maxImportDepth); at >= 0 {
		return nil, s.fail(start+at, 0, "lists and objects nest more than %d deep", maxImportDepth)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		offset := len(text)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			offset = int(syntax.Offset) - 1
		}
		return nil, s.fail(start+offset, 0, "not JSON: %v; %s", err, wantForm)
	}
	switch text[0] {
	case '[':
		return s.list(start, text)
	case '{':
		at, list, err := field(text, "messages")
		switch {
		case err != nil:
			return nil, s.fail(start, 0, "not JSON: %v", err)
		case list == nil:
			return nil, s.fail(start, 0, "an object without \"messages\"; %s", wantForm)
		case list[0] != '[':
			return nil, s.fail(start+at, 0, "\"messages\" is %s; want a list of messages", kind(list))
		}
		return s.list(start+at, list)
	case '"':
		if unquoted == maxQuoted {
			return nil, s.fail(start, 0, "a JSON string in a JSON string, %d times; %s", maxQuoted, wantForm)
		}
		var inner string
		if err := json.Unmarshal(text, &inner); err != nil {
			return nil, s.fail(start, 0, "not JSON: %v", err)
		}
		return (&source{text: []byte(inner), quoted: true}).read(unquoted + 1)
	}
	return nil, s.fail(start, 0, "found %s; %s", kind(text), wantForm)
}

// field returns the value of a field of a JSON object and where it stands; the
// last one where there are several, nil where there is none.
func field(object []byte, name string) (at int, value json.RawMessage, err error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return 0, nil, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return 0, nil, err
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return 0, nil, err
		}
		if key == name {
			at, value = int(dec.InputOffset())-len(v), v
		}
	}
	return at, value, nil
}

func (s *source) list(start int, text []byte) ([]llm.Message, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, s.fail(start, 0, "not JSON: %v", err)
	}
	var msgs []llm.Message
	for n := 1; dec.More(); n++ {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, s.fail(start+int(dec.InputOffset()), n, "not JSON: %v", err)
		}
		read, err := message(raw)
		if err != nil {
			return nil, s.fail(start+int(dec.InputOffset())-len(raw), n, "%v", err)
		}
		if msgs = append(msgs, read...); len(msgs) > maxMessages {
			return nil, s.fail(start+int(dec.InputOffset()), n, "there are more than %d messages", maxMessages)
		}
	}
	return msgs, nil
}

// roles maps what is found in role fields to the four roles.
var roles = map[string]llm.Role{
	"system": llm.System, "developer": llm.System,
	"user": llm.User, "human": llm.User,
	"assistant": llm.Assistant, "model": llm.Assistant, "ai": llm.Assistant,
	"tool": llm.ToolRole, "function": llm.ToolRole,
}

// bookkeeping names fields that tell about a message and that no provider wants back.
var bookkeeping = map[string]bool{
	"id": true, "type": true, "object": true, "model": true, "usage": true, "created": true, "created_at": true, "timestamp": true,
	"stop_reason": true, "stop_sequence": true, "finish_reason": true, "annotations": true, "tool_results": true, "cache_control": true,
}

// message reads one message, which may hold several of ours: results are content
// blocks of a user message in one form and messages in the other.
func message(raw json.RawMessage) ([]llm.Message, error) {
	if raw[0] != '{' {
		return nil, fmt.Errorf("found %s; want a message, an object with \"role\" and \"content\"", kind(raw))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	role, err := roleOf(fields)
	if err != nil {
		return nil, err
	}
	in := incoming{m: llm.Message{Role: role}}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := in.field(name, fields[name]); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return in.messages()
}

func roleOf(fields map[string]json.RawMessage) (llm.Role, error) {
	const want = "want one of system, user, assistant, tool"
	v, ok := fields["role"]
	if !ok {
		return "", errors.New("there is no \"role\"; " + want)
	}
	var name string
	if json.Unmarshal(v, &name) != nil {
		return "", fmt.Errorf("\"role\" is %s; %s", kind(v), want)
	}
	role := roles[strings.ToLower(name)]
	if role == "" {
		return "", fmt.Errorf("\"role\" is %.40q; %s", name, want)
	}
	return role, nil
}

// incoming is a message while its fields are read.
type incoming struct {
	m       llm.Message
	content blocks
	// The further fields of calls and results, by their ids.
	callExtra, resultExtra map[string]map[string]llm.RawJSON
}

func (in *incoming) field(name string, v json.RawMessage) error {
	switch name {
	case "role":
	case "content":
		return in.content.read(v)
	case "tool_calls":
		var calls []llm.ToolCall
		err := json.Unmarshal(v, &calls)
		in.m.ToolCalls = append(in.m.ToolCalls, calls...)
		return err
	case "function_call":
		var call *struct {
			Name      string
			Arguments json.RawMessage
		}
		if err := json.Unmarshal(v, &call); err != nil || call == nil {
			return err
		}
		in.m.ToolCalls = append(in.m.ToolCalls, llm.ToolCall{Name: call.Name, Arguments: argumentText(call.Arguments)})
	case "tool_call_id":
		return json.Unmarshal(v, &in.m.ToolCallID)
	case callExtraField:
		return json.Unmarshal(v, &in.callExtra)
	case resultExtraField:
		return json.Unmarshal(v, &in.resultExtra)
	default:
		if bookkeeping[name] || string(v) == "null" {
			return nil
		}
		if in.m.Extra == nil {
			in.m.Extra = make(map[string]llm.RawJSON)
		}
		in.m.Extra[name] = v
	}
	return nil
}

// messages is what the message is here.
func (in *incoming) messages() ([]llm.Message, error) {
	m, results := in.m, in.content.results
	m.Content = strings.Join(in.content.texts, "\n")
	m.ToolCalls = append(in.content.calls, m.ToolCalls...)
	if m.Role == llm.Assistant {
		in.content.keepThinking(&m)
	}
	if n := max(len(m.ToolCalls), len(results)); n > maxCalls {
		return nil, fmt.Errorf("%d calls or results; %d are the limit of one message", n, maxCalls)
	}
	for i, call := range m.ToolCalls {
		if extra := in.callExtra[call.ID]; extra != nil {
			m.ToolCalls[i].Extra = extra
		}
	}
	for i, r := range results {
		results[i].Extra = in.resultExtra[r.ToolCallID]
	}
	switch {
	case len(results) == 0:
		return []llm.Message{m}, nil
	case m.Role == llm.Assistant:
		return append([]llm.Message{m}, results...), nil
	case m.Content == "":
		return results, nil
	}
	return append(results, m), nil
}

// blocks is what the content of a message holds.
type blocks struct {
	texts    []string
	thoughts []string
	signed   bool     // a thinking block is signed or encrypted
	thinking [][]byte // all of them
	calls    []llm.ToolCall
	results  []llm.Message
}

const wantContent = "want a string, null or a list of content blocks"

func (b *blocks) read(v json.RawMessage) error {
	switch v[0] {
	case 'n':
		return nil
	case '"':
		var s string
		err := json.Unmarshal(v, &s)
		b.text(s)
		return err
	case '{':
		return b.block(v)
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(v, &list); err != nil {
			return err
		}
		for i, block := range list {
			if err := b.block(block); err != nil {
				return fmt.Errorf("block %d: %w", i+1, err)
			}
		}
		return nil
	}
	return fmt.Errorf("found %s; %s", kind(v), wantContent)
}

func (b *blocks) text(s string) {
	if s != "" {
		b.texts = append(b.texts, s)
	}
}

func (b *blocks) block(v json.RawMessage) error {
	switch v[0] {
	case '"':
		return b.read(v)
	case '{':
	default:
		return fmt.Errorf("found %s; want an object with a \"type\"", kind(v))
	}
	var f struct {
		Type      string          `json:"type"`
		Text      *string         `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		ID        *string         `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID *string         `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
		Refusal   string          `json:"refusal"`
	}
	if err := json.Unmarshal(v, &f); err != nil {
		return err
	}
	deref := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	switch f.Type {
	case "text", "input_text", "output_text", "":
		if f.Text == nil {
			return errors.New("a text block without \"text\"")
		}
		b.text(*f.Text)
	case "refusal":
		b.text(f.Refusal)
	case "thinking", "redacted_thinking":
		b.signed = b.signed || f.Signature != "" || f.Type == "redacted_thinking"
		b.thinking = append(b.thinking, v)
		if f.Thinking != "" {
			b.thoughts = append(b.thoughts, f.Thinking)
		}
	case "tool_use":
		b.calls = append(b.calls, llm.ToolCall{ID: deref(f.ID), Name: f.Name, Arguments: argumentText(f.Input)})
	case "tool_result":
		var content blocks
		if len(f.Content) > 0 {
			if err := content.read(f.Content); err != nil {
				return fmt.Errorf("\"content\": %w", err)
			}
		}
		b.results = append(b.results, llm.Message{Role: llm.ToolRole, ToolCallID: deref(f.ToolUseID), Content: strings.Join(content.texts, "\n")})
	default:
		b.text(fmt.Sprintf("[%.40s omitted]", f.Type))
	}
	return nil
}

// Fields of a message in which thinking is kept. Providers disagree on the first
// two; the third holds blocks that only their maker can read.
const (
	reasoningField = "reasoning_content"
	altReasoning   = "reasoning"
	thinkingField  = "thinking_blocks"
	// These two hold, in an exported message, the other fields of its calls and results by id.
	callExtraField   = "tool_call_extra"
	resultExtraField = "tool_result_extra"
)

// keepThinking puts the thinking blocks of a message into fields of their own,
// unless the message brought such fields.
func (b *blocks) keepThinking(m *llm.Message) {
	set := func(name, raw string) {
		if m.Extra[name] != nil {
			return
		}
		if m.Extra == nil {
			m.Extra = make(map[string]llm.RawJSON)
		}
		m.Extra[name] = llm.RawJSON(raw)
	}
	if len(b.thoughts) > 0 && m.Extra[altReasoning] == nil && m.Extra[reasoningField] == nil {
		set(reasoningField, jsonText(strings.Join(b.thoughts, "\n")))
	}
	if b.signed {
		set(thinkingField, "["+string(bytes.Join(b.thinking, []byte(",")))+"]")
	}
}

// argumentText is the text of a call's arguments, which some write as an object.
func argumentText(v json.RawMessage) string {
	var s string
	if len(v) == 0 || string(v) == "null" {
		return "{}"
	}
	if v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// kind names what a JSON value is, for people.
func kind(v []byte) string {
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return string(v)
	case 'n':
		return "null"
	}
	return "a number"
}
