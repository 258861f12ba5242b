package openai

import (
	"net/http"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// overflowWords are the words in which servers say that a conversation does not
// fit the model's window, in lower case: OpenAI, DeepSeek and vLLM; llama.cpp;
// Ollama; Anthropic; Google; Mistral; xAI; Kimi; GLM; Qwen; LM Studio; SGLang.
var overflowWords = []string{
	"context_length_exceeded",
	"maximum context length",
	"max context length",
	"context length exceeded",
	"exceeds the context window",
	"context window exceeded",
	"exceed_context_size_error",
	"available context size",
	"exceeds the context size",
	"model_context_window_exceeded",
	"prompt is too long",
	"prompt too long",
	"input is too long",
	"input length and `max_tokens` exceed",
	"input token count",
	"maximum number of tokens allowed",
	"maximum allowed input length",
	"too large for model with",
	"maximum prompt length",
	"maximum model length",
	"exceeded model token limit",
	"prompt exceeds max length",
	"prompt 超长",
	"长度超限",
	"上下文长度",
	"range of input length should be",
	"longer than the model's context",
	"exceeds max_model_len",
	"exceeds max_seq_len",
	"greater than the context length",
	"the context overflows",
	"reduce the length of the messages",
	"reduce the length of the input",
	"reduce the length of the prompt",
	"request_too_large",
}

// quotaWords say that something has to be paid before the next request.
var quotaWords = []string{
	"insufficient_quota",
	"insufficient quota",
	"insufficient_balance",
	"insufficient balance",
	"insufficient credits",
	"insufficient_credits",
	"insufficient funds",
	"billing_not_active",
	"billing_hard_limit",
	"billing hard limit",
	"account is not active",
	"credit balance is too low",
	"exceeded your current quota",
	"payment required",
	"arrearage",
	"余额不足",
	"欠费",
}

// classify tells by status and words what a caller can do about a problem.
func classify(status int, p problem) llm.ErrorKind {
	text := strings.ToLower(p.message + " " + p.code + " " + p.kind)
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	limited := status == http.StatusTooManyRequests ||
		strings.Contains(text, "rate_limit") || strings.Contains(text, "rate limit") ||
		strings.Contains(text, "throttl") || strings.Contains(text, "too many requests")
	switch {
	case status == http.StatusPaymentRequired:
		return llm.KindQuota
	case has(quotaWords):
		// Google says the same of a rate limit, and names a delay beside it.
		if p.retryAfter > 0 && limited && !strings.Contains(text, "insufficient") {
			return llm.KindRateLimit
		}
		return llm.KindQuota
	case status == http.StatusRequestEntityTooLarge:
		return llm.KindContextLength
	case !limited && has(overflowWords):
		return llm.KindContextLength
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return llm.KindAuth
	case limited:
		return llm.KindRateLimit
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly,
		status == 498, status >= 500:
		return llm.KindServer
	case status == 0 || status == http.StatusOK:
		// An error inside an answer that began well, without a status of its own.
		if strings.Contains(text, "invalid_request") || strings.Contains(text, "invalid request") {
			return llm.KindBadRequest
		}
		return llm.KindServer
	}
	return llm.KindBadRequest
}

// statusError makes the error of a response that is not a success.
func (c *Client) statusError(resp *http.Response, body []byte, now time.Time) *llm.Error {
	p := parseProblem(body)
	if d := retryAfter(resp.Header, resp.StatusCode == http.StatusTooManyRequests, now); d > 0 {
		p.retryAfter = d
	}
	e := c.problemError(resp.StatusCode, p)
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		e.Message = "the server redirects to " + redactURL(resp.Header.Get("Location")) + ": set base_url to where it leads"
	case resp.StatusCode == http.StatusNotFound && p.code == "" && p.kind == "":
		e.Message = strings.TrimSuffix(e.Message, ".") + ": is base_url " + redactURL(c.base) + " right? It usually ends in /v1"
	}
	return e
}

// problemError makes the error of a problem. status is that of the response.
func (c *Client) problemError(status int, p problem) *llm.Error {
	if (status == 0 || status == http.StatusOK) && p.status != 0 {
		status = p.status
	}
	e := &llm.Error{
		Kind: classify(status, p), LLM: c.cfg.Name, Status: status,
		Message: p.message, RetryAfter: p.retryAfter,
	}
	e.Code = p.code
	if e.Code == "" {
		e.Code = p.kind
	}
	if e.Message == "" {
		e.Message = e.Code
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	if e.Message == "" {
		e.Message = "an error without a message"
	}
	if e.Kind == llm.KindContextLength {
		e.Window = p.window
	}
	e.Message = c.redact(e.Message)
	return e
}
