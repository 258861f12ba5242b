package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxBody bounds what the server reads of one request.
const maxBody = 256 << 20

// TB is the part of *testing.T that NewServer uses.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Server is a running scripted server. All methods may be called by several
// goroutines at once.
type Server struct {
	// URL is the base URL for clients: http://127.0.0.1:port/v1
	URL string

	script Script
	opts   options
	http   *http.Server
	ln     net.Listener
	served chan struct{}
	// closed ends every reply that waits.
	closed  context.Context
	close   context.CancelFunc
	closing sync.Once

	mu       sync.Mutex
	arrived  *sync.Cond
	stopped  bool
	handlers int
	count    int
	inFlight int
	peak     int
	requests []*Request
}

// Option changes how a server behaves.
type Option func(*options)

type options struct {
	addr        string
	lenient     bool
	forget      bool
	key         string
	window      int
	maxInFlight int
	retryAfter  time.Duration
	models      []Model
	answered    func(*Request)
}

// Model is an entry of GET /v1/models. Fields are merged into it, for example
// {"max_model_len": 32768}.
type Model struct {
	ID     string
	Fields map[string]any
}

// Addr listens on addr instead of a free port of 127.0.0.1.
func Addr(addr string) Option { return func(o *options) { o.addr = addr } }

// Lenient turns the checks of conversations off.
func Lenient() Option { return func(o *options) { o.lenient = true } }

// Forget keeps no requests, only their count: for benchmarks.
func Forget() Option { return func(o *options) { o.forget = true } }

// Key refuses requests without this bearer token with status 401.
func Key(key string) Option { return func(o *options) { o.key = key } }

// Window answers context_length_exceeded where a request's messages and tools
// are longer than tokens, counted as four bytes each.
func Window(tokens int) Option { return func(o *options) { o.window = tokens } }

// MaxInFlight answers 429 with Retry-After where n requests are being answered
// already. The script does not see these requests; they are recorded.
func MaxInFlight(n int, retryAfter time.Duration) Option {
	return func(o *options) { o.maxInFlight, o.retryAfter = n, retryAfter }
}

// Answered calls f when a reply to a chat request has been sent, or has failed to
// be: for those who measure what a client does in between.
func Answered(f func(*Request)) Option { return func(o *options) { o.answered = f } }

// Models sets what GET /v1/models lists; without it one model named "test".
func Models(models ...Model) Option { return func(o *options) { o.models = models } }

