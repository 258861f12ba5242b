package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// How a runner, in its goroutine, speaks to the session, in its own.

type emission struct {
	event round.Event
	done  chan<- error
}

type inboxReply struct {
	notes []round.Note
	err   error
}

// emit returns the runner's way to report. It works until the session has gone.
func (r *running) emit() round.Emit {
	emitted, gone := r.emitted, r.gone
	done := make(chan error, 1)
	return func(e round.Event) error {
		select {
		case emitted <- emission{e, done}:
		case <-gone:
			return round.ErrShutdown
		}
		select {
		case err := <-done:
			return err
		case <-gone:
			return round.ErrShutdown
		}
	}
}

// inbox returns the runner's way to ask for messages.
func (r *running) inbox() func(context.Context) ([]round.Note, error) {
	inboxes, gone := r.inboxes, r.gone
	return func(ctx context.Context) ([]round.Note, error) {
		answer := make(chan inboxReply, 1)
		select {
		case inboxes <- answer:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-gone:
			return nil, round.ErrShutdown
		}
		select {
		case reply := <-answer:
			return reply.notes, reply.err
		case <-gone:
			return nil, round.ErrShutdown
		}
	}
}

// errPanicked is what a runner hears whose session panicked while it was served.
var errPanicked = errors.New("the session failed")

// serve answers an event of the runner, come what may.
func (s *Session) serve(ctx context.Context, em emission) {
	err := errPanicked
	defer func() { em.done <- err }()
	err = s.emitted(ctx, em.event)
}

// serveInbox answers a runner that asks for messages, come what may.
func (s *Session) serveInbox(ctx context.Context, req chan<- inboxReply) {
	reply := inboxReply{err: errPanicked}
	defer func() { req <- reply }()
	reply.notes, reply.err = s.inbox(ctx)
}

// emitted stores and shows an event of the running round.
func (s *Session) emitted(ctx context.Context, e round.Event) error {
	r := s.run
	switch {
	case s.phase == Restarting, s.phase == Leaving:
		return s.discard(e)
	case r.failed != nil:
		return errors.New(r.failed.Message)
	}
	switch e := e.(type) {
	case round.HeadPrepared:
		return s.hold(&record{Head: &e.Prepared})
	case round.TurnStarted:
		s.beginTurn(e.Turn)
	case round.TextStreamed:
		s.finishCallLine()
		r.output.Text(e.Text)
	case round.AnswerRestarted:
		r.output.Line("\n[answer interrupted, asked again]\n")
		s.event("answer_restarted", map[string]any{"turn": r.turn, "reason": e.Reason})
	case round.Waits:
		s.showWait(e)
	case round.Answered:
		err := s.commit(ctx, &record{Answer: &answerRecord{
			Turn: e.Turn, Message: e.Message, Spent: e.Spent, Context: e.Context, Window: e.Window, LLM: e.LLM, Model: e.Model, Begun: e.Begun, Cut: e.Cut,
			Estimated: e.Estimated, Break: e.Break}})
		if err != nil {
			return err
		}
		s.event("usage", map[string]any{"turn": e.Turn, "llm": e.LLM, "spent": e.Spent})
		s.statusSoon()
	case round.ToolBegun:
		s.showCallBegun(e)
	case round.ToolEnded:
		s.showCallEnded(e)
	case round.Appended:
		err := s.commit(ctx, &record{Append: &appendRecord{Turn: e.Turn, Messages: e.Messages, Applied: e.Applied, KeyInfo: e.KeyInfo}})
		if err != nil {
			return err
		}
		for _, seq := range e.Applied {
			s.event("message_applied", map[string]any{"seq": seq, "turn": e.Turn})
		}
		s.statusSoon()
		if s.st.outgrown(s.journalSize()) {
			return s.snapshot(ctx)
		}
	case round.Rewritten:
		if err := s.commit(ctx, &record{Rewrite: &rewriteRecord{Messages: e.Messages, Cause: e.Cause, Dropped: e.Dropped}}); err != nil {
			return err
		}
		s.event("rewritten", map[string]any{"cause": e.Cause, "dropped": e.Dropped})
		return s.snapshot(ctx)
	case round.SpentBeside:
		return s.commit(ctx, &record{Spent: &e.Spent, Estimated: e.Estimated})
	case round.Reserved:
		return s.commit(ctx, &record{Reserved: &e.Amount})
	case round.Warned:
		s.statusSoon()
		return s.hold(&record{Warning: &e.Text})
	default:
		return fmt.Errorf("event %T is not known to the session", e)
	}
	if r.output.Dirty() {
		s.flushSoon()
	}
	return nil
}

// discard keeps of an event of a round that starts over what it has cost.
func (s *Session) discard(e round.Event) error {
	var spent llm.Usage
	var estimated llm.Amount
	switch e := e.(type) {
	case round.Answered:
		spent, estimated = e.Spent, e.Estimated
	case round.SpentBeside:
		spent, estimated = e.Spent, e.Estimated
	}
	if spent != (llm.Usage{}) || estimated != (llm.Amount{}) {
		if err := s.hold(&record{Spent: &spent, Estimated: estimated}); err != nil {
			return err
		}
	}
	return round.ErrRestart
}
