package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/sandbox/netproxy"
)

// Validate reports every value that cannot work. What it returns holds an *Error
// for each, without file and line; Load adds those.
func (c *Config) Validate() error {
	v := &validator{}
	v.top(c)
	for i := range c.LLMs {
		v.llm(c, i)
	}
	v.agent(c)
	v.limits(c)
	v.retention(c)
	v.sandbox(c)
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	if c.Web.Listen != "" && !isListenAddress(c.Web.Listen) {
		v.add("web.listen", fmt.Sprintf("got %q", c.Web.Listen), `want "host:port", such as "127.0.0.1:8787", or "" for none`)
	}
	return v.faults.orNil()
}

// validate is Validate with places, and with warnings about what has no effect.
func (l *Loaded) validate() error {
	if l.Config.Web.Listen != "" {
		l.Warnings = append(l.Warnings, fmt.Sprintf("web.listen (%s): this version has no web page yet, so nothing listens", l.origins["web.listen"]))
	}
	err := l.Config.Validate()
	wrong, ok := err.(faults)
	if !ok {
		return err
	}
	for _, e := range wrong {
		// A list's item or a table's key stands where its list or table does, at the latest.
		e.File = l.place()
		for path := e.Key; path != ""; path = parent(path) {
			if o, ok := l.origins[path]; ok {
				e.File, e.Line = o.Name, o.Line
				break
			}
		}
	}
	return wrong
}

