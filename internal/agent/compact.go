package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/plan"
)

// skillTool loads a skill, whose text stays.
const skillTool = "use_skill"

// reading is what is known of the conversation's size.
type reading struct {
	// tokens is what the newest answer reported, 0 where it did not, for the head and
	// the first msgs messages.
	tokens int
	msgs   int
	cached int64
	// compacted is true where the conversation was made smaller on this reading. It
	// is not done again before the next: what did not help will not help more.
	compacted bool
}

// takeReading notes what an answer, which is the newest message, said of the size.
func (s *state) takeReading(context int, cached int64) {
	s.reading = reading{tokens: context, msgs: s.conv.Len(), cached: cached}
}

// findReading takes up the reading that was recorded before this call of Run.
func (s *state) findReading() {
	s.reading = reading{tokens: s.in.Context, msgs: lastAnswer(s.conv.Messages()) + 1}
}

// size is how many tokens the next request takes: what was last reported and what
// was appended since.
func (s *state) size() int {
	msgs := s.conv.Messages()
	if r := s.reading; r.tokens > 0 && r.msgs <= len(msgs) {
		return r.tokens + history.Estimate(msgs[r.msgs:])
	}
	return s.headSize() + history.Estimate(msgs)
}

// headSize estimates the tokens of the system prompt and the tools.
func (s *state) headSize() int {
	if s.headTokens == 0 {
		n := 8 + history.EstimateText(s.head.System)
		for _, t := range s.head.Tools {
			n += 16 + history.EstimateText(t.Name) + history.EstimateText(t.Description) + history.EstimateText(string(t.Parameters))
		}
		s.headTokens = n
	}
	return s.headTokens
}

// compactTo is how far the conversation is made smaller ahead of a request, in
// hundredths of the size at which that is done: far enough that it does not happen
// every turn, since each time the provider's cache is lost.
const compactTo = 60

// compactAhead makes the conversation smaller where the next request would come too
// close to the window.
func (s *state) compactAhead(ctx context.Context) *round.Outcome {
	limit, size := s.model.CompactFrom(), s.size()
	if limit == 0 || size <= limit || s.reading.compacted {
		return nil
	}
	s.reading.compacted = true
	cause := fmt.Sprintf("compaction ahead of a request of about %d tokens, for the window of %d of LLM %s", size, s.model.ContextWindow, s.model.Name)
	_, out := s.compact(ctx, cause, size, limit*compactTo/100, s.model.ContextWindow-s.model.Reserve())
	return out
}

// maxShrinks bounds how often a conversation is made smaller for one request.
const maxShrinks = 3

// shrinkTo is how much of the conversation stays, the first time and the others, in
// hundredths of what was refused, or of the window where that is less. Providers
// count tokens in their own ways, so that the size itself says little.
var shrinkTo = [maxShrinks]int{65, 40, 20}

// shrink makes the conversation smaller where err says that it does not fit the
// window, and reports whether it is worth asking again.
func (s *state) shrink(ctx context.Context, err error, done int) (bool, *round.Outcome) {
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindContextLength || done >= maxShrinks {
		return false, nil
	}
	s.learnWindow(e.Window)
	size := s.size()
	goal := size * shrinkTo[done] / 100
	if w := s.model.ContextWindow; w > 0 {
		size = max(size, w)
		goal = min(goal, w*shrinkTo[done]/100)
	}
	cause := fmt.Sprintf("compaction: the conversation did not fit the context window of LLM %s (time %d of %d)", s.model.Name, done+1, maxShrinks)
	return s.compact(ctx, cause, size, goal, goal)
}

// learnWindow believes a provider that says how large its window is.
func (s *state) learnWindow(tokens int) {
	const least = 512 // what is smaller was read out of another number
	if tokens < least || s.model.ContextWindow > 0 && tokens >= s.model.ContextWindow {
		return
	}
	s.model.ContextWindow = tokens
	if s.cfg.LearnWindow != nil {
		s.cfg.LearnWindow(s.model.Name, s.model.ID, tokens)
	}
}

// compact makes the conversation, which takes size tokens, smaller: to goal as far as
// that goes without touching the newest turns, and to most in any way. It reports
// whether that brought anything.
func (s *state) compact(ctx context.Context, cause string, size, goal, most int) (bool, *round.Outcome) {
	before := s.conv.Messages()
	head, all := s.headSize(), s.headSize()+history.Estimate(before)
	// Goals are in the provider's tokens, and Shrink counts in Estimate's.
	estimated := func(tokens int) int { return max(0, int(int64(tokens)*int64(all)/int64(max(size, 1)))-head) }
	rules := history.Rules{Keep: fromSupervisor, Must: s.isRoundStart, Pinned: isSkill, Reads: s.readRange, Gentle: true}
	msgs, did := history.Shrink(before, estimated(goal), rules)
	if did.After > estimated(most) {
		rules.Gentle = false
		msgs, did = history.Shrink(before, estimated(most), rules)
	}
	if did.After > did.Before*95/100 {
		return false, nil // the cached prefix is worth more
	}
	s.conv = history.New(msgs)
	if text := s.restated(did); text != "" {
		s.conv.Append(userMessage(text))
	}
	msgs = s.conv.Messages()
	s.repeats.rebuild(msgs)
	s.reading = reading{tokens: int(int64(size) * int64(head+history.Estimate(msgs)) / int64(max(all, 1))), msgs: len(msgs), compacted: true}
	return true, s.emit(ctx, round.Rewritten{Messages: msgs, Cause: cause, Dropped: did.String()})
}

// restated is what the agent must not lose with what was taken out: the working
// memory, the plan, and (for ledger, after a restart) what was held against it.
func (s *state) restated(did history.Shrunk) string {
	var parts []string
	if text := unseen(s.memory.now(), s.conv.Messages()); text != "" {
		parts = append(parts, "Key info, to be kept in mind:\n"+text)
	}
	if did.Messages+did.Arguments > 0 {
		if p := s.readPlan(); len(p.Steps) > 0 {
			parts = append(parts, "Your plan as it stands:\n"+clip(strings.TrimRight(plan.Render(p.Steps), "\n"), 6000))
		}
	}
	if said := s.ledger.said(); said != "" && did.Messages > 0 {
		parts = append(parts, saidMark+said)
	}
	if len(parts) == 0 {
		return ""
	}
	return daemonMark + shortenedMark + "\n\n" + strings.Join(parts, "\n\n")
}

func fromSupervisor(m llm.Message) bool {
	return m.Role == llm.User && strings.HasPrefix(m.Content, agentdef.FromSupervisor)
}

// isRoundStart tells the message that began this round.
func (s *state) isRoundStart(m llm.Message) bool {
	return m.Role == llm.User && strings.HasPrefix(m.Content, supervisorMark+s.in.Message)
}

func isSkill(c llm.ToolCall) bool { return c.Name == skillTool }
