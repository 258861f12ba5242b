package llm

import (
	"fmt"
	"time"
)

// ErrorKind classes what went wrong with a request by what a caller can do.
type ErrorKind string

// The kinds. Final kinds are not retried, since the same request would fail
// again; see ErrorKind.Final.
const (
	KindAuth          ErrorKind = "auth"           // 401, 403: the key is missing or wrong
	KindQuota         ErrorKind = "quota"          // paid-for use is exhausted (429 insufficient_quota, 402)
	KindBadRequest    ErrorKind = "bad_request"    // any other 4xx
	KindContextLength ErrorKind = "context_length" // the conversation does not fit the window
	KindRateLimit     ErrorKind = "rate_limit"     // 429: later
	KindServer        ErrorKind = "server"         // 5xx, 408, overloaded
	KindNetwork       ErrorKind = "network"        // no connection, reset, DNS
	KindBrokenStream  ErrorKind = "broken_stream"  // ended without a finish reason
	KindIdle          ErrorKind = "idle_timeout"   // nothing came for the idle timeout
	KindNoChoices     ErrorKind = "no_choices"     // 200 without an answer in it
	KindTooLong       ErrorKind = "too_long"       // the answer did not end; asked for again once at most
)

// Final reports whether retrying the same request on the same LLM is useless.
func (k ErrorKind) Final() bool {
	switch k {
	case KindAuth, KindQuota, KindBadRequest, KindContextLength:
		return true
	}
	return false
}

// Error is a failed request to a model.
type Error struct {
	Kind ErrorKind
	// LLM is the configured entry's name, as far as it is known.
	LLM string
	// Status is the HTTP status, 0 where there was none.
	Status int
	// Code is the provider's own error code or type, where it sent one.
	Code string
	// Message is the provider's text or the cause's, bounded in length.
	Message string
	// RetryAfter is the provider's wish, the floor for the next attempt.
	RetryAfter time.Duration
	// Window is the model's context window in tokens, where a context_length
	// error said it; 0 otherwise.
	Window int
	// Attempts counts how often the request was made, where it was more than once.
	Attempts int
	// Err is the cause, where there is one.
	Err error
}

func (e *Error) Error() string {
	s := string(e.Kind)
	if e.LLM != "" {
		s = "LLM " + e.LLM + ": " + s
	}
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Attempts > 1 {
		s += fmt.Sprintf(", %d attempts", e.Attempts)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }
