package llmtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

func post(t *testing.T, ctx context.Context, s *Server, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return http.DefaultClient.Do(r)
}

// ask returns status and body.
func ask(t *testing.T, s *Server, body string) (int, string) {
	t.Helper()
	resp, err := post(t, t.Context(), s, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func conversation(messages string) string {
	return `{"model":"m","messages":[` + messages + `]}`
}

func TestStrict(t *testing.T) {
	s := NewServer(t, Always(Text("ok")))
	const (
		user   = `{"role":"user","content":"hi"}`
		call   = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		result = `{"role":"tool","tool_call_id":"a","content":"r"}`
	)
	for _, tc := range []struct{ name, messages, want string }{
		{"plain", user, ""},
		{"call and result", user + `,` + call + `,` + result, ""},
		{"supervisor after result", user + `,` + call + `,` + result + `,` + user, ""},
		{"pair of surrogates", `{"role":"user","content":"\ud83d\ude00 \\ud800"}`, ""},
		{"none", ``, "empty array"},
		{"orphan", user + `,` + result, "messages.[1]"},
		{"result twice", user + `,` + call + `,` + result + `,` + result, "messages.[3]"},
		{"unanswered", user + `,` + call + `,` + user, "did not have response messages: a"},
		{"unanswered at the end", user + `,` + call, "did not have response messages: a"},
		{"repeated id", user + `,` + call + `,` + result + `,` + call + `,` + result, "duplicate"},
		{"empty user", `{"role":"user","content":" \n"}`, "messages.[0].content"},
		{"empty assistant", user + `,{"role":"assistant","content":""},` + user, "messages.[1].content"},
		{"empty calls", user + `,{"role":"assistant","content":"","tool_calls":[]},` + user, "messages.[1]"},
		{"two answers", user + `,{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},` + user, "messages.[2].role"},
		{"assistant first", `{"role":"assistant","content":"a"},` + user, "messages.[0].role"},
		{"assistant last", user + `,{"role":"assistant","content":"a"}`, "messages.[1].role"},
		{"system late", user + `,{"role":"system","content":"a"},` + user, "messages.[1].role"},
		{"role", `{"role":"human","content":"a"}`, "messages.[0].role"},
		{"lone surrogate", user + `,{"role":"user","content":"\ud83d x"}`, "messages.[1]"},
		{"lone low surrogate", `{"role":"user","content":"\udc00"}`, "messages.[0]"},
		{"not UTF-8", "{\"role\":\"user\",\"content\":\"\xff\"}", "not UTF-8"},
		{"arguments", user + `,` + strings.Replace(call, `"{}"`, `"{"`, 1) + `,` + result, "arguments"},
		{"tool name", user + `,` + strings.Replace(call, `"f"`, `""`, 1) + `,` + result, "function.name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, body := ask(t, s, conversation(tc.messages))
			if tc.want == "" && status != 200 || tc.want != "" && status != 400 || !strings.Contains(body, tc.want) {
				t.Errorf("status %d, body %s; want %q in it", status, body, tc.want)
			}
			if status == 400 {
				var e struct {
					Error struct{ Message, Type string }
				}
				if json.Unmarshal([]byte(body), &e) != nil || e.Error.Message == "" || e.Error.Type != "invalid_request_error" {
					t.Errorf("not OpenAI's error form: %s", body)
				}
			}
		})
	}
	if n := len(s.Refusals()); n != 19 {
		t.Errorf("%d refusals recorded", n)
	}
}

func TestStreamed(t *testing.T) {
	stream := strings.Replace(conversation(`{"role":"user","content":"hi"}`), `{`, `{"stream":true,"stream_options":{"include_usage":true},`, 1)
	for _, tc := range []struct {
		name  string
		reply Reply
		want  []string
		not   []string
	}{
		{"text", Text("grüße an alle").Pieces(5), []string{`"content":"grüße"`, `"finish_reason":"stop"`, `"prompt_tokens"`, "[DONE]"}, nil},
		{"calls", Call("f", `{"a":1}`).Call("g", `{}`), []string{`"index":1`, `"id":"call_2_1"`, `"finish_reason":"tool_calls"`}, nil},
		{"no index", Call("f", `{"a":1}`).NoIndex(), []string{`"id":"call_3_0","type"`, `"id":"call_3_0","function"`}, []string{`"tool_calls":[{"index"`}},
		{"cut", Text("one two").Pieces(3).Cut(), []string{`"content":"o"`}, []string{"[DONE]", `"finish_reason":"`}},
		{"cut after", Text("one two").Pieces(3).CutAfter(2), []string{`"one"`}, []string{`"content":"o"`}},
		{"no choices", NoChoices(), []string{`"choices":[]`, "[DONE]"}, []string{"delta"}},
		{"keep-alive", Text("x").KeepAlive(400, 0), []string{": PROCESSING\n\n"}, nil},
		{"insert", Text("x").Insert(1, "data: {}\n\n"), []string{"data: {}\n\n"}, nil},
		{"thinking", Thinking("hm").Text("x").Field("sig", `"s"`), []string{`"reasoning_content":"hm"`, `"sig":"s"`}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewServer(t, Queue(Text(""), tc.reply, tc.reply))
			_, _ = ask(t, s, stream)
			if tc.name == "no index" {
				_, _ = ask(t, s, stream)
			}
			_, body := ask(t, s, stream)
			for _, w := range tc.want {
				if !strings.Contains(body, w) {
					t.Errorf("no %q in %s", w, body)
				}
			}
			for _, w := range tc.not {
				if strings.Contains(body, w) {
					t.Errorf("%q in %s", w, body)
				}
			}
		})
	}
}

