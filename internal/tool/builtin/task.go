package builtin

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// maxSubagents bounds how many one call may send out.
const maxSubagents = 32

func (e Env) task() tool.Tool {
	return &delegate{
		builtin: builtin{
			name: Task,
			parameters: `"description":{"type":"string","description":"3 to 6 words for those who watch"},` +
				`"prompt":{"type":"string","description":"for one subagent"},` +
				`"prompts":{"type":"array","items":{"type":"string"},"description":"for one subagent each"},` +
				`"subagent_type":{"type":"string","description":"a custom agent; default general"},` +
				`"fork":{"type":"boolean","description":"give them your conversation so far"},` +
				`"mode":{"type":"string","enum":["all","any","first_error"],"description":"default all; any: until one succeeds; first_error: until one fails"}`,
			required: []string{"description"},
			aliases:  map[string][]string{"description": {"title", "name"}, "subagent_type": {"agent", "agent_type"}},
			changes:  true,
		},
		start: e.Delegate,
	}
}

// delegate is the one tool that has to know the id of its call: what it starts
// outlives the process, and is found again by it.
type delegate struct {
	builtin
	start func(ctx context.Context, call string, d tool.Delegation) tool.Result
}

// Run implements tool.Tool.
func (t *delegate) Run(ctx context.Context, call tool.Call) tool.Result {
	a, err := parseArgs(call.Args, t.aliases)
	if err != nil {
		return tool.Failure("%s: %v", t.name, err)
	}
	d := tool.Delegation{
		Description: a.text("description"), Agent: strings.TrimSpace(a.text("subagent_type")), Fork: a.flag("fork"),
		Mode: strings.ToLower(a.text("mode")),
	}
	d.Prompts = prompts(a)
	switch {
	case len(d.Prompts) == 0:
		a.complain("prompt or prompts is missing")
	case len(d.Prompts) > maxSubagents:
		a.complain("%d prompts are more than the %d that one call may have", len(d.Prompts), maxSubagents)
	}
	if d.Fork && d.Agent != "" {
		a.complain("fork and subagent_type exclude each other: a fork is you again")
	}
	switch d.Mode {
	case "":
		d.Mode = tool.All
	case tool.All, tool.Any, tool.FirstError:
	default:
		a.complain("mode must be all, any or first_error, not %q", clip(d.Mode, 40))
	}
	if err := a.err(); err != nil {
		return tool.Failure("%s: %v", t.name, err)
	}
	if t.start == nil {
		return tool.Failure("%s: this agent may not send out subagents; do the work yourself", t.name)
	}
	return t.start(ctx, call.ID, d)
}

// prompts are those of a call, without empty ones. Models write a single prompt as
// a list, and a list as a text.
func prompts(a *args) []string {
	var all []string
	if raw, ok := a.fields["prompts"]; ok {
		if json.Unmarshal(raw, &all) != nil {
			var text string
			if json.Unmarshal(raw, &text) != nil || json.Unmarshal([]byte(text), &all) != nil {
				all = []string{a.text("prompts")}
			}
		}
	}
	if len(all) == 0 {
		all = []string{a.text("prompt")}
	}
	var out []string
	for _, p := range all {
		if strings.TrimSpace(p) != "" {
			out = append(out, p)
		}
	}
	return out
}
