package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
)

var hello = llm.Request{Messages: []llm.Message{{Role: llm.User, Content: "hi"}}}

var offered = llm.Request{
	Messages: []llm.Message{{Role: llm.System, Content: "s"}, {Role: llm.User, Content: "hi"}},
	Tools: []llm.ToolSpec{{Name: "f", Description: "<f>", Parameters: llm.RawJSON(`{"type": "object", "properties": {}}`)},
		{Name: "g"}},
}

// client returns a client of the server; change may be nil.
func client(t *testing.T, s *llmtest.Server, change func(*Config)) *Client {
	t.Helper()
	tr := NewTransport()
	t.Cleanup(tr.CloseIdleConnections)
	cfg := Config{Name: "test", BaseURL: s.URL, Model: "m", Transport: tr, IdleTimeout: 20 * time.Second}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

// ask returns the answer of the only reply of a script, and what was streamed.
func ask(t *testing.T, reply llmtest.Reply, req llm.Request, change func(*Config)) (llm.Response, string, string, error) {
	t.Helper()
	s := llmtest.NewServer(t, llmtest.Always(reply))
	var text, reasoning strings.Builder
	resp, err := client(t, s, change).Complete(t.Context(), req, func(d llm.Delta) {
		text.WriteString(d.Text)
		reasoning.WriteString(d.Reasoning)
	})
	if r := s.Refusals(); r != nil {
		t.Errorf("refused: %v", r)
	}
	return resp, text.String(), reasoning.String(), err
}

func TestAnswers(t *testing.T) {
	type want struct {
		text, shown, reasoning string
		finish                 llm.FinishReason
		calls                  string // name(arguments) ...
		extra                  string
	}
	f := func(c []llm.ToolCall) string {
		var out []string
		for _, c := range c {
			s := c.Name + "(" + c.Arguments + ")"
			if c.Extra != nil {
				b, _ := json.Marshal(c.Extra)
				s += string(b)
			}
			out = append(out, s)
		}
		return strings.Join(out, " ")
	}
	sse := func(lines ...string) llmtest.Reply {
		return llmtest.Stream("data: " + strings.Join(lines, "\n\ndata: ") + "\n\ndata: [DONE]\n\n")
	}
	for _, tc := range []struct {
		name  string
		reply llmtest.Reply
		want  want
	}{
		{"text", llmtest.Text("grüße 😀 an alle").Pieces(2), want{text: "grüße 😀 an alle", finish: "stop"}},
		{"text as JSON", llmtest.Text("hello").AsJSON(), want{text: "hello", finish: "stop"}},
		{"calls", llmtest.Text("ok").Call("f", `{"a":"x y"}`).Call("g", ``).Pieces(2), want{text: "ok", calls: `f({"a":"x y"}) g()`, finish: "tool_calls"}},
		{"calls as JSON", llmtest.Call("f", `{}`).Call("f", `{"a":1}`).AsJSON(), want{calls: `f({}) f({"a":1})`, finish: "tool_calls"}},
		{"calls without index", llmtest.Call("f", `{"a":1}`).Call("g", `{"b":2}`).NoIndex().Pieces(3), want{calls: `f({"a":1}) g({"b":2})`, finish: "tool_calls"}},
		{"calls without ids", llmtest.Call("f", `{"a":1}`).Call("g", `{"b":2}`).NoIDs().Pieces(3), want{calls: `f({"a":1}) g({"b":2})`, finish: "tool_calls"}},
		{"calls without index and ids", llmtest.Call("f", `{"a":1}`).Call("g", `{"b":2}`).NoIndex().NoIDs().Pieces(3), want{calls: `f({"a":1}) g({"b":2})`, finish: "tool_calls"}},
		{"calls with one id", llmtest.Reply{}.CallID("x", "f", `{"a":1}`).CallID("x", "g", `{}`), want{calls: `f({"a":1}) g({})`, finish: "tool_calls"}},
		{"calls all of index 0", sse(
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\":1}"}}]},"finish_reason":"tool_calls"}]}`),
			want{calls: `f({}) f({"x":1})`, finish: "tool_calls"}},
		{"call with name and id in every piece", sse(
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]},"finish_reason":"tool_calls"}]}`),
			want{calls: `f({})`, finish: "tool_calls"}},
		{"call with name in pieces", sse(
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"read_"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"file","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`),
			want{calls: `read_file({})`, finish: "tool_calls"}},
		{"arguments as an object", sse(`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"a":1}}}]},"finish_reason":"stop"}]}`),
			want{calls: `f({"a":1})`, finish: "stop"}},
		{"function_call", sse(
			`{"choices":[{"delta":{"function_call":{"name":"f","arguments":"{"}}}]}`,
			`{"choices":[{"delta":{"function_call":{"arguments":"}"}},"finish_reason":"function_call"}]}`),
			want{calls: `f({})`, finish: "tool_calls"}},
		{"cut call", llmtest.Call("f", `{"a":"hal`).Finish("length"), want{calls: `f({"a":"hal)`, finish: "length"}},
		{"length in other words", llmtest.Text("x").Finish("max_tokens"), want{text: "x", finish: "length"}},
		{"unknown reason", llmtest.Text("x").Finish("content_filter"), want{text: "x", finish: "content_filter"}},
		{"no reason, but an end", llmtest.Text("x").Finish(""), want{text: "x", finish: "stop"}},
		{"no reason, whole call", llmtest.Call("f", `{}`).Finish(""), want{calls: `f({})`, finish: "tool_calls"}},
		{"no [DONE]", llmtest.Text("x").NoDone(), want{text: "x", finish: "stop"}},
		{"keep-alive", llmtest.Text("x").KeepAlive(400, 0), want{text: "x", finish: "stop"}},
		{"chunk without choices in between", llmtest.Text("x").Insert(1, "data: {\"choices\":[]}\n\ndata: {\"id\":\"a\"}\n\n"), want{text: "x", finish: "stop"}},
		{"broken after the end", llmtest.Text("x").Insert(9, "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n").Reset(9), want{text: "x", finish: "stop"}},
		{"reasoning field", llmtest.Thinking("hm hm").Text("x").Pieces(2), want{text: "x", reasoning: "hm hm", finish: "stop", extra: `{"reasoning_content":"hm hm"}`}},
		{"other reasoning field", llmtest.Text("x").ReasoningIn("reasoning", "hm"), want{text: "x", reasoning: "hm", finish: "stop", extra: `{"reasoning":"hm"}`}},
		{"reasoning twice", sse(`{"choices":[{"delta":{"content":"x","reasoning":"hm","reasoning_content":"hm"},"finish_reason":"stop"}]}`),
			want{text: "x", reasoning: "hm", finish: "stop", extra: `{"reasoning":"hm","reasoning_content":"hm"}`}},
		{"inline reasoning", llmtest.Text("<think>hm</think>\n\nx").Pieces(3), want{text: "x", reasoning: "hm", finish: "stop"}},
		{"unclosed reasoning", llmtest.Text("<think>hm").Pieces(3), want{reasoning: "hm", finish: "stop"}},
		{"unopened reasoning", llmtest.Text("hm\n</think>\n\nx").Pieces(3), want{text: "x", shown: "hm\nx", finish: "stop"}},
		{"reasoning as a part", sse(`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}}]}`,
			`{"choices":[{"delta":{"content":[{"type":"text","text":"x"}]},"finish_reason":"stop"}]}`), want{text: "x", reasoning: "hm", finish: "stop"}},
		{"reasoning details", sse(
			`{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"h"}]}}]}`,
			`{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"m","signature":"s"}],"content":"x"},"finish_reason":"stop"}]}`),
			want{text: "x", finish: "stop", extra: `{"reasoning_details":[{"index":0,"signature":"s","text":"hm","type":"reasoning.text"}]}`}},
		{"unknown fields", llmtest.Text("x").Field("sig", `"abcdefghij"`).Field("n", `{"a":1}`).Field("n", `{"a":2}`).Field("nothing", `null`).Field("annotations", `[1]`).Pieces(4),
			want{text: "x", finish: "stop", extra: `{"n":{"a":2},"sig":"abcdefghij"}`}},
		{"call with signature", llmtest.Call("f", `{}`).CallField("extra_content", `{"google":{"thought_signature":"s"}}`),
			want{calls: `f({}){"extra_content":{"google":{"thought_signature":"s"}}}`, finish: "tool_calls"}},
		{"refusal", sse(`{"choices":[{"delta":{"content":null,"refusal":"I will not"},"finish_reason":"stop"}]}`), want{text: "I will not", finish: "stop"}},
		{"two choices", sse(`{"choices":[{"index":0,"delta":{"content":"x"}},{"index":1,"delta":{"content":"y"}}]}`,
			`{"choices":[{"index":1,"delta":{},"finish_reason":"length"},{"index":0,"delta":{},"finish_reason":"stop"}]}`), want{text: "x", finish: "stop"}},
		{"null error", sse(`{"error":null,"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`), want{text: "x", finish: "stop"}},
		{"empty", llmtest.Text(""), want{finish: "stop"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, shown, reasoning, err := ask(t, tc.reply, offered, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.shown == "" {
				tc.want.shown = tc.want.text
			}
			m := resp.Message
			if m.Role != llm.Assistant || m.Content != tc.want.text || shown != tc.want.shown || reasoning != tc.want.reasoning ||
				resp.FinishReason != tc.want.finish || f(m.ToolCalls) != tc.want.calls {
				t.Errorf("text %q, shown %q, reasoning %q, finish %q, calls %s", m.Content, shown, reasoning, resp.FinishReason, f(m.ToolCalls))
			}
			extra := ""
			if m.Extra != nil {
				b, _ := json.Marshal(m.Extra)
				extra = string(b)
			}
			if extra != tc.want.extra {
				t.Errorf("extra %s, want %s", extra, tc.want.extra)
			}
			ids := map[string]bool{}
			for _, c := range m.ToolCalls {
				if c.ID == "" || ids[c.ID] {
					t.Errorf("call id %q is empty or repeated", c.ID)
				}
				ids[c.ID] = true
			}
			if resp.LLM != "test" || resp.Spent.Requests != 1 {
				t.Errorf("LLM %q, spent %+v", resp.LLM, resp.Spent)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reply   llmtest.Reply
		kind    llm.ErrorKind
		status  int
		message string
		unknown int // requests with unreported tokens
	}{
		{"odd body", llmtest.Body(400, "application/json", `{"error":{"message":"m","code":400}}`), llm.KindBadRequest, 400, "m", 0},
		{"string body", llmtest.Body(402, "application/json", `{"error":"Insufficient balance"}`), llm.KindQuota, 402, "Insufficient balance", 0},
		{"list body", llmtest.Body(500, "application/json", `[{"error":{}}]`), llm.KindServer, 500, "Internal Server Error", 0},
		{"page", llmtest.Body(502, "text/html", "<html><title>Bad Gateway</title>"+strings.Repeat("<p>x</p>", 1e5)), llm.KindServer, 502, "Bad Gateway", 0},
		{"401", llmtest.Status(401, "no"), llm.KindAuth, 401, "no", 0},
		{"429", llmtest.Status(429, "slow").RetryAfter(3 * time.Second), llm.KindRateLimit, 429, "slow", 0},
		{"quota", llmtest.Status(429, "quota").Code("insufficient_quota"), llm.KindQuota, 429, "quota", 0},
		{"overflow", llmtest.Overflow(4096, 5000), llm.KindContextLength, 400, "4096", 0},
		{"redirect", llmtest.Body(301, "", "").Header("Location", "https://u:p@other/v1?key=secretsecret"), llm.KindBadRequest, 301, "https://u:xxxxx@other/v1:", 0},
		{"wrong path", llmtest.Body(404, "text/html", "<html>nothing here</html>"), llm.KindBadRequest, 404, "nothing here: is base_url", 0},
		{"cut", llmtest.Text("one two").Pieces(3).CutAfter(2), llm.KindBrokenStream, 200, "before the answer was complete", 1},
		{"cut before anything", llmtest.Text("one").CutAfter(0), llm.KindBrokenStream, 200, "", 1},
		{"cut within a call", llmtest.Call("f", `{"a":"long long long long long long"}`).CutAfter(3), llm.KindBrokenStream, 200, "", 1},
		{"half a call and [DONE]", llmtest.Call("f", `{"a":"lo`).Finish(""), llm.KindBrokenStream, 200, "within a tool call", 0},
		{"reset", llmtest.Text("one two").Pieces(3).Reset(2), llm.KindBrokenStream, 200, "broke off", 1},
		{"no choices", llmtest.NoChoices(), llm.KindNoChoices, 200, "", 0},
		{"no choices, as JSON", llmtest.NoChoices().AsJSON(), llm.KindNoChoices, 200, "", 1},
		{"error in the stream", llmtest.Text("one two").Pieces(3).Insert(2, "data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\n"), llm.KindServer, 500, "engine died", 1},
		{"error event", llmtest.Text("one two").Pieces(3).Insert(2, "event: error\ndata: {\"message\":\"slow down\",\"code\":429}\n\n"), llm.KindRateLimit, 429, "slow down", 1},
		{"error beside choices", llmtest.Stream("data: {\"error\":{\"message\":\"m\",\"code\":502},\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n"), llm.KindServer, 502, "m", 1},
		{"finish reason error", llmtest.Text("x").Finish("error"), llm.KindServer, 200, "broke the answer off", 0},
		{"200 with an error", llmtest.Body(200, "application/json", `{"error":{"message":"quota","code":"insufficient_quota"}}`), llm.KindQuota, 200, "quota", 1},
		{"200 with code and message", llmtest.Body(200, "application/json", `{"code":503,"message":"busy","data":null}`), llm.KindServer, 503, "busy", 1},
		{"200 with a page", llmtest.Body(200, "text/html", "<html><title>Log in</title></html>"), llm.KindServer, 200, "Log in", 1},
		{"200 with a list", llmtest.Body(200, "application/json", `[]`), llm.KindServer, 200, "the answer is no chat completion: []", 1},
		{"200 with a list of something", llmtest.Body(200, "application/json", `[{"x":1}]`), llm.KindServer, 200, `the answer is no chat completion: [{"x":1}]`, 1},
		{"200 with a list of errors", llmtest.Body(200, "application/json", `[{"error":{"message":"m"}}]`), llm.KindServer, 200, "m", 1},
		{"200 with an empty object", llmtest.Body(200, "application/json", `{}`), llm.KindNoChoices, 200, "the answer has no choices: {}", 1},
		{"200 with another object", llmtest.Body(200, "application/json", `{"models":["a"]}`), llm.KindNoChoices, 200, `the answer has no choices: {"models":["a"]}`, 1},
		{"200 with choices of another kind", llmtest.Body(200, "application/json", `{"choices":"x"}`), llm.KindServer, 200, `the answer is no chat completion: {"choices":"x"}`, 1},
		{"200 with null", llmtest.Body(200, "application/json", `null`), llm.KindServer, 200, "the answer is no chat completion: null", 1},
		{"200 with text", llmtest.Body(200, "text/plain", "It works!\nReally.\n"), llm.KindServer, 200, "the answer is no chat completion: It works!", 1},
		{"200 with a stream of something", llmtest.Stream(": hi\nid: 7\nretry: 10\n\n"), llm.KindBrokenStream, 200, "before the answer was complete", 1},
		{"200 with junk", llmtest.Stream("data: junk\n\n"), llm.KindBrokenStream, 200, "not JSON", 1},
		{"200 with nothing", llmtest.Body(200, "", ""), llm.KindBrokenStream, 200, "", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, _, _, err := ask(t, tc.reply, offered, nil)
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatalf("no *llm.Error: %v", err)
			}
			if e.Kind != tc.kind || e.Status != tc.status || !strings.Contains(e.Message, tc.message) || e.LLM != "test" {
				t.Errorf("got %+v", e)
			}
			if len(e.Message) > maxMessage+200 || e.Message == "" {
				t.Errorf("a message of %d bytes", len(e.Message))
			}
			if s := resp.Spent; s.Requests != 1 || s.Unreported != tc.unknown {
				t.Errorf("spent %+v", s)
			}
			switch tc.name {
			case "429":
				if e.RetryAfter != 3*time.Second {
					t.Errorf("retry after %v", e.RetryAfter)
				}
			case "overflow":
				if e.Window != 4096 {
					t.Errorf("window %d", e.Window)
				}
			}
		})
	}
}

// An answer without an end is cut off, in whichever part of it the model goes on.
func TestAnswersWithoutAnEnd(t *testing.T) {
	const piece, maxAnswer = 1 << 10, 256 << 10
	long := strings.Repeat("all work and no play ", maxAnswer/20)
	args := `{"text":"` + long + `"}`
	short := long[:maxAnswer*7/8]
	for name, tc := range map[string]struct {
		reply llmtest.Reply
		whole bool
	}{
		"text":             {llmtest.Text(long).Pieces(piece), false},
		"text, as JSON":    {llmtest.Text(long).AsJSON(), false},
		"twice as much":    {llmtest.Text(long + long).AsJSON(), false},
		"one event":        {llmtest.Text(long + long).Pieces(len(long) * 2), false},
		"arguments":        {llmtest.Call("f", args).Pieces(piece), false},
		"many calls":       {calls(maxAnswer / callSize), false},
		"reasoning":        {llmtest.Thinking(long).Text("x").Pieces(piece), false},
		"another field":    {llmtest.Text("x").Field("secret", strconv.Quote(long)).Pieces(piece), false},
		"a long text":      {llmtest.Text(short).Pieces(piece), true},
		"a long text, all": {llmtest.Text(short).AsJSON(), true},
		"long arguments":   {llmtest.Call("f", `{"text":"`+short+`"}`).Pieces(piece), true},
	} {
		t.Run(name, func(t *testing.T) {
			resp, _, _, err := ask(t, tc.reply, offered, func(c *Config) { c.MaxAnswer = maxAnswer })
			if tc.whole {
				if err != nil || len(resp.Message.Content) < len(short) && len(resp.Message.ToolCalls[0].Arguments) < len(short) {
					t.Errorf("%v, %d bytes of text", err, len(resp.Message.Content))
				}
				return
			}
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.KindTooLong || !strings.Contains(e.Message, "cut off at 0.25 MB") {
				t.Errorf("%.300v", err)
			}
			if resp.Message.Content != "" || len(resp.Message.ToolCalls) > 0 || resp.Spent.Requests != 1 {
				t.Errorf("%d bytes of text, %d calls, spent %+v", len(resp.Message.Content), len(resp.Message.ToolCalls), resp.Spent)
			}
		})
	}
}

func calls(n int) llmtest.Reply {
	list := strings.Repeat(`{"type":"function","function":{"name":"f","arguments":"{}"}},`, n)
	return llmtest.Body(200, "application/json", `{"choices":[{"message":{"tool_calls":[`+strings.TrimSuffix(list, ",")+`]},"finish_reason":"tool_calls"}]}`)
}

func TestIdleTimeout(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reply llmtest.Reply
		want  string
	}{
		{"after a chunk", llmtest.Text("one two").Pieces(3).StallAfter(2), "nothing came for 50ms"},
		{"before a chunk", llmtest.Text("one").StallAfter(0), "nothing came for 50ms"},
		{"before the header", llmtest.Text("one").After(time.Minute), "nothing came for 50ms"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, _, _, err := ask(t, tc.reply, hello, func(c *Config) { c.IdleTimeout = 50 * time.Millisecond })
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.KindIdle || e.Message != tc.want || resp.Spent.Unreported != 1 {
				t.Errorf("%v, spent %+v", err, resp.Spent)
			}
		})
	}
	t.Run("silent after the finish reason", func(t *testing.T) {
		reply := llmtest.Text("x").Insert(9, "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n").StallAfter(9)
		resp, _, _, err := ask(t, reply, hello, func(c *Config) { c.IdleTimeout = 50 * time.Millisecond })
		if err != nil || resp.Message.Content != "x" {
			t.Errorf("%+v, %v", resp, err)
		}
	})
}

