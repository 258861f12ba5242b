package agentdef

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/frontmatter"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/netproxy"
	"github.com/gasupervisor/gasupervisor/internal/spelling"
)

// Options say what the names in agent files can mean.
type Options struct {
	// Tools are the canonical names of all tools that there are.
	Tools []string
	// ReadOnly are the tools of an agent whose file has no tools key, unless
	// SessionTools: then they are those of the session.
	ReadOnly     []string
	SessionTools bool
	// ModelAlias gives what a model's name stands for: an LLM's name or Inherit.
	ModelAlias map[string]string
	// LLMs are the names of the configured LLMs.
	LLMs []string
	// HasSkill reports whether there is a skill of that name; nil: not asked.
	HasSkill func(name string) bool
}

// Warning is something in an agent file that has not the effect which its author
// expects. It never means more rights than the file asks for.
type Warning struct {
	// Line is counted from 1; 0 where it is the file as a whole.
	Line int
	Text string
	// Once is "" for a warning about this file. Others are the same for many files
	// and to be said once for all of them that have the same Once.
	Once string
}

func (w Warning) String() string {
	if w.Line > 0 {
		return fmt.Sprintf("line %d: %s", w.Line, w.Text)
	}
	return w.Text
}

// FileError is an agent file that is not loaded.
type FileError struct {
	Path string
	// Line is counted from 1; 0 where it is the file as a whole.
	Line    int
	Problem string
	// Hint says what to do, where that is known.
	Hint string
	Err  error
}

func (e *FileError) Error() string {
	s := e.Path
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	s += ": " + e.Problem
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *FileError) Unwrap() error { return e.Err }

// fieldNames are the keys of agent files, in the form of this project. Other
// spellings of the same word, Claude Code's maxTurns among them, are equal.
func fieldNames() []string {
	return []string{"name", "description", "llm", "model", "max_turns", "timeout", "tools", "disallowed_tools", "skills", "completion", "network"}
}

// others are keys that Claude Code knows, and what is to be said about them: "" for
// those that change nothing but looks.
func others(key string) (text string, ok bool) {
	const no = "has no effect here"
	switch key {
	case "color", "version", "author", "license", "metadata", "category", "tags":
		return "", true
	case "permissionmode", "mcpservers", "hooks", "memory", "background", "isolation", "effort", "initialprompt":
		return no, true
	case "disabled", "allowedtools":
		return "", true
	}
	return "", false
}

// ParseFile makes a Definition of an agent file. It is pure; path gives the name
// where the file has none, and stands in errors. An error is a *FileError: the file
// says something that cannot be kept, and leaving it out could grant more than its
// author wanted. Everything else that goes wrong is a warning.
func ParseFile(path string, data []byte, o Options) (Definition, []Warning, error) {
	known := func(key string) bool {
		for _, n := range fieldNames() {
			if frontmatter.Normal(n) == key {
				return true
			}
		}
		_, other := others(key)
		return other
	}
	doc, err := frontmatter.Parse(data, frontmatter.Options{Known: known, Loose: []string{"description"}})
	if err != nil {
		return Definition{}, nil, fileError(path, err)
	}
	p := &fileParser{Options: o, def: Definition{
		Name:   strings.TrimSuffix(filepath.Base(path), ".md"),
		Kind:   KindCustom,
		Prompt: doc.Body,
		Source: path,
	}}
	for _, n := range doc.Notes {
		p.warn(n.Line, "%s", n.Text)
	}
	for _, f := range doc.Fields {
		if err := p.field(f); err != nil {
			return Definition{}, p.warnings, fileError(path, err)
		}
	}
	p.finish()
	if err := p.def.Validate(); err != nil {
		return Definition{}, p.warnings, &FileError{Path: path, Problem: strings.ReplaceAll(err.Error(), "\n", "; "), Err: err}
	}
	return p.def, p.warnings, nil
}

func fileError(path string, err error) *FileError {
	e := &FileError{Path: path, Problem: err.Error(), Err: err}
	var at *frontmatter.Error
	if errors.As(err, &at) {
		e.Line, e.Problem, e.Hint = at.Line, at.Problem, at.Hint
	}
	return e
}

// fileParser reads the fields of one file.
type fileParser struct {
	Options
	def      Definition
	warnings []Warning
	// seen are the keys that were read, in normal form, with their line.
	seen map[string]int
	// planOnly is Claude Code's permissionMode "plan".
	planOnly bool
}

func (p *fileParser) warn(line int, format string, args ...any) {
	p.warnings = append(p.warnings, Warning{Line: line, Text: fmt.Sprintf(format, args...)})
}

