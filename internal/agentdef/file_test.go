package agentdef

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var allTools = []string{"read_file", "list_files", "search_files", "list_code_definition_names", "execute_command", "use_skill",
	"write_to_file", "replace_in_file", "update_working_checkpoint", "update_plan", "task", "attempt_completion"}

var readOnly = []string{"read_file", "list_files", "search_files", "list_code_definition_names", "execute_command", "use_skill", "attempt_completion"}

func testOptions() Options {
	return Options{
		Tools: allTools, ReadOnly: readOnly,
		ModelAlias: map[string]string{"sonnet": "inherit", "haiku": "small"},
		LLMs:       []string{"default", "small"},
		HasSkill:   func(n string) bool { return n == "pdf" },
	}
}

func parse(t *testing.T, text string) (Definition, []Warning) {
	t.Helper()
	d, w, err := ParseFile("dir/reviewer.md", []byte(text), testOptions())
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return d, w
}

const described = "description: d\n"

// defaults are the tools of a file without the key.
var defaults = readOnly[:len(readOnly)-1]

func TestFrontMatterForms(t *testing.T) {
	plain, _ := parse(t, "---\nname: r\ndescription: d\ntools: Read\n---\nOne.\n\n---\nTwo.\n")
	if plain.Name != "r" || plain.Description != "d" || !slices.Equal(plain.Tools, []string{"read_file"}) || plain.Prompt != "One.\n\n---\nTwo.\n" ||
		plain.Kind != KindCustom || plain.Source != "dir/reviewer.md" {
		t.Fatalf("%+v", plain)
	}
	for name, text := range map[string]string{
		"byte order mark": "\ufeff---\nname: r\ndescription: d\ntools: Read\n---\nOne.\n\n---\nTwo.\n",
		"quoted":          "---\n\"name\": 'r'\ndescription: \"d\"\ntools: \"Read\"\n---\nOne.\n\n---\nTwo.\n",
		"flow":            "---\n{name: r, description: d, tools: [Read]}\n---\nOne.\n\n---\nTwo.\n",
		"comments":        "---\n# an agent\nname: r # its name\ndescription: d\n\ntools: Read\n--- \nOne.\n\n---\nTwo.\n",
	} {
		if got, _ := parse(t, text); !reflect.DeepEqual(got, plain) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	crlf, _ := parse(t, strings.ReplaceAll("---\nname: r\ndescription: d\ntools: Read\n---\nOne.\n\n---\nTwo.\n", "\n", "\r\n"))
	if want := strings.ReplaceAll(plain.Prompt, "\n", "\r\n"); crlf.Prompt != want {
		t.Errorf("CRLF: body %q", crlf.Prompt)
	}
	if crlf.Prompt = plain.Prompt; !reflect.DeepEqual(crlf, plain) {
		t.Errorf("CRLF: %+v", crlf)
	}

	// Without a block all is body, and the agent has its file's name and the usual tools.
	for _, text := range []string{
		"You review.\n",
		"---\nYou review. Be careful.\n---\nMore.\n",
		"Write such blocks:\n```yaml\n---\nname: x\ntools: all\n---\n```\n",
		"---\n\nYou review.\n",
	} {
		d, w := parse(t, text)
		if d.Name != "reviewer" || d.Prompt != text || !slices.Equal(d.Tools, defaults) || len(w) != 1 {
			t.Errorf("%q: %+v %v", text, d, w)
		}
	}
}

func TestTools(t *testing.T) {
	ab := []string{"read_file", "search_files"}
	none := []string{}
	for name, tc := range map[string]struct {
		yaml string
		want []string // nil: the session's
		warn string   // part of a warning; "" for none
	}{
		"comma string":       {"tools: Read, Grep", ab, ""},
		"no space":           {"tools: Read,Grep", ab, ""},
		"quoted string":      {`tools: "Read, Grep"`, ab, ""},
		"single quotes":      {"tools: 'Read, Grep'", ab, ""},
		"flow list":          {"tools: [Read, Grep]", ab, ""},
		"quoted flow list":   {`tools: ["Read", 'Grep']`, ab, ""},
		"flow, many lines":   {"tools: [\n  Read,\n  Grep,\n]", ab, ""},
		"block list":         {"tools:\n  - Read\n  - Grep", ab, ""},
		"block, no indent":   {"tools:\n- Read\n- \"Grep\"", ab, ""},
		"block scalar":       {"tools: |\n  Read\n  Grep", ab, ""},
		"trailing comma":     {"tools: Read, Grep,", ab, ""},
		"twice the same":     {"tools: Read, read_file, Grep", ab, ""},
		"canonical":          {"tools: [read_file, search_files]", ab, ""},
		"other case":         {"tools: READ, grep", ab, ""},
		"another program's":  {"tools: file_read, Grep", ab, ""},
		"completion":         {"tools: Read, Grep, attempt_completion", ab, ""},
		"allowed-tools":      {"allowed-tools: Read, Grep", ab, "tools"},
		"Tools":              {"Tools: Read, Grep", ab, ""},
		"missing":            {"", defaults, ""},
		"empty list":         {"tools: []", none, ""},
		"empty text":         {`tools: ""`, none, ""},
		"commas":             {`tools: ", ,"`, none, ""},
		"no value":           {"tools:", none, "no value"},
		"null":               {"tools: ~", none, "no value"},
		"typo":               {"tools: [red_file]", none, "did you mean read_file?"},
		"typos":              {"tools: Raed, serch_files", none, `there is no tool "Raed"`},
		"typo beside":        {"tools: Read, Grepp, Grep", ab, `"Grepp"`},
		"two in one":         {"tools: Read Grep", none, `"Read Grep"`},
		"all":                {"tools: all", nil, ""},
		"all in a list":      {"tools: [all]", nil, ""},
		"star":               {`tools: "*"`, nil, ""},
		"no counterpart":     {"tools: Read, WebFetch, Grep, mcp__x__y", ab, `"WebFetch", "mcp__x__y"`},
		"only such":          {"tools: mcp__x__y", none, "mcp__x__y"},
		"pattern":            {"tools: Bash(git diff:*)", none, "conditions"},
		"pattern in a list":  {"tools: [Bash(git diff:*), Read, Grep]", ab, "conditions"},
		"pattern with comma": {"tools: Bash(git diff:*, Write, x), Read, Grep", ab, "conditions"},
		"the same in a list": {"tools: [Bash(git diff:*, Write, x), Read, Grep]", ab, "conditions"},
		"in a block list":    {"tools:\n- Bash(a\n- Write\n- b)\n- Read\n- Grep", ab, "conditions"},
		"not closed":         {"tools: Read, Grep, Bash(git, Write", ab, "conditions"},
		"closed only":        {"tools: Read, Grep, Bash)", ab, "conditions"},
		"agents in it":       {"tools: Read, Grep, Task(explorer, verifier)", ab, "conditions"},
		"all in parentheses": {"tools: all(x)", none, "conditions"},
	} {
		t.Run(name, func(t *testing.T) {
			d, warnings := parse(t, "---\n"+described+tc.yaml+"\n---\nbody")
			if !reflect.DeepEqual(d.Tools, tc.want) {
				t.Errorf("tools %#v, want %#v", d.Tools, tc.want)
			}
			if got := fmt.Sprint(warnings); tc.warn == "" && len(warnings) > 0 || !strings.Contains(got, tc.warn) {
				t.Errorf("warnings %s, want %q", got, tc.warn)
			}
		})
	}
}

func TestSessionTools(t *testing.T) {
	o := testOptions()
	o.SessionTools = true
	for text, want := range map[string][]string{
		"---\ndescription: d\n---\nbody":      nil,
		"body":                                nil,
		"---\ntools: []\n---\nbody":           {},
		"---\ntools: [typo]\n---\nbody":       {},
		"---\ntools:\n---\nbody":              {},
		"---\nallowed_tools: Read\n---\nbody": {"read_file"},
		"---\npermissionMode: plan\ndisallowedTools: Bash\n---\n" + "b": nil,
	} {
		d, _, err := ParseFile("a.md", []byte(text), o)
		if err != nil || !reflect.DeepEqual(d.Tools, want) {
			t.Errorf("%q: %v, %v; want %v", text, d.Tools, err, want)
		}
		for _, n := range d.Effective(allTools) {
			if strings.Contains(text, "plan") && (!slices.Contains(readOnly, n) || n == "execute_command") {
				t.Errorf("plan mode: %s is granted", n)
			}
		}
	}
}

func TestDisallowedTools(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml string
		want string // the effective tools
		warn string
	}{
		"from all":        {"tools: all\ndisallowedTools: Write, Edit, Bash, task, Skill", "read_file list_files search_files list_code_definition_names update_working_checkpoint update_plan attempt_completion", ""},
		"from some":       {"tools: Read, Bash\ndisallowed_tools: [Bash]", "read_file attempt_completion", ""},
		"from the usual":  {"disallowed_tools: Bash, Skill, LS", "read_file search_files list_code_definition_names attempt_completion", ""},
		"pattern":         {"tools: Read, Bash\ndisallowedTools: Bash(rm:*)", "read_file attempt_completion", "all of execute_command is taken away"},
		"no counterpart":  {"tools: Read\ndisallowedTools: WebSearch", "read_file attempt_completion", ""},
		"all":             {"tools: Read\ndisallowedTools: all", "attempt_completion", ""},
		"never the last":  {"tools: Read\ndisallowedTools: attempt_completion", "read_file attempt_completion", ""},
		"nothing":         {"tools: Read\ndisallowedTools:", "read_file attempt_completion", ""},
		"no tool granted": {"tools: []\ndisallowedTools: Bash", "attempt_completion", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, warnings := parse(t, "---\n"+described+tc.yaml+"\n---\nbody")
			if got := strings.Join(d.Effective(allTools), " "); got != tc.want {
				t.Errorf("effective %s\nwant %s", got, tc.want)
			}
			if got := fmt.Sprint(warnings); tc.warn == "" && len(warnings) > 0 || !strings.Contains(got, tc.warn) {
				t.Errorf("warnings %s, want %q", got, tc.warn)
			}
		})
	}
}

