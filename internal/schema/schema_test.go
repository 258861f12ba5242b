package schema

import (
	"encoding/json"
	"strings"
	"testing"
)

const count = `{"type":"object","properties":{"count":{"type":"integer","minimum":1}},"required":["count"],"additionalProperties":false}`

func TestData(t *testing.T) {
	for _, tc := range []struct{ name, schema, result, data, why string }{
		{"white space", count, ` { "count" : 3 } `, `{"count":3}`, ""},
		{"a code fence", count, "```json\n{\"count\":3}\n```", `{"count":3}`, ""},
		{"all digits of a number", `{}`, `12345678901234567890123`, `12345678901234567890123`, ""},
		{"a text that is the value", `{"type":"string"}`, "fine", `"fine"`, ""},
		{"a text that looks like JSON", `{"type":"string"}`, "42", `"42"`, ""},
		{"a wrong type", count, `{"count":"three"}`, "", "'/count'"},
		{"a key too many", count, `{"count":3,"more":1}`, "", "more"},
		{"no JSON", count, "three", "", "it is not JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(tc.schema))
			if err != nil {
				t.Fatal(err)
			}
			data, why := s.Data(tc.result)
			if string(data) != tc.data || !strings.Contains(why, tc.why) || (why == "") != (tc.why == "") {
				t.Errorf("data %s, why %q", data, why)
			}
		})
	}
}

// What is wrong in many places is not told without end.
func TestReasonsAreBounded(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"array","items":{"type":"string"}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, why := s.Data("[" + strings.Repeat("1,", 99) + "1]")
	if n := strings.Count(why, "; "); n != maxReasons || !strings.HasSuffix(why, "and 90 more") {
		t.Errorf("%d reasons: %s", n, why)
	}
}

func TestCompile(t *testing.T) {
	if s, err := Compile(nil); s != nil || err != nil {
		t.Errorf("no schema: %v, %v", s, err)
	}
	for _, raw := range []string{`{`, `{"type":"nothing"}`, `{"$ref":"http://example.com/x"}`, `{"$ref":"file:///etc/passwd"}`} {
		if _, err := Compile(json.RawMessage(raw)); err == nil {
			t.Errorf("%s: no error", raw)
		}
	}
	// A schema without end is no reason to hang or to break.
	s, err := Compile(json.RawMessage(`{"$ref":"#"}`))
	if err == nil {
		s.Data(`{}`)
	}
}

func FuzzSchema(f *testing.F) {
	f.Add(count, `{"count":1}`)
	f.Add(`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}}`, `null`)
	f.Add(`{"type":"string","pattern":"^a+$"}`, "```\naaa\n```")
	f.Fuzz(func(t *testing.T, schema, result string) {
		s, err := Compile(json.RawMessage(schema))
		if err != nil || s == nil {
			return
		}
		data, why := s.Data(result)
		if (why == "") != json.Valid(data) {
			t.Fatalf("data %q, why %q", data, why)
		}
	})
}
