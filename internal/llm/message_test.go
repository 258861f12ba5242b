package llm

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestMessageJSON(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    Message
		want string
	}{
		{"text", Message{Role: User, Content: `<a & "b">` + "\n\x01\u2028"}, `{"role":"user","content":"<a & \"b\">\n\u0001\u2028"}`},
		{"empty", Message{Role: Assistant}, `{"role":"assistant","content":""}`},
		{"bad bytes", Message{Role: User, Content: "a\xffb"}, "{\"role\":\"user\",\"content\":\"a\uFFFDb\"}"},
		{"result", Message{Role: ToolRole, Content: "r", ToolCallID: "c"}, `{"role":"tool","content":"r","tool_call_id":"c"}`},
		{"calls and extra", Message{
			Role: Assistant,
			ToolCalls: []ToolCall{{ID: "c", Name: "f", Arguments: `{"a": "<"}`,
				Extra: map[string]RawJSON{"sig": RawJSON(`{ "x": "&" }`), "index": RawJSON(`3`)}}},
			Extra: map[string]RawJSON{"z": RawJSON(`1`), "a": nil, "role": RawJSON(`"user"`), "q\x00\"": RawJSON(`[]`)},
		}, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f",` +
			`"arguments":"{\"a\": \"<\"}"},"sig":{"x":"&"}}],"a":null,"q\u0000\"":[],"z":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := tc.m.MarshalJSON()
			if err != nil || string(b) != tc.want {
				t.Fatalf("got %s, %v\nwant %s", b, err, tc.want)
			}
			var back Message
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			again, err := back.AppendJSON([]byte("x"))
			if err != nil || string(again) != "x"+tc.want {
				t.Errorf("after a round trip: %s, %v", again, err)
			}
		})
	}
	if _, err := (Message{Extra: map[string]RawJSON{"x": RawJSON(`{`)}}).MarshalJSON(); err == nil {
		t.Error("invalid JSON in Extra is no error")
	}
}

func TestMessageUnmarshal(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Message
	}{
		{`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},{"text":"b"}]}`,
			Message{Role: User, Content: "a[image_url omitted]b"}},
		{`{"role":"assistant","content":null,"tool_call_id":null,"tool_calls":[{"index":0,"id":null,"function":{"name":"f","arguments":{"a":1}}}]}`,
			Message{Role: Assistant, ToolCalls: []ToolCall{{Name: "f", Arguments: `{"a":1}`}}}},
	} {
		var m Message
		if err := json.Unmarshal([]byte(tc.in), &m); err != nil || !reflect.DeepEqual(m, tc.want) {
			t.Errorf("%s: %+v, %v", tc.in, m, err)
		}
	}
	var m Message
	if err := json.Unmarshal([]byte(`{"content":7}`), &m); err == nil || !strings.Contains(err.Error(), "content") {
		t.Errorf("content 7: %v", err)
	}
}

func TestToolSpecJSON(t *testing.T) {
	for _, tc := range []struct {
		spec ToolSpec
		want string
	}{
		{ToolSpec{Name: "f", Description: "<d>"}, `{"type":"function","function":{"name":"f","description":"<d>","parameters":{"type":"object","properties":{}}}}`},
		{ToolSpec{Name: "f", Parameters: RawJSON(`{"type": "object"}`)}, `{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object"}}}`},
	} {
		b, err := tc.spec.AppendJSON(nil)
		if err != nil || string(b) != tc.want || !json.Valid(b) {
			t.Errorf("got %s, %v", b, err)
		}
	}
}

func FuzzMessageRoundTrip(f *testing.F) {
	f.Add([]byte(`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"sig":"x"}],"reasoning_content":"hm"}`))
	f.Add([]byte(`{"role":"user","content":[{"type":"text","text":"\ud83d\ude00\ud800"}],"x":{"b":[1,2e9]}}`))
	f.Add([]byte(`{"Role":"user","content":"a","\u0000":"<&>\u2028"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var m Message
		if json.Unmarshal(in, &m) != nil {
			return
		}
		first, err := m.AppendJSON(nil)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		if !json.Valid(first) {
			t.Fatalf("invalid JSON: %s", first)
		}
		var back Message
		if err := json.Unmarshal(first, &back); err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		second, err := back.AppendJSON(nil)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("not stable:\n%s\n%s\n%v", first, second, err)
		}
		// The journal's encoder escapes HTML.
		stored, err := json.Marshal(map[string]any{"message": m})
		if err != nil {
			t.Fatal(err)
		}
		var rec struct{ Message Message }
		if err := json.Unmarshal(stored, &rec); err != nil {
			t.Fatal(err)
		}
		third, err := rec.Message.AppendJSON(nil)
		if err != nil || !bytes.Equal(first, third) {
			t.Fatalf("not stable over the disk:\n%s\n%s\n%v", first, third, err)
		}
	})
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\r\t\b\f\x00\x7f\u2028\u2029<>&\xff\xed\xa0\x80é😀")
	f.Fuzz(func(t *testing.T, s string) {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		// The one difference: a byte that is not UTF-8 is not written as an escape.
		expect := strings.ReplaceAll(want.String(), `\ufffd`, "\uFFFD")
		if strings.Contains(want.String(), `\\ufffd`) {
			return
		}
		if got := AppendString(nil, s); string(got)+"\n" != expect {
			t.Errorf("got %s, encoding/json has %s", got, want.String())
		}
	})
}

func BenchmarkMessageAppendJSON(b *testing.B) {
	m := Message{Role: ToolRole, Content: strings.Repeat("func main() {\n\tfmt.Println(\"hello\")\n}\n", 60), ToolCallID: "call_1"}
	var buf []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(m.Content)))
	for b.Loop() {
		var err error
		if buf, err = m.AppendJSON(buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
