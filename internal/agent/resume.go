package agent

import (
	"context"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// resume takes up a round whose recorded messages are those of in.Conversation from
// from on, at the point at which it was cut short.
func (s *state) resume(ctx context.Context, from int) *round.Outcome {
	msgs := s.in.Conversation
	s.turn = s.in.Resumed.Turn
	s.restarted = true
	at := lastAnswer(msgs[from:])
	if at < 0 {
		s.take(msgs, from)
		if out := s.checkInputs(); out != nil {
			return out
		}
		return s.remindResumed(ctx)
	}
	at += from
	if at == len(msgs)-1 {
		// Nothing followed the answer. It is followed now.
		s.take(msgs, from)
		return s.follow(ctx, answer{msg: msgs[at], cut: s.in.Resumed.Cut})
	}
	s.take(msgs, from)
	switch {
	case s.wrappingUp():
		return s.wrappedUp(msgs[at].Content)
	case s.ledger.done:
		return s.finish(ctx, s.completed("tool", s.ledger.result, s.reasons(s.ledger.failed, &s.ledger.result)))
	}
	return s.remindResumed(ctx)
}

// take makes msgs the conversation, and those from from on the round's.
func (s *state) take(msgs []llm.Message, from int) {
	s.converse(msgs)
	s.ledger.add(msgs[from:]...)
}

// remindResumed tells the model where its plan stands, once.
func (s *state) remindResumed(ctx context.Context) *round.Outcome {
	s.restarted = false
	hint := s.planResumed(s.readPlan())
	if hint == "" {
		return nil
	}
	msg := userMessage(daemonMark + restarted + hint)
	if last := s.in.Conversation; last[len(last)-1].Content == msg.Content {
		return nil
	}
	return s.appendMessages(ctx, nil, msg)
}

// lastAnswer returns the index of the newest answer, -1 where there is none.
func lastAnswer(msgs []llm.Message) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Role == llm.Assistant {
			return i
		}
	}
	return -1
}
