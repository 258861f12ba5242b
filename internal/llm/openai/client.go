// Package openai asks a model over OpenAI's chat API, as OpenAI and those who
// copied it speak it: one attempt, streamed, through go-openai.
//
// go-openai gives the request types and the call. What its stream reader would
// lose is kept by the layer below it (attempt, an HTTPDoer): errors inside a
// stream that began well, a stream that ends without an end, the delay that a
// provider asks for, keep-alive lines in any number. Answers are read into types
// of this package, which keep every field that they do not know.
//
// What a provider wants back with the conversation (reasoning, signatures) is
// kept in llm.Message.Extra and returned as the table in echo.go says.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// DefaultIdleTimeout is how long a model may stay silent. Models that think
// without showing it are silent for minutes, and so are local ones while they
// read a long prompt.
const DefaultIdleTimeout = 5 * time.Minute

// keepAliveFactor bounds how long keep-alive lines alone hold a request up, in
// idle timeouts.
const keepAliveFactor = 10

// tailTimeout bounds the wait for what may follow a finish reason.
const tailTimeout = 10 * time.Second

// drainTimeout bounds the wait for a response to end after its answer did, which
// lets its connection be used again.
const drainTimeout = 50 * time.Millisecond

// Config describes one LLM.
type Config struct {
	// Name is the configured entry's name, for errors and Response.LLM.
	Name string
	// BaseURL ends before /chat/completions: https://api.openai.com/v1
	BaseURL string
	// Key returns the API key, asked anew for each request; nil or "" sends none.
	Key   func() string
	Model string
	// Headers are added to each request and replace those of the same name.
	Headers map[string]string
	// Extra is merged into the body of each request; a nil value removes a field.
	Extra map[string]any
	// Temperature, where not nil, is sent, also 0.
	Temperature *float64
	// MaxTokensField is "max_tokens", "max_completion_tokens", or "" and "auto"
	// for what the model's family takes.
	MaxTokensField string
	// ReasoningEcho says whether reasoning goes back with the conversation:
	// "always", "never", or "" and "auto" for what the model is known to want.
	ReasoningEcho string
	// IdleTimeout is how long nothing may come; 0 is DefaultIdleTimeout. Keep-alive
	// lines count as something, for ten times as long.
	IdleTimeout time.Duration
	// Price, where not nil, gives the cost.
	Price *llm.Price
	// Transport carries the requests; nil makes one with NewTransport. Sharing
	// one among LLMs saves connections.
	Transport http.RoundTripper
}

// Client asks one LLM, once per call of Complete. It implements llm.Client, and
// many goroutines may use it at once.
type Client struct {
	cfg       Config
	base      string
	maxTokens string
	echo      echo
	strict    bool
	http      *http.Client
	// unopened is learned: answers begin in reasoning whose opening tag is part
	// of the prompt.
	unopened atomic.Bool
}

var _ llm.Client = (*Client)(nil)

// New returns a client. It makes no request; a configuration that cannot work
// shows in the error of the first one.
func New(cfg Config) *Client {
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = DefaultIdleTimeout
	}
	if cfg.Transport == nil {
		cfg.Transport = NewTransport()
	}
	base := strings.TrimRight(strings.TrimSpace(cfg.BaseURL), "/")
	base = strings.TrimSuffix(base, "/chat/completions")
	c := &Client{
		cfg:       cfg,
		base:      base,
		maxTokens: maxTokensField(cfg.MaxTokensField, base, cfg.Model),
		http: &http.Client{
			Transport: cfg.Transport,
			// A redirected POST loses its body or its key. The error says where it leads.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.echo, c.strict = echoFor(cfg.ReasoningEcho, base, cfg.Model)
	return c
}

// NewTransport returns a transport for many requests at once to few hosts.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{
			Timeout:   15 * time.Second,
			KeepAlive: 30 * time.Second,
		}).DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 15 * time.Second,
		// A connection that died without a word is found out by asking.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

func (c *Client) key() string {
	if c.cfg.Key == nil {
		return ""
	}
	return strings.TrimSpace(c.cfg.Key())
}

// Complete makes one attempt. See llm.Client; Delta.Restarted is never set.
func (c *Client) Complete(ctx context.Context, req llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
	key := c.key()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{client: c, req: req, cancel: cancel}
	ans := &answer{onDelta: onDelta}
	ans.think.unopened = c.unopened.Load()

	err := a.run(ctx, key, ans)
	spent := c.spent(ans.usage, a.sent && (a.status == 0 || a.status == http.StatusOK))
	if err != nil {
		// A partial answer still shows what was held back.
		ans.emit(ans.think.end())
		return llm.Response{Spent: spent, LLM: c.cfg.Name}, c.fail(ctx, a, err)
	}
	reason, failed := finishReason(ans.finish)
	if failed {
		e := c.problemError(a.status, problem{message: "the provider broke the answer off: " + tidy(ans.finish)})
		e.Kind = llm.KindServer
		return llm.Response{Spent: spent, LLM: c.cfg.Name}, e
	}
	if reason == "" {
		reason = llm.FinishStop
		if len(ans.calls) > 0 {
			reason = llm.FinishToolCalls
		}
	}
	msg := ans.message(c.echo != echoDrop)
	switch {
	case ans.think.wasUnopened():
		c.unopened.Store(true)
	case ans.think.unopened && msg.Content != "":
		c.unopened.Store(false)
	}
	resp := llm.Response{Message: msg, FinishReason: reason, Spent: spent, LLM: c.cfg.Name}
	if ans.usage != nil {
		resp.Context = int(ans.usage.PromptTokens + ans.usage.CompletionTokens)
	}
	return resp, nil
}

