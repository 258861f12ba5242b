// Package builtin is the tools that come with the daemon: reading, listing,
// searching, writing and changing files, running commands, and keeping the
// working memory and the plan.
//
// File tools see the disk through sandbox.Files and commands run through
// sandbox/command; neither knows models, and this package adds what models need:
// short descriptions, tolerant arguments, results that say what they are and how
// to go on where they end, and errors that say what to do instead.
//
// Descriptions are the files in descriptions/, one for each tool.
package builtin

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

//go:embed descriptions/*.md
var descriptions embed.FS

// Env is what the tools of one round work on.
type Env struct {
	// Files is the disk as the task may see it; relative paths start at its
	// working directory. The caller closes it after the last call.
	Files *sandbox.Files
	// WorkDir is where commands run: an absolute path.
	WorkDir string
	// WritePlan replaces the task's plan.
	WritePlan func(string) error
	// SetKeyInfo replaces the agent's part of the working memory. It may be called
	// at any time while a tool runs.
	SetKeyInfo func(string)
	// Delegate sends out subagents for the call of that id, and returns when they
	// have ended; nil where the agent may send out none.
	Delegate func(ctx context.Context, call string, d tool.Delegation) tool.Result
	// Command says how commands run.
	Command CommandConfig
	// ResultCap is how many bytes of a result reach the model, as the tool.Set has
	// it; tools end their results themselves below it, where they can say how to go
	// on. 0 is tool.DefaultCap.
	ResultCap int
	// Keys are those that tools must not cut in two where they shorten a text. Whole
	// ones are the tool.Set's business. Nil for none.
	Keys *redact.Replacer
}

// CommandConfig says how commands run.
type CommandConfig struct {
	// Env is the whole environment; see command.Environ.
	Env []string
	// DefaultTimeout (0: 2 minutes) is for calls that name none, MaxTimeout (0: 10
	// minutes) is the most that a call can ask for.
	DefaultTimeout, MaxTimeout time.Duration
	// OutputCap is how many bytes of output are kept; 0: as many as a result holds.
	OutputCap int
	// Confine and Limits are command.Command's.
	Confine func(*exec.Cmd) (*command.Confinement, error)
	Limits  command.Limits
}

// Names of the tools.
const (
	ReadFile         = "read_file"
	ListFiles        = "list_files"
	SearchFiles      = "search_files"
	ExecuteCommand   = "execute_command"
	WriteToFile      = "write_to_file"
	ReplaceInFile    = "replace_in_file"
	UpdateCheckpoint = "update_working_checkpoint"
	UpdatePlan       = "update_plan"
	Completion       = "attempt_completion"
	Task             = "task"
)

// Names returns the names of all tools, in the order in which models see them.
func Names() []string {
	return []string{
		ReadFile, ListFiles, SearchFiles, CodeDefinitions, ExecuteCommand, WriteToFile, ReplaceInFile,
		UpdateCheckpoint, UpdatePlan, Task, Completion,
	}
}

// ReadOnlyNames returns the tools of agents that change nothing. Commands are
// among them: what those may write is the sandbox's business.
func ReadOnlyNames() []string {
	return []string{ReadFile, ListFiles, SearchFiles, CodeDefinitions, ExecuteCommand, Completion}
}

// Writes reports whether one of the named tools writes files (nil: all tools), so
// that their agent has to be granted writing.
func Writes(names []string) bool {
	return names == nil || slices.Contains(names, WriteToFile) || slices.Contains(names, ReplaceInFile)
}

// New returns the named tools in the order of Names (nil: all of them), always
// with the one for completion. A name that is no tool is an error.
func New(env Env, names []string) ([]tool.Tool, error) {
	if names == nil {
		names = Names()
	}
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			return nil, fmt.Errorf("there is no tool %q; the tools are: %s", n, strings.Join(Names(), ", "))
		}
	}
	if env.ResultCap <= 0 {
		env.ResultCap = tool.DefaultCap
	}
	var tools []tool.Tool
	for _, n := range Names() {
		if n == Completion || slices.Contains(names, n) {
			tools = append(tools, build(env, n))
		}
	}
	return tools, nil
}

func build(env Env, name string) tool.Tool {
	switch name {
	case ReadFile:
		return env.readFile()
	case ListFiles:
		return env.listFiles()
	case SearchFiles:
		return env.searchFiles()
	case CodeDefinitions:
		return env.codeDefinitions()
	case ExecuteCommand:
		return env.executeCommand()
	case WriteToFile:
		return env.writeToFile()
	case ReplaceInFile:
		return env.replaceInFile()
	case UpdateCheckpoint:
		return env.updateCheckpoint()
	case UpdatePlan:
		return env.updatePlan()
	case Task:
		return env.task()
	}
	return completion()
}

// builtin is one tool.
type builtin struct {
	name string
	// parameters are the properties of its schema, as a JSON object without the
	// braces, and which of them are required.
	parameters string
	required   []string
	// aliases gives other names under which models send a parameter.
	aliases map[string][]string
	changes bool
	run     func(ctx context.Context, a *args) tool.Result
}

// Spec implements tool.Tool.
func (b *builtin) Spec() llm.ToolSpec {
	text, err := descriptions.ReadFile("descriptions/" + b.name + ".md")
	if err != nil {
		panic(err) // a fault of this package, which its test finds
	}
	required, err := json.Marshal(b.required)
	if err != nil {
		panic(err)
	}
	return llm.ToolSpec{
		Name:        b.name,
		Description: strings.TrimSpace(string(text)),
		Parameters:  llm.RawJSON(fmt.Sprintf(`{"type":"object","properties":{%s},"required":%s}`, b.parameters, required)),
	}
}

// Changes implements tool.Changer.
func (b *builtin) Changes() bool { return b.changes }

// Run implements tool.Tool.
func (b *builtin) Run(ctx context.Context, call tool.Call) tool.Result {
	a, err := parseArgs(call.Args, b.aliases)
	if err != nil {
		return tool.Failure("%s: %v", b.name, err)
	}
	for _, name := range b.required {
		a.need(name)
	}
	if err := a.err(); err != nil {
		return tool.Failure("%s: %v", b.name, err)
	}
	r := b.run(ctx, a)
	if err := a.err(); err != nil {
		return tool.Failure("%s: %v", b.name, err)
	}
	return r
}
