package round

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// abs is an absolute path in the form of the system that the test runs on.
func abs(path string) string {
	if runtime.GOOS == "windows" {
		return `C:` + filepath.FromSlash(path)
	}
	return path
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestParseSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		json string
		want Settings
		warn []string // parts of the warnings, one each
	}{
		"nothing": {json: `{}`},
		"GenericAgent's form": {
			json: `{"task": "write the report", "work_dir": ` + quote(abs("/w/plan/")) + `,
				"input_files": {"info": ` + quote(abs("/in/a.txt")) + `}, "output_files": {"pdf": ` + quote(abs("/out/../o/p.pdf")) + `},
				"dependencies": ["a.txt must exist", " "]}`,
			want: Settings{Task: "write the report", WorkDir: abs("/w/plan"), InputFiles: map[string]string{"info": abs("/in/a.txt")},
				OutputFiles: map[string]string{"pdf": abs("/o/p.pdf")}, Dependencies: []string{"a.txt must exist"}},
		},
		"all of ours": {
			json: `{"agent": "reviewer", "llm": "big", "model": "m-1", "tools": ["read_file", " search_files ", "read_file"], "max_turns": 7,
				"max_tokens": 1e6, "max_cost_usd": 0.25, "timeout": "1h30m", "verbose": true, "fork_from": "my task", "output_schema": {"type": "object"}}`,
			want: Settings{Agent: "reviewer", LLM: "big", Model: "m-1", Tools: []string{"read_file", "search_files"}, ToolsGiven: true, MaxTurns: 7,
				MaxTokens: 1_000_000, MaxCostUSD: 0.25, Timeout: 90 * time.Minute, Verbose: true, ForkFrom: "my task", OutputSchema: json.RawMessage(`{"type":"object"}`)},
		},
		"other forms of ours": {
			json: "\xEF\xBB\xBF" + ` {"llm": 1, "tools": "read_file,, search_files", "timeout": 1.5}`,
			want: Settings{LLM: "1", Tools: []string{"read_file", "search_files"}, ToolsGiven: true, Timeout: 1500 * time.Millisecond},
		},
		"no tools": {json: `{"tools": []}`, want: Settings{Tools: []string{}, ToolsGiven: true}},
		"null is not given": {json: `{"task": null, "work_dir": null, "input_files": null, "dependencies": null, "agent": null, "tools": null,
			"max_turns": null, "timeout": null, "verbose": null, "output_schema": null}`},
		"empty work_dir": {json: `{"work_dir": ""}`},
		"relative paths": {
			json: `{"work_dir": "plan/", "input_files": {"a": "./a.txt", "b": ` + quote(abs("/b")) + `, "c": 3}, "output_files": {"d": "~/d"}}`,
			want: Settings{InputFiles: map[string]string{"b": abs("/b")},
				AsText: []string{"work_dir: plan/", "input_files.a: ./a.txt", "input_files.c: 3", "output_files.d: ~/d"}},
			warn: []string{"work_dir: not an absolute path", "input_files.a: not an absolute path", "input_files.c: not a string", "output_files.d: not an absolute path"},
		},
		"other shapes": {
			json: `{"task": ["a"], "work_dir": {"x": 1}, "input_files": ["/a"], "output_files": "/b", "dependencies": "c"}`,
			want: Settings{AsText: []string{`task: ["a"]`, `work_dir: {"x":1}`, `input_files: ["/a"]`, "output_files: /b", "dependencies: c"}},
			warn: []string{"task", "work_dir", "input_files", "output_files", "dependencies"},
		},
		"dependencies of other shapes": {
			json: `{"dependencies": ["a", 2, null]}`,
			want: Settings{Dependencies: []string{"a"}, AsText: []string{"dependencies[1]: 2", "dependencies[2]: null"}},
			warn: []string{"dependencies[1]", "dependencies[2]"},
		},
		"control characters": {
			json: `{"work_dir": "` + "/a" + `\u0000b", "task": "two\nlines", "a\nb": "c\nd", "input_files": {"": "/a"}}`,
			want: Settings{Task: "two\nlines", AsText: []string{`work_dir: "/a\u0000b"`, `a b: "c\nd"`, "input_files.: /a"}},
			warn: []string{"control characters", "no known key", "input_files."},
		},
		"unknown keys": {
			json: `{"notes": "read the log first", "maxTurns": 3, "time_out": "5m"}`,
			want: Settings{AsText: []string{"notes: read the log first", "maxTurns: 3", "time_out: 5m"}},
			warn: []string{"notes: no known key;", `did you mean "max_turns"?`, `did you mean "timeout"?`},
		},
		"twice": {
			json: "{\"max_turns\": \"x\",\n\"max_turns\": 2}",
			want: Settings{MaxTurns: 2},
			warn: []string{`line 1: "max_turns" stands twice`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(tc.json, `"/`) && name != "GenericAgent's form" {
				t.Skip("paths of another system")
			}
			got, warnings, err := ParseSettings([]byte(tc.json))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
			if len(warnings) != len(tc.warn) {
				t.Fatalf("warnings %q, want %d", warnings, len(tc.warn))
			}
			for i, w := range tc.warn {
				if !strings.Contains(warnings[i], w) {
					t.Errorf("warning %q does not say %q", warnings[i], w)
				}
			}
		})
	}
}

