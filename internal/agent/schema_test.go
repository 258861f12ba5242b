package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

const countSchema = `{"type":"object","properties":{"count":{"type":"integer","minimum":1}},"required":["count"],"additionalProperties":false}`

func TestOutputSchema(t *testing.T) {
	object := func(args string) llmtest.Reply { return llmtest.Call("attempt_completion", args) }
	bad := llmtest.Done(`{"count":"three"}`)
	for _, tc := range []struct {
		name     string
		schema   string
		mode     agentdef.Completion
		replies  []llmtest.Reply
		data     string
		refusals []string
		open     string // part of the one open point
	}{
		{name: "as text", replies: []llmtest.Reply{llmtest.Done(` { "count" : 3 } `)}, data: `{"count":3}`},
		{name: "as an object", replies: []llmtest.Reply{object(`{"result":{"count":3}}`)}, data: `{"count":3}`},
		{name: "in a code fence", replies: []llmtest.Reply{llmtest.Done("```json\n{\"count\":3}\n```")}, data: `{"count":3}`},
		{name: "large numbers keep their digits", schema: `{"type":"object"}`, replies: []llmtest.Reply{llmtest.Done(`{"n":12345678901234567890123}`)}, data: `{"n":12345678901234567890123}`},
		{name: "a text that is the value", schema: `{"type":"string","minLength":3}`, replies: []llmtest.Reply{llmtest.Done("fine, thanks")}, data: `"fine, thanks"`},
		{name: "a text that looks like JSON", schema: `{"type":"string"}`, replies: []llmtest.Reply{llmtest.Done("42")}, data: `"42"`},
		{name: "put right", replies: []llmtest.Reply{bad, llmtest.Done("{"), llmtest.Done(`{"count":3}`)}, data: `{"count":3}`,
			refusals: []string{"(schema)", "'/count'", "it is not JSON"}},
		{name: "never right", replies: []llmtest.Reply{bad, bad, bad, llmtest.Done("I counted three")}, open: "it is not JSON", refusals: []string{"(schema)"}},
		{name: "as text without a call", mode: agentdef.CompletionText, replies: []llmtest.Reply{llmtest.Text("three"), llmtest.Text(`{"count":3}`)}, data: `{"count":3}`,
			refusals: []string{"(schema)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.replies...)
			w.def.Completion = tc.mode
			in := w.input("count")
			if in.Settings.OutputSchema = json.RawMessage(countSchema); tc.schema != "" {
				in.Settings.OutputSchema = json.RawMessage(tc.schema)
			}
			rec := &record{}
			out := w.run(in, rec)
			if out.Reason != round.Completed || string(out.Data) != tc.data {
				t.Errorf("outcome %+v with data %s", out, out.Data)
			}
			if (len(out.OpenPoints) > 0) != (tc.open != "") || tc.open != "" && !strings.Contains(out.OpenPoints[0], tc.open) {
				t.Errorf("open points %q", out.OpenPoints)
			}
			if n := w.srv.Count(); n != len(tc.replies) {
				t.Errorf("%d requests", n)
			}
			if !w.srv.Requests()[0].Has(string(in.Settings.OutputSchema)) {
				t.Error("the model was not told the schema")
			}
			all := ""
			for _, m := range rec.conv[1:] {
				all += m.Content + "\n"
			}
			for _, text := range tc.refusals {
				if !strings.Contains(all, text) {
					t.Errorf("%q is not among the reasons:\n%s", text, all)
				}
			}
		})
	}
}

func TestInvalidSchemas(t *testing.T) {
	for _, tc := range []struct{ name, schema, want string }{
		{"wrong type", `{"type":"objekt"}`, "/type"},
		{"a remote reference", `{"$ref":"http://127.0.0.1:1/x"}`, "within the schema"},
		{"a file", `{"$ref":"file:///etc/passwd"}`, "within the schema"},
		{"a dangling reference", `{"$ref":"#/$defs/x"}`, "x"},
		{"a bad pattern", `{"type":"string","pattern":"("}`, "pattern"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			in := w.input("x")
			in.Settings.OutputSchema = json.RawMessage(tc.schema)
			out := w.run(in, &record{})
			if out.Reason != round.Failed || out.Error.Kind != "context" || !strings.Contains(out.Error.Message, `key "output_schema"`) ||
				!strings.Contains(out.Error.Message, tc.want) || w.srv.Count() != 0 {
				t.Errorf("outcome %+v: %v after %d requests", out, out.Error, w.srv.Count())
			}
		})
	}
}
