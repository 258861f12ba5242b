package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/schema"
)

// prepare finds agent, LLM and tools, and with them the head of every request. What
// is wrong with any of them ends the round here, before a token is spent.
func (s *state) prepare(ctx context.Context) *round.Outcome {
	for _, step := range []func(context.Context) *round.Outcome{s.chooseAgent, s.chooseModel, s.readSchema, s.openBudgets, s.grantTools} {
		if out := step(ctx); out != nil {
			return out
		}
	}
	s.maxTurns = s.turnLimit()
	if s.in.Prepared != nil {
		s.head = *s.in.Prepared
		return nil
	}
	s.head = round.Prepared{
		Agent: s.def.Name, LLM: s.model.Name, Model: s.model.ID,
		System: s.systemPrompt(), Tools: s.tools.Set.Specs(),
	}
	if !s.tools.Set.Has(completionTool) {
		s.head.Tools = append(s.head.Tools, completionSpec())
	}
	return nil
}

func (s *state) chooseAgent(ctx context.Context) *round.Outcome {
	name := s.in.Settings.Agent
	if s.in.Prepared != nil {
		name = s.in.Prepared.Agent
	}
	def, err := s.cfg.Agents(name)
	switch {
	case err == nil:
		s.def = def
	case s.in.Prepared != nil:
		// The session has its prompt and its tools; what the definition would add is
		// limits, for which the narrowest kind's stand.
		s.def = agentdef.Definition{Name: name, Kind: agentdef.KindCustom}
		return s.warnOnce(ctx, fmt.Sprintf("agent %q is no longer defined; the session goes on with the prompt and tools that it began with", name))
	default:
		return fail("context", "context.json, key \"agent\", value %q: %v", name, err)
	}
	return nil
}

// chooseModel takes the LLM of context.json before the agent's; an agent's model
// belongs to the agent's LLM and does not move to another.
func (s *state) chooseModel(ctx context.Context) *round.Outcome {
	if p := s.in.Prepared; p != nil {
		m, err := s.cfg.Models(ctx, p.LLM, "")
		if err == nil && m.ID != p.Model {
			m, err = s.cfg.Models(ctx, p.LLM, p.Model)
		}
		if err == nil {
			s.model = m
			return s.affordable()
		}
		// The configuration changed under the session: choose anew.
	}
	set := s.in.Settings
	name, model, where := set.LLM, set.Model, "context.json, key \"llm\""
	if name == "" {
		name = s.def.LLM
		if name != "" {
			where = fmt.Sprintf("agent %q, its LLM", s.def.Name)
		}
		if model == "" && s.def.Model != agentdef.Inherit {
			model = s.def.Model
		}
	}
	if name == "" && model != "" {
		where = "context.json, key \"model\""
		if set.Model == "" {
			where = fmt.Sprintf("agent %q, its model", s.def.Name)
		}
	}
	m, err := s.cfg.Models(ctx, name, model)
	if err != nil {
		value := name
		if value == "" {
			value = model
		}
		if value == "" {
			return fail("context", "no LLM to work with: %v", err)
		}
		return fail("context", "%s, value %q: %v", where, value, err)
	}
	s.model = m
	return s.affordable()
}

// readSchema reads the form that context.json gives the result.
func (s *state) readSchema(context.Context) *round.Outcome {
	var err error
	if s.schema, err = schema.Compile(s.in.Settings.OutputSchema); err != nil {
		return fail("context", "context.json, key \"output_schema\": not a valid JSON Schema: %v", err)
	}
	return nil
}

func (s *state) affordable() *round.Outcome {
	if limit := s.in.Settings.MaxCostUSD; limit > 0 && !s.model.Priced {
		return fail("context", "context.json, key \"max_cost_usd\", value %g: the cost on LLM %q is not known; give it a price in config.toml, or limit max_tokens instead",
			limit, s.model.Name)
	}
	return nil
}

func (s *state) grantTools(context.Context) *round.Outcome {
	names, out := s.toolNames()
	if out != nil {
		return out
	}
	set, err := s.cfg.Tools(ToolRequest{
		Input: s.in, Agent: s.def, Model: s.model.ID, Names: names, Without: s.def.DisallowedTools, SetKeyInfo: s.memory.set,
		Delegate: s.delegate,
	})
	if err != nil {
		kind := "context"
		var k interface{ FailureKind() string }
		if errors.As(err, &k) {
			kind = k.FailureKind()
		}
		return fail(kind, "%v", err)
	}
	s.tools = set
	s.tools.Set = set.Set.Redacting(s.cfg.Redact)
	return nil
}

// toolNames are the tools to ask for: those that the session began with, else those
// of context.json within the agent's, else the agent's.
func (s *state) toolNames() ([]string, *round.Outcome) {
	if p := s.in.Prepared; p != nil {
		names := make([]string, 0, len(p.Tools))
		for _, t := range p.Tools {
			if t.Name != completionTool {
				names = append(names, t.Name)
			}
		}
		return names, nil
	}
	if !s.in.Settings.ToolsGiven {
		return s.def.Tools, nil
	}
	names := make([]string, 0, len(s.in.Settings.Tools))
	for _, name := range s.in.Settings.Tools {
		if name == completionTool {
			continue // always there
		}
		if !s.def.May(name) {
			may := slices.DeleteFunc(slices.Clone(s.def.Tools), func(n string) bool { return !s.def.May(n) })
			return nil, fail("context", "context.json, key \"tools\", value %q: agent %q may not use it; it may use: %s",
				name, s.def.Name, listOr(may, "all others"))
		}
		names = append(names, name)
	}
	return names, nil
}

func (s *state) turnLimit() int {
	if n := s.in.Settings.MaxTurns; n > 0 {
		return n
	}
	if s.def.MaxTurns > 0 {
		return s.def.MaxTurns
	}
	if n := s.cfg.Limits.MaxTurns[s.def.Kind]; n > 0 {
		return n
	}
	return s.def.Turns()
}

// systemPrompt is the agent's prompt. A custom agent's stands byte for byte, and is
// followed by what it cannot know.
func (s *state) systemPrompt() string {
	parts := []string{s.def.Prompt}
	if s.def.Kind == agentdef.KindCustom {
		parts = append(parts, customRules)
		if s.tools.Environment != "" {
			parts = append(parts, s.tools.Environment)
		}
	}
	if s.tools.Catalogue != "" {
		parts = append(parts, s.tools.Catalogue)
	}
	return strings.Join(parts, "\n\n")
}

// request is the next request: the head and the conversation.
func (s *state) request(toolChoice string) llm.Request {
	msgs := s.conv.Messages()
	all := make([]llm.Message, 0, len(msgs)+1)
	if s.head.System != "" {
		all = append(all, llm.Message{Role: llm.System, Content: s.head.System})
	}
	return llm.Request{Messages: append(all, msgs...), Tools: s.head.Tools, ToolChoice: toolChoice, Sent: &s.sent}
}

func listOr(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}
