package openai

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

func TestParseProblem(t *testing.T) {
	for _, tc := range []struct{ name, in, message, code, kind string }{
		{"OpenAI", `{"error":{"message":"m","type":"t","param":null,"code":"c"}}`, "m", "c", "t"},
		{"numeric code", `{"error":{"message":"m","code":400}}`, "m", "", ""},
		{"string", `{"error":"Insufficient balance"}`, "Insufficient balance", "", ""},
		{"list of an empty one", `[{"error":{}}]`, "", "", ""},
		{"list", `[{"error":{"message":"m","status":"UNAVAILABLE","code":503}}]`, "m", "UNAVAILABLE", ""},
		{"vLLM", `{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`, "m", "", "BadRequestError"},
		{"detail", `{"detail":"Not Found"}`, "Not Found", "", ""},
		{"validation", `{"detail":[{"loc":["body","messages",3],"msg":"Extra inputs","type":"extra_forbidden"}]}`, "Extra inputs: at body.messages.3", "", "extra_forbidden"},
		{"Mistral", `{"object":"error","message":{"detail":[{"msg":"field required","type":"missing"}]}}`, "field required", "", "missing"},
		{"code beside", `{"code":20015,"message":"thinking is enabled","data":null}`, "thinking is enabled", "20015", ""},
		{"router", `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long\"}}"}}}`, "Provider returned error: prompt is too long", "", ""},
		{"Anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "Overloaded", "", "overloaded_error"},
		{"list of messages", `{"error":{"message":["a","b"]}}`, "a: b", "", ""},
		{"plain", "upstream connect error\n", "upstream connect error", "", ""},
		{"page", "<html><head><title>502 Bad Gateway</title><style>x{}</style></head><body><h1>502 Bad Gateway</h1><hr>nginx</body></html>", "502 Bad Gateway nginx", "", ""},
		{"unknown object", `{"x":{"y":"z"}}`, `{"x":{"y":"z"}}`, "", ""},
		{"empty", "", "", "", ""},
		{"JSON string", `"busy"`, "busy", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := parseProblem([]byte(tc.in))
			if p.message != tc.message || p.code != tc.code || p.kind != tc.kind {
				t.Errorf("got message %q, code %q, kind %q", p.message, p.code, p.kind)
			}
		})
	}
	if p := parseProblem([]byte(`{"error":{"message":"` + strings.Repeat("ü", 5000) + `"}}`)); len(p.message) > maxMessage || !utf8.ValidString(p.message) {
		t.Errorf("a message of %d bytes", len(p.message))
	}
}

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   llm.ErrorKind
	}{
		{401, ``, llm.KindAuth},
		{403, `{"error":{"message":"forbidden"}}`, llm.KindAuth},
		{402, ``, llm.KindQuota},
		{429, `{"error":{"message":"You exceeded your current quota, please check your plan","code":"insufficient_quota"}}`, llm.KindQuota},
		{429, `[{"error":{"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x","retryDelay":"34s"}]}}]`, llm.KindRateLimit},
		{400, `{"error":"Insufficient balance"}`, llm.KindQuota},
		{403, `{"error":{"message":"Your credit balance is too low"}}`, llm.KindQuota},
		{429, `{"error":{"message":"Rate limit reached, try again in 7.66s"}}`, llm.KindRateLimit},
		{429, `{"message":"Too many tokens, please wait before trying again."}`, llm.KindRateLimit},
		{400, `{"error":{"message":"x","code":"context_length_exceeded"}}`, llm.KindContextLength},
		{400, `{"object":"error","message":"This model's maximum context length is 6048 tokens. However, you requested 6616 tokens"}`, llm.KindContextLength},
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":10,"n_ctx":4096}}`, llm.KindContextLength},
		{500, `{"error":{"message":"prompt too long; exceeded max context length by 12 tokens"}}`, llm.KindContextLength},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 218849 tokens > 200000 maximum"}}`, llm.KindContextLength},
		{400, `{"error":{"message":"Prompt 超长","code":"1261"}}`, llm.KindContextLength},
		{400, `{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"}}`, llm.KindContextLength},
		{413, `<html>too large</html>`, llm.KindContextLength},
		{400, `{"error":{"message":"max_tokens exceeds the maximum of 8192 output tokens"}}`, llm.KindBadRequest},
		{400, `{"error":{"message":"bad"}}`, llm.KindBadRequest},
		{404, ``, llm.KindBadRequest},
		{422, `{}`, llm.KindBadRequest},
		{408, ``, llm.KindServer},
		{409, ``, llm.KindServer},
		{500, ``, llm.KindServer},
		{502, `<html>`, llm.KindServer},
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, llm.KindServer},
		{200, `{"error":{"message":"engine died"}}`, llm.KindServer},
		{200, `{"error":{"message":"slow down","code":429}}`, llm.KindRateLimit},
		{200, `{"error":{"message":"bad","type":"invalid_request_error"}}`, llm.KindBadRequest},
	} {
		c := New(Config{Transport: http.DefaultTransport})
		if e := c.problemError(tc.status, parseProblem([]byte(tc.body))); e.Kind != tc.want {
			t.Errorf("%d %s: %s, want %s", tc.status, tc.body, e.Kind, tc.want)
		}
	}
}