func TestParseSettingsErrors(t *testing.T) {
	for _, tc := range []struct {
		json string
		line int
		key  string
		says []string
	}{
		{"", 1, "", []string{"empty", "JSON object"}},
		{" \n\t", 1, "", []string{"empty"}},
		{"work_dir = /tmp", 1, "", []string{"not JSON", `{"work_dir"`}},
		{"{\n\"agent\": \"a\",\n}", 3, "", []string{"not JSON"}},
		{"{\"agent\": \"a", 1, "", []string{"not JSON"}},
		{"{\"agent\": \"a\"}\n{}", 2, "", []string{"not JSON"}},
		{"\x00\x00\x00", 1, "", []string{"not JSON"}},
		{"\n[1, 2]", 2, "", []string{"[1,2]", "one JSON object"}},
		{`"text"`, 1, "", []string{`"text"`}},
		{"{\n\"agent\": 3}", 2, "agent", []string{`"agent" is 3`, `"general"`}},
		{`{"agent": " "}`, 1, "agent", nil},
		{`{"llm": -1}`, 1, "llm", []string{"-1", "number from 0"}},
		{`{"llm": 1.5}`, 1, "llm", nil},
		{`{"llm": true}`, 1, "llm", nil},
		{`{"model": ["a"]}`, 1, "model", []string{`["a"]`}},
		{`{"tools": 3}`, 1, "tools", []string{`["read_file", "search_files"]`}},
		{`{"tools": ["a", 3]}`, 1, "tools", nil},
		{`{"tools": ["a", null]}`, 1, "tools", nil},
		{`{"max_turns": 0}`, 1, "max_turns", []string{`"max_turns" is 0`, "from 1"}},
		{`{"max_turns": "many"}`, 1, "max_turns", []string{`"many"`}},
		{`{"max_turns": 2.5}`, 1, "max_turns", nil},
		{`{"max_turns": 1e300}`, 1, "max_turns", nil},
		{`{"max_tokens": -5}`, 1, "max_tokens", nil},
		{`{"max_tokens": 99999999999999999999}`, 1, "max_tokens", nil},
		{`{"max_cost_usd": 0}`, 1, "max_cost_usd", nil},
		{`{"max_cost_usd": "1"}`, 1, "max_cost_usd", nil},
		{`{"timeout": "ten"}`, 1, "timeout", []string{`"10m"`, "600"}},
		{`{"timeout": "600"}`, 1, "timeout", nil},
		{`{"timeout": 0}`, 1, "timeout", nil},
		{`{"timeout": -1}`, 1, "timeout", nil},
		{`{"timeout": 1e30}`, 1, "timeout", nil},
		{`{"timeout": "-5m"}`, 1, "timeout", nil},
		{`{"timeout": "9999999h"}`, 1, "timeout", nil},
		{`{"timeout": [1]}`, 1, "timeout", nil},
		{`{"verbose": "yes"}`, 1, "verbose", []string{"true or false"}},
		{`{"fork_from": "../a"}`, 1, "fork_from", []string{"without a path"}},
		{`{"fork_from": ".."}`, 1, "fork_from", nil},
		{`{"fork_from": "a\\b"}`, 1, "fork_from", nil},
		{`{"output_schema": "{}"}`, 1, "output_schema", nil},
		{`{"output_schema": [1]}`, 1, "output_schema", nil},
		{`{"output_schema": "` + strings.Repeat("long ", 100) + `"}`, 1, "output_schema", []string{"..."}},
	} {
		_, _, err := ParseSettings([]byte(tc.json))
		var wrong *SettingsError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: got %v, want a *SettingsError", tc.json, err)
			continue
		}
		if wrong.Line != tc.line || wrong.Key != tc.key || wrong.Want == "" || len(err.Error()) > 400 {
			t.Errorf("%s: %+v", tc.json, wrong)
		}
		for _, s := range tc.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", tc.json, err, s)
			}
		}
	}
}

