package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// taskTool is the tool that sends out subagents. Its calls run side by side, and
// after a restart they are not "interrupted": they go on waiting for the children
// that they had started.
const taskTool = "task"

// delegate sends out the subagents of one call and returns what they found. It
// runs in the call's goroutine, while the round waits for its calls: conversation
// and head do not change meanwhile.
func (s *state) delegate(ctx context.Context, call string, d tool.Delegation) tool.Result {
	job, err := s.job(d)
	if err != nil {
		return tool.Failure("%s: %v", taskTool, err)
	}
	return s.sendOut(ctx, call, d, job)
}

// sendOut starts a subagent for each prompt, in their order, and waits for them.
func (s *state) sendOut(ctx context.Context, call string, d tool.Delegation, job round.Job) tool.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	children := make([]child, len(d.Prompts))
	var mu sync.Mutex
	var running sync.WaitGroup
	for n, prompt := range d.Prompts {
		draw := s.childBudget()
		job.Prompt, job.Reserve = prompt, draw.reserve()
		wait, err := s.in.Spawn(ctx, call, n, job)
		if err != nil {
			wait = func() (round.JobResult, error) { return round.JobResult{}, err }
		}
		running.Go(func() {
			r, err := s.outcomeOf(wait)
			draw.over(r.Spent)
			mu.Lock()
			defer mu.Unlock()
			children[n] = child{r, err}
			if children[n].decides(d.Mode) {
				// The others are stopped, and end as stopped.
				cancel()
			}
		})
	}
	running.Wait()
	return report(d, children)
}

// outcomeOf waits for a subagent. What panics there is this subagent's failure: the
// goroutine is nobody else's, and a panic in it would end the daemon.
func (s *state) outcomeOf(wait func() (round.JobResult, error)) (r round.JobResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Log.Error("waiting for a subagent panicked", "task", s.in.Task, "panic", p, "stack", string(debug.Stack()))
			r, err = round.JobResult{}, fmt.Errorf("defect in gasupervisor: %v (the log has the stack)", p)
		}
	}()
	return wait()
}

// child is how one subagent came out.
type child struct {
	round.JobResult
	err error
}

func (c child) completed() bool { return c.err == nil && c.Outcome.Reason == round.Completed }

// decides reports whether the others need not go on.
func (c child) decides(mode string) bool {
	switch mode {
	case tool.Any:
		return c.completed()
	case tool.FirstError:
		return !c.completed()
	}
	return false
}

// job is what the subagents of a call have in common: what they may do is never
// more than their parent may.
func (s *state) job(d tool.Delegation) (round.Job, error) {
	if s.in.Spawn == nil {
		return round.Job{}, errors.New("subagents cannot send out subagents here; do the work yourself")
	}
	parent := &s.in.Settings
	set := round.Settings{
		WorkDir: parent.WorkDir, InputFiles: parent.InputFiles, OutputFiles: parent.OutputFiles, Child: true,
		LLM: s.head.LLM, Model: s.head.Model, Verbose: parent.Verbose,
	}
	set.Parents = append(slices.Clone(parent.Parents), s.in.Task)
	set.Networks = parent.Networks
	if s.def.Network != nil {
		set.Networks = append(slices.Clone(set.Networks), s.def.Network)
	}
	if own := s.spending.own; own != nil {
		left := own.Left()
		set.MaxTokens, set.MaxCostUSD = left.Tokens, left.CostUSD
	}
	if d.Fork {
		set.Agent, set.MaxTurns = s.def.Name, agentdef.KindFork.MaxTurns()
		return round.Job{Settings: set, Prepared: &s.head, Conversation: s.forked()}, nil
	}
	def, err := s.cfg.Agents(d.Agent)
	if err != nil {
		return round.Job{}, err
	}
	set.Agent = d.Agent
	if !def.Inherits() {
		set.LLM, set.Model = "", ""
	}
	set.ToolsGiven = true
	// The task tool is among them: whoever gives a subagent its tools leaves it out at
	// the greatest depth.
	for _, name := range s.tools.Set.Names() {
		if name != completionTool && def.May(name) {
			set.Tools = append(set.Tools, name)
		}
	}
	return round.Job{Settings: set}, nil
}

// forked is the conversation so far with its open calls answered, so that it can be
// gone on with.
func (s *state) forked() []llm.Message {
	msgs := slices.Clone(s.conv.Messages())
	answered := map[string]bool{}
	last := len(msgs) - 1
	for ; last >= 0 && msgs[last].Role == llm.ToolRole; last-- {
		answered[msgs[last].ToolCallID] = true
	}
	if last < 0 {
		return msgs
	}
	for _, c := range msgs[last].ToolCalls {
		if !answered[c.ID] {
			msgs = append(msgs, llm.Message{Role: llm.ToolRole, ToolCallID: c.ID, Content: forkedHere})
		}
	}
	return msgs
}

// report is the result of a call: each subagent's, under a heading of its own.
func report(d tool.Delegation, children []child) tool.Result {
	var b strings.Builder
	done := 0
	for i, c := range children {
		if c.completed() {
			done++
		}
		if len(children) > 1 {
			if i > 0 {
				b.WriteString("\n\n")
			}
			fmt.Fprintf(&b, "## Subagent %d of %d", i+1, len(children))
			if c.Task != "" {
				fmt.Fprintf(&b, " (task %s)", c.Task)
			}
			b.WriteString("\n")
		}
		b.WriteString(c.words())
	}
	failed := done == 0 || d.Mode == tool.FirstError && done < len(children)
	return tool.Result{Text: b.String(), Summary: fmt.Sprintf("%d of %d completed", done, len(children)), Failed: failed}
}

// words is what the parent's model is told of a subagent.
func (c child) words() string {
	if c.err != nil {
		return "not run: " + c.err.Error()
	}
	o := c.Outcome
	switch {
	case o.Reason == round.Completed && len(o.OpenPoints) > 0:
		return o.Result + "\n\nLeft open: " + strings.Join(o.OpenPoints, "; ")
	case o.Reason == round.Completed:
		return o.Result
	}
	s := fmt.Sprintf("ended without completing: %s", o.Reason)
	if o.Error != nil {
		s += ": " + o.Error.Message
	}
	if o.Result != "" {
		s += "\nWhat it had by then:\n" + o.Result
	}
	return s
}