// field reads one key. The error is a *frontmatter.Error.
func (p *fileParser) field(f frontmatter.Field) error {
	key := frontmatter.Normal(f.Key)
	if key == "allowedtools" {
		p.warn(f.Line, "%s: read as \"tools\", which is the key for what an agent may call", f.Key)
		key = "tools"
	}
	if line, twice := p.seen[key]; twice {
		return f.Wrong("want it once", "stands in line %d already", line)
	}
	if p.seen == nil {
		p.seen = map[string]int{}
	}
	p.seen[key] = f.Line
	switch key {
	case "tools":
		return p.tools(f)
	case "disallowedtools":
		return p.disallowed(f)
	case "skills":
		return p.skills(f)
	case "network":
		return p.network(f)
	}
	if slices.Contains([]string{"name", "description", "llm", "model", "maxturns", "timeout", "completion", "disabled", "permissionmode"}, key) {
		text, err := f.Text()
		if err != nil {
			return err
		}
		return p.text(f, key, strings.TrimSpace(text))
	}
	text, ok := others(key)
	switch {
	case ok && text != "":
		p.warn(f.Line, "%s: %s", f.Key, text)
	case !ok:
		meant := spelling.Nearest(f.Key, fieldNames())
		if meant == "" && strings.Contains(key, "tool") {
			meant = "tools or disallowed_tools"
		}
		if strings.Contains(meant, "tools") {
			// Passing it over could leave the agent with tools that it was not to have.
			return f.Wrong(fmt.Sprintf("did you mean %s?", meant), "there is no such key")
		}
		if meant != "" {
			meant = ", did you mean " + meant + "?"
		}
		p.warn(f.Line, "%s: unknown key%s", f.Key, meant)
	}
	return nil
}

// text reads a key whose value is a text.
func (p *fileParser) text(f frontmatter.Field, key, text string) error {
	if text == "" {
		if key == "name" || key == "completion" {
			p.warn(f.Line, "%s: has no value", f.Key)
		}
		return nil
	}
	switch key {
	case "name":
		p.def.Name = text
	case "description":
		p.def.Description = text
	case "llm":
		if !slices.Contains(p.LLMs, text) {
			return f.Wrong("want one of: "+strings.Join(p.LLMs, ", "), "no LLM is named %q", text)
		}
		p.def.LLM = text
	case "model":
		p.model(f, text)
	case "maxturns":
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return f.Wrong("want a number of turns, 1 or more", "got %q", text)
		}
		p.def.MaxTurns = n
	case "timeout":
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return f.Wrong(`want a time such as "30m"`, "got %q", text)
		}
		p.def.Timeout = d
	case "completion":
		c := Completion(strings.ToLower(text))
		if c != CompletionTool && c != CompletionText && c != CompletionRequired {
			return f.Wrong("want tool, text or required", "got %q", text)
		}
		p.def.Completion = c
	case "disabled":
		if text != "false" {
			return f.Wrong("", "the agent is switched off")
		}
	case "permissionmode":
		p.planOnly = strings.EqualFold(text, "plan")
		if !p.planOnly {
			p.warn(f.Line, "%s: has no effect here", f.Key)
		}
	}
	return nil
}

// model finds out what a model's name means.
func (p *fileParser) model(f frontmatter.Field, name string) {
	for alias, means := range p.ModelAlias {
		if !strings.EqualFold(alias, name) {
			continue
		}
		if means != Inherit {
			p.def.LLM = means
			return
		}
		p.def.Model = Inherit
		p.warnings = append(p.warnings, Warning{Line: f.Line, Once: "model " + alias,
			Text: fmt.Sprintf("model %q means the session's model; [agent] model_alias in config.toml can give it an LLM of its own", alias)})
		return
	}
	switch {
	case strings.EqualFold(name, Inherit):
		p.def.Model = Inherit
	case slices.Contains(p.LLMs, name):
		p.def.LLM = name
	default:
		p.def.Model = name
		p.warnings = append(p.warnings, Warning{Line: f.Line, Once: "model " + name,
			Text: fmt.Sprintf("model %q is neither an LLM of config.toml nor an alias; the LLM's server is asked for a model of that name", name)})
	}
}

// tools reads what the agent may call.
func (p *fileParser) tools(f frontmatter.Field) error {
	items, err := f.Items()
	if err != nil {
		return err
	}
	if f.Empty() {
		p.warn(f.Line, "%s: has no value, so the agent has no tools; leave the key out for the usual ones", f.Key)
	}
	p.def.Tools = []string{}
	every := false
	var typos, none, patterns []string
	for _, t := range splitTools(items) {
		name, ok := canonicalTool(t.name, p.Options.Tools)
		switch {
		case t.pattern != "":
			patterns = append(patterns, t.pattern)
		case strings.EqualFold(t.name, "all") || t.name == "*":
			every = true
		case !ok:
			typos = append(typos, t.name)
		case name == "":
			none = append(none, t.name)
		case !slices.Contains(p.def.Tools, name) && name != completionTool:
			p.def.Tools = append(p.def.Tools, name)
		}
	}
	if every {
		p.def.Tools = nil
	}
	p.warnTools(f, typos, none)
	if len(patterns) > 0 {
		p.warn(f.Line, "%s: %s: conditions cannot be kept here, so it grants nothing", f.Key, quoted(patterns))
	}
	return nil
}