func TestWindowIn(t *testing.T) {
	for in, want := range map[string]int{
		"This model's maximum context length is 8192 tokens. However, you requested 9000": 8192,
		"prompt is too long: 218849 tokens > 200000 maximum":                              200000,
		"exceeded model token limit: 262144 (requested: 269030)":                          262144,
		"Input length (265330) exceeds model's maximum context length (262144).":          262144,
		"Prompt too long: 5152 tokens exceeds max_seq_len 2048":                           2048,
		"exceeds the maximum allowed input length of 131040 tokens":                       131040,
		"available context size (8,192 tokens)":                                           8192,
		"maximum prompt length is 131072 but the request contains 500000 tokens":          131072,
		"no number": 0,
	} {
		if got := windowIn(in); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		header http.Header
		want   time.Duration
	}{
		{http.Header{"Retry-After": {"3"}}, 3 * time.Second},
		{http.Header{"Retry-After": {"0.5"}}, 500 * time.Millisecond},
		{http.Header{"Retry-After": {"Fri, 02 Jan 2026 03:04:15 GMT"}}, 10 * time.Second},
		{http.Header{"Retry-After": {"Fri, 02 Jan 2026 03:04:00 GMT"}}, 0},
		{http.Header{"Retry-After": {"-1"}}, 0},
		{http.Header{"Retry-After": {"soon"}}, 0},
		{http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"1"}}, 250 * time.Millisecond},
		{http.Header{"X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"1m2s"}, "X-Ratelimit-Remaining-Tokens": {"5"}, "X-Ratelimit-Reset-Tokens": {"1h"}}, 62 * time.Second},
		{http.Header{"X-Ratelimit-Reset": {"1767323055000"}}, 10 * time.Second},
		{http.Header{"X-Ratelimit-Reset": {"1767323055"}}, 10 * time.Second},
		{http.Header{"X-Ratelimit-Reset": {"7"}}, 7 * time.Second},
		{http.Header{}, 0},
	} {
		if got := retryAfter(tc.header, true, now); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.header, got, tc.want)
		}
		// Beside other errors only what is meant for this request counts.
		want := tc.want
		if tc.header.Get("Retry-After") == "" {
			want = 0
		}
		if got := retryAfter(tc.header, false, now); got != want {
			t.Errorf("%v without a rate limit: %v, want %v", tc.header, got, want)
		}
	}
	for in, want := range map[string]time.Duration{
		"Please try again in 7.66s.":           7660 * time.Millisecond,
		"Please try again in 6m0s.":            6 * time.Minute,
		"Please try again in 250ms":            250 * time.Millisecond,
		"Please retry in 34.07s":               34070 * time.Millisecond,
		"Try again in 2 minutes":               2 * time.Minute,
		"retry after 20 seconds":               20 * time.Second,
		"please wait before trying again":      0,
		"Too many requests. Rate limit is 20.": 0,
	} {
		if got := delayIn(in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func FuzzParseProblem(f *testing.F) {
	for _, s := range []string{
		`{"error":{"message":"m","code":400}}`, `{"error":"x"}`, `[{"error":{}}]`, "<html><title>t</title>", `{"detail":[{"loc":["a",1],"msg":"m"}]}`,
		`"\ud800"`, "try again in 99999999999h1s", `{"error":{"metadata":{"raw":"{\"error\":\"{\\\"message\\\":\\\"x\\\"}\"}"}}}`, `{"details":[{"retryDelay":"1s"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		p := parseProblem(in)
		for _, s := range []string{p.message, p.code, p.kind} {
			if len(s) > maxMessage || !utf8.ValidString(s) || strings.ContainsAny(s, "\n\r\x00") {
				t.Errorf("unfit text of %d bytes: %q", len(s), s)
			}
		}
		if p.retryAfter < 0 || p.window < 0 {
			t.Errorf("negative: %+v", p)
		}
		classify(500, p)
	})
}
