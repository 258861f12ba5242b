package main

import (
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
)

// model is the scripted model, which also takes the times at which it is asked.
type model struct {
	server *llmtest.Server
	script llmtest.Script

	mu sync.Mutex
	// awaited gets the arrival of the request whose newest message holds a text.
	awaited map[string]chan<- time.Time
	// gaps are the times between the end of an answer and the next request, kept
	// while keep is set: of one conversation at a time.
	keep     bool
	gaps     sample
	answered time.Time
}

// startModel starts a model that answers by script. The checks of conversations,
// which cost the server time, are for tests.
func startModel(script llmtest.Script, opts ...llmtest.Option) (*model, error) {
	m := &model{script: script, awaited: map[string]chan<- time.Time{}}
	opts = append(opts, llmtest.Lenient(), llmtest.Answered(m.sent))
	var err error
	m.server, err = llmtest.Start(m.answer, opts...)
	return m, err
}

// done completes every round at once.
func done(r *llmtest.Request) llmtest.Reply { return finish(r) }

// late does so as late as a quick model.
func late(r *llmtest.Request) llmtest.Reply { return finish(r).After(lateBy) }

func (m *model) answer(r *llmtest.Request) llmtest.Reply {
	m.mu.Lock()
	if len(m.awaited) > 0 {
		newest := r.LastUser()
		for text, ch := range m.awaited {
			if strings.Contains(newest, text) {
				delete(m.awaited, text)
				ch <- r.At
			}
		}
	}
	if m.keep && !m.answered.IsZero() {
		m.gaps = append(m.gaps, r.At.Sub(m.answered))
	}
	m.mu.Unlock()
	return m.script(r)
}

func (m *model) sent(*llmtest.Request) {
	now := time.Now()
	m.mu.Lock()
	m.answered = now
	m.mu.Unlock()
}

// await returns a channel that gets the arrival of a request with this text.
func (m *model) await(text string) <-chan time.Time {
	ch := make(chan time.Time, 1)
	m.mu.Lock()
	m.awaited[text] = ch
	m.mu.Unlock()
	return ch
}

// measure keeps the gaps from now on; taken returns and forgets them.
func (m *model) measure() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep, m.gaps, m.answered = true, nil, time.Time{}
}

func (m *model) taken() sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	gaps := m.gaps
	m.keep, m.gaps = false, nil
	return gaps
}