// stream is a connection in fake time: a keep-alive line, or where content says
// so a chunk, at every step until it has given n of them, then the end of the
// answer. It stays open after that.
type stream struct {
	step    time.Duration
	n       int
	content bool
	ctx     context.Context
	line    string
}

func (s *stream) Read(p []byte) (int, error) {
	if s.line == "" {
		select {
		case <-time.After(s.step):
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
		switch {
		case s.n == 0:
			s.line = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
		case s.content:
			s.line = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
		default:
			s.line = ": PROCESSING\n\n"
		}
		s.n--
	}
	n := copy(p, s.line)
	s.line = s.line[n:]
	return n, nil
}

func (s *stream) Close() error { return nil }

// RoundTrip implements http.RoundTripper.
func (s *stream) RoundTrip(r *http.Request) (*http.Response, error) {
	s.ctx = r.Context()
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: s, Request: r}, nil
}

func TestKeepAliveAndIdleTimeout(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stream stream
		want   string // the error, "" for an answer
		took   time.Duration
	}{
		{"slow but alive", stream{step: 50 * time.Second, n: 100, content: true}, "", 101*50*time.Second + drainTimeout},
		{"keep-alive, then an answer", stream{step: 50 * time.Second, n: 11}, "", 600*time.Second + drainTimeout},
		{"only keep-alive", stream{step: 50 * time.Second, n: 1000}, "nothing but keep-alive lines came for 10m0s", 650 * time.Second},
		{"too slow", stream{step: 61 * time.Second, content: true, n: 3}, "nothing came for 1m0s", time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{BaseURL: "http://x/v1", Model: "m", IdleTimeout: time.Minute, Transport: &tc.stream})
				start := time.Now()
				_, err := c.Complete(t.Context(), hello, nil)
				var e *llm.Error
				if errors.As(err, &e); (err == nil) != (tc.want == "") || e != nil && (e.Kind != llm.KindIdle || e.Message != tc.want) {
					t.Errorf("%v", err)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Always(llmtest.Text("one two").Pieces(3).StallAfter(2)))
	c := client(t, s, nil)
	cause := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	var cancelled time.Time
	resp, err := c.Complete(ctx, hello, func(d llm.Delta) {
		if d.Text == "one" {
			cancelled = time.Now()
			cancel(cause)
		}
	})
	if !errors.Is(err, context.Canceled) || resp.Spent.Requests != 1 || resp.Spent.Unreported != 1 {
		t.Errorf("%v, spent %+v", err, resp.Spent)
	}
	if d := time.Since(cancelled); d > 2*time.Second {
		t.Errorf("ended %v after the cancel", d)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Nanosecond)
	defer stop()
	if _, err := c.Complete(ctx, hello, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
}

func TestNoConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, tc := range []struct {
		name, base string
		kind       llm.ErrorKind
		message    string
	}{
		{"nobody listens", "http://" + addr + "/v1", llm.KindNetwork, "is the server at http://" + addr + "/v1 running?"},
		{"certificate", tls.URL + "/v1", llm.KindBadRequest, "is not trusted"},
		{"http behind https", strings.Replace(plain.URL, "http:", "https:", 1), llm.KindBadRequest, "begin with http://"},
		{"no scheme", "localhost:11434/v1", llm.KindBadRequest, "base_url must look like"},
		{"no URL", "http://[::1", llm.KindBadRequest, "base_url must look like"},
		{"empty", "", llm.KindBadRequest, "base_url must look like"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, err := New(Config{Name: "x", BaseURL: tc.base, Model: "m"}).Complete(t.Context(), hello, nil)
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tc.kind || !strings.Contains(e.Message, tc.message) {
				t.Errorf("%v", err)
			}
			if resp.Spent.Unreported != 0 && tc.kind == llm.KindNetwork {
				t.Errorf("spent %+v", resp.Spent)
			}
		})
	}
}

