package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

func sprint(v reflect.Value) string { return fmt.Sprint(v.Interface()) }

// write writes a file that nobody else may write, and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadText(t *testing.T, text string, environ ...string) (*Loaded, error) {
	t.Helper()
	path := write(t, filepath.Join(t.TempDir(), "c.toml"), text)
	return Load(Options{Path: path, Environ: append([]string{}, environ...)})
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		env        []string
		// want are parts of the message, the first being what follows the file.
		want []string
	}{
		{"unknown key", "temp_dir = \"temp\"\nmax_runing = 3\n", nil, []string{":2: max_runing: unknown key", `did you mean "max_running"?`}},
		{"unknown key in an entry", "[[llm]]\nmodel = \"a\"\n\n[[llm]]\nname = \"b\"\nmodel = \"b\"\nbase_ulr = \"x\"\n", nil, []string{`:7: llm[1].base_ulr: unknown key`, `"base_url"`}},
		{"key after the wrong table", "[agent]\nmax_turns = 3\nreply_timeout = \"1m\"\n", nil, []string{":3: agent.reply_timeout: unknown key", "belongs at the top of the file"}},
		{"key of another table", "max_turns = 3\n", nil, []string{":1: max_turns: unknown key", "belongs under [agent]"}},
		{"key of an entry", "model = \"x\"\n", nil, []string{":1: model: unknown key", "belongs under [[llm]]"}},
		{"the key itself", "[[llm]]\napi_key = \"sk-secret\"\n", nil, []string{":2: llm[0].api_key: unknown key", "api_key_env"}},
		{"text for a number", "max_running = \"32\"\n", nil, []string{`:1: max_running: got the text "32"`, "want a whole number, without quotes, such as 32"}},
		{"fraction for a number", "max_running = 1.5\n", nil, []string{`:1: max_running: got 1.5`, "want a whole number"}},
		{"huge number", "max_running = 99999999999\n", nil, []string{`:1: max_running: 99999999999 is out of range`}},
		{"number for a duration", "reply_timeout = 600\n", nil, []string{":1: reply_timeout: got 600", `want a duration in quotes, such as "10m"`}},
		{"no duration", "reply_timeout = \"10 minutes\"\n", nil, []string{`:1: reply_timeout: got "10 minutes"`, "ms, s, m, h"}},
		{"negative duration", "reply_timeout = \"-1s\"\n", nil, []string{":1: reply_timeout: got \"-1s\", which is negative"}},
		{"number for text", "temp_dir = 3\n", nil, []string{":1: temp_dir: got 3", `want text in quotes, such as "temp"`}},
		{"text for yes or no", "[sandbox]\nshare = \"yes\"\n", nil, []string{`:2: sandbox.share: got the text "yes"`, "true or false"}},
		{"text for a list", "[sandbox]\nroots = \"/srv\"\n", nil, []string{`:2: sandbox.roots: got the text "/srv"`, "a list of texts"}},
		{"number in a list", "[sandbox]\nroots = [\n  \"/srv\",\n  3,\n]\n", nil, []string{`:4: sandbox.roots[1]: got 3`}},
		{"llm as one table", "[llm]\nmodel = \"x\"\n", nil, []string{":1: llm: got a table", "[[llm]]"}},
		{"table as a value", "agent = 3\n", nil, []string{":1: agent: got 3", "[agent]"}},
		{"price as a number", "[[llm]]\nprice = 3\n", nil, []string{":2: llm[0].price: got 3", "{ input = 0.25"}},
		{"header that is no text", "[[llm]]\nheaders = { X = 3 }\n", nil, []string{":2: llm[0].headers.X: got 3"}},
		{"no TOML", "temp_dir = temp\n", nil, []string{":1: temp_dir: no valid TOML", "quotes"}},
		{"twice", "temp_dir = \"a\"\ntemp_dir = \"b\"\n", nil, []string{":2: temp_dir: no valid TOML"}},
		{"utf-16", "\xff\xfet\x00", nil, []string{":1: the file is UTF-16", "UTF-8"}},

		{"too few", "max_running = 0\n", nil, []string{":1: max_running: got 0", "from 1 to 10000"}},
		{"no wait", "\n\nreply_timeout = \"0s\"\n", nil, []string{`:3: reply_timeout: got "0s"`}},
		{"empty directory", "temp_dir = \"\"\n", nil, []string{":1: temp_dir: is empty"}},
		{"state in temp", "temp_dir = \"temp\"\nstate_dir = \"temp/state\"\n", nil, []string{":2: state_dir:", "lies in temp_dir"}},
		{"agents in temp", "temp_dir = \"t\"\nagents_dir = \"t/agents\"\n", nil, []string{":2: agents_dir:", "lies in temp_dir"}},
		{"skills in temp", "temp_dir = \"t\"\nskills_dir = \"t\"\n", nil, []string{":2: skills_dir:", "lies in temp_dir"}},
		{"temp in state", "temp_dir = \"state/temp\"\n", nil, []string{":1: temp_dir:", "lies in state_dir"}},
		{"same name twice", "[[llm]]\nname = \"a\"\nmodel = \"x\"\n[[llm]]\nname = \"a\"\nmodel = \"y\"\n", nil, []string{`:5: llm[1].name: "a" is llm[0]'s name already`}},
		{"second entry without name", "[[llm]]\n[[llm]]\nmodel = \"y\"\n", nil, []string{`:2: llm[1].name: is missing`}},
		{"second entry without model", "[[llm]]\n[[llm]]\nname = \"y\"\n", nil, []string{`:2: llm[1].model: is missing`}},
		{"own server without model", "[[llm]]\nbase_url = \"http://localhost:1/v1\"\n", nil, []string{`:1: llm[0].model: is missing`}},
		{"name that is a number", "[[llm]]\nname = \"1\"\n", nil, []string{`:2: llm[0].name: got "1"`}},
		{"address without scheme", "[[llm]]\nmodel = \"m\"\nbase_url = \"localhost:11434/v1\"\n", nil, []string{`:3: llm[0].base_url: got "localhost:11434/v1"`, "http://localhost:11434/v1"}},
		{"address of the call", "[[llm]]\nmodel = \"m\"\nbase_url = \"http://x/v1/chat/completions\"\n", nil, []string{`:3: llm[0].base_url: ends in /chat/completions`, `want "http://x/v1"`}},
		{"address with a query", "[[llm]]\nmodel = \"m\"\nbase_url = \"http://x/v1?a=b\"\n", nil, []string{`:3: llm[0].base_url:`, "more after the path"}},
		{"key in api_key_env", "[[llm]]\napi_key_env = \"sk-secret\"\n", nil, []string{`:2: llm[0].api_key_env: is no name`, "api_key_file"}},
		{"two keys", "[[llm]]\napi_key_env = \"A\"\napi_key_file = \"b\"\n", nil, []string{`:3: llm[0].api_key_file: api_key_env is set as well`}},
		{"unknown fallback", "[[llm]]\nfallback = [\"nope\"]\n", nil, []string{`:2: llm[0].fallback[0]: there is no LLM "nope"`}},
		{"fallback to itself", "[[llm]]\nfallback = [\"default\"]\n", nil, []string{`:2: llm[0].fallback[0]: "default" is this entry itself`}},
		{"negative price", "[[llm]]\nprice = { input = -1 }\n", nil, []string{`:2: llm[0].price.input: got -1`}},
		{"tool calls", "[[llm]]\ntool_calls = \"xml\"\n", nil, []string{`:2: llm[0].tool_calls: got "xml"`, `"native", "text"`}},
		{"hot", "[[llm]]\ntemperature = 3\n", nil, []string{`:2: llm[0].temperature: got 3`}},
		{"header name", "[[llm]]\nheaders = { \"a b\" = \"c\" }\n", nil, []string{`:2: llm[0].headers: "a b"`}},
		{"header value", "[[llm]]\nheaders = { a = \"b\\nc\" }\n", nil, []string{`:2: llm[0].headers.a: holds control characters`}},
		{"own field in extra", "[[llm]]\nextra = { stream = false }\n", nil, []string{`:2: llm[0].extra.stream: the daemon writes this field itself`}},
		{"infinite extra", "[[llm]]\nextra = { a = inf }\n", nil, []string{`:2: llm[0].extra.a: JSON cannot hold`}},
		{"completion", "[agent]\ncompletion = \"never\"\n", nil, []string{`:2: agent.completion: got "never"`}},
		{"command timeouts", "[agent]\ncommand_timeout = \"1h\"\n", nil, []string{`:2: agent.command_timeout: got "1h"`, `"30m"`}},
		{"alias", "[agent]\nmodel_alias = { opus = \"big\" }\n", nil, []string{`:2: agent.model_alias.opus: there is no LLM "big"`}},
		{"cost without price", "[limits]\ncost_per_day = 5\n[[llm]]\nmodel = \"m\"\n", nil, []string{`:2: limits.cost_per_day: the price of LLM "default" is unknown`, "llm[0].price"}},
		{"confinement", "[sandbox]\nmode = \"on\"\n", nil, []string{`:2: sandbox.mode: got "on"`, `"auto", "off"`}},
		{"size", "[sandbox]\nmemory = \"4 apples\"\n", nil, []string{`:2: sandbox.memory: got "4 apples"`, `"4GB"`}},
		{"size without a unit", "[sandbox]\nmemory = \"4096\"\n", nil, []string{`:2: sandbox.memory: got "4096"`, `units are`}},
		{"size without quotes", "[sandbox]\nmemory = 4096\n", nil, []string{`:2: sandbox.memory: got 4096`, `a size in quotes`}},
		{"small size", "[sandbox]\nmemory = \"1MB\"\n", nil, []string{`:2: sandbox.memory: got "1MB"`, `"64MB" or more`}},
		{"network", "[sandbox]\nnetwork = \"some\"\n", nil, []string{`:2: sandbox.network: got the text "some"`, "host:port"}},
		{"network star", "[sandbox]\nnetwork = [\"api.*.org:443\"]\n", nil, []string{`:2: sandbox.network[0]: got "api.*.org:443"`}},
		{"network host", "[sandbox]\nnetwork = [\"example.org\"]\n", nil, []string{`:2: sandbox.network[0]: got "example.org"`}},
		{"key for commands", "[sandbox]\nenv = [\"OPENAI_API_KEY\"]\n", nil, []string{`:2: sandbox.env[0]: OPENAI_API_KEY holds the key of llm[0]`}},
		{"log level", "[log]\nlevel = \"loud\"\n", nil, []string{`:2: log.level: got "loud"`}},
		{"listen", "[web]\nlisten = \"8080\"\n", nil, []string{`:2: web.listen: got "8080"`}},

		{"override of a wrong type", "", []string{"GASUPERVISOR_MAX_RUNNING=many"}, []string{`environment: GASUPERVISOR_MAX_RUNNING: got "many"`, "want a whole number, such as 32"}},
		{"override with no duration", "", []string{"GASUPERVISOR_REPLY_TIMEOUT=600"}, []string{`environment: GASUPERVISOR_REPLY_TIMEOUT: got "600"`, "want a duration, such as 10m"}},
		{"impossible override", "", []string{"GASUPERVISOR_MAX_RUNNING=0"}, []string{"GASUPERVISOR_MAX_RUNNING: max_running: got 0"}},
		{"address from the environment", "", []string{"OPENAI_BASE_URL=nonsense"}, []string{`OPENAI_BASE_URL: llm[0].base_url: got "nonsense"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadText(t, tt.text, tt.env...)
			if err == nil {
				t.Fatal("loaded without complaint")
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T is no *Error: %v", err, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("message\n\t%v\ndoes not contain\n\t%s", err, want)
				}
			}
			if strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("message shows a key: %v", err)
			}
			if n := strings.Count(err.Error(), "\n"); n > 0 {
				t.Errorf("more than the one fault:\n%v", err)
			}
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := loadText(t, "max_runing = 1\nreply_timeout = 3\n[agent]\nmax_turns = \"x\"\n")
	if got := strings.Count(fmt.Sprint(err), "\n"); got != 2 {
		t.Errorf("want three lines, got\n%v", err)
	}
	// Of types and of values, from top to bottom. What could not be read has its
	// default, about which nothing is said.
	_, err = loadText(t, strings.Join([]string{
		`max_running = -1`, `temp_dir = 3`, `settle = "-3s"`, `[[llm]]`, `name = "a"`, `model = 5`, `fallback = ["b"]`, `[[llm]]`, `name = 3`,
		`[log]`, `level = "loud"`,
	}, "\n"))
	var got []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		_, after, _ := strings.Cut(line, "c.toml:")
		key, _, _ := strings.Cut(after, ": g")
		got = append(got, key)
	}
	want := []string{"1: max_running", "2: temp_dir", "3: settle", "6: llm[0].model", "9: llm[1].name", "11: log.level"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s\n%v", diff, err)
	}
}

func TestValues(t *testing.T) {
	l, err := loadText(t, "\xef\xbb\xbf"+strings.ReplaceAll(`
temp_dir = "t"
reply_timeout = "90s"
settle = "1.5s"

[[llm]]
name = "first"
base_url = "http://localhost:11434/v1/"
model = "qwen3"
api_key_env = ""
temperature = 0
headers = { X-Title = "a b" }
extra.reasoning.effort = "low"

[llm.price]
input = 1
output = 2.5

[[llm]]
name = "second"
model = "m"
fallback = ["first"]

[agent]
model_alias = { opus = "second" }

[sandbox]
network = ["api.example.org:443"]
roots = ["sub", "/srv"]
`, "\n", "\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.TempDir = filepath.Join(l.Dir, "t")
	want.StateDir = filepath.Join(l.Dir, "state")
	want.AgentsDir = filepath.Join(l.Dir, "agents")
	want.SkillsDir = filepath.Join(l.Dir, "skills")
	want.ReplyTimeout = 90 * time.Second
	want.Settle = 1500 * time.Millisecond
	first, second := newLLM(), newLLM()
	zero := 0.0
	first.Name, first.BaseURL, first.Model, first.Temperature = "first", "http://localhost:11434/v1", "qwen3", &zero
	first.Headers = map[string]string{"X-Title": "a b"}
	first.Extra = map[string]any{"reasoning": map[string]any{"effort": "low"}}
	first.Price = &Price{Input: 1, Output: 2.5}
	second.Name, second.Model, second.BaseURL, second.Fallback = "second", "m", "https://api.openai.com/v1", []string{"first"}
	want.LLMs = []LLM{first, second}
	want.Agent.ModelAlias = map[string]string{"opus": "second"}
	want.Sandbox.Network = Network{Hosts: []string{"api.example.org:443"}}
	want.Sandbox.Roots = []string{filepath.Join(l.Dir, "sub"), resolve(l.Dir, "/srv")}
	if diff := cmp.Diff(want, l.Config, sameEmpty); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, want := l.Origin("llm[0].price.output").Line, 17; got != want {
		t.Errorf("origin of the price is line %d, want %d", got, want)
	}
}

func TestOpenAIVariables(t *testing.T) {
	local := []string{"OPENAI_BASE_URL=http://localhost:11434/v1/", "OPENAI_MODEL=qwen3", "OPENAI_API_KEY=sk-from-environment"}
	for _, tt := range []struct {
		name, text string
		env        []string
		url, model string
		window     int
		priced     bool
		key        string
		// origins are those of base_url and model.
		origins []string
	}{
		{"nothing", "", nil, defaultBaseURL, "gpt-5-mini", 400000, true, "", []string{"default", "default"}},
		{"both", "", local, "http://localhost:11434/v1", "qwen3", 0, false, "sk-from-environment", []string{"OPENAI_BASE_URL", "OPENAI_MODEL"}},
		{"address only", "", local[:1], "http://localhost:11434/v1", "gpt-5-mini", 0, false, "", []string{"OPENAI_BASE_URL", "default"}},
		{"model only", "", local[1:2], defaultBaseURL, "qwen3", 0, false, "", []string{"default", "OPENAI_MODEL"}},
		{"blank", "", []string{"OPENAI_BASE_URL=", "OPENAI_MODEL= "}, defaultBaseURL, "gpt-5-mini", 400000, true, "", []string{"default", "default"}},
		{"the file's own window stays", "[[llm]]\ncontext_window = 8192\n", local, "http://localhost:11434/v1", "qwen3", 8192, false, "sk-from-environment", []string{"OPENAI_BASE_URL", "OPENAI_MODEL"}},
		{"the file wins", "[[llm]]\nbase_url = \"http://a/v1\"\nmodel = \"b\"\napi_key_env = \"\"\n", local, "http://a/v1", "b", 0, false, "", []string{"FILE:2", "FILE:3"}},
		{"the file's address, the model from outside", "[[llm]]\nbase_url = \"http://a/v1\"\n", local, "http://a/v1", "qwen3", 0, false, "sk-from-environment", []string{"FILE:2", "OPENAI_MODEL"}},
		{"an override wins over all", "[[llm]]\nbase_url = \"http://a/v1\"\nmodel = \"b\"\n",
			append([]string{"GASUPERVISOR_LLM_0_MODEL=c", "GASUPERVISOR_LLM_0_PRICE_OUTPUT=3"}, local...), "http://a/v1", "c", 0, true, "sk-from-environment", []string{"FILE:2", "GASUPERVISOR_LLM_0_MODEL"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "c.toml"), tt.text)
			l, err := Load(Options{Path: path, Environ: append([]string{}, tt.env...), ReadKeys: true})
			if err != nil {
				t.Fatal(err)
			}
			e := l.Config.LLMs[0]
			if e.BaseURL != tt.url || e.Model != tt.model || e.ContextWindow != tt.window || (e.Price != nil) != tt.priced || e.Key.Reveal() != tt.key {
				t.Errorf("got %q %q window %d price %v key %q", e.BaseURL, e.Model, e.ContextWindow, e.Price, e.Key.Reveal())
			}
			got := []string{l.Origin("llm[0].base_url").String(), l.Origin("llm[0].model").String()}
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], path, "FILE")
			}
			if diff := cmp.Diff(tt.origins, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSearch(t *testing.T) {
	const ours = "temp_dir = \"here\"\n"
	type files map[string]string
	for _, tt := range []struct {
		name  string
		files files
		path  string
		env   []string
		prep  func(t *testing.T, root string)
		// want is the file, "" for none; warning is part of a warning.
		want, why, warning string
		err                string
	}{
		{name: "nothing", why: "defaults"},
		{name: "local", files: files{"cwd/config.toml": ours, "user/config.toml": ours}, want: "cwd/config.toml", why: "the working directory"},
		{name: "another program's", files: files{"cwd/config.toml": "title = \"x\"\n", "user/config.toml": ours}, want: "user/config.toml", why: "the user's configuration directory", warning: "no temp_dir key"},
		{name: "ours but broken", files: files{"cwd/config.toml": "x = \n" + ours}, err: "cwd/config.toml:1"},
		{name: "another's and broken", files: files{"cwd/config.toml": "x = \n"}, why: "defaults", warning: "no temp_dir key"},
		{name: "system", files: files{"system/config.toml": "max_running = 3\n"}, want: "system/config.toml", why: "the system's configuration directory"},
		{name: "user before system", files: files{"user/config.toml": "", "system/config.toml": ""}, want: "user/config.toml", why: "the user's configuration directory"},
		{name: "variable", files: files{"cwd/config.toml": ours, "a.toml": ""}, env: []string{"GASUPERVISOR_CONFIG=../a.toml"}, want: "a.toml", why: "GASUPERVISOR_CONFIG"},
		{name: "flag before variable", files: files{"a.toml": "", "b.toml": ""}, path: "../b.toml", env: []string{"GASUPERVISOR_CONFIG=../a.toml"}, want: "b.toml", why: "--config"},
		{name: "flag without file", path: "nope.toml", err: "nope.toml: cannot be read"},
		{name: "flag with a directory", files: files{"user/config.toml": ""}, path: "../user", err: "is a directory"},
		{name: "variable without file", env: []string{"GASUPERVISOR_CONFIG=nope.toml"}, err: "named by GASUPERVISOR_CONFIG"},
		{name: "broken user file", files: files{"user/config.toml": "x = 1\n"}, err: "user/config.toml:1: x: unknown key"},
		{name: "writable by others", files: files{"cwd/config.toml": ours}, why: "defaults", warning: "chmod o-w",
			prep: func(t *testing.T, root string) { chmod(t, filepath.Join(root, "cwd/config.toml"), 0o646) }},
		{name: "writable by others but named", files: files{"cwd/config.toml": ours}, path: "config.toml", want: "cwd/config.toml", why: "--config",
			prep: func(t *testing.T, root string) { chmod(t, filepath.Join(root, "cwd/config.toml"), 0o646) }},
		{name: "in a directory that all may write", files: files{"cwd/config.toml": ours}, why: "defaults", warning: "chmod o-w the directory",
			prep: func(t *testing.T, root string) { chmod(t, filepath.Join(root, "cwd"), 0o777) }},
		{name: "in a directory like /tmp", files: files{"cwd/config.toml": ours}, want: "cwd/config.toml", why: "the working directory",
			prep: func(t *testing.T, root string) { chmod(t, filepath.Join(root, "cwd"), 0o777|os.ModeSticky) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.prep != nil && runtime.GOOS == "windows" {
				t.Skip("rights are not modes here")
			}
			root := t.TempDir()
			write(t, filepath.Join(root, "cwd/.keep"), "")
			for name, text := range tt.files {
				write(t, filepath.Join(root, name), text)
			}
			if tt.prep != nil {
				tt.prep(t, root)
			}
			l, err := Load(Options{Path: tt.path, Dir: filepath.Join(root, "cwd"), Environ: append([]string{}, tt.env...),
				UserDir: filepath.Join(root, "user"), SystemDir: filepath.Join(root, "system")})
			if tt.err != "" {
				if err == nil || !strings.Contains(filepath.ToSlash(err.Error()), tt.err) {
					t.Fatalf("error is %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, dir := "", filepath.Join(root, "cwd")
			if tt.want != "" {
				want = filepath.Join(root, tt.want)
				dir = filepath.Dir(want)
			}
			if l.File != want || l.Why != tt.why || l.Dir != dir {
				t.Errorf("got %q (%s) in %q, want %q (%s) in %q", l.File, l.Why, l.Dir, want, tt.why, dir)
			}
			if !strings.Contains(strings.Join(l.Warnings, "\n"), tt.warning) || tt.warning == "" && len(l.Warnings) > 0 {
				t.Errorf("warnings are %q, want %q", l.Warnings, tt.warning)
			}
			if filepath.Dir(l.Config.StateDir) != dir {
				t.Errorf("state_dir %q does not lie in %q", l.Config.StateDir, dir)
			}
		})
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "key"), "  sk-in-a-file\n")
	chmod(t, filepath.Join(dir, "key"), 0o600)
	path := write(t, filepath.Join(dir, "c.toml"), `
[[llm]]
model = "a"
[[llm]]
name = "b"
model = "b"
api_key_env = "B_KEY"
[[llm]]
name = "c"
model = "c"
api_key_file = "key"
[[llm]]
name = "d"
model = "d"
api_key_env = "D_KEY"
`)
	var unset []string
	opts := Options{Path: path, Environ: []string{"OPENAI_API_KEY=sk-one", "B_KEY=sk-two"}, ReadKeys: true,
		Unset: func(name string) error { unset = append(unset, name); return nil }}
	l, err := Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sk-one", "sk-two", "sk-in-a-file"}, l.Config.Secrets()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"B_KEY", "OPENAI_API_KEY"}, unset); diff != "" {
		t.Errorf("unset: %s", diff)
	}
	if !slices.ContainsFunc(l.Warnings, func(w string) bool { return strings.Contains(w, "D_KEY") && strings.Contains(w, "c.toml:15") }) {
		t.Errorf("no warning about the missing key: %q", l.Warnings)
	}
	if l.Config.LLMs[0].NeedsKey() || !l.Config.LLMs[3].NeedsKey() {
		t.Error("NeedsKey is wrong")
	}

	// No way of printing shows a key.
	b, err := json.Marshal(l.Config)
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "config", l.Config, "key", l.Config.LLMs[0].Key)
	for _, s := range []string{string(b), fmt.Sprint(l.Config), fmt.Sprintf("%+v %#v", l.Config, l.Config), fmt.Sprint(l.LLMSettings()), logged.String()} {
		if strings.Contains(s, "sk-") {
			t.Errorf("shows a key: %s", s)
		}
	}

	opts.ReadKeys, opts.Unset = false, func(string) error { t.Error("unset without reading"); return nil }
	if l, err = Load(opts); err != nil || len(l.Config.Secrets()) > 0 {
		t.Errorf("keys read unasked: %v", err)
	}
}

func TestKeyFaults(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "empty"), "\n")
	write(t, filepath.Join(dir, "two"), "sk-a\nsk-b\n")
	write(t, filepath.Join(dir, "open"), "sk-a\n")
	load := func(file string, env ...string) (*Loaded, error) {
		text := "[[llm]]\n"
		if file != "" {
			text += "api_key_file = \"" + file + "\"\n"
		}
		return Load(Options{Path: write(t, filepath.Join(dir, "c.toml"), text), Environ: append([]string{}, env...), ReadKeys: true})
	}
	for file, want := range map[string]string{"nope": "c.toml:2: llm[0].api_key_file", "empty": "is empty", "two": "line ends"} {
		if _, err := load(file); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
	if _, err := load("", "OPENAI_API_KEY=sk a"); err == nil || !strings.Contains(err.Error(), "OPENAI_API_KEY") || strings.Contains(err.Error(), "sk a") {
		t.Errorf("got %v", err)
	}
	if l, err := load("open"); err != nil || runtime.GOOS != "windows" && !strings.Contains(fmt.Sprint(l.Warnings), "chmod 600") {
		t.Errorf("no warning about a key that all can read: %v", err)
	}
}

func TestUnknownVariables(t *testing.T) {
	l, err := loadText(t, "", "GASUPERVISOR_MAX_RUNING=3", "GASUPERVISOR=/bin/x", "GASUPERVISOR_CONFIG=", "GASUPERVISOR_INTERNAL_X=1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"environment: GASUPERVISOR_MAX_RUNING overrides nothing; did you mean GASUPERVISOR_MAX_RUNNING?"}
	if diff := cmp.Diff(want, l.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestLLMChoice(t *testing.T) {
	c := Config{LLMs: []LLM{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	for choice, want := range map[string]string{"": "a", "b": "b", "0": "a", "2": "c"} {
		if e, err := c.LLM(choice); err != nil || e.Name != want {
			t.Errorf("%q: got %v, %v, want %s", choice, e, err, want)
		}
	}
	for _, choice := range []string{"d", "1x", " 1", "1.0", "3", "-1", "+1", "01"} {
		e, err := c.LLM(choice)
		if err == nil {
			t.Errorf("%q: got %s", choice, e.Name)
		} else if !strings.Contains(err.Error(), `want one of ["a" "b" "c"], or a number from 0 to 2`) {
			t.Errorf("%q: %v", choice, err)
		}
	}
}

func TestKeyLines(t *testing.T) {
	const doc = `a = 1 # c = 2
"b.c" = '''
d = 3
''''' # ends
e.f = { g = "}", h = [1, 2], "i\u0041" = 1 }

[t]
x = [ # comment ]
  { y = 1 },
  { y = """
z = 1""" },
]
[[l]]
k = 1
[l.m]
n = 1
[[l]]

k = 'it''s'
`
	// The last line is no TOML (a literal string cannot hold a quote): what stands
	// before the fault still has its lines.
	got := keyLines(doc)
	for path, want := range map[string]int{"a": 1, `"b.c"`: 2, "e": 5, "e.f": 5, "e.f.g": 5, "e.f.iA": 5, "t": 7, "t.x": 8, "t.x[0].y": 9, "t.x[1].y": 10,
		"l": 13, "l[0]": 13, "l[0].k": 14, "l[0].m": 15, "l[0].m.n": 16, "l[1]": 17, "l[1].k": 19} {
		if got[path] != want {
			t.Errorf("%s: line %d, want %d", path, got[path], want)
		}
	}
	if len(got) > 24 {
		t.Errorf("more keys than there are: %v", got)
	}
}

// FuzzLoad: no text makes Load panic or hang, every fault it finds has a file and
// a message, and every key of valid TOML has a line.
func FuzzLoad(f *testing.F) {
	f.Add("temp_dir = \"t\"\n[[llm]]\nmodel = \"m\"\n[[llm]]\nname = \"n\"\nmodel = 'x'\nprice = { input = 1 }\n", "3")
	f.Add("[agent]\nmodel_alias = { \"a b\" = \"inherit\" }\n[sandbox]\nnetwork = [\"a:1\"]\nroots = [\n'''a''',\n]\n", "1m")
	f.Add("\xef\xbb\xbfreply_timeout = 5\n", "")
	f.Add("llm = [{ name = \"a\" }, { extra = { b = [1, [2]] } }]", "x")
	f.Add("a = \"\"\"\\\"\"\"\"\"\"\nb.\"c\\n\".d = 1979-05-27 07:32:00\n", "")
	f.Fuzz(func(t *testing.T, text, override string) {
		env := environment([]string{"GASUPERVISOR_MAX_RUNNING=" + override, "GASUPERVISOR_REPLY_TIMEOUT=" + override, "OPENAI_BASE_URL=" + override})
		l, err := parse([]byte(text), "c.toml", env)
		if err == nil {
			l.Dir = "/"
			l.absolute()
			err = l.validate()
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.File == "" || e.Problem == "" {
				t.Errorf("no proper error: %#v", err)
			}
		}
		plain, err := plainText([]byte(text), "")
		if err != nil {
			return
		}
		var doc map[string]any
		if _, err := toml.Decode(plain, &doc); err != nil {
			return
		}
		lines := keyLines(plain)
		var check func(v any, path string)
		check = func(v any, path string) {
			if path != "" && lines[path] == 0 {
				t.Errorf("no line for %s in %q", path, plain)
			}
			switch v := v.(type) {
			case map[string]any:
				for k, w := range v {
					check(w, join(path, toml.Key{k}.String()))
				}
			case []map[string]any:
				for i, w := range v {
					check(w, index(path, i))
				}
			case []any:
				for i, w := range v {
					check(w, index(path, i))
				}
			}
		}
		check(doc, "")
	})
}

// What a program adds to be read for its own sake takes nothing away.
func TestAlsoRead(t *testing.T) {
	sep := string(filepath.ListSeparator)
	a, b, c := absPath(t, "a"), absPath(t, "b"), absPath(t, "c")
	l, err := loadText(t, fmt.Sprintf("[sandbox]\nread = [%q]", a), "GASUPERVISOR_ALSO_READ="+b+sep+c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{a, b, c}, l.Config.Sandbox.Read); diff != "" || len(l.Warnings) > 0 {
		t.Errorf("%s, warnings %q", diff, l.Warnings)
	}
}

func absPath(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
