package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// maxNudges is how many turns in a row may go by without a call before the round
// is ended with what there is.
const maxNudges = 3

// reason is something that speaks against completion. Its tag says which kind it
// is; each kind is held against the agent once a round.
type reason struct{ tag, text string }

// completionResult returns what a call of attempt_completion hands over, and
// whether that is anything. A result that is no string is taken as its JSON text.
func completionResult(c llm.ToolCall) (string, bool) {
	var args struct{ Result json.RawMessage }
	if json.Unmarshal([]byte(c.Arguments), &args) != nil {
		return "", false
	}
	var text string
	if json.Unmarshal(args.Result, &text) == nil {
		return text, strings.TrimSpace(text) != ""
	}
	var compact bytes.Buffer
	if json.Compact(&compact, args.Result) != nil {
		return "", false
	}
	return compact.String(), true
}

// judge answers the calls of attempt_completion in a turn: results holds the answers
// of the calls beside them, and gets theirs. It returns the outcome where the
// completion is accepted.
func (s *state) judge(calls []llm.ToolCall, results []called, steers bool) *round.Outcome {
	first := slices.IndexFunc(calls, func(c llm.ToolCall) bool { return c.Name == completionTool })
	if first < 0 {
		return nil
	}
	var failed []string
	for i, c := range calls {
		switch {
		case c.Name != completionTool && results[i].Failed:
			failed = append(failed, c.Name+": "+results[i].Summary)
		case c.Name == completionTool && i > first:
			results[i].Result = tool.Result{Text: secondResult, Summary: "ignored", Failed: true}
		}
	}
	text, ok := completionResult(calls[first])
	answer := &results[first].Result
	if r, bad := invalidArguments(calls[first]); bad {
		*answer = r
		return nil
	}
	if !ok {
		*answer = tool.Result{Text: emptyResult, Summary: "the result is empty", Failed: true}
		return nil
	}
	if steers {
		*answer = tool.Result{Text: steered, Summary: "goes on: the supervisor wrote"}
		return nil
	}
	against := s.reasons(failed, &text)
	if fresh := s.unsaid(against); len(fresh) > 0 {
		*answer = tool.Result{Text: refusal(fresh), Summary: "not accepted yet: " + fresh[0].text}
		return nil
	}
	*answer = tool.Result{Text: accepted, Summary: "accepted"}
	return s.completed("tool", text, against)
}

// completed is the outcome of a round that reached its end.
func (s *state) completed(by, result string, against []reason) *round.Outcome {
	out := &round.Outcome{Reason: round.Completed, Result: result, CompletedBy: by, MissingOutputs: s.missingOutputs()}
	if s.schema != nil {
		out.Data, _ = s.schema.Data(result)
	}
	for _, r := range against {
		out.OpenPoints = append(out.OpenPoints, r.text)
	}
	return out
}

// maxSaid is how often a reason is given in a round.
func maxSaid(tag string) int {
	if tag == "schema" {
		return 3
	}
	return 1
}

// unsaid returns the reasons that were not given in this round, or not often enough.
// At the limit of turns none are given: the agent could do nothing about them.
func (s *state) unsaid(reasons []reason) []reason {
	if s.turn >= s.maxTurns {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(reasons), func(r reason) bool { return s.ledger.refused[r.tag] >= maxSaid(r.tag) })
}

// reasons is all that speaks against completion now. failed are the calls beside it
// that failed, result is what it hands over, nil where there is nothing to judge.
func (s *state) reasons(failed []string, result *string) []reason {
	var rs []reason
	if s.schema != nil && result != nil {
		if _, why := s.schema.Data(*result); why != "" {
			rs = append(rs, reason{"schema", "the result must be JSON that satisfies the output schema, but " + oneLine(why)})
		}
	}
	if len(failed) > 0 {
		rs = append(rs, reason{"failed_call", "calls in the same turn failed: " + strings.Join(failed, "; ")})
	}
	p := s.readPlan()
	if open := p.Open(); len(open) > 0 {
		var steps []string
		for _, st := range open {
			steps = append(steps, stepText(st))
		}
		rs = append(rs, reason{"plan", fmt.Sprintf("%d plan steps are open (do them, or mark them skipped): %s",
			len(open), someOf(steps, 20))})
	}
	var undone []string
	for _, st := range p.Unverified() {
		undone = append(undone, st.Text)
	}
	if len(undone) > 0 {
		rs = append(rs, reason{"verify", "the plan's check was not done: " + someOf(undone, 20)})
	}
	missing, stale := s.outputs()
	if len(missing) > 0 {
		rs = append(rs, reason{"missing_outputs", "output files are not there: " + s.outputPaths(missing)})
	}
	if len(stale) > 0 {
		rs = append(rs, reason{"stale_outputs", "output files are older than this task: " + s.outputPaths(stale)})
	}
	return rs
}

