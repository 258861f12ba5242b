package agent

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// streamPace is the least time between two reports of streamed text: models send a
// word at a time, and nobody reads that fast.
const streamPace = 15 * time.Millisecond

// stream stands between the goroutine that reads an answer and the one that reports
// it: what comes in while a report is under way goes out with the next.
type stream struct {
	mu      sync.Mutex
	pending []round.Event
	text    strings.Builder // of the newest pending event
	shown   strings.Builder // all text since the answer last began
	keys    *redact.Stream
	redact  *redact.Replacer
	ready   chan struct{}
}

func newStream(keys *redact.Replacer) *stream {
	return &stream{keys: keys.Stream(), redact: keys, ready: make(chan struct{}, 1)}
}

// take is called with each piece by the reading goroutine.
func (st *stream) take(d llm.Delta) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if d.Restarted != nil {
		st.keys.End()
		st.closeText()
		st.shown.Reset()
		st.pending = append(st.pending, round.AnswerRestarted{Reason: d.Restarted.Error()})
	}
	if w := d.Waits; w != nil {
		st.closeText()
		st.pending = append(st.pending, round.Waits{Since: w.Since, Until: w.Until, Why: st.redact.Text(w.Why)})
	}
	text := st.keys.Next(d.Text)
	st.say(text)
	if text == "" && d.Restarted == nil && d.Waits == nil {
		return
	}
	select {
	case st.ready <- struct{}{}:
	default:
	}
}

func (st *stream) say(text string) {
	st.text.WriteString(text)
	st.shown.WriteString(text)
}

// end lets go of what was held back as the beginning of a key.
func (st *stream) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.say(st.keys.End())
}

func (st *stream) closeText() {
	if st.text.Len() > 0 {
		st.pending = append(st.pending, round.TextStreamed{Text: st.text.String()})
		st.text.Reset()
	}
}

func (st *stream) drain() []round.Event {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closeText()
	events := st.pending
	st.pending = nil
	return events
}

// reply is how a request came out.
type reply struct {
	resp llm.Response
	err  error
	// shown is the text that was reported and not voided.
	shown    string
	panicked string
}

// complete makes one request and reports its text as it streams. It returns once the
// client has.
func (s *state) complete(ctx context.Context, req llm.Request) (reply, *round.Outcome) {
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	st := newStream(s.cfg.Redact)
	done := make(chan reply, 1)
	go func() {
		var r reply
		defer func() {
			if p := recover(); p != nil {
				r.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			done <- r
		}()
		r.resp, r.err = s.model.Client.Complete(callCtx, req, st.take)
	}()
	ready, pace := st.ready, (<-chan time.Time)(nil)
	for {
		select {
		case <-ready:
			if out := s.emit(ctx, st.drain()...); out != nil {
				cancel()
				<-done
				return reply{}, out
			}
			ready, pace = nil, time.After(streamPace)
		case <-pace:
			ready, pace = st.ready, nil
		case r := <-done:
			if r.panicked != "" {
				// It belongs to the round's goroutine, whose owner knows what to do with it.
				panic(r.panicked)
			}
			st.end()
			out := s.emit(ctx, st.drain()...)
			r.shown = st.shown.String()
			return r, out
		}
	}
}

// withoutKeys returns an answer without keys, wherever the model put them.
func (s *state) withoutKeys(m llm.Message) llm.Message {
	r := s.cfg.Redact
	if r == nil {
		return m
	}
	fields := func(extra map[string]llm.RawJSON) map[string]llm.RawJSON {
		clean := maps.Clone(extra)
		for name, v := range clean {
			clean[name] = llm.RawJSON(r.String(string(v)))
		}
		return clean
	}
	m.Content, m.Extra = r.String(m.Content), fields(m.Extra)
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i, c := range m.ToolCalls {
		m.ToolCalls[i] = llm.ToolCall{ID: c.ID, Name: r.String(c.Name), Arguments: r.String(c.Arguments), Extra: fields(c.Extra)}
	}
	return m
}