func TestStalledRepliesEnd(t *testing.T) {
	stream := strings.Replace(conversation(`{"role":"user","content":"hi"}`), `{`, `{"stream":true,`, 1)
	s := NewServer(t, Always(Text("one two").Pieces(3).StallAfter(2)))
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := post(t, ctx, s, stream)
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(resp.Body)
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"one"`) {
			break
		}
	}
	if now, _ := s.InFlight(); now != 1 {
		t.Fatalf("%d in flight while one stalls", now)
	}
	cancel()
	resp.Body.Close()
	waittest.Until(t, "the handler ends as its client has", func() bool { now, _ := s.InFlight(); return now == 0 })
	// One more, ended by Close.
	resp, err = post(t, t.Context(), s, stream)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stalled stream ended well on Close")
	}
	resp.Body.Close()
	if now, _ := s.InFlight(); now != 0 {
		t.Errorf("%d in flight after Close", now)
	}
}

func TestManyTasksAtOnce(t *testing.T) {
	s := NewServer(t, Route(
		Task("odd", Status(500, "x")),
		Otherwise(PerTask(func(first *Request) Script {
			return Queue(Text("first "+first.FirstUser()), Text("second"))
		}))))
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			for _, want := range []string{fmt.Sprintf("first task %d.", i), "second"} {
				if _, body := ask(t, s, conversation(fmt.Sprintf(`{"role":"user","content":"task %d."}`, i))); !strings.Contains(body, want) {
					t.Errorf("task %d: %s, want %q", i, body, want)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Wait(t.Context(), 400); err != nil {
		t.Error(err)
	}
	if status, body := ask(t, s, conversation(`{"role":"user","content":"task 7."}`)); status != 400 || !strings.Contains(body, "script_over") {
		t.Errorf("over: %d %s", status, body)
	}
	if byTask := ByTask(s.Requests()); len(byTask) != 200 || len(byTask["task 7."]) != 3 {
		t.Errorf("%d tasks, task 7 with %d requests", len(byTask), len(byTask["task 7."]))
	}
}

func TestMaxInFlight(t *testing.T) {
	gate := make(chan struct{})
	s := NewServer(t, Always(Text("x").When(gate)), MaxInFlight(1, time.Second))
	done := make(chan int, 1)
	go func() { status, _ := ask(t, s, conversation(`{"role":"user","content":"1"}`)); done <- status }()
	if err := s.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	resp, err := post(t, t.Context(), s, conversation(`{"role":"user","content":"2"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("second: %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	close(gate)
	if status := <-done; status != 200 {
		t.Errorf("first: %d", status)
	}
}

func TestKeyWindowModels(t *testing.T) {
	s := NewServer(t, Always(Text("x")), Key("secret"), Models(Model{ID: "big", Fields: map[string]any{"max_model_len": 99}}))
	if status, body := ask(t, s, conversation(`{"role":"user","content":"1"}`)); status != 401 {
		t.Errorf("no key: %d %s", status, body)
	}
	r, _ := http.NewRequest(http.MethodGet, s.URL+"/models", nil)
	r.Header.Set("Authorization", "Bearer secret")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !strings.Contains(string(b), `"max_model_len":99`) {
		t.Errorf("models: %s", b)
	}
	s = NewServer(t, Always(Text("x")), Window(100))
	if status, body := ask(t, s, conversation(`{"role":"user","content":"`+strings.Repeat("x", 500)+`"}`)); status != 400 || !strings.Contains(body, "context_length_exceeded") {
		t.Errorf("window: %d %s", status, body)
	}
}

func TestAnsweredComesAfterTheReply(t *testing.T) {
	gate := make(chan struct{})
	answered := make(chan int, 1)
	s := NewServer(t, Always(Text("x").When(gate)), Answered(func(r *Request) { answered <- r.Ordinal }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(t, s, conversation(`{"role":"user","content":"1"}`))
	}()
	if err := s.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if len(answered) > 0 {
		t.Error("answered before the reply")
	}
	close(gate)
	if n := <-answered; n != 1 {
		t.Errorf("answered request %d, want 1", n)
	}
	<-done
}

func TestCheckPrefixes(t *testing.T) {
	s := NewServer(t, Always(Text("x")))
	const a, b, c = `{"role":"user","content":"a"}`, `{"role":"assistant","content":"x"}`, `{"role":"user","content":"c"}`
	ask(t, s, conversation(a))
	ask(t, s, conversation(a))
	ask(t, s, conversation(a+","+b+","+c))
	if err := CheckPrefixes(s.Requests()); err != nil {
		t.Error(err)
	}
	ask(t, s, conversation(a+","+strings.Replace(b, "x", "y", 1)+","+c))
	if err := CheckPrefixes(s.Requests()); err == nil || !strings.Contains(err.Error(), "request 4 differ from request 3 at byte") {
		t.Errorf("changed answer: %v", err)
	}
}

func FuzzLoneSurrogate(f *testing.F) {
	f.Add("\\ud83d\\ude00")
	f.Add("\\\\ud83d")
	f.Add("\\ud83d\\\\ude00")
	f.Add("\\udc00\\u")
	f.Fuzz(func(t *testing.T, inner string) {
		doc := `"` + inner + `"`
		var s string
		if json.Unmarshal([]byte(doc), &s) != nil {
			return
		}
		// encoding/json turns each lone surrogate into U+FFFD, which can else only
		// come from the character itself, bad UTF-8 or its own escape.
		clean := !strings.ContainsRune(s, '\uFFFD')
		if lone := loneSurrogate([]byte(doc)) >= 0; lone && clean {
			t.Errorf("%q has no lone surrogate", doc)
		} else if !lone && !clean && !strings.Contains(inner, "\uFFFD") && !strings.Contains(strings.ToLower(inner), `\ufffd`) &&
			strings.ToValidUTF8(inner, "") == inner {
			t.Errorf("%q has a lone surrogate", doc)
		}
	})
}