// parent is the path one step up.
func parent(path string) string {
	return path[:max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['), 0)]
}

type validator struct{ faults faults }

func (v *validator) add(key, problem, hint string) {
	v.faults = append(v.faults, &Error{Key: key, Problem: problem, Hint: hint})
}

func (v *validator) oneOf(key, got string, want ...string) {
	if !slices.Contains(want, got) {
		v.add(key, fmt.Sprintf("got %q", got), "want one of "+quoteAll(want))
	}
}

func (v *validator) between(key string, got, low, high int) {
	if got < low || got > high {
		v.add(key, fmt.Sprintf("got %d", got), fmt.Sprintf("want a number from %d to %d", low, high))
	}
}

func (v *validator) duration(key string, got, low, high time.Duration) {
	if got < low || got > high {
		v.add(key, fmt.Sprintf("got %q", shortDuration(got)), fmt.Sprintf("want a duration from %q to %q", shortDuration(low), shortDuration(high)))
	}
}

// size allows 0 and anything from low on.
func (v *validator) size(key string, got, low Size) {
	if got != 0 && got < low {
		v.add(key, fmt.Sprintf("got %q", got), fmt.Sprintf("want a size of %q or more, or 0 for no limit", low))
	}
}

const day = 24 * time.Hour

func (v *validator) top(c *Config) {
	for _, d := range []struct{ key, path string }{{"temp_dir", c.TempDir}, {"state_dir", c.StateDir}} {
		if strings.TrimSpace(d.path) == "" {
			v.add(d.key, "is empty", "want a directory's path")
		}
	}
	if c.TempDir != "" && c.StateDir != "" {
		// Agents write in temp_dir and must not reach the journals.
		switch {
		case within(c.StateDir, c.TempDir):
			v.add("state_dir", fmt.Sprintf("%q lies in temp_dir", c.StateDir), "want a directory beside it, such as \"state\"")
		case within(c.TempDir, c.StateDir):
			v.add("temp_dir", fmt.Sprintf("%q lies in state_dir", c.TempDir), "want a directory beside it, such as \"temp\"")
		}
	}
	for _, d := range []struct{ key, path, eg string }{{"agents_dir", c.AgentsDir, "agents"}, {"skills_dir", c.SkillsDir, "skills"}} {
		if d.path != "" && c.TempDir != "" && within(d.path, c.TempDir) {
			v.add(d.key, fmt.Sprintf("%q lies in temp_dir, where agents write", d.path), fmt.Sprintf("want a directory beside it, such as %q", d.eg))
		}
	}
	v.duration("reply_timeout", c.ReplyTimeout, time.Second, 10*365*day)
	v.between("max_running", c.MaxRunning, 1, 10000)
	v.duration("settle", c.Settle, time.Millisecond, time.Minute)
	v.duration("stop_timeout", c.StopTimeout, time.Second, time.Hour)
}

// ownFields are the parts of a request that the daemon writes itself.
var ownFields = []string{"messages", "model", "stream", "stream_options", "tools", "tool_choice"}

func (v *validator) llm(c *Config, i int) {
	e := &c.LLMs[i]
	at := func(key string) string { return index("llm", i) + "." + key }

	v.name(c, i, at("name"))
	v.baseURL(at("base_url"), e.BaseURL)
	if strings.TrimSpace(e.Model) == "" {
		v.add(at("model"), "is missing", "want the name that the server at base_url gives the model")
	}
	if e.APIKeyEnv != "" && e.APIKeyFile != "" {
		v.add(at("api_key_file"), "api_key_env is set as well", "want one of the two")
	}
	if e.APIKeyEnv != "" && !isVariable(e.APIKeyEnv) {
		// It may be the key itself, so it is not shown.
		v.add(at("api_key_env"), "is no name of an environment variable",
			"want a name such as \"OPENAI_API_KEY\"; a key itself belongs in a file that api_key_file names")
	}
	v.window(e, at)
	v.between(at("max_concurrent"), e.MaxConcurrent, 1, 10000)
	v.fallback(c, e, at("fallback"))
	v.price(e.Price, at("price"))
	v.oneOf(at("tool_calls"), e.ToolCalls, ToolCallsNative, ToolCallsText)
	if t := e.Temperature; t != nil && (*t < 0 || *t > 2) {
		v.add(at("temperature"), fmt.Sprintf("got %g", *t), "want a number from 0 to 2")
	}
	v.oneOf(at("max_tokens_field"), e.MaxTokensField, "auto", "max_tokens", "max_completion_tokens")
	v.oneOf(at("reasoning_echo"), e.ReasoningEcho, EchoAuto, EchoAlways, EchoNever)
	v.headers(e.Headers, at("headers"))
	v.extra(e.Extra, at("extra"))
}

// name checks the name of entry i.
func (v *validator) name(c *Config, i int, key string) {
	name := c.LLMs[i].Name
	switch {
	case strings.TrimSpace(name) == "":
		v.add(key, "is missing", "want the word by which users choose this LLM, such as \"local\"")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		v.add(key, fmt.Sprintf("got %q", name), "want a name without control characters")
	case name == "inherit" || isInteger(name):
		v.add(key, fmt.Sprintf("got %q, which already means something where an LLM is chosen", name), "want another word")
	}
	if j := slices.Index(c.LLMNames(), name); j < i && name != "" {
		v.add(key, fmt.Sprintf("%q is llm[%d]'s name already", name, j), "want another name")
	}
}

// window checks the size of the window and what is kept free in it.
func (v *validator) window(e *LLM, at func(key string) string) {
	if e.ContextWindow != 0 {
		v.between(at("context_window"), e.ContextWindow, 1024, 1<<30)
	}
	if e.CompactAt < 0.1 || e.CompactAt > 1 {
		v.add(at("compact_at"), fmt.Sprintf("got %g", e.CompactAt), "want a part of the window from 0.1 to 1")
	}
	v.between(at("reply_reserve"), e.ReplyReserve, 0, 1<<30)
	if e.ContextWindow > 0 && e.ReplyReserve >= e.ContextWindow {
		v.add(at("reply_reserve"), fmt.Sprintf("got %d", e.ReplyReserve), fmt.Sprintf("want less than context_window, %d", e.ContextWindow))
	}
}

func (v *validator) fallback(c *Config, e *LLM, key string) {
	for i, name := range e.Fallback {
		at := index(key, i)
		switch {
		case name == e.Name:
			v.add(at, fmt.Sprintf("%q is this entry itself", name), "want the names of others")
		case !slices.Contains(c.LLMNames(), name):
			v.add(at, fmt.Sprintf("there is no LLM %q", name), "want one of "+quoteAll(c.LLMNames()))
		case slices.Contains(e.Fallback[:i], name):
			v.add(at, fmt.Sprintf("%q stands there twice", name), "want each once")
		}
	}
}

func (v *validator) price(p *Price, key string) {
	if p == nil {
		return
	}
	for _, f := range []struct {
		key   string
		value float64
	}{{"input", p.Input}, {"cached", p.Cached}, {"output", p.Output}} {
		if f.value < 0 || f.value > 1e6 {
			v.add(join(key, f.key), fmt.Sprintf("got %g", f.value), "want USD per million tokens")
		}
	}
}

func (v *validator) headers(headers map[string]string, key string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !headerName.MatchString(name) {
			v.add(key, fmt.Sprintf("%q is no name of an HTTP header", name), "want letters, digits and hyphens")
		} else if strings.ContainsFunc(headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			v.add(join(key, name), "holds control characters", "want text on one line")
		}
	}
}

// extra checks what is merged into the bodies of requests.
func (v *validator) extra(fields map[string]any, key string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(ownFields, name) {
			v.add(join(key, name), "the daemon writes this field itself", "leave it out")
		} else if _, err := json.Marshal(fields[name]); err != nil {
			v.add(join(key, name), "JSON cannot hold this value", "want text, numbers, true or false, lists or tables of these")
		}
	}
}

