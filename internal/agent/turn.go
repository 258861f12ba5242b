package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// planEvery is how many turns lie between two reminders of an open plan.
const planEvery = 5

// answer is a complete answer as it was recorded.
type answer struct {
	msg llm.Message
	// cut is true where the length limit ended it; lostCalls where calls went with that.
	cut       bool
	lostCalls bool
}

// takeTurn is one turn: a request, and what follows from its answer.
func (s *state) takeTurn(ctx context.Context) *round.Outcome {
	if out := s.cut(ctx); out != nil {
		return out
	}
	if out := s.withinLimits(); out != nil {
		return out
	}
	s.turn++
	if out := s.emit(ctx, round.TurnStarted{Turn: s.turn}); out != nil {
		return out
	}
	a, out := s.ask(ctx)
	if out != nil {
		return out
	}
	return s.follow(ctx, a)
}

// withinLimits returns an outcome where no further request may be made.
func (s *state) withinLimits() *round.Outcome {
	if n := s.ledger.loop.over(); n > 0 {
		return s.partial(round.Loop, "the agent made the same calls with the same results %d times over, and went on after it was told; "+
			"look at the last turns of the output, and reply with what it should do instead", n)
	}
	return s.reserve()
}

// reserve checks that the budget of the session leaves room for a request.
func (s *state) reserve() *round.Outcome {
	spent := s.in.Spent.Add(s.spent)
	set := s.in.Settings
	if used := spent.InputTokens + spent.OutputTokens; set.MaxTokens > 0 && used >= set.MaxTokens {
		return s.partial(round.Budget, "the session has used %d tokens of max_tokens %d; raise it in context.json and write input.txt again to go on", used, set.MaxTokens)
	}
	if set.MaxCostUSD > 0 && spent.CostUSD >= set.MaxCostUSD {
		return s.partial(round.Budget, "the session has cost $%.4f of max_cost_usd %g; raise it in context.json and write input.txt again to go on", spent.CostUSD, set.MaxCostUSD)
	}
	if s.unpriced != "" {
		return s.partial(round.Budget, "max_cost_usd is set, but LLM %q answered in place of %q and has no price in config.toml", s.unpriced, s.model.Name)
	}
	return nil
}

// wrappingUp reports whether this turn is the one after the limit, in which the
// agent says how far it came.
func (s *state) wrappingUp() bool { return s.turn > s.maxTurns }

// ask makes the turn's request and records the answer.
func (s *state) ask(ctx context.Context) (answer, *round.Outcome) {
	choice := ""
	if s.wrappingUp() && len(s.head.Tools) > 0 {
		choice = "none" // the tools stay, for the prefix
	}
	for shrunk := 0; ; shrunk++ {
		r, out := s.complete(ctx, s.request(choice))
		s.spent = s.spent.Add(r.resp.Spent)
		switch {
		case out != nil:
			return answer{}, out
		case r.err == nil:
			return s.record(ctx, r.resp)
		case ctx.Err() != nil:
			return answer{}, s.recordPartial(ctx, r.shown, r.resp.Spent)
		}
		if out := s.spentBeside(ctx, r.resp.Spent); out != nil {
			return answer{}, out
		}
		again, out := s.shrink(ctx, r.err, shrunk)
		if out != nil {
			return answer{}, out
		}
		if !again {
			return answer{}, s.requestFailed(r.err)
		}
	}
}

func (s *state) spentBeside(ctx context.Context, spent llm.Usage) *round.Outcome {
	if spent == (llm.Usage{}) {
		return nil
	}
	return s.emit(ctx, round.SpentBeside{Spent: spent})
}

// record adds a complete answer to the conversation and reports it, which makes it
// durable before any of its calls runs.
func (s *state) record(ctx context.Context, resp llm.Response) (answer, *round.Outcome) {
	if out := silenced(ctx); out != nil {
		return answer{}, out
	}
	a := answer{cut: resp.FinishReason == llm.FinishLength}
	msg := resp.Message
	if a.cut || s.wrappingUp() {
		a.lostCalls = a.cut && len(msg.ToolCalls) > 0
		msg.ToolCalls = nil
	}
	kept := s.conv.Append(tidy(msg, a.lostCalls))
	s.ledger.add(kept...)
	a.msg = kept[len(kept)-1]
	e := round.Answered{
		Turn: s.turn, Message: a.msg, Spent: resp.Spent, Context: resp.Context,
		LLM: s.model.Name, Model: s.model.ID, Window: s.model.ContextWindow,
	}
	if resp.LLM != "" && resp.LLM != s.model.Name {
		e.LLM, e.Model, e.Window = resp.LLM, "", 0
		if other, err := s.cfg.Models(resp.LLM, ""); err == nil {
			e.Model, e.Window = other.ID, other.ContextWindow
			if !other.Priced && s.in.Settings.MaxCostUSD > 0 {
				s.unpriced = resp.LLM
			}
		}
	}
	for _, c := range a.msg.ToolCalls {
		if _, bad := invalidArguments(c); !bad && s.tools.Set.Changes(c.Name) {
			e.Begun = append(e.Begun, c.ID)
		}
	}
	return a, s.emit(ctx, e)
}

