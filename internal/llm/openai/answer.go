package openai

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// chunk is one event of a stream, or a whole answer.
type chunk struct {
	Choices []struct {
		Index        int
		Delta        json.RawMessage
		Message      json.RawMessage
		FinishReason json.RawMessage `json:"finish_reason"`
		Usage        *usage
	}
	Usage *usage

	// What stands here where an error came instead of an answer.
	Error  json.RawMessage
	Object string
	Code   json.RawMessage
	Text   json.RawMessage `json:"message"`
	Detail json.RawMessage
}

// usage is what providers report in one of several places.
type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	Details          *struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	// DeepSeek and Kimi.
	CacheHit int64 `json:"prompt_cache_hit_tokens"`
	Cached   int64 `json:"cached_tokens"`
}

// maxTokens is more than any request can have; sums of such stay far from overflowing.
const maxTokens = 1 << 40

// credible says that these can be numbers of tokens. Others would give a budget back
// what was spent, or use all of it up.
func (u *usage) credible() bool {
	return u.PromptTokens >= 0 && u.PromptTokens <= maxTokens && u.CompletionTokens >= 0 && u.CompletionTokens <= maxTokens
}

func (u *usage) cached() int64 {
	n := max(0, u.CacheHit, u.Cached)
	if u.Details != nil {
		n = max(n, u.Details.CachedTokens)
	}
	return min(n, u.PromptTokens)
}

// answer collects the message that a stream carries.
type answer struct {
	onDelta func(llm.Delta)
	think   thinkSplitter

	choice    int  // the choice that is read
	hasChoice bool // any was seen
	calls     []*call
	byIndex   map[int]*call
	fields    map[string]*value
	// spoken is the reasoning field that is streamed; others repeat it.
	spoken string
	finish string
	usage  *usage
	// size is how much has come, in bytes.
	size int
}

type call struct {
	id, name string
	args     strings.Builder
	fields   map[string]*value
}

// callSize is what a call costs that says nothing.
const callSize = 256

// value is a further field: strings are concatenated, of others the last counts.
type value struct {
	isText bool
	text   strings.Builder
	raw    json.RawMessage
	parts  []*part // of reasoning_details
	byKey  map[string]*part
}

// part is a part of reasoning_details, which comes in pieces: what grows with them,
// and what stands beside it.
type part struct {
	fields map[string]json.RawMessage
	texts  map[string]*strings.Builder
}

// MarshalJSON implements json.Marshaler.
func (p *part) MarshalJSON() ([]byte, error) {
	all := maps.Clone(p.fields)
	for name, text := range p.texts {
		all[name] = llm.AppendString(nil, text.String())
	}
	return json.Marshal(all)
}

// partKey is what pieces of one part have in common; "" for a piece that is a part of
// its own.
func partKey(piece map[string]json.RawMessage) string {
	if piece["index"] == nil {
		return ""
	}
	return string(piece["index"]) + " " + string(piece["type"])
}

// take joins a piece to the part, and returns how many bytes that adds.
func (p *part) take(piece map[string]json.RawMessage) (grown int) {
	for name, v := range piece {
		if string(v) == "null" {
			continue
		}
		if n, ok := p.takeText(name, v); ok {
			grown += n
			continue
		}
		grown += len(v) - len(p.fields[name])
		p.fields[name] = v
		delete(p.texts, name)
	}
	return grown
}

// takeText joins a piece of a text to what came of it before.
func (p *part) takeText(name string, v json.RawMessage) (grown int, ok bool) {
	switch name {
	case "text", "summary", "data":
	default:
		return 0, false
	}
	var piece, before string
	if json.Unmarshal(v, &piece) != nil {
		return 0, false
	}
	text := p.texts[name]
	if text == nil {
		first, there := p.fields[name]
		if !there || json.Unmarshal(first, &before) != nil {
			return 0, false
		}
		text = &strings.Builder{}
		text.WriteString(before)
		if p.texts == nil {
			p.texts = map[string]*strings.Builder{}
		}
		p.texts[name] = text
		delete(p.fields, name)
	}
	text.WriteString(piece)
	return len(piece), true
}

