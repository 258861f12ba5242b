package texttools

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// block is a part of an answer that is not text: a call, or the tags around some.
type block struct {
	from, to int
	call     *llm.ToolCall
}

// parse finds the calls in an answer. These forms are read, NAME being a tool's
// name, which need not be a known one but where said so:
//
//	<tool name="NAME">{...}</tool>               ours; also tool_call, tool_use, invoke, function, call
//	<function=NAME>{...}</function>
//	<tool_call>{"name": "NAME", "arguments": {...}}</tool_call>
//	{"name": "NAME", "arguments": {...}}         on lines of its own, a known tool
//	<NAME>...</NAME>                             a known tool
//
// Within tags arguments may also be tags of their own: <path>x</path>,
// <parameter name="path">x</parameter> or <parameter=path>x</parameter>. Quotes may be
// missing, code fences may stand around a call, line ends may stand in JSON strings,
// and the tag that ends the last call may be missing. A call whose JSON is broken or
// cut off is a call with those arguments: who runs it can say what is wrong.
//
// It takes time in proportion to the text, whatever that is.
func parse(text string, tools []llm.ToolSpec) []block {
	p := parser{text: text, tools: tools, effort: len(text)*maxEffort + minEffort}
	calls := false
	for i := 0; i < len(text); {
		b, ok := p.at(i)
		if !ok {
			i++
			continue
		}
		calls = calls || b.call != nil
		b = p.unfenced(b)
		p.blocks = append(p.blocks, b)
		i = max(b.to, i+1)
	}
	if !calls {
		return nil
	}
	return p.blocks
}

type parser struct {
	text   string
	tools  []llm.ToolSpec
	blocks []block
	// closers are where closing tags begin, by their names; made when one is looked for.
	closers map[string][]int
	// types are those of the arguments of tools that were looked up.
	types map[string]map[string]any
	// effort is how many bytes may yet be looked at in search of objects.
	effort int
}

// An object may begin in the middle of another, and a text may be one begun object
// after the other, each of which would have to be followed to its end. Texts that are
// meant as answers come nowhere near this; in others what lies beyond is no object.
const (
	maxEffort = 16
	minEffort = 64 << 10
)

// at reads the block that begins at i.
func (p *parser) at(i int) (block, bool) {
	switch p.text[i] {
	case '<':
		return p.tagged(i)
	case '{':
		if lineStart(p.text, i) {
			return p.bare(i)
		}
	}
	return block{}, false
}

// tag is an opening or closing tag.
type tag struct {
	name    string // in lower case
	written string
	attrs   string // what follows the name, with the "=" of <function=x>
	closing bool
	empty   bool // <x/>
	length  int
}

// maxTag bounds the length of a tag.
const maxTag = 200

// readTag reads the tag that s begins with.
func readTag(s string) (tag, bool) {
	end := strings.IndexByte(s[:min(len(s), maxTag)], '>')
	if end < 2 || s[0] != '<' {
		return tag{}, false
	}
	inner := s[1:end]
	t := tag{length: end + 1}
	if inner, t.closing = strings.CutPrefix(inner, "/"); strings.ContainsAny(inner, "<\n") {
		return tag{}, false
	}
	inner, t.empty = strings.CutSuffix(inner, "/")
	n := 0
	for n < len(inner) && nameByte(inner[n]) {
		n++
	}
	t.written, t.attrs = inner[:n], strings.TrimSpace(inner[n:])
	t.name = strings.ToLower(t.written)
	if n == 0 || n < len(inner) && inner[n] != ' ' && inner[n] != '\t' && inner[n] != '=' {
		return tag{}, false
	}
	return t, true
}

// space is what strings.TrimSpace trims of ASCII.
const space = " \t\n\v\f\r"

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// callTags begin a call whose tool is named in the tag or within; groupTags stand
// around calls and say nothing.
var (
	callTags  = []string{"tool", "tool_call", "toolcall", "tool_use", "function_call", "function", "invoke", "call"}
	groupTags = []string{"tools", "tool_calls", "function_calls"}
)

