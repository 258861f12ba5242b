// Package config is the daemon's configuration: its shape, its defaults, where
// it is looked for, and what is wrong with it.
//
// A configuration is a TOML file, and the environment may override any single
// value in it. Load is strict: a key that nobody reads, a value of the wrong
// type and a value that cannot work stop the start, each with file, line, key
// and the right form, since a setting that is silently ignored is noticed when
// it is too late. Everything that Load finds it finds in one pass, so that a
// person corrects a file once.
//
// Load also remembers where every value came from (Loaded.Origin): with a file,
// three well-known variables and one override per value, "why does it call that
// address" is otherwise hard to answer.
//
// The package knows nothing of those who are configured. It reads files and, through Options, the environment;
// it changes neither, except that Options.Unset is called for the variables
// that held keys.
package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Config is the whole configuration. The fields' order is the shipped file's.
// Paths are absolute once Load returns.
type Config struct {
	TempDir      string        `toml:"temp_dir" eg:"\"temp\""`
	StateDir     string        `toml:"state_dir" eg:"\"state\""`
	ReplyTimeout time.Duration `toml:"reply_timeout" eg:"\"10m\""`
	MaxRunning   int           `toml:"max_running" eg:"32"`
	Settle       time.Duration `toml:"settle" eg:"\"250ms\""`
	StopTimeout  time.Duration `toml:"stop_timeout" eg:"\"20s\""`
	// AgentsDir holds agent files and SkillsDir skills; they may be missing.
	AgentsDir string `toml:"agents_dir" eg:"\"agents\""`
	SkillsDir string `toml:"skills_dir" eg:"\"skills\""`

	// LLMs are the models that can be asked; the first is the default. There is
	// always at least one.
	LLMs []LLM `toml:"llm"`

	Agent     Agent     `toml:"agent"`
	Limits    Limits    `toml:"limits"`
	Sandbox   Sandbox   `toml:"sandbox"`
	Retention Retention `toml:"retention"`
	Log       Log       `toml:"log"`
	Web       Web       `toml:"web"`
}

// LLM is one [[llm]] entry: a model at an address.
type LLM struct {
	// Name is the word that users choose the entry by; unique.
	Name string `toml:"name" eg:"\"default\""`
	// BaseURL is the address up to and including the version, without a
	// trailing slash: "https://api.openai.com/v1".
	BaseURL string `toml:"base_url" eg:"\"https://api.openai.com/v1\""`
	// APIKeyEnv names the environment variable that holds the key; APIKeyFile is
	// a file that does. At most one of them is set.
	APIKeyEnv  string `toml:"api_key_env" eg:"\"OPENAI_API_KEY\""`
	APIKeyFile string `toml:"api_key_file" eg:"\"openai.key\""`
	Model      string `toml:"model" eg:"\"gpt-5-mini\""`
	// ContextWindow is in tokens; 0 while it is unknown.
	ContextWindow int `toml:"context_window" eg:"400000"`
	// CompactAt is the part of ContextWindow from which on conversations are made
	// smaller; ReplyReserve is how many tokens are kept free for an answer, in the
	// window and in budgets: 0 is what suits the window.
	CompactAt    float64 `toml:"compact_at" eg:"0.75"`
	ReplyReserve int     `toml:"reply_reserve" eg:"4096"`
	// MaxConcurrent is how many requests may be in flight at once.
	MaxConcurrent int `toml:"max_concurrent" eg:"16"`
	// Fallback names the entries that are asked, in this order, when this one fails.
	Fallback []string `toml:"fallback" eg:"[\"other\"]"`
	// Price is nil while it is unknown; the cost is unknown then too.
	Price *Price `toml:"price" eg:"{ input = 0.25, cached = 0.025, output = 2.0 }"`
	// ToolCalls is ToolCallsNative or ToolCallsText.
	ToolCalls string `toml:"tool_calls" eg:"\"native\""`
	// Temperature is nil where the provider's default is to be used.
	Temperature *float64 `toml:"temperature" eg:"0.7"`
	// MaxTokensField is the request field that bounds an answer: "auto",
	// "max_tokens" or "max_completion_tokens".
	MaxTokensField string `toml:"max_tokens_field" eg:"\"auto\""`
	// ReasoningEcho says whether the model's reasoning is sent back to it: one of
	// the EchoXXX words.
	ReasoningEcho string `toml:"reasoning_echo" eg:"\"auto\""`
	// Headers are added to each request.
	Headers map[string]string `toml:"headers" eg:"{ \"X-Title\" = \"audit\" }"`
	// Extra is merged into each request's body; it holds what JSON can hold.
	Extra map[string]any `toml:"extra" eg:"{ reasoning_effort = \"low\" }"`

	// Key is the key itself, "" where there is none. It is no setting, and never
	// part of what is printed.
	Key Secret `toml:"-"`
}

