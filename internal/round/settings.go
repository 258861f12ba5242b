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

	Agent        string          `json:"agent,omitempty"`
	LLM          string          `json:"llm,omitempty"`
	Model        string          `json:"model,omitempty"`
	Tools        []string        `json:"tools,omitempty"`
	ToolsGiven   bool            `json:"tools_given,omitempty"`
	MaxTurns     int             `json:"max_turns,omitempty"`
	MaxTokens    int64           `json:"max_tokens,omitempty"`
	MaxCostUSD   float64         `json:"max_cost_usd,omitempty"`
	Timeout      time.Duration   `json:"timeout,omitempty"`
	Verbose      bool            `json:"verbose,omitempty"`
	ForkFrom     string          `json:"fork_from,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`

	// AsText holds what was given in another shape, as "key: value" lines for the agent.
	AsText []string `json:"as_text,omitempty"`
}
