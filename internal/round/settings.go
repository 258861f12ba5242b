package round

import (
	"encoding/json"
	"time"
)

// Settings are what a task's context.json says. The first five fields are
// GenericAgent's keys and written by models: what does not have their shape is
// given to the agent as text, opens no right, and leaves a warning.
type Settings struct {
	Task        string            `json:"task,omitempty"`
	WorkDir     string            `json:"work_dir,omitempty"`
	InputFiles  map[string]string `json:"input_files,omitempty"`
	OutputFiles map[string]string `json:"output_files,omitempty"`
	// Dependencies is text for the agent.
	Dependencies []string `json:"dependencies,omitempty"`

	Agent string `json:"agent,omitempty"`
	// LLM is the name of a configured LLM, or its number in decimal digits.
	LLM   string `json:"llm,omitempty"`
	Model string `json:"model,omitempty"`
	// Tools are the names of the tools asked for, where ToolsGiven: none, if empty.
	Tools      []string `json:"tools,omitempty"`
	ToolsGiven bool     `json:"tools_given,omitempty"`
	// The limits are 0 where nothing is said.
	MaxTurns   int           `json:"max_turns,omitempty"`
	MaxTokens  int64         `json:"max_tokens,omitempty"`
	MaxCostUSD float64       `json:"max_cost_usd,omitempty"`
	Timeout    time.Duration `json:"timeout,omitempty"`
	Verbose    bool          `json:"verbose,omitempty"`
	// ForkFrom is the name of the task whose conversation is continued.
	ForkFrom string `json:"fork_from,omitempty"`
	// OutputSchema is a JSON object.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`

	// Child marks the settings of a subagent: the files are its parent's, for it to
	// reach and not for it to account for.
	Child bool `json:"child,omitempty"`
	// Parents are the names of the tasks that a subagent was sent out by, the topmost
	// first. context.json cannot set them.
	Parents []string `json:"parents,omitempty"`
	// Networks are lists of "host:port" patterns that bound what commands of a
	// subagent reach, each of them: those of its parents. None is no further bound, an
	// empty list allows nothing. context.json cannot set them.
	Networks [][]string `json:"networks,omitempty"`

	// AsText holds what was given in another shape or under other keys, one
	// "key: value" line each, for the agent to read. It opens no right.
	AsText []string `json:"as_text,omitempty"`
}