// The words for LLM.ToolCalls.
const (
	ToolCallsNative = "native" // the provider's function calling
	ToolCallsText   = "text"   // described in the prompt, read from the text
)

// The words for LLM.ReasoningEcho.
const (
	EchoAuto   = "auto"   // as the model is known to want it
	EchoAlways = "always" // every request carries all reasoning back
	EchoNever  = "never"
)

// Price is in USD per million tokens.
type Price struct {
	Input  float64 `toml:"input" eg:"0.25"`
	Cached float64 `toml:"cached" eg:"0.025"`
	Output float64 `toml:"output" eg:"2.0"`
}

// Agent holds what applies to agents that do not say otherwise.
type Agent struct {
	// Completion is one of the CompletionXXX words.
	Completion string `toml:"completion" eg:"\"tool\""`
	// MaxTurns counts per round; Timeout does too, and 0 means none.
	MaxTurns int           `toml:"max_turns" eg:"180"`
	Timeout  time.Duration `toml:"timeout" eg:"\"2h\""`
	// ToolResultCap is in bytes.
	ToolResultCap int `toml:"tool_result_cap" eg:"30000"`
	// CommandTimeout is how long a command may run that names no time itself,
	// CommandTimeoutMax how long it may ask for.
	CommandTimeout    time.Duration `toml:"command_timeout" eg:"\"2m\""`
	CommandTimeoutMax time.Duration `toml:"command_timeout_max" eg:"\"30m\""`
	// IdleTimeout is how long a model may send nothing at all.
	IdleTimeout time.Duration `toml:"idle_timeout" eg:"\"5m\""`
	// Retries is how often a failed request is sent again; 0 is never.
	Retries int `toml:"retries" eg:"5"`
	// MaxDepth is how deep subagents may be nested: 1 is children without
	// grandchildren, 0 none at all.
	MaxDepth int `toml:"max_depth" eg:"1"`
	// ModelAlias maps a model name in an agent file to an LLM's name or "inherit".
	ModelAlias map[string]string `toml:"model_alias" eg:"{ sonnet = \"inherit\" }"`
}

// The words for Agent.Completion.
const (
	CompletionTool     = "tool"     // by attempt_completion; text is taken after nudges
	CompletionText     = "text"     // the first text without a tool call is the result
	CompletionRequired = "required" // by attempt_completion, or the round fails
)

// Limits bound the daemon as a whole; 0 means no limit.
type Limits struct {
	CostPerDay   float64 `toml:"cost_per_day" eg:"5.0"`
	TasksPerHour int     `toml:"tasks_per_hour" eg:"100"`
}

// Retention says what becomes of tasks that are over.
type Retention struct {
	// ArchiveAfter is how long after its session ended a task is packed away; 0 is never.
	ArchiveAfter time.Duration `toml:"archive_after" eg:"\"720h\""`
}

// Sandbox says what agents may read, write and reach.
type Sandbox struct {
	// Mode is SandboxAuto or SandboxOff.
	Mode string `toml:"mode" eg:"\"auto\""`
	// Roots is where tasks may be given rights at all. Load fills in TempDir and
	// the configuration's directory where the file leaves it empty.
	Roots []string `toml:"roots" eg:"[\"/srv/projects\"]"`
	Share bool     `toml:"share" eg:"true"`
	// Read adds to what may be read.
	Read       []string `toml:"read" eg:"[\"/srv/docs\"]"`
	Toolchains bool     `toml:"toolchains" eg:"true"`
	Network    Network  `toml:"network" eg:"\"off\""`
	// User is whom agents act as where the daemon is root; "" is whom it runs as.
	User string `toml:"user" eg:"\"agents\""`
	// Env names variables of the daemon that commands see too.
	Env []string `toml:"env" eg:"[\"LANG\"]"`

	// Memory and Processes bound one command with all that it starts, FileSize each
	// file that it writes, Disk how much less free space a file system may have
	// while it runs, DiskReserve how much has to stay. 0 is no limit.
	Memory      Size `toml:"memory" eg:"\"4GB\""`
	Processes   int  `toml:"processes" eg:"512"`
	FileSize    Size `toml:"file_size" eg:"\"10GB\""`
	Disk        Size `toml:"disk" eg:"\"20GB\""`
	DiskReserve Size `toml:"disk_reserve" eg:"\"1GB\""`
}

// The words for Sandbox.Mode.
const (
	SandboxAuto = "auto" // commands are confined, or refused where that cannot be
	SandboxOff  = "off"  // commands run unconfined
)

// Size is a number of bytes, written with a unit: "512MB", "4GB". Units are powers
// of 1024.
type Size int64

// The units.
const (
	kilobyte Size = 1 << (10 * (iota + 1))
	megabyte
	gigabyte
	terabyte
)