func TestParseSettingsIsBounded(t *testing.T) {
	if _, _, err := ParseSettings([]byte(`{"task": "` + strings.Repeat("x", maxSettings) + `"}`)); err == nil {
		t.Error("a huge file was taken")
	}
	if _, _, err := ParseSettings([]byte(`{"task": ` + strings.Repeat("[", 500_000) + `}`)); err == nil {
		t.Error("deep nesting was taken")
	}
	if _, _, err := ParseSettings([]byte("{" + strings.Repeat(`"a":1,`, 100_000) + `"a":1}`)); err == nil {
		t.Error("100,001 keys were taken")
	}
	s, warnings, err := ParseSettings([]byte(`{"dependencies": [` + strings.Repeat("1,", 10_000) + `1], "x": "` + strings.Repeat("x", 10_000) + `"}`))
	if err != nil || len(s.AsText) > maxText || len(warnings) > maxText+1 || !strings.Contains(warnings[len(warnings)-1], "more values") {
		t.Errorf("%d lines, %d warnings, %v", len(s.AsText), len(warnings), err)
	}
	s, _, _ = ParseSettings([]byte(`{"x": "` + strings.Repeat("é", 10_000) + `"}`))
	if n := len(s.AsText[0]); n > maxTextLine+3 || !strings.HasSuffix(s.AsText[0], "é...") {
		t.Errorf("a line of %d bytes", n)
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add([]byte(`{"task": "t", "work_dir": "/w", "input_files": {"a": "/a"}, "output_files": {"b": 1}, "dependencies": ["x"]}`))
	f.Add([]byte(`{"agent": "a", "llm": 0, "model": "m", "tools": "a,b", "max_turns": 1, "max_tokens": 2, "max_cost_usd": 0.1}`))
	f.Add([]byte(`{"timeout": "10m", "verbose": false, "fork_from": "x", "output_schema": {}, "other": [1, {"a": null}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := ParseSettings(data)
		if err != nil {
			var wrong *SettingsError
			if !errors.As(err, &wrong) || wrong.Line < 1 || !reflect.DeepEqual(s, Settings{}) {
				t.Fatalf("%v with %+v", err, s)
			}
			return
		}
		paths := []string{s.WorkDir}
		for _, files := range []map[string]string{s.InputFiles, s.OutputFiles} {
			for _, p := range files {
				paths = append(paths, p)
			}
		}
		for _, p := range paths {
			if p != "" && (!filepath.IsAbs(p) || p != filepath.Clean(p)) {
				t.Fatalf("path %q", p)
			}
		}
		if s.MaxTurns < 0 || s.MaxTokens < 0 || s.MaxCostUSD < 0 || s.Timeout < 0 || s.Timeout > maxTimeout {
			t.Fatalf("%+v", s)
		}
		if slices.ContainsFunc(s.AsText, func(line string) bool { return strings.ContainsAny(line, "\r\n") }) {
			t.Fatalf("%q", s.AsText)
		}
		// Settings go to the journal and come back.
		stored, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Settings
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
	})
}
