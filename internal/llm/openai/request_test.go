package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
)

// sent returns the request that a client makes.
func sent(t *testing.T, req llm.Request, change func(*Config)) *llmtest.Request {
	t.Helper()
	s := llmtest.NewServer(t, llmtest.Always(llmtest.Text("x")))
	if _, err := client(t, s, change).Complete(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	return s.Requests()[0]
}

func TestRequestFields(t *testing.T) {
	limited := offered
	limited.MaxTokens = 100
	limited.ToolChoice = "required"
	zero := 0.0
	for _, tc := range []struct {
		name   string
		req    llm.Request
		change func(*Config)
		want   string // all fields but messages
	}{
		{"plain", hello, nil, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{"tools", limited, nil, `{"max_tokens":100,"model":"m","stream":true,"stream_options":{"include_usage":true},"tool_choice":"required",` +
			`"tools":[{"type":"function","function":{"name":"f","description":"<f>","parameters":{"type":"object","properties":{}}}},` +
			`{"type":"function","function":{"name":"g","description":"","parameters":{"type":"object","properties":{}}}}]}`},
		{"choice without tools", llm.Request{Messages: hello.Messages, ToolChoice: "none"}, nil, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{"o-series", llm.Request{Messages: hello.Messages, MaxTokens: 5}, func(c *Config) { c.Model = "openai/o4-mini" },
			`{"max_completion_tokens":5,"model":"openai/o4-mini","stream":true,"stream_options":{"include_usage":true}}`},
		{"GPT-5 told otherwise", llm.Request{Messages: hello.Messages, MaxTokens: 5}, func(c *Config) { c.Model, c.MaxTokensField = "gpt-5-mini", "max_tokens" },
			`{"max_tokens":5,"model":"gpt-5-mini","stream":true,"stream_options":{"include_usage":true}}`},
		{"temperature 0", hello, func(c *Config) { c.Model, c.Temperature = "gpt-5", &zero },
			`{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"temperature":0}`},
		{"extra", hello, func(c *Config) {
			c.Extra = map[string]any{"reasoning_effort": "low", "chat_template_kwargs": map[string]any{"enable_thinking": false}, "stream_options": nil}
		}, `{"chat_template_kwargs":{"enable_thinking":false},"model":"m","reasoning_effort":"low","stream":true}`},
		{"not streamed", hello, func(c *Config) { c.Extra = map[string]any{"stream": false} }, `{"model":"m","stream":false}`},
		{"a model that go-openai distrusts", hello, func(c *Config) { c.Model = "gpt-4o"; c.Extra = map[string]any{"model": "davinci"} },
			`{"model":"davinci","stream":true,"stream_options":{"include_usage":true}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := sent(t, tc.req, tc.change)
			delete(r.Fields, "messages")
			var want map[string]json.RawMessage
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r.Fields, want) {
				got, _ := json.Marshal(r.Fields)
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestWireMessages(t *testing.T) {
	req := llm.Request{Messages: []llm.Message{
		{Role: llm.System, Content: "s"},
		{Role: llm.User, Content: "a <b> & \xff"},
		{Role: llm.Assistant, ToolCalls: []llm.ToolCall{
			{ID: "1", Name: "read file", Arguments: ``},
			{ID: "2", Name: "", Arguments: `{"a":`},
			{ID: "3", Name: "f", Arguments: `[1]`},
			{ID: "4", Name: "f", Arguments: `{"a": "<"}`, Extra: map[string]llm.RawJSON{"sig": llm.RawJSON(`"s"`)}},
		}},
		{Role: llm.ToolRole, ToolCallID: "1", Content: "r"}, {Role: llm.ToolRole, ToolCallID: "2", Content: "r"},
		{Role: llm.ToolRole, ToolCallID: "3", Content: "r"}, {Role: llm.ToolRole, ToolCallID: "4", Content: ""},
	}}
	before, _ := json.Marshal(req.Messages)
	r := sent(t, req, nil)
	call := func(id, name, args string) string {
		return fmt.Sprintf(`{"id":"%s","type":"function","function":{"name":"%s","arguments":%q}`, id, name, args)
	}
	for i, want := range map[int]string{
		1: "{\"role\":\"user\",\"content\":\"a <b> & \uFFFD\"}",
		2: `{"role":"assistant","content":null,"tool_calls":[` + call("1", "read_file", `{}`) + `},` + call("2", "unnamed", `{"invalid_arguments":"{\"a\":"}`) + `},` +
			call("3", "f", `{"invalid_arguments":"[1]"}`) + `},` + call("4", "f", `{"a": "<"}`) + `,"sig":"s"}]}`,
		6: `{"role":"tool","content":"","tool_call_id":"4"}`,
	} {
		if string(r.Raw[i]) != want {
			t.Errorf("message %d: %s\nwant %s", i, r.Raw[i], want)
		}
	}
	if after, _ := json.Marshal(req.Messages); string(after) != string(before) {
		t.Error("the caller's messages were changed")
	}
}

// The second turn is refused with or without the reasoning of the first, as the
// model wants it.
func TestReasoningGoesBack(t *testing.T) {
	for _, tc := range []struct {
		model, mode string
		reply       llmtest.Reply
		want        string // the answer's further fields in the next request
	}{
		{"deepseek-chat", "", llmtest.Thinking("hm"), `{"reasoning_content":"hm"}`},
		{"deepseek-v4-pro", "", llmtest.Reply{}, `{"reasoning_content":" "}`},
		{"deepseek/deepseek-v3.2", "", llmtest.Reply{}.ReasoningIn("reasoning", "hm"), `{"reasoning_content":"hm"}`},
		{"deepseek-r1", "", llmtest.Thinking("hm"), `{}`},
		{"deepseek-r1", "always", llmtest.Thinking("hm"), `{"reasoning_content":"hm"}`},
		{"kimi-k2-thinking", "", llmtest.Reply{}, `{"reasoning_content":" "}`},
		{"kimi-k2-0905-preview", "", llmtest.Thinking("hm"), `{}`},
		{"glm-4.6", "", llmtest.Thinking("hm"), `{"reasoning_content":"hm"}`},
		{"glm-4.6", "", llmtest.Reply{}, `{}`},
		{"glm-4.6", "never", llmtest.Thinking("hm").Field("sig", `"s"`), `{"sig":"s"}`},
		{"other", "", llmtest.Thinking("hm").Field("sig", `"s"`), `{"sig":"s"}`},
		{"other", "always", llmtest.Thinking("hm"), `{"reasoning_content":"hm"}`},
		{"MiniMax-M2", "", llmtest.Text("<think>hm</think>\n"), `{"content":"<think>hm</think>"}`},
		{"other", "", llmtest.Text("<think>hm</think>\n"), `{}`},
	} {
		t.Run(tc.model+" "+tc.mode, func(t *testing.T) {
			s := llmtest.NewServer(t, llmtest.ByTurn(tc.reply.Call("f", `{}`), llmtest.Done("x")))
			c := client(t, s, func(c *Config) { c.Model, c.ReasoningEcho = tc.model, tc.mode })
			resp, err := c.Complete(t.Context(), offered, nil)
			if err != nil {
				t.Fatal(err)
			}
			// Over the disk and back.
			stored, err := json.Marshal(resp.Message)
			if err != nil {
				t.Fatal(err)
			}
			var m llm.Message
			if err := json.Unmarshal(stored, &m); err != nil {
				t.Fatal(err)
			}
			next := offered
			next.Messages = append(next.Messages[:2:2], m, llm.Message{Role: llm.ToolRole, ToolCallID: m.ToolCalls[0].ID, Content: "r"})
			if _, err := c.Complete(t.Context(), next, nil); err != nil {
				t.Fatal(err)
			}
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(s.Requests()[1].Raw[2], &fields); err != nil {
				t.Fatal(err)
			}
			delete(fields, "role")
			delete(fields, "tool_calls")
			if string(fields["content"]) == "null" {
				delete(fields, "content")
			}
			if got, _ := json.Marshal(fields); strings.ReplaceAll(strings.ReplaceAll(string(got), `\u003c`, "<"), `\u003e`, ">") != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if err := llmtest.CheckPrefixes(s.Requests()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEchoFor(t *testing.T) {
	for _, tc := range []struct {
		mode, base, model string
		want              echo
		strict            bool
	}{
		{"", "https://api.openai.com/v1", "gpt-5", echoDrop, true},
		{"auto", "https://api.groq.com/openai/v1", "deepseek-r1-distill-llama-70b", echoDrop, true},
		{"auto", "https://api.mistral.ai/v1", "magistral", echoDrop, true},
		{"auto", "https://api.deepseek.com", "deepseek-reasoner", echoFill, false},
		{"auto", "https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5", echoKeep, false},
		{"auto", "https://openrouter.ai/api/v1", "deepseek/deepseek-r1", echoDrop, false},
		{"never", "https://api.deepseek.com", "deepseek-reasoner", echoDrop, false},
		{"always", "https://api.groq.com/openai/v1", "openai/gpt-oss-120b", echoKeep, false},
		{"auto", "http://localhost:11434/v1", "qwen3:8b", echoKeep, false},
		{"auto", "http://localhost:11434/v1", "qwen3-coder:30b", echoDrop, false},
		{"auto", "://", "llama", echoDrop, false},
	} {
		if got, strict := echoFor(tc.mode, tc.base, tc.model); got != tc.want || strict != tc.strict {
			t.Errorf("%+v: %v, %v", tc, got, strict)
		}
	}
	c := New(Config{BaseURL: "https://api.mistral.ai/v1", Transport: http.DefaultTransport})
	got := c.wire(llm.Message{Role: llm.Assistant, Content: "x", Extra: map[string]llm.RawJSON{"sig": llm.RawJSON(`1`)},
		ToolCalls: []llm.ToolCall{{ID: "a", Name: "f", Arguments: "{}", Extra: map[string]llm.RawJSON{"sig": llm.RawJSON(`1`)}}}})
	if len(got.Extra) != 0 || got.ToolCalls[0].Extra != nil || c.streamOptions() {
		t.Errorf("a strict host gets %+v", got)
	}
}

func TestBaseURL(t *testing.T) {
	s := llmtest.NewServer(t, llmtest.Always(llmtest.Text("x")))
	for _, end := range []string{"", "/", "/chat/completions", "/chat/completions/"} {
		c := New(Config{BaseURL: " " + s.URL + end, Model: "m"})
		if _, err := c.Complete(t.Context(), hello, nil); err != nil {
			t.Errorf("%q: %v", end, err)
		}
	}
}

// conversation is a long one: turns of a call, its result of 2 KB, and text.
func conversation(turns int) []llm.Message {
	msgs := []llm.Message{{Role: llm.System, Content: strings.Repeat("You are an agent. ", 200)}, {Role: llm.User, Content: "do it"}}
	for i := range turns {
		id := fmt.Sprintf("call_%d", i)
		msgs = append(msgs,
			llm.Message{Role: llm.Assistant, Content: "Next I read a file.", ToolCalls: []llm.ToolCall{{ID: id, Name: "read_file", Arguments: `{"path":"src/main.go"}`}},
				Extra: map[string]llm.RawJSON{"reasoning_content": llm.RawJSON(`"Let me \"see\".\n"`)}},
			llm.Message{Role: llm.ToolRole, ToolCallID: id, Content: strings.Repeat("\tif err != nil {\n\t\treturn \"x\", err\n\t}\n", 50)})
	}
	return msgs
}

// BenchmarkBody builds a request of a conversation that is new, and of one that grew
// by a turn since the last.
func BenchmarkBody(b *testing.B) {
	base := []byte(`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`)
	c := New(Config{BaseURL: "http://x/v1", Model: "glm-4.6", Transport: http.DefaultTransport})
	build := func(b *testing.B, req llm.Request) {
		body, err := c.body(base, req)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(body.size())
	}
	for _, turns := range []int{20, 500} {
		msgs := conversation(turns)
		b.Run(fmt.Sprintf("new/%d turns", turns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				build(b, llm.Request{Messages: msgs, Tools: offered.Tools})
			}
		})
		b.Run(fmt.Sprintf("grown/%d turns", turns), func(b *testing.B) {
			b.ReportAllocs()
			var sent llm.Sent
			build(b, llm.Request{Messages: msgs, Tools: offered.Tools, Sent: &sent})
			for i := 0; b.Loop(); i++ {
				build(b, llm.Request{Messages: msgs[:len(msgs)-2*(i%2)], Tools: offered.Tools, Sent: &sent})
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	s, err := llmtest.Start(llmtest.Always(llmtest.Stream(streamOf(1000))), llmtest.Forget())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := New(Config{BaseURL: s.URL, Model: "m"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Complete(b.Context(), hello, func(llm.Delta) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/chunk")
}

// BenchmarkRequest is the whole of a short request over loopback.
func BenchmarkRequest(b *testing.B) {
	s, err := llmtest.Start(llmtest.Always(llmtest.Text("done")), llmtest.Forget())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := New(Config{BaseURL: s.URL, Model: "m"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Complete(b.Context(), hello, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func streamOf(chunks int) string {
	var s strings.Builder
	for range chunks {
		s.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":"some text "},"finish_reason":null}]}` + "\n\n")
	}
	s.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	return s.String()
}
