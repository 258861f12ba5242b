package round

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/spelling"
)

const (
	maxSettings = 1 << 20              // bytes of a context.json
	maxKeys     = 1000                 // fields of a context.json
	maxText     = 100                  // lines of Settings.AsText, and warnings about them
	maxTextLine = 4000                 // bytes of one line of Settings.AsText
	maxTimeout  = 365 * 24 * time.Hour // longest timeout that is meant
)

// SettingsError is a context.json that is not JSON, or a value in it that is wrong.
type SettingsError struct {
	// Line is where, from 1.
	Line int
	// Key is the key with the wrong value; "" where the file as a whole is wrong.
	Key string
	// Value is what was found, cut to size.
	Value string
	// Want is the right form.
	Want string
}

func (e *SettingsError) Error() string {
	what := e.Value
	if e.Key != "" {
		what = fmt.Sprintf("%q is %s", e.Key, e.Value)
	}
	return fmt.Sprintf("line %d: %s; want %s", e.Line, what, e.Want)
}

const wantSettings = `one JSON object, such as {"work_dir": "/absolute/path", "max_turns": 40}`

// ParseSettings reads a context.json. An error is a *SettingsError and means that
// the task cannot be run as its supervisor wants it. Warnings name what was taken
// as mere text, for status.json. Paths are absolute and clean; whether they may be
// used is for the policy to say.
func ParseSettings(data []byte) (s Settings, warnings []string, err error) {
	data = bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))
	if len(data) > maxSettings {
		return Settings{}, nil, &SettingsError{Line: 1, Value: fmt.Sprintf("%d bytes", len(data)), Want: fmt.Sprintf("at most %d bytes", maxSettings)}
	}
	fields, err := topFields(data)
	if err != nil {
		return Settings{}, nil, err
	}
	p := &settingsParser{}
	last := make(map[string]int, len(fields))
	for i, f := range fields {
		last[f.key] = i
	}
	for i, f := range fields {
		p.line = f.line
		if last[f.key] != i {
			p.warn("line %d: %q stands twice; the last one counts", f.line, f.key)
			continue
		}
		if err := p.field(f.key, f.value); err != nil {
			return Settings{}, nil, err
		}
	}
	if p.unshown > 0 {
		p.warn("%d more values were not given to the agent", p.unshown)
	}
	return p.s, p.warnings, nil
}

// member is one field of the file.
type member struct {
	key   string
	value json.RawMessage
	line  int
}