func (v *validator) baseURL(key, raw string) {
	const eg = `want an address such as "https://api.openai.com/v1" or "http://localhost:11434/v1"`
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		v.add(key, "is empty", eg)
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.add(key, fmt.Sprintf("got %q", clip(raw, 100)), eg)
	case u.User != nil:
		v.add(key, "holds a user name or password", eg+"; headers can carry those")
	case u.RawQuery != "" || u.Fragment != "":
		v.add(key, fmt.Sprintf("got %q, with more after the path", clip(raw, 100)), eg)
	case strings.HasSuffix(u.Path, "/chat/completions"):
		v.add(key, "ends in /chat/completions, which the daemon adds itself", fmt.Sprintf("want %q", strings.TrimSuffix(raw, "/chat/completions")))
	}
}

func (v *validator) agent(c *Config) {
	a := &c.Agent
	v.oneOf("agent.completion", a.Completion, CompletionTool, CompletionText, CompletionRequired)
	v.between("agent.max_turns", a.MaxTurns, 1, 100000)
	v.duration("agent.timeout", a.Timeout, 0, 365*day)
	v.between("agent.tool_result_cap", a.ToolResultCap, 1000, 10<<20)
	v.duration("agent.command_timeout_max", a.CommandTimeoutMax, time.Second, 30*day)
	v.duration("agent.command_timeout", a.CommandTimeout, time.Second, max(a.CommandTimeoutMax, time.Second))
	v.duration("agent.idle_timeout", a.IdleTimeout, time.Second, day)
	v.between("agent.retries", a.Retries, 0, 100)
	v.between("agent.max_depth", a.MaxDepth, 0, 10)
	for _, alias := range slices.Sorted(maps.Keys(a.ModelAlias)) {
		if name := a.ModelAlias[alias]; name != "inherit" && !slices.Contains(c.LLMNames(), name) {
			v.add(join("agent.model_alias", alias), fmt.Sprintf("there is no LLM %q", name), "want \"inherit\" or one of "+quoteAll(c.LLMNames()))
		}
	}
}

func (v *validator) limits(c *Config) {
	if c.Limits.CostPerDay < 0 {
		v.add("limits.cost_per_day", fmt.Sprintf("got %g", c.Limits.CostPerDay), "want USD, or 0 for no limit")
	}
	v.between("limits.tasks_per_hour", c.Limits.TasksPerHour, 0, 1<<30)
	if c.Limits.CostPerDay > 0 {
		for i, e := range c.LLMs {
			if e.Price == nil {
				v.add("limits.cost_per_day", fmt.Sprintf("the price of LLM %q is unknown, so its cost cannot be limited", e.Name),
					fmt.Sprintf("give %s.price = { input = ..., cached = ..., output = ... }, or take the limit out", index("llm", i)))
			}
		}
	}
}

func (v *validator) retention(c *Config) {
	if c.Retention.ArchiveAfter != 0 {
		v.duration("retention.archive_after", c.Retention.ArchiveAfter, time.Minute, 100*365*day)
	}
}

func (v *validator) sandbox(c *Config) {
	s := &c.Sandbox
	v.oneOf("sandbox.mode", s.Mode, SandboxAuto, SandboxOff)
	v.size("sandbox.memory", s.Memory, 64*megabyte)
	v.size("sandbox.file_size", s.FileSize, megabyte)
	v.size("sandbox.disk", s.Disk, megabyte)
	v.size("sandbox.disk_reserve", s.DiskReserve, megabyte)
	if s.Processes != 0 {
		v.between("sandbox.processes", s.Processes, 8, 100000)
	}
	for _, list := range []struct {
		key   string
		paths []string
	}{{"sandbox.roots", s.Roots}, {"sandbox.read", s.Read}} {
		for i, p := range list.paths {
			if strings.TrimSpace(p) == "" {
				v.add(index(list.key, i), "is empty", "want a directory's path")
			}
		}
	}
	if s.User != "" && s.Mode == SandboxOff {
		v.add("sandbox.user", "agents act as another user only where they are confined", `want mode = "auto", or no user`)
	}
	for i, h := range s.Network.Hosts {
		if _, err := netproxy.Parse([]string{h}); err != nil {
			v.add(index("sandbox.network", i), fmt.Sprintf("got %q", h), `want "host:port", such as "api.example.org:443" or "*.example.org:443"`)
		}
	}
	for i, name := range s.Env {
		key := index("sandbox.env", i)
		if !isVariable(name) {
			v.add(key, fmt.Sprintf("got %q", clip(name, 40)), "want a variable's name, such as \"LANG\"")
			continue
		}
		for j, e := range c.LLMs {
			if e.APIKeyEnv == name {
				v.add(key, fmt.Sprintf("%s holds the key of llm[%d], which commands must not see", name, j), "leave it out")
			}
		}
	}
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName   = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)
)

func isVariable(s string) bool { return len(s) <= 200 && variableName.MatchString(s) }

func isInteger(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// isListenAddress reports whether one can listen there: the host may be empty.
func isListenAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 1 && n <= 65535
}

// within reports whether path is dir or lies in it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(filepath.Clean(dir), filepath.Clean(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return strings.Join(quoted, ", ")
}

// shortDuration writes 10m instead of 10m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
