package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/openai"
	"github.com/gasupervisor/gasupervisor/internal/llm/pool"
	"github.com/gasupervisor/gasupervisor/internal/llm/texttools"
)

// models are the configured LLMs, each behind its gate.
type models struct {
	config *config.Config
	http   *http.Transport
	pools  map[string]*pool.LLM

	mu sync.Mutex
	// windows are context windows that were asked for: 0 where the server did not say.
	windows map[string]int
	// asking are questions for them that are under way; closed when one is answered.
	asking map[string]chan struct{}
	// learned are context windows that turned out smaller than that.
	learned map[string]int
}

// unknownWindow is the context window in tokens of a model of which nothing is
// known: small enough for what people run at home.
const unknownWindow = 32768

// newModels makes the LLMs. spent, where not nil, hears what each request costs.
func newModels(c *config.Config, spent func(name string, u llm.Usage), log *slog.Logger) *models {
	m := &models{config: c, http: openai.NewTransport(), pools: map[string]*pool.LLM{}, windows: map[string]int{}, asking: map[string]chan struct{}{}, learned: map[string]int{}}
	for i := range c.LLMs {
		e := &c.LLMs[i]
		p := pool.Config{
			Name:          e.Name,
			Client:        m.asker(e, e.Model),
			MaxConcurrent: e.MaxConcurrent,
			Attempts:      c.Agent.Retries + 1,
			Log:           log,
		}
		if spent != nil {
			p.Spent = func(u llm.Usage) { spent(e.Name, u) }
		}
		m.pools[e.Name] = pool.New(p)
	}
	return m
}

// asker is the client of an entry, with its tools in the text where it has to be so.
func (m *models) asker(e *config.LLM, model string) llm.Client {
	if e.ToolCalls == config.ToolCallsText {
		return texttools.New(m.client(e, model))
	}
	return m.client(e, model)
}

// client makes single attempts at a model of a configured entry.
func (m *models) client(e *config.LLM, model string) *openai.Client {
	cfg := openai.Config{
		Name: e.Name, BaseURL: e.BaseURL, Model: model,
		Key:     func() string { return e.Key.Reveal() },
		Headers: e.Headers, Extra: e.Extra, Temperature: e.Temperature,
		MaxTokensField: e.MaxTokensField, ReasoningEcho: e.ReasoningEcho,
		IdleTimeout: m.config.Agent.IdleTimeout, Transport: m.http,
	}
	if e.Price != nil && model == e.Model {
		price := llm.Price(*e.Price)
		cfg.Price = &price
	}
	return openai.New(cfg)
}

// choose returns the LLM of that name or number ("": the first), with model in
// place of its own where that is not "". It may ask the server for a context window,
// once; ctx ends that.
func (m *models) choose(ctx context.Context, name, model string) (llm.Model, error) {
	e, err := m.config.LLM(name)
	if err != nil {
		return llm.Model{}, err
	}
	if e.NeedsKey() {
		variable := cmp.Or(e.APIKeyEnv, "api_key_env")
		return llm.Model{}, fmt.Errorf("LLM %q has no API key: set %s, or api_key_file of this [[llm]] in config.toml; for a local server set OPENAI_BASE_URL and OPENAI_MODEL", e.Name, variable)
	}
	first, other := m.pools[e.Name], model != "" && model != e.Model
	out := llm.Model{
		Name: e.Name, ID: e.Model, ContextWindow: e.ContextWindow, Priced: e.Price != nil,
		TextTools: e.ToolCalls == config.ToolCallsText,
		CompactAt: e.CompactAt, ReplyReserve: e.ReplyReserve,
	}
	if other {
		first = first.With(m.asker(e, model))
		out.ID, out.ContextWindow, out.Priced = model, 0, false
	}
	if out.Priced {
		out.Price = llm.Price(*e.Price)
	}
	if out.ContextWindow == 0 {
		out.ContextWindow = m.window(ctx, e, out.ID)
	}
	m.mu.Lock()
	if w := m.learned[e.Name+"\x00"+out.ID]; w > 0 {
		out.ContextWindow = min(out.ContextWindow, w)
	}
	m.mu.Unlock()
	var others []*pool.LLM
	for _, name := range e.Fallback {
		if p := m.pools[name]; p != nil {
			others = append(others, p)
		}
	}
	out.Client = pool.WithFallback(first, others...)
	return out, nil
}

// learn notes that a model's context window is no larger than this, for the rounds
// to come.
func (m *models) learn(name, model string, tokens int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := name + "\x00" + model
	if w := m.learned[key]; w == 0 || tokens < w {
		m.learned[key] = tokens
	}
}

// discoverTimeout bounds the question for a context window: a round waits for it.
const discoverTimeout = 2 * time.Second

// window returns a model's context window, for which the server is asked once. Those
// who want to know meanwhile wait for the one who asks.
func (m *models) window(ctx context.Context, e *config.LLM, model string) int {
	key := e.Name + "\x00" + model
	m.mu.Lock()
	_, known := m.windows[key]
	asked := m.asking[key]
	if !known && asked == nil {
		m.asking[key] = make(chan struct{})
	}
	m.mu.Unlock()
	switch {
	case known:
	case asked == nil:
		m.askWindow(ctx, e, model, key)
	default:
		select {
		case <-asked:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.windows[key]; w > 0 {
		return w
	}
	return unknownWindow
}

// askWindow asks the server. Where that cannot be reached nothing is noted: the
// request that follows says so, and the next round asks again.
func (m *models) askWindow(ctx context.Context, e *config.LLM, model, key string) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	w, err := m.client(e, model).Discover(ctx)
	var failed *llm.Error
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil || errors.As(err, &failed) && failed.Kind.Final() {
		m.windows[key] = w
	}
	close(m.asking[key])
	delete(m.asking, key)
}
