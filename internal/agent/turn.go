package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/loop"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// planEvery is how many turns lie between two reminders of an open plan.
const planEvery = 5

// answer is a complete answer as it was recorded.
type answer struct {
	msg llm.Message
	cut round.Cut
}

// takeTurn is one turn: a request, and what follows from its answer.
func (s *state) takeTurn(ctx context.Context) *round.Outcome {
	if out := s.cut(ctx); out != nil {
		return out
	}
	if out := s.withinLimits(ctx); out != nil {
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

// withinLimits returns an outcome where no further request may be made, and makes
// room for it where it may.
func (s *state) withinLimits(ctx context.Context) *round.Outcome {
	if n := s.ledger.loop.Over(); n > 0 {
		return s.partial(round.Loop, "the agent made the same calls with the same results %d times over, and went on after it was told; "+
			"look at the last turns of the output, and reply with what it should do instead", n)
	}
	if out := s.compactAhead(ctx); out != nil {
		return out
	}
	return s.reserve(ctx)
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
		if out := s.reserve(ctx); out != nil {
			return answer{}, out
		}
		r, out := s.complete(ctx, s.request(choice))
		estimated := s.settle(r.resp.Spent)
		switch {
		case out != nil:
			return answer{}, out
		case r.err == nil:
			return s.record(ctx, r.resp, estimated)
		case ctx.Err() != nil:
			return answer{}, s.recordPartial(ctx, r.shown, r.resp.Spent, estimated)
		}
		if out := s.spentBeside(ctx, r.resp.Spent, estimated); out != nil {
			return answer{}, out
		}
		again, out := s.shrink(ctx, r.err, shrunk)
		if out != nil {
			return answer{}, out
		}
		if !again {
			return answer{}, s.requestFailed(r.err, shrunk)
		}
	}
}

// record adds a complete answer to the conversation and reports it, which makes it
// durable before any of its calls runs.
func (s *state) record(ctx context.Context, resp llm.Response, estimated llm.Amount) (answer, *round.Outcome) {
	if out := silenced(ctx); out != nil {
		return answer{}, out
	}
	a := answer{cut: cutOf(resp)}
	msg := s.withoutKeys(resp.Message)
	if a.cut != round.NotCut || s.wrappingUp() {
		msg.ToolCalls = nil
	}
	kept := s.conv.Append(tidy(msg, a.cut == round.CutCalls))
	s.ledger.add(kept...)
	a.msg = kept[len(kept)-1]
	s.takeReading(resp.Context, resp.Spent.CachedTokens)
	e := round.Answered{
		Turn: s.turn, Message: a.msg, Spent: resp.Spent, Context: resp.Context, Estimated: estimated, Cut: a.cut,
		LLM: s.model.Name, Model: s.model.ID, Window: s.model.ContextWindow,
	}
	if resp.LLM != "" && resp.LLM != s.model.Name {
		e.LLM, e.Model, e.Window = resp.LLM, "", 0
		if other, err := s.cfg.Models(ctx, resp.LLM, ""); err == nil {
			e.Model, e.Window = other.ID, other.ContextWindow
			if !other.Priced && s.in.Settings.MaxCostUSD > 0 {
				s.spending.unpriced = resp.LLM
			}
		}
	}
	if s.answeredBy != "" && e.LLM != s.answeredBy {
		e.Break = fmt.Sprintf("LLM %s answered, and not %s as before", e.LLM, s.answeredBy)
	}
	s.answeredBy = e.LLM
	for _, c := range a.msg.ToolCalls {
		if _, bad := invalidArguments(c); !bad && s.tools.Set.Changes(c.Name) {
			e.Begun = append(e.Begun, c.ID)
		}
	}
	return a, s.emit(ctx, e)
}

// cutOf says what the length limit took of an answer.
func cutOf(resp llm.Response) round.Cut {
	switch {
	case resp.FinishReason != llm.FinishLength:
		return round.NotCut
	case len(resp.Message.ToolCalls) > 0:
		return round.CutCalls
	}
	return round.CutText
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
func (s *state) recordPartial(ctx context.Context, shown string, spent llm.Usage, estimated llm.Amount) *round.Outcome {
	if strings.TrimSpace(shown) != "" {
		text := strings.TrimRight(shown, " \n") + cutMark(cutWords(context.Cause(ctx)))
		if out := s.appendMessages(ctx, nil, llm.Message{Role: llm.Assistant, Content: text}); out != nil {
			return out
		}
	}
	if out := s.spentBeside(ctx, spent, estimated); out != nil {
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
	out := s.partial(round.MaxTurns, "the round used all of its %d turns without finishing; the result is partial. Reply to go on with as many again; "+
		otherLimit("max_turns"), s.maxTurns)
	if text != emptyAnswer {
		out.Result = text
	}
	for _, r := range s.reasons(nil, nil) {
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
func (s *state) hints(next *loop.Turn, first ...string) []string {
	hints := slices.DeleteFunc(first, func(h string) bool { return h == "" })
	if next != nil {
		if n := s.ledger.loop.Tell(*next); n > 0 {
			hints = append(hints, loopTold(n))
		}
	}
	switch p := s.readPlan(); {
	case s.restarted:
		s.restarted = false
		if hint := s.planResumed(p); hint != "" {
			hints = append(hints, restarted+hint)
		}
	case s.turn%planEvery == 0:
		if hint := s.planReminder(p); hint != "" {
			hints = append(hints, hint)
		}
	}
	if s.turn >= s.maxTurns {
		hints = append(hints, wrapUpHint(s.maxTurns))
	}
	return hints
}