// value is the value of the tag's attribute, or what follows its "=" directly.
func (t tag) value(attr string) string {
	s := t.attrs
	if rest, ok := strings.CutPrefix(s, "="); ok {
		return unquote(rest)
	}
	for s != "" {
		key, rest, ok := strings.Cut(s, "=")
		if !ok {
			return ""
		}
		rest = strings.TrimLeft(rest, " \t")
		v := rest
		if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
			if end := strings.IndexByte(rest[1:], rest[0]); end >= 0 {
				v = rest[:end+2]
			}
		} else if end := strings.IndexAny(rest, " \t"); end >= 0 {
			v = rest[:end]
		}
		if strings.EqualFold(strings.TrimSpace(key), attr) {
			return unquote(v)
		}
		s = strings.TrimSpace(rest[len(v):])
	}
	return ""
}

func unquote(s string) string { return strings.TrimSpace(strings.Trim(strings.TrimSpace(s), `"'`)) }

// tagged reads a block that begins with a tag.
func (p *parser) tagged(i int) (block, bool) {
	t, ok := readTag(p.text[i:])
	if !ok {
		return block{}, false
	}
	body := i + t.length
	switch {
	case slices.Contains(groupTags, t.name):
		return block{from: i, to: body}, true
	case t.closing:
		// What closes a call that was read already, or one too many.
		return block{from: i, to: body}, slices.Contains(callTags, t.name) && len(p.blocks) > 0
	case slices.Contains(callTags, t.name):
		name := t.value("name")
		if name == "" {
			return p.namedWithin(i, body, t)
		}
		return p.call(i, body, t, name), true
	case p.known(t.written) && t.attrs == "" && p.holdsArguments(body, t):
		return p.call(i, body, t, t.written), true
	}
	return block{}, false
}

// holdsArguments reports whether a tag named for a tool is a call, and not just a
// word in angle brackets.
func (p *parser) holdsArguments(body int, t tag) bool {
	rest := strings.TrimLeft(p.text[body:], " \t\r\n`")
	if t.empty || strings.HasPrefix(rest, "{") {
		return true
	}
	inner, ok := readTag(rest)
	return ok && (!inner.closing || inner.written == t.written)
}

// namedWithin reads a call whose tag does not name its tool.
func (p *parser) namedWithin(i, body int, t tag) (block, bool) {
	rest := strings.TrimLeft(p.text[body:], " \t\r\n`")
	at := len(p.text) - len(rest)
	switch {
	case strings.HasPrefix(rest, "{"):
	case strings.HasPrefix(rest, "<"):
		// <tool_call><function=x>: the tag within is the call.
		inner, ok := readTag(rest)
		return block{from: i, to: body}, ok && (slices.Contains(callTags, inner.name) || p.known(inner.written))
	default:
		return block{}, false
	}
	raw, end, ok := p.object(at)
	if !ok {
		return block{}, false
	}
	name, args := envelope(raw)
	if name == "" {
		return block{}, false
	}
	return block{from: i, to: p.closed(end, t), call: &llm.ToolCall{Name: name, Arguments: args}}, true
}

// call reads the arguments of a call of a tool, from body on.
func (p *parser) call(i, body int, t tag, name string) block {
	b := block{from: i, to: body, call: &llm.ToolCall{Name: name, Arguments: "{}"}}
	if t.empty {
		return b
	}
	at := body + len(p.text[body:]) - len(strings.TrimLeft(p.text[body:], " \t\r\n"))
	if strings.HasPrefix(p.text[at:], "```") {
		if line := strings.IndexByte(p.text[at:], '\n'); line >= 0 {
			at += line + 1
		}
	}
	at += len(p.text[at:]) - len(strings.TrimLeft(p.text[at:], " \t\r\n"))
	if strings.HasPrefix(p.text[at:], "{") {
		if raw, end, ok := p.object(at); ok {
			if inner, args := envelope(raw); inner == name {
				raw = args
			}
			b.to, b.call.Arguments = p.closed(end, t), raw
			return b
		}
	}
	// No object, or a broken one: all up to the closing tag.
	b.to = len(p.text)
	inner := len(p.text)
	if end := p.closing(body, t); end >= 0 {
		b.to, inner = p.closed(end, t), end
	}
	trimmed := strings.TrimSpace(p.text[body:inner])
	if args, ok := p.fields(name, body, inner); ok {
		b.call.Arguments = args
	} else if trimmed != "" {
		b.call.Arguments = strings.TrimSpace(strings.Trim(trimmed, "`"))
	}
	return b
}

