package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/schema"
)

// state is a round in progress. It belongs to the goroutine of Run, but for memory,
// which tools write to, and calls.
type state struct {
	cfg  *Config
	in   round.Input
	send round.Emit

	def      agentdef.Definition
	model    llm.Model
	tools    Toolset
	head     round.Prepared
	maxTurns int

	schema *schema.Schema

	conv   *history.Conversation
	sent   llm.Sent
	ledger ledger
	turn   int // the turn in progress or just ended
	memory memory

	spending spending
	reading  reading
	repeats  repeats
	// headTokens is what headSize found.
	headTokens int
	// answeredBy is the LLM that gave the newest answer.
	answeredBy string
	// restarted is true until the model was told that the round was cut short.
	restarted bool
	// past is the plan that was finished before this round: it is history.
	past string
	// warned keeps a warning from being given every turn.
	warned map[string]bool
	// calls counts those that run; abandoned says that some did not end when they were
	// told to, and are left behind.
	calls     sync.WaitGroup
	abandoned bool
}

// close releases the tools, after calls that were left behind have ended, and what
// is set aside for a request that is not made.
func (s *state) close() {
	s.release()
	if s.tools.Close == nil {
		return
	}
	release := func() {
		if err := s.tools.Close(); err != nil {
			s.cfg.Log.Warn("release tools", "task", s.in.Task, "error", err)
		}
	}
	if !s.abandoned {
		release()
		return
	}
	// The round must not wait for a call that ignores its context.
	go func() {
		s.calls.Wait()
		release()
	}()
}

// emit reports events. It returns an outcome where the round is over because of it:
// nothing can be stored any more, or nothing is to be.
func (s *state) emit(ctx context.Context, events ...round.Event) *round.Outcome {
	if out := silenced(ctx); out != nil {
		return out
	}
	for _, e := range events {
		if err := s.send(e); err != nil {
			return &round.Outcome{Reason: round.Interrupted, Error: &round.Failure{Kind: "journal", Message: err.Error()}}
		}
	}
	return nil
}

// appendMessages adds messages to the conversation and records them, with the notes
// that they carry and the working memory where it changed.
func (s *state) appendMessages(ctx context.Context, applied []uint64, msgs ...llm.Message) *round.Outcome {
	if out := silenced(ctx); out != nil {
		return out
	}
	kept := s.conv.Append(msgs...)
	s.ledger.add(kept...)
	e := round.Appended{Turn: s.turn, Messages: kept, Applied: applied}
	if text, changed := s.memory.take(); changed {
		e.KeyInfo = &text
	}
	return s.emit(ctx, e)
}

func (s *state) warnOnce(ctx context.Context, text string) *round.Outcome {
	if s.warned[text] {
		return nil
	}
	if s.warned == nil {
		s.warned = map[string]bool{}
	}
	s.warned[text] = true
	return s.emit(ctx, round.Warned{Text: s.cfg.Redact.Text(text)})
}

// inbox takes the supervisor's notes and returns them as messages. steers is true
// where one of them is an intervention, with which the round must go on.
func (s *state) inbox(ctx context.Context) (msgs []llm.Message, applied []uint64, steers bool, out *round.Outcome) {
	if s.in.Inbox == nil {
		return nil, nil, false, nil
	}
	notes, err := s.in.Inbox(ctx)
	if err != nil && ctx.Err() == nil {
		out = s.warnOnce(ctx, "the supervisor's messages could not be taken: "+err.Error())
	}
	for _, n := range notes {
		applied = append(applied, n.Seq)
		n.Text = s.cfg.Redact.String(n.Text)
		if n.Kind == round.NoteKeyInfo {
			s.memory.note(n.Text)
			msgs = append(msgs, userMessage(keyInfoNote(n.Text)))
			continue
		}
		steers = true
		msgs = append(msgs, userMessage(intervention(n.Text)))
	}
	return msgs, applied, steers, out
}

// errTimeout is the cause with which a round's own time limit cancels it.
var errTimeout = errors.New("the time limit of the round is reached")

// deadline bounds ctx by the round's time limit, which counts from the round's
// start, restarts included.
func (s *state) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.timeout()
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	left := limit
	if !s.in.StartedAt.IsZero() {
		left -= s.cfg.Now().Sub(s.in.StartedAt)
	}
	return context.WithTimeoutCause(ctx, max(left, 0), errTimeout)
}

func (s *state) timeout() time.Duration {
	switch {
	case s.in.Settings.Timeout > 0:
		return s.in.Settings.Timeout
	case s.def.Timeout > 0:
		return s.def.Timeout
	}
	return s.cfg.Limits.Timeout
}

// silenced returns an outcome where ctx has ended in a way that leaves nothing to
// record: the round goes on from its record another time.
func silenced(ctx context.Context) *round.Outcome {
	if ctx.Err() == nil || cutWords(context.Cause(ctx)) != "" {
		return nil
	}
	return &round.Outcome{Reason: round.Interrupted}
}

// cut returns an outcome where ctx has ended, in whatever way.
func (s *state) cut(ctx context.Context) *round.Outcome {
	if ctx.Err() == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, round.ErrStopped):
		return &round.Outcome{Reason: round.Stopped}
	case errors.Is(cause, round.ErrReplaced):
		return &round.Outcome{Reason: round.Replaced}
	case errors.Is(cause, errTimeout):
		out := fail("timeout", "the round reached its time limit of %v in turn %d; reply to go on for as long again; "+otherLimit("timeout"),
			s.timeout(), max(s.turn, 1))
		out.MissingOutputs = s.missingOutputs()
		return out
	}
	return &round.Outcome{Reason: round.Interrupted}
}

// cutWords says in words for the model why a round was cut short; "" where nothing
// is to be recorded of it.
func cutWords(cause error) string {
	switch {
	case errors.Is(cause, round.ErrStopped), errors.Is(cause, round.ErrReplaced):
		return cause.Error()
	case errors.Is(cause, errTimeout):
		return "cut off: " + cause.Error()
	}
	return ""
}

// fail returns the outcome of a failed round.
func fail(kind, format string, args ...any) *round.Outcome {
	return &round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: kind, Message: fmt.Sprintf(format, args...)}}
}

// partial returns the outcome of a round that a limit ended.
func (s *state) partial(reason round.Reason, format string, args ...any) *round.Outcome {
	return &round.Outcome{
		Reason:         reason,
		Error:          &round.Failure{Kind: string(reason), Message: fmt.Sprintf(format, args...)},
		MissingOutputs: s.missingOutputs(),
	}
}

func userMessage(text string) llm.Message { return llm.Message{Role: llm.User, Content: text} }

// memory is the working memory while a round runs. Tools write to it from their
// own goroutines.
type memory struct {
	mu      sync.Mutex
	text    string
	changed bool
}

// set replaces the agent's part.
func (m *memory) set(text string) {
	m.put(func(old string) string { return round.ReplaceKeyInfo(old, text) })
}

// note adds what the supervisor wrote.
func (m *memory) note(text string) {
	m.put(func(old string) string { return round.AddKeyInfo(old, text) })
}

func (m *memory) put(change func(string) string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := change(m.text)
	m.changed = m.changed || text != m.text
	m.text = text
}

// now returns the text.
func (m *memory) now() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text
}

// take returns the text, and whether it changed since the last take.
func (m *memory) take() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := m.changed
	m.changed = false
	return m.text, changed
}