// dropped are fields of answers that say nothing to the provider later on.
func dropped(name string) bool {
	switch name {
	case "role", "annotations", "audio", "logprobs", "index", "id", "type", "object", "provider_specific_fields":
		return true
	}
	return false
}

// add takes the next event. A non-nil problem is an error that came in its place.
func (a *answer) add(c *chunk, data []byte) *problem {
	if p := c.problem(data); p != nil {
		return p
	}
	if c.Usage != nil && *c.Usage != (usage{}) && c.Usage.credible() {
		a.usage = c.Usage
	}
	for _, ch := range c.Choices {
		if !a.hasChoice {
			a.hasChoice, a.choice = true, ch.Index
		}
		if ch.Index != a.choice {
			continue
		}
		if ch.Usage != nil && a.usage == nil && ch.Usage.credible() {
			a.usage = ch.Usage
		}
		if len(ch.Delta) > 0 && string(ch.Delta) != "null" {
			a.delta(ch.Delta, false)
		} else if len(ch.Message) > 0 {
			a.delta(ch.Message, true)
		}
		var reason string
		if json.Unmarshal(ch.FinishReason, &reason) == nil && reason != "" {
			a.finish = reason
		}
	}
	return nil
}

// problem returns the error that an event carries, nil where it is none.
func (c *chunk) problem(data []byte) *problem {
	has := func(v json.RawMessage) bool {
		switch string(v) {
		case "", "null", `""`, "{}", "false", "0":
			return false
		}
		return true
	}
	switch {
	case has(c.Error):
	case c.Object == "error":
	case len(c.Choices) == 0 && c.Usage == nil && (has(c.Text) || has(c.Detail)):
	default:
		return nil
	}
	p := parseProblem(data)
	return &p
}

// delta takes a piece of the message, or the whole one.
func (a *answer) delta(raw json.RawMessage, whole bool) {
	var d map[string]json.RawMessage
	if json.Unmarshal(raw, &d) != nil {
		return
	}
	// Reasoning comes before the text it leads to, also within one piece.
	for _, name := range reasoningFields {
		var s string
		if v := d[name]; len(v) > 0 && json.Unmarshal(v, &s) == nil {
			delete(d, name)
			if s == "" {
				continue
			}
			if a.spoken == "" || a.fields[a.spoken] == nil {
				a.spoken = name
			}
			if a.fields == nil {
				a.fields = map[string]*value{}
			}
			a.join(a.fields, name, v)
			if name == a.spoken {
				a.reason(s)
			}
		}
	}
	if v := d["content"]; len(v) > 0 {
		a.contentPiece(v)
	}
	var refusal string
	if json.Unmarshal(d["refusal"], &refusal) == nil && refusal != "" {
		a.say(refusal)
	}
	var calls []json.RawMessage
	if json.Unmarshal(d["tool_calls"], &calls) == nil {
		for i, v := range calls {
			a.call(v, i, len(calls), whole)
		}
	}
	if fn := d["function_call"]; len(fn) > 0 && string(fn) != "null" {
		// The form before tool calls had one call without an id.
		a.call(json.RawMessage(`{"index":0,"function":`+string(fn)+`}`), 0, 1, false)
	}
	for name, v := range d {
		switch name {
		case "content", "refusal", "tool_calls", "function_call":
			continue
		}
		if dropped(name) {
			continue
		}
		if a.fields == nil {
			a.fields = map[string]*value{}
		}
		a.join(a.fields, name, v)
	}
}

// contentPiece takes content as text or as a list of parts, in which Mistral
// sends its reasoning.
func (a *answer) contentPiece(v json.RawMessage) {
	var s string
	if json.Unmarshal(v, &s) == nil {
		a.say(s)
		return
	}
	var parts []struct {
		Type     string
		Text     string
		Thinking json.RawMessage
	}
	if json.Unmarshal(v, &parts) != nil {
		return
	}
	for _, p := range parts {
		a.say(p.Text)
		var text string
		if len(p.Thinking) > 0 && json.Unmarshal(p.Thinking, &text) != nil {
			var inner []struct{ Text string }
			_ = json.Unmarshal(p.Thinking, &inner)
			for _, t := range inner {
				text += t.Text
			}
		}
		a.size += len(text)
		a.reason(text)
	}
}

func (a *answer) say(s string) {
	if s == "" {
		return
	}
	a.size += len(s)
	text, reasoning := a.think.feed(s)
	a.emit(text, reasoning)
}

func (a *answer) reason(s string) {
	a.emit("", s)
}

func (a *answer) emit(text, reasoning string) {
	if a.onDelta != nil && (text != "" || reasoning != "") {
		a.onDelta(llm.Delta{Text: text, Reasoning: reasoning})
	}
}

// piece is what an event says of a call.
type piece struct {
	index          int // -1 where it is missing
	id, name, args string
	fields         map[string]json.RawMessage
}

func parsePiece(raw json.RawMessage) (p piece, ok bool) {
	if json.Unmarshal(raw, &p.fields) != nil {
		return piece{}, false
	}
	var fn struct {
		Name      string
		Arguments json.RawMessage
	}
	_ = json.Unmarshal(p.fields["function"], &fn)
	_ = json.Unmarshal(p.fields["id"], &p.id)
	p.name, p.index = fn.Name, -1
	if v, ok := p.fields["index"]; ok && json.Unmarshal(v, &p.index) != nil {
		p.index = -1
	}
	if len(fn.Arguments) > 0 && json.Unmarshal(fn.Arguments, &p.args) != nil {
		p.args = string(fn.Arguments) // an object in place of its text
	}
	for _, name := range []string{"index", "id", "type", "function"} {
		delete(p.fields, name)
	}
	return p, true
}

// call takes a piece of a call, element i of n in its list; whole says that it is all
// of one.
func (a *answer) call(raw json.RawMessage, i, n int, whole bool) {
	p, ok := parsePiece(raw)
	if !ok {
		return
	}
	var c *call
	if !whole {
		c = a.callOf(p, i, n)
	}
	if c == nil {
		c = &call{fields: map[string]*value{}}
		a.calls = append(a.calls, c)
		a.size += callSize
	}
	if p.index >= 0 {
		if a.byIndex == nil {
			a.byIndex = map[int]*call{}
		}
		a.byIndex[p.index] = c
	}
	a.joinCall(c, p)
}

// callOf returns the call that a piece goes on with, nil where it begins one. Pieces
// belong together by index; where that is missing by id; where that is missing too
// by their place, a name beginning a new call.
func (a *answer) callOf(p piece, i, n int) *call {
	switch {
	case p.index >= 0:
		c := a.byIndex[p.index]
		// Some servers give every call index 0; a new id with a name tells.
		if c != nil && p.id != "" && c.id != "" && p.id != c.id && p.name != "" {
			return nil
		}
		return c
	case p.id != "":
		for _, c := range slices.Backward(a.calls) {
			if c.id == p.id {
				return c
			}
		}
		return nil
	case p.name != "", len(a.calls) == 0:
		return nil
	case n > 1 && i < len(a.calls):
		return a.calls[len(a.calls)-min(n, len(a.calls))+i]
	}
	return a.calls[len(a.calls)-1]
}

func (a *answer) joinCall(c *call, p piece) {
	if c.id == "" {
		c.id = p.id
	}
	switch {
	case c.name == "":
		c.name = p.name
	case p.name != c.name && c.args.Len() == 0:
		// A name in pieces; a repeated one is no piece.
		c.name += p.name
	}
	c.args.WriteString(p.args)
	a.size += len(p.args) + len(p.name) + len(p.id)
	for name, v := range p.fields {
		a.join(c.fields, name, v)
	}
}

