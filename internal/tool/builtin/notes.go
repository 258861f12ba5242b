package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/tool"
	"github.com/gasupervisor/gasupervisor/plan"
)

func (e Env) updateCheckpoint() tool.Tool {
	return &builtin{
		name:       UpdateCheckpoint,
		parameters: `"key_info":{"type":"string"}`,
		required:   []string{"key_info"},
		aliases:    map[string][]string{"key_info": {"info", "text"}},
		run: func(_ context.Context, a *args) tool.Result {
			e.SetKeyInfo(a.text("key_info"))
			return tool.Result{Text: "saved", Summary: "saved"}
		},
	}
}

func (e Env) updatePlan() tool.Tool {
	return &builtin{
		name: UpdatePlan,
		parameters: `"steps":{"type":"array","items":{"type":"object","properties":{` +
			`"text":{"type":"string"},` +
			`"status":{"type":"string","enum":["open","done","failed","skipped"]}},` +
			`"required":["text","status"]}}`,
		required: []string{"steps"},
		aliases:  map[string][]string{"steps": {"plan", "todos"}},
		run: func(_ context.Context, a *args) tool.Result {
			steps, err := planSteps(json.RawMessage(a.text("steps")))
			if err != nil {
				return tool.Failure("%v", err)
			}
			if err := e.WritePlan(plan.Render(steps)); err != nil {
				return tool.Failure("the plan was not saved: %v", err)
			}
			p := plan.Plan{Steps: steps}
			done, total := p.Progress()
			text := fmt.Sprintf("plan saved, %d of %d done", done, total)
			if next, ok := p.Current(); ok {
				text += "; next: " + clip(next.Text, 200)
			}
			return tool.Result{Text: text, Summary: fmt.Sprintf("%d of %d done", done, total)}
		},
	}
}

// otherWords are what models call the states in other programs.
var otherWords = map[string]plan.State{
	"": plan.Open, "pending": plan.Open, "todo": plan.Open, "in_progress": plan.Open, "in progress": plan.Open,
	"completed": plan.Done, "complete": plan.Done, "finished": plan.Done, "error": plan.Failed,
	"cancelled": plan.Skipped, "canceled": plan.Skipped,
}

// planSteps reads the steps of a call: objects, or texts as they stand in a plan.
func planSteps(raw json.RawMessage) ([]plan.Step, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, fmt.Errorf("steps must be a list of objects with text and status")
	}
	var steps []plan.Step
	for i, item := range items {
		var line string
		if json.Unmarshal(item, &line) == nil {
			steps = append(steps, planStep(line))
			continue
		}
		a, err := parseArgs(item, map[string][]string{"text": {"content", "step", "title", "description"}, "status": {"state"}})
		if err != nil {
			return nil, fmt.Errorf("step %d must be an object with text and status", i+1)
		}
		step := planStep(a.text("text"))
		word := strings.ToLower(strings.TrimSpace(a.text("status")))
		state, ok := plan.ParseState(word)
		if !ok {
			if state, ok = otherWords[word]; !ok {
				return nil, fmt.Errorf("the status of step %d must be open, done, failed or skipped, not %q", i+1, clip(word, 40))
			}
		}
		step.State = state
		if strings.TrimSpace(step.Text) == "" {
			return nil, fmt.Errorf("the text of step %d is missing", i+1)
		}
		steps = append(steps, step)
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("steps is empty; a plan needs at least one")
	}
	return steps, nil
}

// planStep reads the text of a step, in which marks such as [VERIFY] may stand.
func planStep(text string) plan.Step {
	text = strings.Join(strings.Fields(text), " ")
	for _, line := range []string{text, "- [ ] " + text} {
		if p := plan.Parse(line); len(p.Steps) == 1 && p.Steps[0].Text != "" {
			step := p.Steps[0]
			step.Depth, step.Line = 0, 0
			return step
		}
	}
	return plan.Step{Text: text}
}

func completion() tool.Tool {
	return &builtin{
		name:       Completion,
		parameters: `"result":{"type":"string"}`,
		required:   []string{"result"},
		run: func(_ context.Context, a *args) tool.Result {
			if strings.TrimSpace(a.text("result")) == "" {
				return tool.Failure("the result is empty")
			}
			return tool.Result{Text: "accepted", Summary: "accepted"}
		},
	}
}