// tidy returns an answer in the form in which it joins the conversation: calls that
// every provider accepts back, and never blank.
func tidy(m llm.Message, lostCalls bool) llm.Message {
	m.Role, m.ToolCallID = llm.Assistant, ""
	if strings.TrimSpace(m.Content) == "" {
		m.Content = ""
	}
	calls := make([]llm.ToolCall, 0, len(m.ToolCalls))
	for _, c := range m.ToolCalls {
		calls = append(calls, recordable(c))
	}
	m.ToolCalls = calls
	if len(calls) > 0 {
		return m
	}
	m.ToolCalls = nil
	if m.Content == "" {
		m.Content, m.Extra = emptyAnswer, nil
		if lostCalls {
			m.Content = cutCallAnswer
		}
	}
	return m
}

// recordPartial keeps what a model had said when the round was cut short.
func (s *state) recordPartial(ctx context.Context, shown string, spent llm.Usage) *round.Outcome {
	if strings.TrimSpace(shown) != "" {
		text := strings.TrimRight(shown, " \n") + cutMark(cutWords(context.Cause(ctx)))
		if out := s.appendMessages(ctx, nil, llm.Message{Role: llm.Assistant, Content: text}); out != nil {
			return out
		}
	}
	if out := s.spentBeside(ctx, spent); out != nil {
		return out
	}
	return s.cut(ctx)
}

// follow does what an answer asks for.
func (s *state) follow(ctx context.Context, a answer) *round.Outcome {
	switch {
	case s.wrappingUp():
		return s.wrappedUp(a.msg.Content)
	case len(a.msg.ToolCalls) > 0:
		return s.act(ctx, a.msg.ToolCalls)
	}
	return s.heed(ctx, a)
}

// wrappedUp is the outcome of a round that used up its turns.
func (s *state) wrappedUp(text string) *round.Outcome {
	out := s.partial(round.MaxTurns, "the round used all of its %d turns without finishing; the result is partial. Reply to go on, or raise \"max_turns\" in context.json", s.maxTurns)
	if text != emptyAnswer {
		out.Result = text
	}
	for _, r := range s.reasons(nil) {
		out.OpenPoints = append(out.OpenPoints, r.text)
	}
	return out
}

// notes takes the supervisor's messages, unless no turn is left in which the agent
// could act on them: then they are the next round's.
func (s *state) notes(ctx context.Context) (msgs []llm.Message, applied []uint64, steers bool, out *round.Outcome) {
	if s.turn >= s.maxTurns {
		return nil, nil, false, nil
	}
	return s.inbox(ctx)
}

// hints is what the daemon has to say after this turn. next is the turn for the loop
// detection, nil for one without calls; first comes before anything else.
func (s *state) hints(next *loopEntry, first ...string) []string {
	hints := slices.DeleteFunc(first, func(h string) bool { return h == "" })
	if next != nil {
		if n := s.ledger.loop.tell(*next); n > 0 {
			hints = append(hints, loopTold(n))
		}
	}
	switch p := s.readPlan(); {
	case s.restarted:
		s.restarted = false
		if hint := planResumed(p); hint != "" {
			hints = append(hints, restarted+hint)
		}
	case s.turn%planEvery == 0:
		if hint := planReminder(p); hint != "" {
			hints = append(hints, hint)
		}
	}
	if s.turn >= s.maxTurns {
		hints = append(hints, wrapUpHint(s.maxTurns))
	}
	return hints
}

// maxShrinks bounds how often a conversation is made smaller for one request.
const maxShrinks = 3

// shrinkTo is how much of the conversation stays, the first time and the others, in
// hundredths of what was refused. Providers count tokens in their own ways, so that
// the size itself says little.
var shrinkTo = [maxShrinks]int{65, 40, 20}

// shrink makes the conversation smaller where err says that it does not fit the
// window, and reports whether it is worth asking again. What the supervisor said
// stays.
func (s *state) shrink(ctx context.Context, err error, done int) (bool, *round.Outcome) {
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindContextLength || done >= maxShrinks {
		return false, nil
	}
	before := s.conv.Messages()
	msgs, did := history.Shrink(before, history.Estimate(before)*shrinkTo[done]/100, fromSupervisor)
	if did.After >= did.Before {
		return false, nil
	}
	s.conv = history.New(msgs)
	return true, s.emit(ctx, round.Rewritten{
		Messages: s.conv.Messages(), Cause: "the conversation did not fit the context window of LLM " + s.model.Name, Dropped: did.String(),
	})
}

func fromSupervisor(m llm.Message) bool {
	return m.Role == llm.User && strings.HasPrefix(m.Content, agentdef.FromSupervisor)
}