// NewServer starts a server that ends with the test.
func NewServer(tb TB, script Script, opts ...Option) *Server {
	tb.Helper()
	s, err := Start(script, opts...)
	if err != nil {
		tb.Fatalf("start scripted server: %v", err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Start starts a server on a free port of the loopback interface. The caller
// closes it.
func Start(script Script, opts ...Option) (*Server, error) {
	o := options{addr: "127.0.0.1:0", models: []Model{{ID: "test"}}}
	for _, opt := range opts {
		opt(&o)
	}
	ln, err := net.Listen("tcp", o.addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &Server{
		URL:    "http://" + ln.Addr().String() + "/v1",
		script: script,
		opts:   o,
		ln:     ln,
		served: make(chan struct{}),
	}
	s.arrived = sync.NewCond(&s.mu)
	s.closed, s.close = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(ln)
	}()
	return s, nil
}

// Close ends all replies, also stalled ones, and waits for them. It may be
// called more than once.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		s.close()
		_ = s.http.Close()
		<-s.served
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived.Broadcast()
	for s.handlers > 0 {
		s.arrived.Wait()
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.handlers++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.handlers--
		s.arrived.Broadcast()
		s.mu.Unlock()
	}()

	if s.opts.key != "" && r.Header.Get("Authorization") != "Bearer "+s.opts.key {
		writeError(w, http.StatusUnauthorized, apiError{
			Message: "Incorrect API key provided.", Type: "invalid_request_error", Code: "invalid_api_key"})
		return
	}
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/chat/completions"):
		s.chat(w, r)
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		s.listModels(w)
	default:
		writeError(w, http.StatusNotFound, apiError{
			Message: fmt.Sprintf("Unknown request URL: %s %s.", r.Method, r.URL.Path), Type: "invalid_request_error"})
	}
}

func (s *Server) listModels(w http.ResponseWriter) {
	data := []map[string]any{}
	for _, m := range s.opts.models {
		e := map[string]any{"id": m.ID, "object": "model", "created": 1700000000, "owned_by": "llmtest"}
		for k, v := range m.Fields {
			e[k] = v
		}
		data = append(data, e)
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, http.StatusBadRequest, apiError{Message: "read body: " + err.Error(), Type: "invalid_request_error"})
		return
	}
	req, parseErr := parseRequest(body)
	req.At = at
	req.Header = r.Header.Clone()
	// From here on req is shared and only read.
	var refused *apiError
	if !errors.As(parseErr, &refused) && !s.opts.lenient {
		refused = check(req)
	}
	if refused != nil {
		req.Refused = refused.Message
	}

	s.mu.Lock()
	s.count++
	req.Ordinal = s.count
	busy := s.opts.maxInFlight > 0 && s.inFlight >= s.opts.maxInFlight
	if !busy {
		s.inFlight++
		s.peak = max(s.peak, s.inFlight)
	}
	if !s.opts.forget {
		s.requests = append(s.requests, req)
	}
	s.arrived.Broadcast()
	s.mu.Unlock()
	if !busy {
		defer func() {
			s.mu.Lock()
			s.inFlight--
			s.mu.Unlock()
		}()
	}

	var reply Reply
	switch {
	case busy:
		reply = Status(http.StatusTooManyRequests, "Rate limit reached: too many requests at once.").
			Code("rate_limit_exceeded").RetryAfter(s.opts.retryAfter)
	case refused != nil:
		reply = refused.reply()
	case s.opts.window > 0 && req.Size()/4 > s.opts.window:
		reply = Overflow(s.opts.window, req.Size()/4)
	default:
		reply = s.script(req)
	}
	// The request's context ends when the client goes; AfterFunc joins the end of the server to it.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closed, cancel)()
	if s.opts.answered != nil {
		defer s.opts.answered(req)
	}
	reply.write(ctx, w, req)
}

// Requests returns what has arrived so far, in order of arrival.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request(nil), s.requests...)
}

// Count returns how many chat requests have arrived.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// InFlight returns how many requests are being answered, and the most that
// were at once.
func (s *Server) InFlight() (now, peak int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight, s.peak
}

// Refusals returns why requests were refused as invalid, with their ordinals.
// A test that means to send valid conversations wants none.
func (s *Server) Refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.requests {
		if r.Refused != "" {
			out = append(out, fmt.Sprintf("request %d: %s", r.Ordinal, r.Refused))
		}
	}
	return out
}

// Wait blocks until n chat requests have arrived since the start, ctx ends or the
// server is closed.
func (s *Server) Wait(ctx context.Context, n int) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.arrived.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.count < n {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for request %d, %d arrived: %w", n, s.count, err)
		}
		if s.stopped {
			return fmt.Errorf("wait for request %d, %d arrived: the server is closed", n, s.count)
		}
		s.arrived.Wait()
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// apiError is OpenAI's error object.
type apiError struct {
	Message string
	Type    string
	Param   string
	Code    string
}

func (e *apiError) Error() string { return e.Message }

func (e *apiError) reply() Reply {
	return Status(http.StatusBadRequest, e.Message).Code(e.Code).param(e.Param)
}

func (e *apiError) body() map[string]any {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"error": map[string]any{
		"message": e.Message, "type": e.Type, "param": null(e.Param), "code": null(e.Code)}}
}

func writeError(w http.ResponseWriter, status int, e apiError) { writeJSON(w, status, e.body()) }
