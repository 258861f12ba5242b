package frontmatter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var options = Options{
	Known: func(key string) bool {
		return slices.Contains([]string{"name", "description", "tools", "maxturns"}, key)
	},
	Loose: []string{"description"},
}

// shape is a document as a test compares it.
func shape(d *Document) string {
	var b strings.Builder
	for _, f := range d.Fields {
		items, err := f.Items()
		fmt.Fprintf(&b, "%s@%d=%q", f.Key, f.Line, items)
		if err != nil {
			fmt.Fprintf(&b, "!%v", err)
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		in     string
		matter bool
		fields string
		body   string
	}{
		"plain":            {"---\nname: a\n---\nbody\n", true, `name@2=["a"]`, "body\n"},
		"byte order mark":  {"\ufeff---\nname: a\n---\nbody\n", true, `name@2=["a"]`, "body\n"},
		"CRLF":             {"---\r\nname: a\r\ntools: [x, y]\r\n---\r\nbody\r\nmore", true, `name@2=["a"] tools@3=["x" "y"]`, "body\r\nmore"},
		"spaces at rules":  {"--- \nname: a\n---\t\nbody", true, `name@2=["a"]`, "body"},
		"empty body":       {"---\nname: a\n---", true, `name@2=["a"]`, ""},
		"rules in body":    {"---\nname: a\n---\n\none\n---\ntwo\n---\n", true, `name@2=["a"]`, "\none\n---\ntwo\n---\n"},
		"block in body":    {"---\nname: a\n---\n---\nname: b\n---\n", true, `name@2=["a"]`, "---\nname: b\n---\n"},
		"empty block":      {"---\n---\nbody", true, "", "body"},
		"blank block":      {"---\n\n  \n---\nbody", true, "", "body"},
		"comments":         {"---\n# all of it\nname: a # short\n---\nx", true, `name@3=["a"]`, "x"},
		"flow mapping":     {"---\n{name: a, tools: [x]}\n---\nx", true, `name@2=["a"] tools@2=["x"]`, "x"},
		"block list":       {"---\ntools:\n  - x\n  - 'y, z'\n---\nx", true, `tools@2=["x" "y, z"]`, "x"},
		"block scalar":     {"---\ndescription: |\n  one\n  ---\n  two\nname: a\n---\nx", true, `description@2=["one\n---\ntwo\n"] name@6=["a"]`, "x"},
		"folded":           {"---\ndescription: >-\n  one\n  two\n---\nx", true, `description@2=["one two"]`, "x"},
		"numbers as text":  {"---\nname: 007\nmaxTurns: 30\nok: yes\non: true\n---\n", true, `name@2=["007"] maxTurns@3=["30"] ok@4=["yes"] on@5=["true"]`, ""},
		"no value":         {"---\nname:\ntools: ~\n---\n", true, `name@2=[] tools@3=[]`, ""},
		"pattern":          {"---\ntools: [Bash(git diff:*), Read]\n---\n", true, `tools@2=["Bash(git diff:*)" "Read"]`, ""},
		"nested":           {"---\nname: a\nhooks:\n  a: {b: c}\n---\n", true, `name@2=["a"] hooks@3=[]!line 3: hooks: want a list of names`, ""},
		"list in a list":   {"---\ntools: [[a]]\n---\n", true, `tools@2=[]!line 2: tools: want names in the list and nothing else`, ""},
		"alias":            {"---\nname: &n a\ntools: *n\n---\n", true, `name@2=[]!line 2: name: want a list of names tools@3=[]!line 3: tools: want a list of names`, ""},
		"unknown keys":     {"---\ntitle: x\n---\nbody", true, `title@2=["x"]`, "body"},
		"loose":            {"---\nname: a\ndescription: Use it when: x \"y\" \\n\ntools: [b]\n---\nx", true, `name@2=["a"] description@3=["Use it when: x \"y\" \\n"] tools@4=["b"]`, "x"},
		"loose, two lines": {"---\ndescription: One: two\n  three: four\n\nname: a\n---\nx", true, `description@2=["One: two\nthree: four"] name@5=["a"]`, "x"},
		"loose quote":      {"---\ndescription: \"Quick\" reviews\nname: a\n---\nx", true, `description@2=["\"Quick\" reviews"] name@3=["a"]`, "x"},

		"half a quote": {"---\ndescription: \"One\ntools: []\n---\nx", true, `description@2=["\"One"] tools@3=[]`, "x"},

		"no block":             {"You review.\n", false, "", "You review.\n"},
		"empty":                {"", false, "", ""},
		"byte order mark only": {"\ufeffYou", false, "", "You"},
		"rule, prose":          {"---\nThis is a reviewer.\n---\nMore.\n", false, "", "---\nThis is a reviewer.\n---\nMore.\n"},
		"rule, prose, colon":   {"---\nYour task: review.\n---\nMore.\n", false, "", "---\nYour task: review.\n---\nMore.\n"},
		"rule, prose, no end":  {"---\nThis is prose.\n\nname: not a key\n", false, "", "---\nThis is prose.\n\nname: not a key\n"},
		"rule, heading":        {"---\n# Reviewer\n---\nMore.\n", false, "", "---\n# Reviewer\n---\nMore.\n"},
		"rule, list":           {"---\n- one\n- two\n---\nMore.\n", false, "", "---\n- one\n- two\n---\nMore.\n"},
		"rule, bad YAML":       {"---\n[half a list\n---\nMore.\n", false, "", "---\n[half a list\n---\nMore.\n"},
		"rule, list of keys":   {"---\n- name: a\n- b\n---\nx", false, "", "---\n- name: a\n- b\n---\nx"},
		"rule only":            {"---", false, "", "---"},
		"rule later":           {"\n---\nname: a\n---\n", false, "", "\n---\nname: a\n---\n"},
		"four dashes":          {"----\nname: a\n----\n", false, "", "----\nname: a\n----\n"},
		"indented rule":        {" ---\nname: a\n---\n", false, "", " ---\nname: a\n---\n"},
		"code fence":           {"Write it so:\n```yaml\n---\nname: a\ntools: all\n---\n```\n", false, "", "Write it so:\n```yaml\n---\nname: a\ntools: all\n---\n```\n"},
		"fence at the start":   {"```yaml\nname: a\n```\n", false, "", "```yaml\nname: a\n```\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Parse([]byte(tc.in), options)
			if err != nil {
				t.Fatal(err)
			}
			if d.Matter != tc.matter || shape(d) != tc.fields || d.Body != tc.body {
				t.Errorf("got %v, %s, body %q\nwant %v, %s, body %q", d.Matter, shape(d), d.Body, tc.matter, tc.fields, tc.body)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		line int
		want string
	}{
		"not closed":          {"---\nname: a\n\nbody\n", 1, "not closed"},
		"not closed, blank":   {"---\n\ntools: a\nbody\n", 1, "not closed"},
		"bad YAML":            {"---\nname: a\ntools: [x\nmodel: y\n---\n", 4, "no valid YAML"},
		"colon in a name":     {"---\nname: a: b\n---\n", 2, "no valid YAML"},
		"key twice":           {"---\nname: a\ntools: [x]\ntools: all\n---\n", 4, "already defined"},
		"tab":                 {"---\nname: a\n\ttools: x\n---\n", 3, "no valid YAML"},
		"two documents":       {"---\nname: a\n...\ntools: []\n---\nx", 2, "key: value"},
		"merge key":           {"---\nname: a\n<<: {tools: all}\n---\nx", 3, ""},
		"complex key":         {"---\nname: a\n? [b]\n: c\n---\nx", 0, "no valid YAML"},
		"text swallows a key": {"---\ndescription: One: two\n  tools: []\n---\nx", 0, "no valid YAML"},
		"not UTF-8":           {"---\nname: a\n---\n\nb\xff\n", 5, "0xff is no text"},
		"zero byte":           {"a\n\x00", 2, "is no text"},
		"UTF-16":              {"\xff\xfe-\x00", 1, "UTF-16"},
		"too deep":            {"---\nname: a\nx: " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "\n---\n", 2, "too deeply"},
		"too long":            {"---\nname: a\nx: " + strings.Repeat("y", MaxMatter) + "\n---\n", 1, "64 KB"},
		"too big":             {strings.Repeat("y", MaxFile+1), 0, "1024 KB"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Parse([]byte(tc.in), options)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, %v, want an error", d, err)
			}
			if tc.line > 0 && e.Line != tc.line || !strings.Contains(e.Error(), tc.want) {
				t.Errorf("got line %d, %v; want line %d and %q", e.Line, e, tc.line, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"---\nname: a\n---\nbody", "---\r\nname: a\r\ntools: [x, y]\r\n---\r\nb", "\ufeff---\nname: a\n---\n", "---\nprose\n---\nx",
		"---\ndescription: a: b\n  c: d\n---\nx", "---\ntools: *a\n---\n", "---\nname: |\n  ---\n---\n", "---\n{name: [a, {b: c}]}\n---\n", "---\n? name\n: b\n---\n",
		"---\nname: \"\\u0041\"\n---\n", "---\nname: 'a''b'\ntools:\n- x\n- - y\n---\n", "---\nname: !!str 5\n<<: {a: b}\n---\n", "```\n---\nname: x\n---\n```",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Parse([]byte(s), options)
		text := strings.TrimPrefix(s, "\ufeff")
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 0 || e.Line > strings.Count(s, "\n")+2 {
				t.Fatalf("%q: %#v", s, err)
			}
			return
		}
		if !strings.HasSuffix(text, d.Body) || !d.Matter && (d.Body != text || len(d.Fields) > 0) {
			t.Fatalf("%q: body %q", s, d.Body)
		}
		for _, f := range d.Fields {
			f.Text()
			f.Items()
			if f.Line < 2 || f.Line > strings.Count(s, "\n")+1 {
				t.Fatalf("%q: %s in line %d", s, f.Key, f.Line)
			}
		}
		if strings.ContainsRune(s, '\r') || !d.Matter {
			return
		}
		again, err := Parse([]byte("\ufeff"+strings.ReplaceAll(text, "\n", "\r\n")), options)
		if err != nil {
			t.Fatalf("%q: with CRLF: %v", s, err)
		}
		if shape(d) != shape(again) || strings.ReplaceAll(d.Body, "\n", "\r\n") != again.Body {
			t.Fatalf("%q: %s, with CRLF %s", s, shape(d), shape(again))
		}
	})
}
