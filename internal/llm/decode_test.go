package llm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func FuzzMessageUnmarshal(f *testing.F) {
	for _, seed := range []string{
		`{"role":"user","content":"plain"}`,
		` { "role" : "assistant" , "content" : null , "tool_calls" : [ { "id" : "c" , "type" : "function" , "function" : { "name" : "f" , "arguments" : "{\"a\":1}" } } ] } `,
		`{"role":"tool","tool_call_id":"c","content":"a\n\t\"\\\/\b\f\r\u00e9\ud83d\ude00 é"}`,
		`{"role":"user","content":"\ud83d"}`,
		`{"role":"user","content":"\udc00\ud83d"}`,
		"{\"role\":\"user\",\"content\":\"\xff\"}",
		"{\"role\":\"user\",\"content\":\"\x01\"}",
		`{"role":"user","role":"tool"}`,
		`{"role":"user","content":[{"type":"text","text":"a"}]}`,
		`{"role":null,"content":7}`,
		`{"tool_calls":null,"tool_call_id":null,"x":null}`,
		`{"tool_calls":[]}`,
		`{"x":{"a":[1,2,{"b":"}]"}]},"y":-1.5e3,"z":true,"w":"s" }`,
		`{"x":1,}`, `{"x":tru}`, `{"x":}`, `{"x":[1}}`, `{"x":"a}`, `{}`, `{} {}`, `null`, `[]`, ``, `{"a\u0062":1}`, `{"x":1 2}`,
		`{"tool_calls":[{"id":null,"index":0,"function":{"name":"f","arguments":{"a":1}},"sig":"s"}]}`,
		`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"m":13,"n":14,"o":15,"p":16,"q":17}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var fast Message
		if !fast.read(b) {
			return
		}
		var want Message
		if !json.Valid(b) {
			t.Fatalf("%q was read as %+v, and is no JSON", b, fast)
		}
		if err := want.unmarshal(b); err != nil {
			t.Fatalf("%q was read as %+v, want error %v", b, fast, err)
		}
		if !reflect.DeepEqual(fast, want) {
			t.Fatalf("%q was read as\n%+v, want\n%+v", b, fast, want)
		}
	})
}

// What is common is read in one go: or else the reader is of no use.
func TestCommonMessagesAreReadAtOnce(t *testing.T) {
	for _, m := range []Message{
		{Role: User, Content: "a\nb \"c\" \u2028 é 😀 \x01"},
		{Role: Assistant, ToolCalls: []ToolCall{{ID: "c", Name: "f", Arguments: `{"path":"x"}`}}},
		{Role: Assistant, Content: "t", Extra: map[string]RawJSON{"reasoning_content": RawJSON(`"because\n"`), "n": RawJSON(`[1,{"a":"]"}]`)}},
		{Role: ToolRole, ToolCallID: "c", Content: "r"},
	} {
		b, err := m.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got Message
		if !got.read(b) || !reflect.DeepEqual(got, m) {
			t.Errorf("%s was read as %+v", b, got)
		}
	}
}

func BenchmarkMessageUnmarshal(b *testing.B) {
	m := Message{Role: User, Content: strings.Repeat("A line of some length in a conversation that has gone on.\n", 350)}
	data, err := m.AppendJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		var m Message
		if err := json.Unmarshal(data, &m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMessageRead(b *testing.B) {
	m := Message{Role: User, Content: strings.Repeat("A line of some length in a conversation that has gone on.\n", 350)}
	data, err := m.AppendJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if !m.read(data) {
			b.Fatal("not read")
		}
	}
}
