package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// requestFailed is the outcome of a round whose request failed for good, after the
// conversation was made smaller for it so many times.
func (s *state) requestFailed(err error, shrunk int) *round.Outcome {
	kind, advice := "", ""
	var e *llm.Error
	if errors.As(err, &e) {
		kind, advice = string(e.Kind), s.advice(e)
	}
	if kind == "" {
		kind = string(llm.KindNetwork)
	}
	out := fail(kind, "the model could not be asked: %v", err)
	if shrunk > 0 {
		out.Error.Message = strings.TrimRight(out.Error.Message, ".") + fmt.Sprintf(", also after the conversation was made smaller %s", times(shrunk))
	}
	if advice != "" {
		out.Error.Message = strings.TrimRight(out.Error.Message, ".") + ". " + advice
	}
	out.MissingOutputs = s.missingOutputs()
	if s.wrappingUp() {
		// The limit is what ended the round; that its summary is missing comes on top.
		limit := s.wrappedUp("")
		limit.Error.Message += ". The summary is missing: " + out.Error.Message
		return limit
	}
	return out
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// advice says what a person can do about a failed request.
func (s *state) advice(e *llm.Error) string {
	name := e.LLM
	if name == "" {
		name = s.model.Name
	}
	entry := "LLM \"" + name + "\" in config.toml"
	switch e.Kind {
	case llm.KindAuth:
		return "Check the key of " + entry + " (api_key_env or api_key_file) and that it may use model \"" + s.model.ID + "\"; then reply to go on."
	case llm.KindQuota:
		return "The account behind " + entry + " is used up: pay in, or choose another LLM; then reply to go on."
	case llm.KindBadRequest:
		if e.Status == 404 {
			return "Check base_url and model (\"" + s.model.ID + "\") of " + entry + "; then reply to go on."
		}
		return "Check model (\"" + s.model.ID + "\") and extra of " + entry + "; then reply to go on."
	case llm.KindContextLength:
		return "The conversation does not fit the window of model \"" + s.model.ID + "\": choose an LLM with a larger one, or write a shorter message; what is long can lie in a file that the message names."
	case llm.KindRateLimit:
		if e.RetryAfter > 0 && e.Attempts <= 1 {
			// Longer than anybody should be kept waiting with a round open.
			until := s.cfg.Now().Add(e.RetryAfter).UTC().Format(time.RFC3339)
			return "The server takes none before " + until + ": reply then, or choose another LLM, or set fallback of " + entry + "."
		}
		return "Its rate limit held through all attempts: reply later, or lower max_concurrent of " + entry + "."
	case llm.KindNetwork:
		return "Check base_url of " + entry + " and that its server is up and reachable from here; then reply to go on."
	case llm.KindTooLong:
		return "The model went on without an end: reply with what it is to do instead, or bound its answers in extra of " + entry + " (max_tokens)."
	case llm.KindServer, llm.KindBrokenStream, llm.KindIdle, llm.KindNoChoices:
		return "All attempts failed, which is the server's trouble, not the task's: reply to go on once it works again, or set fallback of " + entry + "."
	}
	return ""
}