// closing finds the tag that closes t from a place on; -1 where there is none.
func (p *parser) closing(from int, t tag) int {
	if p.closers == nil {
		p.closers = closingTags(p.text)
	}
	at := p.closers[t.name]
	if i, _ := slices.BinarySearch(at, from); i < len(at) {
		return at[i]
	}
	return -1
}

// closingTags returns where each closing tag begins, by its name in lower case.
func closingTags(text string) map[string][]int {
	tags := map[string][]int{}
	for i := 0; ; {
		next := strings.Index(text[i:], "</")
		if next < 0 {
			return tags
		}
		i += next + 2
		end := i
		for end < len(text) && end-i < maxTag && nameByte(text[end]) {
			end++
		}
		if end > i && end < len(text) && text[end] == '>' {
			name := strings.ToLower(text[i:end])
			tags[name] = append(tags[name], i-2)
		}
	}
}

// closed returns where a block ends whose content ends at end: behind its closing
// tag, where there is one.
func (p *parser) closed(end int, t tag) int {
	rest := strings.TrimLeft(p.text[end:], " \t\r\n`")
	if c, ok := readTag(rest); ok && c.closing && (c.name == t.name || slices.Contains(callTags, c.name)) {
		return len(p.text) - len(rest) + c.length
	}
	return end
}

// bare reads an object that is a call of a known tool.
func (p *parser) bare(i int) (block, bool) {
	raw, end, ok := p.object(i)
	if !ok {
		return block{}, false
	}
	name, args := envelope(raw)
	if !p.known(name) {
		return block{}, false
	}
	return block{from: i, to: end, call: &llm.ToolCall{Name: name, Arguments: args}}, true
}

func (p *parser) known(name string) bool {
	return slices.ContainsFunc(p.tools, func(t llm.ToolSpec) bool { return t.Name == name })
}

// object reads the JSON object at i and returns it and where it ends. Line ends and
// other control characters that stand in its strings are taken as they are meant.
func (p *parser) object(i int) (raw string, end int, ok bool) {
	rest := strings.TrimLeft(p.text[i+1:], " \t\r\n")
	if rest == "" || rest[0] != '"' && rest[0] != '}' || p.effort <= 0 {
		return "", 0, false
	}
	end, controls := extent(p.text, i)
	if end < 0 {
		p.effort -= len(p.text) - i
		return "", 0, false
	}
	p.effort -= end - i
	raw = p.text[i:end]
	if controls {
		raw = escapeControls(raw)
	}
	return raw, end, json.Valid([]byte(raw))
}

// extent returns where the brackets are closed again that open at i, -1 where that is
// nowhere, and whether there are control characters within strings.
func extent(text string, i int) (end int, controls bool) {
	depth, inString := 0, false
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
			controls = controls || c < 0x20
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1, controls
			}
		}
	}
	return -1, controls
}

// escapeControls escapes control characters within the strings of a JSON value.
func escapeControls(s string) string {
	const hex = "0123456789abcdef"
	b := make([]byte, 0, len(s)+len(s)/16)
	inString := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case inString && c == '\\' && i+1 < len(s):
			i++
			b = append(b, c, s[i])
			continue
		case c == '"':
			inString = !inString
		case !inString || c >= 0x20:
		case c == '\n':
			b = append(b, '\\', 'n')
			continue
		case c == '\r':
			b = append(b, '\\', 'r')
			continue
		case c == '\t':
			b = append(b, '\\', 't')
			continue
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			continue
		}
		b = append(b, c)
	}
	return string(b)
}