func TestKeysStayOut(t *testing.T) {
	const key, token = "sk-0123456789abcdef", "tok-0123456789abcdef"
	s := llmtest.NewServer(t, llmtest.Always(llmtest.Status(401, "Incorrect API key provided: "+key+" with "+token)), llmtest.Lenient())
	c := client(t, s, func(c *Config) {
		c.Key = func() string { return key + "\n" }
		c.Headers = map[string]string{"X-Token": "Bearer " + token}
	})
	_, err := c.Complete(t.Context(), hello, nil)
	if err == nil || strings.Contains(err.Error(), key) || strings.Contains(err.Error(), token) {
		t.Errorf("%v", err)
	}
	h := s.Requests()[0].Header
	if h.Get("Authorization") != "Bearer "+key || h.Get("X-Token") != "Bearer "+token {
		t.Errorf("header %v", h)
	}
}

func TestUsageAndCost(t *testing.T) {
	price := func(c *Config) { c.Price = &llm.Price{Input: 2, Cached: 0.5, Output: 10} }
	for _, tc := range []struct {
		name   string
		reply  llmtest.Reply
		change func(*Config)
		want   llm.Usage
		ctx    int
	}{
		{"priced", llmtest.Text("x").Usage(1000, 100, 400), price,
			llm.Usage{Requests: 1, InputTokens: 1000, OutputTokens: 100, CachedTokens: 400, CostUSD: 0.0024}, 1100},
		{"unpriced", llmtest.Text("x").Usage(1000, 100, 0), nil, llm.Usage{Requests: 1, InputTokens: 1000, OutputTokens: 100, Unpriced: 1}, 1100},
		{"negative", llmtest.Text("x").Usage(-1000, 100, 0), price, llm.Usage{Requests: 1, Unpriced: 1, Unreported: 1}, 0},
		{"negative answer", llmtest.Text("x").Usage(1000, -100, 0), price, llm.Usage{Requests: 1, Unpriced: 1, Unreported: 1}, 0},
		{"beyond belief", llmtest.Text("x").Usage(math.MaxInt64, 100, 0), price, llm.Usage{Requests: 1, Unpriced: 1, Unreported: 1}, 0},
		{"unreported", llmtest.Text("x").NoUsage(), price, llm.Usage{Requests: 1, Unpriced: 1, Unreported: 1}, 0},
		{"DeepSeek", llmtest.Stream("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":1,\"prompt_cache_hit_tokens\":8}}\n\ndata: [DONE]\n\n"), nil,
			llm.Usage{Requests: 1, InputTokens: 10, OutputTokens: 1, CachedTokens: 8, Unpriced: 1}, 11},
		{"Kimi", llmtest.Stream("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":1,\"cached_tokens\":3}}]}\n\ndata: [DONE]\n\n"), nil,
			llm.Usage{Requests: 1, InputTokens: 10, OutputTokens: 1, CachedTokens: 3, Unpriced: 1}, 11},
		{"as JSON", llmtest.Text("x").Usage(10, 1, 0).AsJSON(), nil, llm.Usage{Requests: 1, InputTokens: 10, OutputTokens: 1, Unpriced: 1}, 11},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, _, _, err := ask(t, tc.reply, hello, tc.change)
			got := resp.Spent
			if math.Abs(got.CostUSD-tc.want.CostUSD) < 1e-12 {
				got.CostUSD = tc.want.CostUSD
			}
			if err != nil || got != tc.want || resp.Context != tc.ctx {
				t.Errorf("%+v, context %d, %v", resp.Spent, resp.Context, err)
			}
		})
	}
}

