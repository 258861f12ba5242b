package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// collectStream reads an event stream as run does, without a connection.
func collectStream(in []byte, unopened bool, onDelta func(llm.Delta)) llm.Message {
	r := newEventReader(bytes.NewReader(in), func() {}, func([]byte) error { return errEvent })
	ans := &answer{onDelta: onDelta}
	ans.think.unopened = unopened
	var all bytes.Buffer
	_, _ = all.ReadFrom(r)
	for line := range bytes.SplitSeq(all.Bytes(), []byte("\n")) {
		data := bytes.TrimPrefix(line, []byte("data: "))
		var ch chunk
		if len(data) == 0 || json.Unmarshal(data, &ch) != nil {
			continue
		}
		if ans.add(&ch, data) != nil {
			break
		}
	}
	ans.wholeCalls()
	return ans.message(true)
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		streamOf(2),
		`data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}},{"function":{"arguments":{"x":1}}}]}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}},null,{"index":-1}],"function_call":{"name":"g"}}}]}`,
		`data: {"choices":[{"delta":{"reasoning_details":[{"index":0,"text":"a"},null,{"index":0,"text":"b"}],"reasoning":"<think>","content":"<think>a"}}],"usage":{"prompt_tokens":1}}`,
		`{"choices":[{"message":{"content":[{"type":"thinking","thinking":"x"},{"text":"y"}],"x":[],"y":"\ud800"},"finish_reason":7}]}`,
		`{"object":"error","message":"m"}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	c := New(Config{BaseURL: "http://x/v1", Model: "deepseek"})
	f.Fuzz(func(t *testing.T, in []byte, unopened bool) {
		var shown strings.Builder
		m := collectStream(in, unopened, func(d llm.Delta) { shown.WriteString(d.Text) })
		if !strings.HasSuffix(shown.String(), m.Content) {
			t.Errorf("text %q was not shown: %q", m.Content, shown.String())
		}
		ids := map[string]bool{}
		for _, call := range m.ToolCalls {
			if call.ID == "" || ids[call.ID] {
				t.Errorf("call id %q is empty or repeated", call.ID)
			}
			ids[call.ID] = true
		}
		b, err := m.AppendJSON(nil)
		if err != nil || !json.Valid(b) {
			t.Fatalf("the message cannot be stored: %s, %v", b, err)
		}
		// It can be sent, and after the disk it is sent in the same bytes.
		first, err := c.appendMessage(nil, m)
		if err != nil || !json.Valid(first) {
			t.Fatalf("the message cannot be sent: %s, %v", first, err)
		}
		var back llm.Message
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if again, err := c.appendMessage(nil, back); err != nil || !bytes.Equal(first, again) {
			t.Errorf("after the disk it is sent as\n%s\n%s, %v", first, again, err)
		}
	})
}

// go-openai refuses some names of models itself. That is no network failure,
// which would be retried.
func TestRefusedByLibrary(t *testing.T) {
	c := New(Config{BaseURL: "http://127.0.0.1:1/v1", Model: "text-davinci-003"})
	_, err := c.Complete(t.Context(), hello, nil)
	if e, ok := err.(*llm.Error); !ok || e.Kind != llm.KindBadRequest {
		t.Errorf("%v", err)
	}
}

// Reasoning that comes a word at a time costs no more for its length.
func BenchmarkReasoningDetails(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			piece := json.RawMessage(`{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"another word "}]}`)
			b.ReportAllocs()
			b.SetBytes(int64(n * len(piece)))
			for b.Loop() {
				a := &answer{}
				for range n {
					a.delta(piece, false)
				}
				if m := a.message(true); len(m.Extra[detailsField]) < n*len("another word ") {
					b.Fatalf("%d bytes", len(m.Extra[detailsField]))
				}
			}
		})
	}
}