// envelope reads an object that names a tool and holds its arguments; "" where it is
// none. It holds nothing else but an id and a type.
func envelope(raw string) (name, args string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(raw), &fields) != nil {
		return "", ""
	}
	for key, v := range fields {
		switch key {
		case "name", "tool", "tool_name", "function":
			if json.Unmarshal(v, &name) != nil {
				return "", ""
			}
		case "arguments", "parameters", "args", "input", "params":
			var text string
			args = string(v)
			if json.Unmarshal(v, &text) == nil {
				args = text // JSON within JSON
			}
		case "id", "type":
		default:
			return "", ""
		}
	}
	if args == "" || args == "null" {
		args = "{}"
	}
	return name, args
}

// fields reads arguments that are tags of their own, between two places.
func (p *parser) fields(tool string, from, to int) (string, bool) {
	to -= len(p.text[from:to]) - len(strings.TrimRight(p.text[from:to], space))
	var b strings.Builder
	for {
		from = to - len(strings.TrimLeft(p.text[from:to], space))
		rest := p.text[from:to]
		if rest == "" {
			break
		}
		t, ok := readTag(rest)
		if !ok || t.closing {
			return "", false
		}
		name := t.written
		if t.name == "parameter" || t.name == "param" || t.name == "arg" || t.name == "argument" {
			if name = t.value("name"); name == "" {
				return "", false
			}
		}
		from += t.length
		value := ""
		if !t.empty {
			end := p.closing(from, t)
			if end < 0 || end >= to {
				return "", false // cut off: nothing that may be run
			}
			value = p.text[from:end]
			from = end + len("</>") + len(t.name)
		}
		if b.Len() == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.Write(llm.AppendString(nil, name))
		b.WriteByte(':')
		b.WriteString(p.typed(tool, name, value))
	}
	if b.Len() == 0 {
		return "", false
	}
	return b.String() + "}", true
}

// typed is a value as JSON of the type that the tool's schema gives the argument.
func (p *parser) typed(tool, name, value string) string {
	v := strings.TrimSpace(value)
	if typ := p.typesOf(tool)[name]; typ != nil && typ != "string" && json.Valid([]byte(v)) {
		return v
	}
	// The line ends that set a value off from its tags are not part of it.
	value = strings.TrimPrefix(strings.TrimPrefix(value, "\r"), "\n")
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	return string(llm.AppendString(nil, value))
}

// typesOf returns the types that a tool's schema gives its arguments, by name.
func (p *parser) typesOf(tool string) map[string]any {
	if types, ok := p.types[tool]; ok {
		return types
	}
	types := map[string]any{}
	if i := slices.IndexFunc(p.tools, func(t llm.ToolSpec) bool { return t.Name == tool }); i >= 0 {
		var schema struct {
			Properties map[string]struct{ Type any }
		}
		if json.Unmarshal(p.tools[i].Parameters, &schema) == nil {
			for name, property := range schema.Properties {
				types[name] = property.Type
			}
		}
	}
	if p.types == nil {
		p.types = map[string]map[string]any{}
	}
	p.types[tool] = types
	return types
}

// maxFence bounds the length of the line that opens a code fence.
const maxFence = 100

// unfenced adds to a block the code fence around it.
func (p *parser) unfenced(b block) block {
	before := strings.TrimRight(p.text[:b.from], " \t\r\n")
	near := before[max(0, len(before)-maxFence):]
	line := near[strings.LastIndexByte(near, '\n')+1:]
	after := strings.TrimLeft(p.text[b.to:], " \t\r\n")
	ownLine := strings.Contains(p.text[len(before):b.from], "\n")
	if whole := len(line) == len(before) || len(line) < len(near); whole && ownLine && strings.HasPrefix(line, "```") && !strings.ContainsAny(line[3:], " `") && strings.HasPrefix(after, "```") {
		b.from = len(before) - len(line)
		b.to = len(p.text) - len(after) + 3
	}
	return b
}

// lineStart reports whether only blanks stand before i in its line.
func lineStart(text string, i int) bool {
	before := strings.TrimRight(text[:i], " \t")
	return before == "" || before[len(before)-1] == '\n'
}