// clockSlack is how far a file's time may lie before the round's start though it was
// written in it: file systems keep times coarsely.
const clockSlack = 2 * time.Second

// outputs returns the names of the output files of context.json that are missing,
// and of those that were there before the session's first round. Later rounds may
// leave files alone.
func (s *state) outputs() (missing, stale []string) {
	if s.tools.Exists == nil || s.in.Settings.Child {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.in.Settings.OutputFiles)) {
		switch at, there := s.tools.Exists(s.in.Settings.OutputFiles[name]); {
		case !there:
			missing = append(missing, name)
		case s.in.Round == 0 && at.Before(s.in.StartedAt.Add(-clockSlack)):
			stale = append(stale, name)
		}
	}
	return missing, stale
}

// missingOutputs are the names of the output files that the round did not write.
func (s *state) missingOutputs() []string {
	missing, stale := s.outputs()
	names := append(missing, stale...)
	slices.Sort(names)
	return names
}

func (s *state) outputPaths(names []string) string {
	lines := make([]string, 0, len(names))
	for _, n := range names {
		lines = append(lines, n+": "+s.in.Settings.OutputFiles[n])
	}
	return someOf(lines, 20)
}

// heed goes on after an answer without a call: it takes its text as the result where
// the agent may end so, and asks for more where not.
func (s *state) heed(ctx context.Context, a answer) *round.Outcome {
	notes, applied, steers, out := s.notes(ctx)
	if out != nil {
		return out
	}
	if steers {
		return s.appendMessages(ctx, applied, append(daemonSays(s.hints(nil)), notes...)...)
	}
	text := strings.TrimSpace(s.ledger.text)
	exhausted := s.ledger.stretch > maxNudges
	var against []reason
	var nudge string
	switch {
	case text != "" && a.cut == round.NotCut && s.def.Completion == agentdef.CompletionText:
		against = s.reasons(nil, &text)
		if fresh := s.unsaid(against); len(fresh) > 0 && !exhausted {
			nudge = refusal(fresh)
		}
	case exhausted:
		against = s.reasons(nil, &text)
	default:
		nudge = s.nudgeFor(a, text)
	}
	if nudge != "" {
		if s.turn >= s.maxTurns {
			nudge = "" // what follows is the wrap-up
		}
		return s.appendMessages(ctx, applied, append(daemonSays(s.hints(nil, nudge)), notes...)...)
	}
	if len(notes) > 0 {
		if out := s.appendMessages(ctx, applied, notes...); out != nil {
			return out
		}
	}
	if text == "" || s.def.Completion == agentdef.CompletionRequired {
		return s.noAnswer(text)
	}
	return s.finish(ctx, s.completed("text", text, against))
}

func (s *state) nudgeFor(a answer, text string) string {
	switch {
	case a.cut == round.CutCalls || a.msg.Content == cutCallAnswer:
		return nudgeCutCall
	case a.cut == round.CutText && text != "" && a.msg.Content != emptyAnswer:
		return nudgeCutText
	case a.msg.Content == emptyAnswer:
		return nudgeEmpty
	}
	if s.model.TextTools {
		return nudgeText + nudgeBlock
	}
	return nudgeText
}

// noAnswer is the outcome of a round whose agent stopped working without a result.
func (s *state) noAnswer(text string) *round.Outcome {
	if text == "" {
		return fail("no_answer", "the model gave %d answers in a row without text or a tool call; look at the output, and reply to go on, or choose another model",
			s.ledger.stretch)
	}
	return fail("no_answer", "the model gave %d answers in a row without a tool call, and agent %q may finish by calling %s only; look at the output, and reply to go on",
		s.ledger.stretch, s.def.Name, completionTool)
}

// finish takes a last look at what the supervisor wrote before the round ends with
// out. An intervention goes on with the round.
func (s *state) finish(ctx context.Context, out *round.Outcome) *round.Outcome {
	notes, applied, steers, failed := s.notes(ctx)
	if failed != nil {
		return failed
	}
	if len(notes) > 0 {
		if failed := s.appendMessages(ctx, applied, notes...); failed != nil {
			return failed
		}
	}
	if steers {
		return nil
	}
	if failed := silenced(ctx); failed != nil {
		return failed
	}
	return out
}

// someOf joins at most n items.
func someOf(items []string, n int) string {
	if len(items) <= n {
		return strings.Join(items, "; ")
	}
	return strings.Join(items[:n], "; ") + fmt.Sprintf("; and %d more", len(items)-n)
}