func TestUnopenedIsLearned(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Queue(
		llmtest.Text("hm\n</think>\n\nx").Pieces(3), llmtest.Text("hm hm\n</think>\n\ny"), llmtest.Text("plain"), llmtest.Text("z")))
	c := client(t, s, nil)
	for i, want := range []string{"hm\nx", "y", "plain", "z"} {
		var shown strings.Builder
		if _, err := c.Complete(t.Context(), hello, func(d llm.Delta) { shown.WriteString(d.Text) }); err != nil || shown.String() != want {
			t.Errorf("answer %d: shown %q, want %q, %v", i, shown.String(), want, err)
		}
	}
	if c.unopened.Load() {
		t.Error("still expects reasoning without a tag")
	}
}

func TestConnectionsAreReused(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Always(llmtest.Text("x")))
	var dialed int
	c := client(t, s, func(c *Config) {
		tr := c.Transport.(*http.Transport)
		dial := tr.DialContext
		tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed++
			return dial(ctx, network, addr)
		}
	})
	for range 5 {
		if _, err := c.Complete(t.Context(), hello, nil); err != nil {
			t.Fatal(err)
		}
	}
	if dialed != 1 {
		t.Errorf("%d connections for 5 requests in a row", dialed)
	}
}

func TestDiscover(t *testing.T) {
	models := []llmtest.Model{
		{ID: "other", Fields: map[string]any{"context_length": 1}},
		{ID: "M", Fields: map[string]any{"max_model_len": 32768}},
		{ID: "groq", Fields: map[string]any{"context_window": 131072}},
		{ID: "llama", Fields: map[string]any{"meta": map[string]any{"n_ctx": 8192}}},
		{ID: "ollama"},
	}
	for model, want := range map[string]int{"m": 32768, "groq": 131072, "llama": 8192, "ollama": 0, "missing": 0} {
		s := llmtest.NewServer(t, nil, llmtest.Models(models...))
		got, err := client(t, s, func(c *Config) { c.Model = model }).Discover(t.Context())
		if err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", model, got, err, want)
		}
	}
	s := llmtest.NewServer(t, nil, llmtest.Models(llmtest.Model{ID: "/path/file.gguf", Fields: map[string]any{"context_length": 4096}}))
	if got, err := client(t, s, nil).Discover(t.Context()); err != nil || got != 4096 {
		t.Errorf("the only model: %d, %v", got, err)
	}
	s = llmtest.NewServer(t, nil, llmtest.Key("k"))
	var e *llm.Error
	if _, err := client(t, s, nil).Discover(t.Context()); !errors.As(err, &e) || e.Kind != llm.KindAuth {
		t.Errorf("without a key: %v", err)
	}
}
