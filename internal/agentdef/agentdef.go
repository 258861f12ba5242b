// Package agentdef says what an agent is: a Definition with its system prompt,
// tools, model and limits, and a Registry that finds one by name.
//
// General is built in; ParseFile makes a Definition of a file, as it is written for
// this daemon or for Claude Code; a Library keeps those of the directories where
// agent files lie and notices when they change. What runs agents sees one type
// whatever its origin.
//
// A file that cannot be read as it was meant is not loaded, and nothing in a file
// that is misspelt or unknown grants anything: an agent may turn out to have fewer
// rights than its author thought, never more.
package agentdef

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Kind is one of the three kinds of subagent. They differ in where system prompt,
// history and model come from, and in how many turns a round may take.
type Kind string

const (
	// KindGeneral starts with the default prompt, without history, on the session's model.
	KindGeneral Kind = "general"
	// KindCustom starts with its own prompt, without history, on its own model.
	KindCustom Kind = "custom"
	// KindFork goes on with the prompt, tools, history and model of its parent.
	KindFork Kind = "fork"
)

// MaxTurns is the number of turns that a round of this kind may take where
// nothing else is configured.
func (k Kind) MaxTurns() int {
	switch k {
	case KindCustom:
		return 30
	case KindFork:
		return 60
	}
	return 180
}

// Completion says how a round of an agent may end successfully.
type Completion string

const (
	// CompletionTool wants a call of attempt_completion and, after reminders, takes
	// the agent's text as the result. It is the default.
	CompletionTool Completion = "tool"
	// CompletionText takes the first turn that has text and no call as the result.
	CompletionText Completion = "text"
	// CompletionRequired takes nothing but a call of attempt_completion.
	CompletionRequired Completion = "required"
)

// Inherit as Definition.Model means the session's model, as "" does.
const Inherit = "inherit"

// General's name, under which it is found in every Registry.
const GeneralName = "general"

// Marks that begin user messages, by which an agent tells who speaks. General's
// prompt names them; who builds messages puts them first on the first line.
const (
	// FromSupervisor begins a message of the supervisor: the input, a reply, an intervention, key info.
	FromSupervisor = "[supervisor]"
	// FromDaemon begins a message of the daemon: facts, reminders, limits.
	FromDaemon = "[daemon]"
)

// Definition is an agent. The zero values of the optional fields mean "the
// session's" or "the default", as their comments say.
type Definition struct {
	// Name is what context.json and the task tool choose the agent by.
	Name string
	// Description says when to use the agent; it stands in catalogues.
	Description string
	// Prompt is the system prompt, used byte for byte. A fork has none of its own.
	Prompt string
	Kind   Kind

	// LLM is the name of a configured LLM; "" for the session's.
	LLM string
	// Model is the provider's name for a model; "" or Inherit for the session's.
	Model string

	// MaxTurns limits the turns of one round; 0 for the default of Kind.
	MaxTurns int
	// Timeout limits one round; 0 for none.
	Timeout time.Duration

	// Tools names what the agent may call, by canonical names: nil for all that
	// the session may have, empty for none. attempt_completion is always there.
	Tools []string
	// DisallowedTools are taken away from Tools, or from all where Tools is nil.
	DisallowedTools []string
	// Skills names the skills whose text is part of the agent from the start.
	Skills []string
	// Network is nil for the task's setting, else "host:port" patterns that narrow it.
	Network []string

	// Completion is "" for CompletionTool.
	Completion Completion

	// Source is the path of the file that defines the agent; "" where it is built in.
	Source string
}

// Turns is the limit of turns per round that is in force.
func (d Definition) Turns() int {
	if d.MaxTurns > 0 {
		return d.MaxTurns
	}
	return d.Kind.MaxTurns()
}

// Inherits reports whether the agent runs on the session's model.
func (d Definition) Inherits() bool {
	return d.LLM == "" && (d.Model == "" || d.Model == Inherit)
}

// May reports whether the agent may use a tool, as far as its definition goes.
func (d Definition) May(tool string) bool {
	return (d.Tools == nil || slices.Contains(d.Tools, tool)) && !slices.Contains(d.DisallowedTools, tool)
}

// Clone returns a copy that shares no slices with d.
func (d Definition) Clone() Definition {
	d.Tools = slices.Clone(d.Tools)
	d.DisallowedTools = slices.Clone(d.DisallowedTools)
	d.Skills = slices.Clone(d.Skills)
	d.Network = slices.Clone(d.Network)
	return d
}

// Validate reports everything that keeps d from being run, joined.
func (d Definition) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("agent %q: %s: %s", d.Name, key, fmt.Sprintf(format, args...)))
	}
	switch {
	case strings.TrimSpace(d.Name) == "":
		bad("name", "is empty")
	case strings.TrimSpace(d.Name) != d.Name || strings.ContainsFunc(d.Name, unicode.IsControl):
		bad("name", "begins or ends with a space or holds control characters")
	}
	switch d.Kind {
	case KindGeneral, KindCustom:
		if strings.TrimSpace(d.Prompt) == "" {
			bad("prompt", "is empty, so that the agent would not know what it is for")
		}
	case KindFork:
		if d.Prompt != "" {
			bad("prompt", "a fork uses its parent's")
		}
	default:
		bad("kind", "is %q, want general, custom or fork", d.Kind)
	}
	switch d.Completion {
	case "", CompletionTool, CompletionText, CompletionRequired:
	default:
		bad("completion", "is %q, want tool, text or required", d.Completion)
	}
	if d.MaxTurns < 0 {
		bad("max_turns", "is %d, want 1 or more", d.MaxTurns)
	}
	if d.Timeout < 0 {
		bad("timeout", "is %v, want more than 0", d.Timeout)
	}
	return errors.Join(errs...)
}

// Registry finds agents by name. Sources.Load makes it, and nothing changes it after
// that, so that any number of goroutines may use it.
type Registry struct {
	defs map[string]Definition
	// broken are the files that are not loaded, by the name that they would have.
	broken map[string]error
}

// Lookup returns the agent of that name, General for "". An error is an
// *UnknownError.
func (r *Registry) Lookup(name string) (Definition, error) {
	if name == "" {
		name = GeneralName
	}
	d, ok := r.defs[name]
	if !ok {
		return Definition{}, &UnknownError{Name: name, Known: r.Names(), Err: r.broken[name]}
	}
	return d.Clone(), nil
}

// Names returns the names of all agents, sorted.
func (r *Registry) Names() []string {
	return slices.Sorted(maps.Keys(r.defs))
}

// UnknownError is a name that no agent has.
type UnknownError struct {
	Name string
	// Known are the names that there are.
	Known []string
	// Err is what is wrong with the file that would define it; nil: there is none.
	Err error
}

func (e *UnknownError) Unwrap() error { return e.Err }

func (e *UnknownError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the agent %q is not loaded: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("no agent is named %q; there are: %s", e.Name, strings.Join(e.Known, ", "))
}