// topFields returns the fields of the object that data holds, in order.
func topFields(data []byte) ([]member, error) {
	fail := func(offset int, format string, args ...any) error {
		offset = min(max(offset, 0), len(data))
		return &SettingsError{Line: 1 + bytes.Count(data[:offset], []byte("\n")), Value: fmt.Sprintf(format, args...), Want: wantSettings}
	}
	text := bytes.TrimLeft(data, " \t\r\n")
	if len(text) == 0 {
		return nil, fail(0, "the file is empty")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		offset := len(data)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			offset = int(syntax.Offset) - 1
		}
		return nil, fail(offset, "not JSON: %v", err)
	}
	if text[0] != '{' {
		return nil, fail(len(data)-len(text), "the file holds %s", shown(whole))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return nil, fail(0, "not JSON: %v", err)
	}
	var fields []member
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fail(int(dec.InputOffset()), "not JSON: %v", err)
		}
		if len(fields) == maxKeys {
			return nil, fail(int(dec.InputOffset()), "more than %d keys", maxKeys)
		}
		f := member{line: 1 + bytes.Count(data[:dec.InputOffset()], []byte("\n"))}
		f.key, _ = key.(string) // keys of an object are strings
		if err := dec.Decode(&f.value); err != nil {
			return nil, fail(int(dec.InputOffset()), "not JSON: %v", err)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

type settingsParser struct {
	s        Settings
	warnings []string
	line     int
	unshown  int // values that were more than maxText
}

func (p *settingsParser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// asText gives a value to the agent to read, and says why it is no more than that.
func (p *settingsParser) asText(key string, v json.RawMessage, why string, args ...any) {
	if len(p.s.AsText) == maxText {
		p.unshown++
		return
	}
	key = cutText(strings.Map(printable, strings.ToValidUTF8(key, "\uFFFD")), 100)
	var text string
	if v[0] != '"' || json.Unmarshal(v, &text) != nil || strings.ContainsFunc(text, unicode.IsControl) {
		var b bytes.Buffer
		if json.Compact(&b, v) != nil {
			return
		}
		text = b.String()
	}
	p.s.AsText = append(p.s.AsText, cutText(key+": "+strings.ToValidUTF8(text, "\uFFFD"), maxTextLine))
	p.warn("line %d: %s: %s; given to the agent as text only", p.line, key, fmt.Sprintf(why, args...))
}

// field takes one field of the file.
func (p *settingsParser) field(key string, v json.RawMessage) error {
	known, ok := settingKeys[key]
	if string(v) == "null" && ok {
		return nil
	}
	if !ok {
		why := "no known key"
		if near := spelling.Nearest(key, slices.Sorted(maps.Keys(settingKeys))); near != "" {
			why += fmt.Sprintf(" (did you mean %q?)", near)
		}
		p.asText(key, v, "%s", why)
		return nil
	}
	if want := known(p, key, v); want != "" {
		return &SettingsError{Line: p.line, Key: key, Value: shown(v), Want: want}
	}
	return nil
}

// settingKeys takes each known key. A returned text is the form that was wanted
// and not found; the keys that are given to the agent as text return none.
var settingKeys = map[string]func(p *settingsParser, key string, v json.RawMessage) (want string){
	"task": func(p *settingsParser, key string, v json.RawMessage) string {
		if json.Unmarshal(v, &p.s.Task) != nil {
			p.s.Task = ""
			p.asText(key, v, "not a string")
		}
		return ""
	},
	"work_dir": func(p *settingsParser, key string, v json.RawMessage) string {
		var path string
		if json.Unmarshal(v, &path) == nil && path == "" {
			return ""
		}
		path, why := absolute(v)
		if why != "" {
			p.asText(key, v, "%s", why)
		}
		p.s.WorkDir = path
		return ""
	},
	"input_files": func(p *settingsParser, key string, v json.RawMessage) string {
		p.s.InputFiles = p.files(key, v)
		return ""
	},
	"output_files": func(p *settingsParser, key string, v json.RawMessage) string {
		p.s.OutputFiles = p.files(key, v)
		return ""
	},
	"dependencies": func(p *settingsParser, key string, v json.RawMessage) string {
		var list []json.RawMessage
		if json.Unmarshal(v, &list) != nil {
			p.asText(key, v, "not a list of texts")
			return ""
		}
		for i, item := range list {
			var text string
			if json.Unmarshal(item, &text) != nil || string(item) == "null" {
				p.asText(fmt.Sprintf("%s[%d]", key, i), item, "not a text")
			} else if strings.TrimSpace(text) != "" {
				p.s.Dependencies = append(p.s.Dependencies, text)
			}
		}
		return ""
	},

	"agent": func(p *settingsParser, _ string, v json.RawMessage) string {
		return takeName(v, &p.s.Agent, `an agent's name, such as "general"`)
	},
	"llm": func(p *settingsParser, _ string, v json.RawMessage) string {
		const want = `the name of a configured LLM or its number from 0, such as "default" or 0`
		if n, ok := wholeNumber(v); ok && n >= 0 {
			p.s.LLM = strconv.FormatInt(n, 10)
			return ""
		}
		return takeName(v, &p.s.LLM, want)
	},
	"model": func(p *settingsParser, _ string, v json.RawMessage) string {
		return takeName(v, &p.s.Model, `a model's name as its provider has it, such as "gpt-5-mini"`)
	},
	"fork_from": func(p *settingsParser, _ string, v json.RawMessage) string {
		const want = `the name of a task, without a path, such as "audit"`
		if want := takeName(v, &p.s.ForkFrom, want); want != "" {
			return want
		}
		if strings.ContainsAny(p.s.ForkFrom, `/\`) || strings.HasPrefix(p.s.ForkFrom, ".") {
			return want
		}
		return ""
	},
	"tools": func(p *settingsParser, _ string, v json.RawMessage) string {
		const want = `names of tools, such as ["read_file", "search_files"] or "read_file, search_files"`
		var text string
		var list []*string
		switch {
		case json.Unmarshal(v, &text) == nil:
			for part := range strings.SplitSeq(text, ",") {
				list = append(list, &part)
			}
		case json.Unmarshal(v, &list) != nil:
			return want
		}
		p.s.ToolsGiven, p.s.Tools = true, []string{}
		for _, name := range list {
			if name == nil {
				return want
			}
			if n := strings.TrimSpace(*name); n != "" && !slices.Contains(p.s.Tools, n) {
				p.s.Tools = append(p.s.Tools, n)
			}
		}
		return ""
	},
	"max_turns": func(p *settingsParser, _ string, v json.RawMessage) string {
		n, ok := wholeNumber(v)
		if !ok || n < 1 || n > 1_000_000 {
			return "a whole number from 1 to 1000000, such as 40"
		}
		p.s.MaxTurns = int(n)
		return ""
	},
	"max_tokens": func(p *settingsParser, _ string, v json.RawMessage) string {
		n, ok := wholeNumber(v)
		if !ok || n < 1 {
			return "a whole number of 1 or more, such as 200000"
		}
		p.s.MaxTokens = n
		return ""
	},
	"max_cost_usd": func(p *settingsParser, _ string, v json.RawMessage) string {
		if n, ok := number(v); ok && n > 0 {
			p.s.MaxCostUSD = n
			return ""
		}
		return "a number of US dollars above 0, such as 0.5"
	},
	"timeout": func(p *settingsParser, _ string, v json.RawMessage) string {
		const want = `a time above 0, such as "10m", "1h30m" or 600 for seconds, of a year at most`
		var text string
		var d time.Duration
		if n, ok := number(v); ok && n <= maxTimeout.Seconds() {
			d = time.Duration(n * float64(time.Second))
		} else if json.Unmarshal(v, &text) == nil {
			var err error
			if d, err = time.ParseDuration(strings.TrimSpace(text)); err != nil {
				return want
			}
		}
		if d <= 0 || d > maxTimeout {
			return want
		}
		p.s.Timeout = d
		return ""
	},
	"verbose": func(p *settingsParser, _ string, v json.RawMessage) string {
		if json.Unmarshal(v, &p.s.Verbose) != nil {
			return "true or false"
		}
		return ""
	},
	"output_schema": func(p *settingsParser, _ string, v json.RawMessage) string {
		var b bytes.Buffer
		if v[0] != '{' || json.Compact(&b, v) != nil {
			return `a JSON Schema object, such as {"type": "object", "properties": {"count": {"type": "integer"}}}`
		}
		p.s.OutputSchema = b.Bytes()
		return ""
	},
}

// files reads an object of names and absolute paths. What is neither is text.
func (p *settingsParser) files(key string, v json.RawMessage) map[string]string {
	var entries map[string]json.RawMessage
	if json.Unmarshal(v, &entries) != nil {
		p.asText(key, v, "not an object of names and absolute paths")
		return nil
	}
	var files map[string]string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		path, why := absolute(entries[name])
		if why == "" && (strings.TrimSpace(name) == "" || strings.ContainsFunc(name, unicode.IsControl)) {
			why = "the name is blank or holds control characters"
		}
		if why != "" {
			p.asText(key+"."+name, entries[name], "%s", why)
			continue
		}
		if files == nil {
			files = make(map[string]string, len(entries))
		}
		files[name] = path
	}
	return files
}

// absolute reads an absolute path; why says what else it is.
func absolute(v json.RawMessage) (path, why string) {
	switch {
	case v[0] != '"' || json.Unmarshal(v, &path) != nil:
		return "", "not a string"
	case strings.ContainsFunc(path, unicode.IsControl):
		return "", "a path with control characters"
	case !filepath.IsAbs(path):
		return "", "not an absolute path"
	}
	return filepath.Clean(path), ""
}

// takeName reads a name into dst; want is the form to name where it is none.
func takeName(v json.RawMessage, dst *string, want string) string {
	var name string
	if json.Unmarshal(v, &name) != nil {
		return want
	}
	name = strings.TrimSpace(name)
	if name == "" || strings.ContainsFunc(name, unicode.IsControl) {
		return want
	}
	*dst = name
	return ""
}

func number(v json.RawMessage) (float64, bool) {
	var n float64
	err := json.Unmarshal(v, &n)
	return n, err == nil
}

// wholeNumber reads a number without a fraction, also where it is written as 1e6 or 3.0.
func wholeNumber(v json.RawMessage) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	n, ok := number(v)
	if !ok || n != float64(int64(n)) || n > 1<<53 || n < -1<<53 {
		return 0, false
	}
	return int64(n), true
}

// shown is a value as it stands in messages.
func shown(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return "no JSON"
	}
	return cutText(strings.ToValidUTF8(b.String(), "\uFFFD"), 80)
}

func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// cutText cuts s to at most n bytes of whole characters and says that it did.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}