// spent returns what an attempt cost. begun says that the provider may have
// worked, so that tokens it did not report are unknown and not none.
func (c *Client) spent(u *usage, begun bool) llm.Usage {
	s := llm.Usage{Requests: 1}
	if u == nil {
		if begun {
			s.Unreported, s.Unpriced = 1, 1
		}
		return s
	}
	s.InputTokens, s.OutputTokens, s.CachedTokens = u.PromptTokens, u.CompletionTokens, u.cached()
	if c.cfg.Price == nil {
		s.Unpriced = 1
		return s
	}
	s.CostUSD = c.cfg.Price.Cost(s.InputTokens, s.CachedTokens, s.OutputTokens)
	return s
}

// run makes the request and reads the answer into ans.
func (a *attempt) run(ctx context.Context, key string, ans *answer) error {
	c := a.client
	a.watch(c.cfg.IdleTimeout)
	defer a.idle.Stop()

	cfg := goopenai.DefaultConfig(key)
	cfg.BaseURL = c.base
	cfg.HTTPClient = a
	request := goopenai.ChatCompletionRequest{Model: c.cfg.Model, Stream: true}
	if c.streamOptions() {
		request.StreamOptions = &goopenai.StreamOptions{IncludeUsage: true}
	}
	if a.req.ToolChoice != "" {
		request.ToolChoice = a.req.ToolChoice
	}
	stream, err := goopenai.NewClientWithConfig(cfg).CreateChatCompletionStream(ctx, request)
	if err == nil {
		err = a.read(stream, ans)
	}
	// The cause is taken before the connection is wound up, which may cancel too.
	a.cause = ctxCause(ctx)
	if ans.finish != "" && !errors.Is(err, errAnswerTooLong) && (a.cause == nil || errors.Is(a.cause, errIdle)) {
		// What broke after the answer was whole took nothing away.
		err = nil
	}
	if stream != nil {
		a.finish(stream.Close)
	}
	return err
}

// read takes the events of the stream into ans until it ends.
func (a *attempt) read(stream *goopenai.ChatCompletionStream, ans *answer) error {
	c := a.client
	for {
		data, err := stream.RecvRaw()
		if err == io.EOF {
			return a.ended(ans)
		}
		if err != nil {
			return err
		}
		var ch chunk
		if err := json.Unmarshal(data, &ch); err != nil {
			return c.problemError(a.status, noCompletion(data))
		}
		if !ans.hasChoice {
			a.unchosen = clip(string(data), maxShown)
		}
		if p := ans.add(&ch, data); p != nil {
			return c.problemError(a.status, *p)
		}
		if ans.size > maxAnswer {
			return errAnswerTooLong
		}
		if ans.finish != "" {
			// Usage and [DONE] may follow, but nothing that is worth a long wait.
			a.tail()
		}
	}
}

// ended judges an answer whose stream ended without an error.
func (a *attempt) ended(ans *answer) error {
	c, done := a.client, a.events.done || a.events.whole
	broken := func(kind llm.ErrorKind, message string) error {
		return &llm.Error{Kind: kind, LLM: c.cfg.Name, Status: a.status, Message: message}
	}
	switch {
	case !ans.hasChoice && done:
		return broken(llm.KindNoChoices, c.redact(tidy(strings.TrimSuffix("the answer has no choices: "+a.unchosen, ": "))))
	case ans.finish != "":
		return nil
	case !done && !ans.hasChoice && a.events.stray != "":
		return broken(llm.KindServer, c.redact(tidy("the answer is no chat completion: "+a.events.stray)))
	case !done:
		return broken(llm.KindBrokenStream, "the stream ended before the answer was complete")
	case len(ans.calls) > 0 && !ans.wholeCalls():
		return broken(llm.KindBrokenStream, "the stream ended within a tool call")
	}
	return nil
}

// streamOptions reports whether the host takes stream_options. Mistral refuses
// unknown fields, and reports usage unasked.
func (c *Client) streamOptions() bool { return !strings.Contains(c.base, "//api.mistral.ai") }

// ctxCause returns why ctx ended, nil while it has not.
func ctxCause(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// fail turns what went wrong into the error that llm.Client promises.
func (c *Client) fail(ctx context.Context, a *attempt, err error) error {
	switch {
	case errors.Is(a.cause, errIdle):
		wait := "nothing came for " + c.cfg.IdleTimeout.String()
		if a.onlyKeepAlive.Load() {
			wait = "nothing but keep-alive lines came for " + (keepAliveFactor * c.cfg.IdleTimeout).String()
		}
		return &llm.Error{Kind: llm.KindIdle, LLM: c.cfg.Name, Status: a.status, Message: wait, Err: errIdle}
	case a.cause != nil:
		return fmt.Errorf("ask LLM %s: %w", c.cfg.Name, ctx.Err())
	}
	var e *llm.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, errAnswerTooLong), errors.Is(err, errEventTooLong), errors.Is(err, errStreamTooLong):
		return &llm.Error{Kind: llm.KindTooLong, LLM: c.cfg.Name, Status: a.status, Err: err,
			Message: fmt.Sprintf("the answer was cut off at %d MB, it did not come to an end", maxAnswer>>20)}
	}
	if a.status != 0 {
		return &llm.Error{Kind: llm.KindBrokenStream, LLM: c.cfg.Name, Status: a.status,
			Message: c.redact(tidy("the stream broke off: " + plainError(err))), Err: err}
	}
	ce := c.connectError(err)
	if !a.called {
		// go-openai refused the request itself; it will the next time.
		ce.Kind = llm.KindBadRequest
	}
	return ce
}