func TestFields(t *testing.T) {
	d, w := parse(t, `---
name: deep reviewer
description: >-
  Reviews
  code.
model: haiku
maxTurns: "12"
timeout: 30m
skills: pdf, pdf
completion: required
network: [api.example.org:443, "*.example.org:*"]
color: blue
---
body`)
	want := Definition{Name: "deep reviewer", Description: "Reviews code.", Kind: KindCustom, Prompt: "body", LLM: "small", MaxTurns: 12, Timeout: 30 * time.Minute,
		Tools: defaults, Skills: []string{"pdf"}, Completion: CompletionRequired, Network: []string{"api.example.org:443", "*.example.org:*"}, Source: "dir/reviewer.md"}
	if !reflect.DeepEqual(d, want) || len(w) > 0 {
		t.Errorf("got %+v, %v\nwant %+v", d, w, want)
	}
}

func TestModel(t *testing.T) {
	for yaml, want := range map[string]struct{ llm, model, once string }{
		"":                             {},
		"model:":                       {},
		"model: inherit":               {model: Inherit},
		"model: Inherit":               {model: Inherit},
		"model: sonnet":                {model: Inherit, once: "model sonnet"},
		"model: Sonnet":                {model: Inherit, once: "model sonnet"},
		"model: haiku":                 {llm: "small"},
		"model: small":                 {llm: "small"},
		"model: gpt-5":                 {model: "gpt-5", once: "model gpt-5"},
		"llm: small":                   {llm: "small"},
		"llm: small\nmodel: qwen3":     {llm: "small", model: "qwen3", once: "model qwen3"},
		"llm: default\nmodel: inherit": {llm: "default", model: Inherit},
	} {
		d, w := parse(t, "---\n"+described+yaml+"\n---\nbody")
		once := ""
		if len(w) > 0 {
			once = w[0].Once
		}
		if d.LLM != want.llm || d.Model != want.model || once != want.once {
			t.Errorf("%q: LLM %q, model %q, warnings %v; want %+v", yaml, d.LLM, d.Model, w, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for yaml, want := range map[string]string{
		"desciption: x":           "line 3: desciption: unknown key, did you mean description?",
		"foo: [a, {b: c}]":        "line 3: foo: unknown key",
		"hooks:\n  Stop: x":       "line 3: hooks: has no effect here",
		"permissionMode: default": "line 3: permissionMode: has no effect here",
		"permissionMode: plan":    "line 3: permissionMode: plan: only tools that read are granted",
		"skills: [pdf, docx]":     `line 3: skills: there is no skill "docx"`,
		"description: x":          "", // stands there twice: an error, below
	} {
		if want == "" {
			continue
		}
		_, w := parse(t, "---\n"+described+yaml+"\n---\nbody")
		if len(w) != 1 || w[0].String() != want {
			t.Errorf("%q: %v, want %s", yaml, w, want)
		}
	}
	_, w := parse(t, "---\nname: a\ndescription: When: always\n---\nbody")
	if len(w) != 1 || !strings.Contains(w[0].String(), "line 3: the text of description") {
		t.Errorf("unquoted description: %v", w)
	}
	if _, w := parse(t, "body"); len(w) != 1 || !strings.Contains(w[0].String(), "no description") {
		t.Errorf("no description: %v", w)
	}
}

func TestBroken(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		line int
		want string
	}{
		"bad YAML":            {"---\nname: a\ntools: [Read\n---\nbody", 3, "no valid YAML"},
		"not closed":          {"---\nname: a\nbody", 1, "not closed"},
		"key twice":           {"---\ntools: []\ntools: all\n---\nbody", 3, "already"},
		"key twice, spelt":    {"---\ntools: []\nallowed-tools: all\n---\nbody", 3, "line 2 already"},
		"key twice, case":     {"---\nmaxTurns: 1\nmax_turns: 2\n---\nbody", 3, "line 2 already"},
		"tool":                {"---\ntool: []\n---\nbody", 2, "did you mean tools?"},
		"toolz":               {"---\nname: a\ntoolz: []\n---\nbody", 3, "did you mean tools?"},
		"denied-tools":        {"---\nname: a\ndenied-tools: Bash\n---\nbody", 3, "did you mean tools or disallowed_tools?"},
		"disallowedTool":      {"---\nname: a\ndisallowedTool: Bash\n---\nbody", 3, "did you mean disallowed_tools?"},
		"disallowed typo":     {"---\nname: a\ndisallowedTools: Wrte\n---\nbody", 3, `there is no tool "Wrte"`},
		"tools a mapping":     {"---\nname: a\ntools: {read: true}\n---\nbody", 3, "names"},
		"tools an alias":      {"---\nname: &x a\ntools: *x\n---\nbody", 2, "want a text"},
		"max_turns 0":         {"---\nname: a\nmax_turns: 0\n---\nbody", 3, `got "0"`},
		"max_turns a word":    {"---\nname: a\nmax_turns: many\n---\nbody", 3, `got "many"`},
		"timeout":             {"---\nname: a\ntimeout: 30\n---\nbody", 3, `got "30"`},
		"completion":          {"---\nname: a\ncompletion: maybe\n---\nbody", 3, "tool, text or required"},
		"network":             {"---\nname: a\nnetwork: example.org\n---\nbody", 3, `got "example.org"`},
		"network port":        {"---\nname: a\nnetwork: example.org:0\n---\nbody", 3, `got "example.org:0"`},
		"network star":        {"---\nname: a\nnetwork: api.*.org:443\n---\nbody", 3, `got "api.*.org:443"`},
		"llm":                 {"---\nname: a\nllm: nope\n---\nbody", 3, "default, small"},
		"description a list":  {"---\nname: a\ndescription: [a]\n---\nbody", 3, "want a text"},
		"no body":             {"---\nname: a\n---\n \n", 0, "prompt"},
		"name with a newline": {"---\nname: \"a\\nb\"\n---\nbody", 0, "name"},
		"switched off":        {"---\nname: a\ndisabled: true\n---\nbody", 3, "switched off"},
		"not UTF-8":           {"---\nname: a\n---\nbo\xffdy", 4, "no text"},
		"empty":               {"", 0, "prompt"},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, err := ParseFile("dir/x.md", []byte(tc.text), testOptions())
			var e *FileError
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, %v", d, err)
			}
			if e.Line != tc.line || !strings.Contains(e.Error(), tc.want) || !strings.HasPrefix(e.Error(), "dir/x.md") {
				t.Errorf("got line %d, %v; want line %d, %q", e.Line, e, tc.line, tc.want)
			}
		})
	}
}