// warnTools tells of names that granted nothing.
func (p *fileParser) warnTools(f frontmatter.Field, typos, none []string) {
	for _, t := range typos {
		meant := spelling.Nearest(t, p.Options.Tools)
		if meant != "" {
			meant = "; did you mean " + meant + "?"
		}
		p.warn(f.Line, "%s: there is no tool %q, so it grants nothing%s", f.Key, t, meant)
	}
	if len(none) > 0 {
		p.warn(f.Line, "%s: no counterpart here, so granted is nothing for %s", f.Key, quoted(none))
	}
}

// disallowed reads what is taken away. What cannot be understood here must not be
// passed over: it would leave a tool granted.
func (p *fileParser) disallowed(f frontmatter.Field) error {
	items, err := f.Items()
	if err != nil {
		return err
	}
	for _, t := range splitTools(items) {
		if t.name == "*" || strings.EqualFold(t.name, "all") {
			p.def.DisallowedTools = slices.Clone(p.Options.Tools)
			continue
		}
		name, ok := canonicalTool(t.name, p.Options.Tools)
		if !ok {
			hint := "want names of tools"
			if meant := spelling.Nearest(t.name, p.Options.Tools); meant != "" {
				hint = "did you mean " + meant + "?"
			}
			return f.Wrong(hint, "there is no tool %q", t.name)
		}
		if name == "" || name == completionTool {
			continue
		}
		if t.pattern != "" {
			p.warn(f.Line, "%s: %q: conditions cannot be kept here, so all of %s is taken away", f.Key, t.pattern, name)
		}
		if !slices.Contains(p.def.DisallowedTools, name) {
			p.def.DisallowedTools = append(p.def.DisallowedTools, name)
		}
	}
	return nil
}

func (p *fileParser) skills(f frontmatter.Field) error {
	items, err := f.Items()
	if err != nil {
		return err
	}
	for _, item := range items {
		for name := range strings.FieldsFuncSeq(item, func(r rune) bool { return r == ',' || r == '\n' }) {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(p.def.Skills, name) {
				p.def.Skills = append(p.def.Skills, name)
				if p.HasSkill != nil && !p.HasSkill(name) {
					p.warn(f.Line, "%s: there is no skill %q", f.Key, name)
				}
			}
		}
	}
	return nil
}

// network reads what commands may reach, which only narrows what the task may.
func (p *fileParser) network(f frontmatter.Field) error {
	items, err := f.Items()
	if err != nil {
		return err
	}
	p.def.Network = []string{}
	for _, item := range items {
		for host := range strings.FieldsFuncSeq(item, func(r rune) bool { return r == ',' || r == '\n' }) {
			switch host = strings.TrimSpace(host); {
			case host == "", strings.EqualFold(host, "off"):
			case strings.EqualFold(host, "all"):
				p.def.Network = nil
				return nil
			default:
				if _, err := netproxy.Parse([]string{host}); err != nil {
					return f.Wrong(`want "off", "all", or a list such as ["api.example.org:443"]`, "got %q", host)
				}
				p.def.Network = append(p.def.Network, host)
			}
		}
	}
	return nil
}

// finish fills in what the file leaves open.
func (p *fileParser) finish() {
	if _, given := p.seen["tools"]; !given && !p.SessionTools {
		p.def.Tools = slices.DeleteFunc(slices.Clone(p.ReadOnly), func(n string) bool { return n == completionTool })
		if p.def.Tools == nil {
			p.def.Tools = []string{}
		}
	}
	if p.planOnly {
		// Claude Code lets such an agent read only.
		for _, n := range p.Options.Tools {
			if !slices.Contains(p.ReadOnly, n) && !slices.Contains(p.def.DisallowedTools, n) && n != completionTool {
				p.def.DisallowedTools = append(p.def.DisallowedTools, n)
			}
		}
		p.warn(p.seen["permissionmode"], "permissionMode: plan: only tools that read are granted")
	}
	if p.def.Description == "" {
		p.warn(0, "there is no description, so other agents do not know when to use this one")
	}
}

// quoted writes names for a message.
func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = strconv.Quote(n)
	}
	return strings.Join(q, ", ")
}