func (s Size) String() string {
	for _, u := range []struct {
		name string
		size Size
	}{{"TB", terabyte}, {"GB", gigabyte}, {"MB", megabyte}, {"KB", kilobyte}} {
		if s != 0 && s%u.size == 0 {
			return fmt.Sprintf("%d%s", s/u.size, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}

// Network is what commands may reach: nothing (the zero value), everything, or
// the hosts named.
type Network struct {
	All bool
	// Hosts are "host:port" patterns.
	Hosts []string
}

func (n Network) String() string {
	switch {
	case n.All:
		return "all"
	case len(n.Hosts) == 0:
		return "off"
	}
	return fmt.Sprint(n.Hosts)
}

// Log says how the daemon logs to standard error.
type Log struct {
	Level  string `toml:"level" eg:"\"info\""`  // debug, info, warn, error
	Format string `toml:"format" eg:"\"text\""` // text, json
}

// Web is the page that shows the sessions.
type Web struct {
	// Listen is host:port; "" is off.
	Listen string `toml:"listen" eg:"\"127.0.0.1:8787\""`
}

// Secret is text that is never printed: every way of formatting it shows only
// whether there is one. Reveal returns it.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return "none"
	}
	return "[hidden]"
}

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText keeps the secret out of JSON and of structured logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// The address and key variable of the first entry where nothing says otherwise.
const (
	defaultBaseURL   = "https://api.openai.com/v1"
	defaultKeyEnv    = "OPENAI_API_KEY"
	defaultModel     = "gpt-5-mini"
	defaultWindow    = 400000
	defaultFirstName = "default"
)

// Default is the configuration where nothing is configured: what the shipped
// config.toml says. Its paths are relative.
func Default() Config {
	return Config{
		TempDir:      "temp",
		StateDir:     "state",
		ReplyTimeout: 10 * time.Minute,
		MaxRunning:   32,
		Settle:       250 * time.Millisecond,
		StopTimeout:  20 * time.Second,
		AgentsDir:    "agents",
		SkillsDir:    "skills",
		LLMs:         []LLM{defaultLLM()},
		Agent: Agent{
			Completion:        CompletionTool,
			MaxTurns:          180,
			ToolResultCap:     30000,
			CommandTimeout:    2 * time.Minute,
			CommandTimeoutMax: 30 * time.Minute,
			IdleTimeout:       5 * time.Minute,
			Retries:           5,
			MaxDepth:          1,
			ModelAlias:        map[string]string{"sonnet": "inherit", "opus": "inherit", "haiku": "inherit"},
		},
		Sandbox: Sandbox{
			Mode: SandboxAuto, Share: true, Toolchains: true,
			Memory: 4 * gigabyte, Processes: 512, FileSize: 10 * gigabyte, Disk: 20 * gigabyte, DiskReserve: gigabyte,
		},
		Log: Log{Level: "info", Format: "text"},
	}
}

// defaultLLM is the first entry where the configuration has none.
func defaultLLM() LLM {
	e := newLLM()
	e.Name = defaultFirstName
	e.BaseURL = defaultBaseURL
	e.APIKeyEnv = defaultKeyEnv
	e.Model = defaultModel
	e.ContextWindow = defaultWindow
	e.Price = defaultPrice()
	return e
}

func defaultPrice() *Price { return &Price{Input: 0.25, Cached: 0.025, Output: 2.0} }

// newLLM is an entry before its own keys are read: what does not depend on which
// model it is.
func newLLM() LLM {
	return LLM{
		CompactAt:      0.75,
		MaxConcurrent:  16,
		ToolCalls:      ToolCallsNative,
		MaxTokensField: "auto",
		ReasoningEcho:  EchoAuto,
	}
}

// LLM returns the entry of that name, or that number; "" is the first. A name that
// looks like a number comes before that number.
func (c *Config) LLM(choice string) (*LLM, error) {
	if choice == "" {
		return &c.LLMs[0], nil
	}
	for i := range c.LLMs {
		if c.LLMs[i].Name == choice {
			return &c.LLMs[i], nil
		}
	}
	last := len(c.LLMs) - 1
	if n, err := strconv.Atoi(choice); err == nil && n >= 0 && n <= last && strconv.Itoa(n) == choice {
		return &c.LLMs[n], nil
	}
	numbers := "the number 0"
	if last > 0 {
		numbers = fmt.Sprintf("a number from 0 to %d", last)
	}
	return nil, fmt.Errorf("find LLM %q: want one of %q, or %s", choice, c.LLMNames(), numbers)
}

// LLMNames returns the names of the entries in order.
func (c *Config) LLMNames() []string {
	names := make([]string, len(c.LLMs))
	for i, e := range c.LLMs {
		names[i] = e.Name
	}
	return names
}

// Secrets returns the keys of all entries, for redaction; without repetitions.
func (c *Config) Secrets() []string {
	var keys []string
	for _, e := range c.LLMs {
		if k := e.Key.Reveal(); k != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}