// FuzzParseFile holds that whatever stands in a file, an agent has no tools but
// those that its text names, all where it says so, or the usual ones where it says
// nothing.
func FuzzParseFile(f *testing.F) {
	for _, s := range []string{
		"---\nname: a\ntools: Read, Bash(git:*)\n---\nbody", "---\ntools: [all]\ndisallowedTools: [Write]\n---\nb", "---\nprose\n---\nb", "---\ntools:\n- Read\n---\n\nb",
		"---\r\ntools: \"*\"\r\n---\r\nb", "\ufeffbody", "---\ndescription: a: b\ntools: x\n---\nb", "---\nallowed-tools: Read\nmodel: sonnet\nmaxTurns: 3\n---\nb",
	} {
		f.Add(s, true)
	}
	toolsKey := regexp.MustCompile(`(?m)^[\s{]*["']?[a-z]*tools["']?\s*:`)
	f.Fuzz(func(t *testing.T, s string, session bool) {
		o := testOptions()
		o.SessionTools = session
		d, _, err := ParseFile("x.md", []byte(s), o)
		if err != nil {
			var e *FileError
			if !errors.As(err, &e) || e.Problem == "" {
				t.Fatalf("%q: %#v", s, err)
			}
			return
		}
		if err := d.Validate(); err != nil || !utf8.ValidString(d.Prompt) || !strings.HasSuffix(s, d.Prompt) {
			t.Fatalf("%q: %v, %q", s, err, d.Prompt)
		}
		head := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(strings.TrimSuffix(s, d.Prompt)))
		said := toolsKey.MatchString(head)
		for _, n := range d.Effective(allTools) {
			granted := false
			for _, word := range append([]string{n}, map[string][]string{
				"read_file": {"read"}, "list_files": {"ls", "glob"}, "search_files": {"grep"}, "execute_command": {"bash", "coderun"}, "use_skill": {"skill"},
				"write_to_file": {"write"}, "replace_in_file": {"edit", "filepatch"}, "update_plan": {"todowrite"}, "task": {"agent"},
			}[n]...) {
				granted = granted || strings.Contains(head, strings.ReplaceAll(word, "_", ""))
			}
			usual := !said && (session || slices.Contains(readOnly, n))
			if !granted && !usual && n != "attempt_completion" && !strings.Contains(head, "all") && !strings.Contains(head, "*") && !strings.Contains(head, `\`) {
				t.Fatalf("%q: %s is granted", s, n)
			}
		}
	})
}