// join joins a piece of a field to what came before.
func (a *answer) join(fields map[string]*value, name string, v json.RawMessage) {
	if string(v) == "null" {
		return
	}
	f := fields[name]
	if f == nil {
		f = &value{}
		fields[name] = f
		a.size += len(name)
	}
	var s string
	if json.Unmarshal(v, &s) == nil {
		f.isText = true
		f.text.WriteString(s)
		a.size += len(s)
		return
	}
	f.isText = false
	if name == detailsField {
		var parts []map[string]json.RawMessage
		if json.Unmarshal(v, &parts) == nil {
			a.size += f.details(parts)
			return
		}
	}
	a.size += len(v) - len(f.raw)
	f.raw = slices.Clone(v)
}

// details joins the pieces of reasoning parts: those of one index and type are
// one part, whose texts are concatenated. It returns how many bytes they add.
func (f *value) details(pieces []map[string]json.RawMessage) (grown int) {
	for _, piece := range pieces {
		if piece == nil {
			continue
		}
		key := partKey(piece)
		if p := f.byKey[key]; p != nil {
			grown += p.take(piece)
			continue
		}
		p := &part{fields: piece}
		f.parts = append(f.parts, p)
		if key != "" {
			if f.byKey == nil {
				f.byKey = map[string]*part{}
			}
			f.byKey[key] = p
		}
		for name, v := range piece {
			grown += len(name) + len(v)
		}
	}
	return grown
}

// collect returns the fields as JSON, without the empty ones.
func collect(fields map[string]*value) map[string]llm.RawJSON {
	var out map[string]llm.RawJSON
	for name, f := range fields {
		var v llm.RawJSON
		switch {
		case f.isText:
			if f.text.Len() > 0 {
				v = llm.AppendString(nil, f.text.String())
			}
		case f.parts != nil:
			v, _ = json.Marshal(f.parts)
		default:
			v = f.raw
		}
		switch string(v) {
		case "", "[]", "{}":
			continue
		}
		if out == nil {
			out = map[string]llm.RawJSON{}
		}
		out[name] = v
	}
	return out
}

// message returns the whole message. It ends the answer: what was held back of
// the text is shown.
func (a *answer) message(keepThink bool) llm.Message {
	a.emit(a.think.end())
	text, _, inline := a.think.result()
	m := llm.Message{Role: llm.Assistant, Content: text, Extra: collect(a.fields)}
	if inline != "" && keepThink {
		if m.Extra == nil {
			m.Extra = map[string]llm.RawJSON{}
		}
		m.Extra[thinkField] = llm.AppendString(nil, inline)
	}
	seen := map[string]bool{}
	for _, c := range a.calls {
		if c.id == "" || seen[c.id] {
			c.id = mintID()
		}
		seen[c.id] = true
		m.ToolCalls = append(m.ToolCalls, llm.ToolCall{
			ID: c.id, Name: c.name, Arguments: c.args.String(), Extra: collect(c.fields)})
	}
	return m
}

// wholeCalls reports whether the arguments of every call are whole.
func (a *answer) wholeCalls() bool {
	for _, c := range a.calls {
		if s := strings.TrimSpace(c.args.String()); s != "" && !json.Valid([]byte(s)) {
			return false
		}
	}
	return true
}

func mintID() string {
	var b [12]byte
	_, _ = rand.Read(b[:])
	return "call_" + hex.EncodeToString(b[:])
}

// finishReason turns a provider's reason into OpenAI's word for it. Where the
// provider says that it failed, the second value says what it said.
func finishReason(s string) (reason llm.FinishReason, failed bool) {
	switch strings.ToLower(s) {
	case "stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed":
		return llm.FinishStop, false
	case "tool_calls", "tool_use", "function_call", "tool_call":
		return llm.FinishToolCalls, false
	case "length", "max_tokens", "max_length", "model_length", "max_output_tokens", "model_context_window_exceeded":
		return llm.FinishLength, false
	case "error", "abort", "aborted", "network_error", "insufficient_system_resource", "cancelled":
		return "", true
	}
	return llm.FinishReason(s), false
}
