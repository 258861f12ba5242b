package history

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// The same conversation in the two forms.
const (
	openAIForm = `[
	{"role": "user", "content": "count", "name": null},
	{"role": "assistant", "content": null, "refusal": null, "annotations": [], "reasoning_content": "let me see",
	 "tool_calls": [{"id": "a", "type": "function", "index": 0, "function": {"name": "count", "arguments": "{\"n\": 1}"}},
	                {"id": "b", "type": "function", "function": {"name": "list", "arguments": {"all": true}}}]},
	{"role": "tool", "tool_call_id": "a", "content": "1"},
	{"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
	{"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "image_url", "image_url": {"url": "data:"}}]},
	{"role": "assistant", "content": "two"}]`

	blockForm = `[
	{"role": "user", "content": "count"},
	{"role": "assistant", "id": "msg_1", "type": "message", "stop_reason": "tool_use", "content": [
		{"type": "thinking", "thinking": "let me see"},
		{"type": "tool_use", "id": "a", "name": "count", "input": {"n": 1}},
		{"type": "tool_use", "id": "b", "name": "list", "input": {"all": true}}]},
	{"role": "user", "content": [
		{"type": "tool_result", "tool_use_id": "a", "content": "1"},
		{"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
		{"type": "text", "text": "and", "cache_control": {"type": "ephemeral"}},
		{"type": "image_url", "image_url": {"url": "data:"}}]},
	{"role": "assistant", "content": [{"type": "text", "text": "two"}]}]`
)

func imported() []llm.Message {
	calls := says("", `a count {"n": 1}`, `b list {"all": true}`)
	calls.Extra = map[string]llm.RawJSON{"reasoning_content": llm.RawJSON(`"let me see"`)}
	return []llm.Message{user("count"), calls, result("a", "1"), result("b", "x\ny"), user("and\n[image_url omitted]"), says("two")}
}

func TestImportForms(t *testing.T) {
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for name, data := range map[string]string{
		"OpenAI":           openAIForm,
		"blocks":           blockForm,
		"object":           `{"model": "m", "messages": ` + openAIForm + `, "n": 1}`,
		"string":           quoted(blockForm),
		"string of object": quoted(`{"messages":` + blockForm + `}`),
		"string of string": quoted(quoted(openAIForm)),
		"BOM and space":    "\xEF\xBB\xBF\n\n" + blockForm + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Import([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, imported())
			valid(t, got)
		})
	}
}

func TestImport(t *testing.T) {
	withExtra := func(m llm.Message, fields ...string) llm.Message {
		m.Extra = map[string]llm.RawJSON{}
		for i := 0; i < len(fields); i += 2 {
			m.Extra[fields[i]] = llm.RawJSON(fields[i+1])
		}
		return m
	}
	callWithExtra := says("", "a count")
	callWithExtra.ToolCalls[0].Extra = map[string]llm.RawJSON{"extra_content": llm.RawJSON(`{"s":1}`)}
	for name, tc := range map[string]struct {
		json string
		want []llm.Message
	}{
		"empty list":   {`[]`, nil},
		"empty object": {`{"messages": []}`, nil},
		"system becomes the first message": {`[{"role":"system","content":"be brief"},{"role":"developer","content":"be kind"},{"role":"user","content":"x"}]`,
			[]llm.Message{user("[system message]\nbe brief"), user("[system message]\nbe kind"), user("x")}},
		"ends in calls": {`[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"n","input":{}}]}]`,
			[]llm.Message{user("x"), says("", "a n"), result("a", noResult)}},
		"begins with a result": {`[{"role":"user","content":[{"type":"tool_result","tool_use_id":"z","content":"old"},{"type":"text","text":"go on"}]}]`,
			[]llm.Message{user(orphanResult + "old"), user("go on")}},
		"text before results": {`[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"n"}]},
			{"role":"user","content":[{"type":"text","text":"wait"},{"type":"tool_result","tool_use_id":"a"}]}]`,
			[]llm.Message{user("x"), says("", "a n"), result("a", noOutput), user("wait")}},
		"GenericAgent without ids": {`[{"role":"user","content":[{"type":"text","text":"x"}]},
			{"role":"assistant","content":[{"type":"text","text":"hm"},{"type":"tool_use","id":"","name":"code_run","input":{"_raw":"ls"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"","content":"a.txt"}]}]`,
			[]llm.Message{user("x"), says("hm", `c00000001 code_run {"_raw":"ls"}`), result("c00000001", "a.txt")}},
		"signed thinking": {`[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"a < b","signature":"sig"},{"type":"redacted_thinking","data":"zz"},{"type":"text","text":"y"}]}]`,
			[]llm.Message{user("x"), withExtra(says("y"), "reasoning_content", `"a < b"`, "thinking_blocks", `[{"type":"thinking","thinking":"a < b","signature":"sig"},{"type":"redacted_thinking","data":"zz"}]`)}},
		"functions": {`[{"role":"user","content":"x"},{"role":"assistant","content":null,"function_call":{"name":"n","arguments":"{\"a\":1}"}},{"role":"function","name":"n","content":"1"}]`,
			[]llm.Message{user("x"), says("", `c00000001 n {"a":1}`), withExtra(result("c00000001", "1"), "name", `"n"`)}},
		"calls in both forms": {`[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"n","arguments":"{}"}}],"function_call":{"name":"f","arguments":"{}"}}]`,
			[]llm.Message{user("x"), says("", "c00000001 f", "a n"), result("c00000001", noResult), result("a", noResult)}},
		"call fields": {`[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","extra_content":{"s":1},"function":{"name":"count","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"}]`,
			[]llm.Message{user("x"), callWithExtra, result("a", "1")}},
		"message fields": {`[{"role":"user","content":"x","timestamp":5,"name":"Ann"},{"role":"assistant","content":"y","id":"1","reasoning_details":[{"d":1}]}]`,
			[]llm.Message{withExtra(user("x"), "name", `"Ann"`), withExtra(says("y"), "reasoning_details", `[{"d":1}]`)}},
		"lone surrogates": {`[{"role":"user","content":"a\ud83d","name":"\udc00"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"n","input":{"s":"\ud800"}}]},{"role":"tool","tool_call_id":"a","content":"1"}]`,
			[]llm.Message{withExtra(user("a\uFFFD"), "name", `"\ufffd"`), says("", `a n {"s":"\ufffd"}`), result("a", "1")}},
		"blank messages": {`[{"role":"user","content":"x"},{"role":"assistant","content":"  "},{"role":"assistant"},{"role":"user","content":[]},{"role":"user","content":null}]`, []llm.Message{user("x")}},
		"other roles":    {`[{"role":"human","content":"x"},{"role":"Model","content":"y"},{"role":"AI","content":"z"}]`, []llm.Message{user("x"), says("y\nz")}},
		"pieces of an answer": {`[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"t"}]},{"role":"assistant","content":"y"},
			{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"n"}]},{"role":"assistant","content":[{"type":"tool_use","id":"b","name":"n"}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":"2"}]}]`,
			[]llm.Message{user("x"), withExtra(says("y", "a n", "b n"), "reasoning_content", `"t"`), result("a", "1"), result("b", "2")}},
		"text in lists":   {`[{"role":"user","content":["x",{"text":"y"},{"type":"document"}]},{"role":"assistant","content":{"type":"output_text","text":"z"}}]`, []llm.Message{user("x\ny\n[document omitted]"), says("z")}},
		"results of tool": {`[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"n","arguments":""}}]},{"role":"tool","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}]`, []llm.Message{user("x"), says("", "a n"), result("a", "1")}},
		"last messages count": {`{"messages": [{"role":"user","content":"x"}], "messages": [{"role":"user","content":"y"}]}`,
			[]llm.Message{user("y")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Import([]byte(tc.json))
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, tc.want)
			valid(t, got)
		})
	}
}

func TestImportErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		json          string
		line, message int
		says          []string
	}{
		"nothing":           {"", 1, 0, []string{"there is nothing", "want a list of messages"}},
		"blank":             {"\n\n ", 3, 0, []string{"there is nothing"}},
		"cut in a string":   {"[\n{\"role\": \"user\", \"content\": \"hel", 2, 0, []string{"not JSON", "unexpected end"}},
		"NULs":              {"[\n\x00\x00", 2, 0, []string{"not JSON", `\x00`}},
		"more behind it":    {"[]\n[]", 2, 0, []string{"not JSON"}},
		"python":            {"[{'role': 'user'}]", 1, 0, []string{"byte 2", "not JSON"}},
		"a number":          {"12", 1, 0, []string{"found a number", "want a list of messages"}},
		"null":              {" null", 1, 0, []string{"byte 1", "found null"}},
		"another object":    {`{"history": []}`, 1, 0, []string{`without "messages"`}},
		"messages no list":  {"{\"a\": 1,\n \"messages\": {}}", 2, 0, []string{`"messages" is an object`}},
		"text in a string":  {`"hello"`, 1, 0, []string{"quoted text", "not JSON"}},
		"too often quoted":  {`"\"\\\"\\\\\\\"[]\\\\\\\"\\\"\""`, 1, 0, []string{"JSON string in a JSON string"}},
		"message no object": {"[\n{\"role\":\"user\",\"content\":\"x\"},\n\"y\"]", 3, 2, []string{"found a string", `"role"`}},
		"no role":           {`[{"content":"x"}]`, 1, 1, []string{`no "role"`}},
		"role no string":    {`[{"role":1}]`, 1, 1, []string{`"role" is a number`, "want one of"}},
		"odd role":          {`[{"role":"critic"}]`, 1, 1, []string{`"critic"`, "want one of"}},
		"content a number":  {`[{"role":"user","content":1}]`, 1, 1, []string{`"content"`, "found a number", "want a string"}},
		"block a number":    {`[{"role":"user","content":[{"type":"text","text":"x"}, 1]}]`, 1, 1, []string{"block 2", "found a number"}},
		"text missing":      {`[{"role":"user","content":[{"type":"text"}]}]`, 1, 1, []string{"block 1", `without "text"`}},
		"text a number":     {`[{"role":"user","content":[{"type":"text","text":3}]}]`, 1, 1, []string{"block 1"}},
		"result a number":   {`[{"role":"user","content":[{"type":"tool_result","content":3}]}]`, 1, 1, []string{"block 1", `"content"`}},
		"calls no list":     {`[{"role":"assistant","tool_calls":{"id":"a"}}]`, 1, 1, []string{`"tool_calls"`}},
		"call id no string": {`[{"role":"tool","tool_call_id":4}]`, 1, 1, []string{`"tool_call_id"`}},
		"many calls":        {`[{"role":"assistant","content":[` + strings.Repeat(`{"type":"tool_use"},`, maxCalls) + `{"type":"tool_use"}]}]`, 1, 1, []string{"501 calls", "500 are the limit"}},
		"deep":              {strings.Repeat("[", 5_000_000), 1, 0, []string{"nest more than 1000 deep"}},
		"deep and quoted":   {`"` + strings.Repeat("[", 2000) + `"`, 1, 0, []string{"nest more", "quoted text"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Import([]byte(tc.json))
			var wrong *ImportError
			if !errors.As(err, &wrong) {
				t.Fatalf("got %v, want an *ImportError", err)
			}
			if wrong.Line != tc.line || wrong.Message != tc.message || wrong.Offset < 0 || wrong.Offset > int64(len(tc.json)) {
				t.Errorf("%+v", wrong)
			}
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
	if _, err := Import(make([]byte, MaxImport+1)); err == nil || !strings.Contains(err.Error(), "67108864 are the limit") {
		t.Errorf("too large: %v", err)
	}
}

func everything() []llm.Message {
	first := says("a < b & \u2028", `x1 count { "n": 1e3, "s": "<é>" }`, "x2 list")
	first.Extra = map[string]llm.RawJSON{"reasoning_content": llm.RawJSON(`"so <that>"`), "encrypted": llm.RawJSON(`{"k":"v"}`)}
	first.ToolCalls[1].Extra = map[string]llm.RawJSON{"extra_content": llm.RawJSON(`{"google":{"thought_signature":"abc"}}`)}
	signed := says("signed")
	signed.Extra = map[string]llm.RawJSON{"reasoning_content": llm.RawJSON(`"t"`), "thinking_blocks": llm.RawJSON(`[{"type":"thinking","thinking":"t","signature":"s"}]`)}
	routed := says("routed")
	routed.Extra = map[string]llm.RawJSON{"reasoning": llm.RawJSON(`"r"`), "reasoning_details": llm.RawJSON(`[1]`)}
	odd := says("odd")
	odd.Extra = map[string]llm.RawJSON{"reasoning_content": llm.RawJSON(`{"not":"text"}`), "thinking_blocks": llm.RawJSON(`["x"]`), "reasoning": llm.RawJSON(`7`)}
	named := result("x2", "two\nlines")
	named.Extra = map[string]llm.RawJSON{"name": llm.RawJSON(`"list"`)}
	return []llm.Message{user("go"), first, result("x1", "one"), named, user("more"), user("and more"), signed, user("next"), routed, user("then"), odd, user("last"),
		says("", "y1 count", "y2 count"), result("y2", "2"), result("y1", "1"), says("done")}
}

func TestExportAndImport(t *testing.T) {
	msgs := everything()
	valid(t, msgs)
	data, err := Export(msgs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Import(data)
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	same(t, got, msgs)
	// A fork's requests begin with the bytes of the original's.
	if encode(t, got) != encode(t, msgs) {
		t.Error("the messages are encoded in other bytes")
	}
	again, err := Export(got)
	if err != nil || string(again) != string(data) {
		t.Errorf("exported again (%v):\n%s\nwas\n%s", err, again, data)
	}
}

func TestExportForm(t *testing.T) {
	thoughtful := says("two", `a count {"n": 1}`)
	thoughtful.Extra = map[string]llm.RawJSON{"reasoning_content": llm.RawJSON(`"hm"`)}
	data, err := Export([]llm.Message{user("x"), thoughtful, result("a", "1"), user("y"), says("", "b list", "c list"), result("b", "2")})
	if err != nil {
		t.Fatal(err)
	}
	want := `[
{"role":"user","content":[{"type":"text","text":"x"}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"two"},{"type":"tool_use","id":"a","name":"count","input":{"n": 1}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]},
{"role":"user","content":[{"type":"text","text":"y"}]},
{"role":"assistant","content":[{"type":"tool_use","id":"b","name":"list","input":{}},{"type":"tool_use","id":"c","name":"list","input":{}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":"2"},{"type":"tool_result","tool_use_id":"c","content":"` + noResult + `"}]}
]
`
	if string(data) != want {
		t.Errorf("got\n%s", data)
	}
	if data, err := Export(nil); err != nil || string(data) != "[\n]\n" {
		t.Errorf("nothing: %q, %v", data, err)
	}
}

// GenericAgent's own code takes the export: its preparation of a history for both
// kinds of provider changes nothing and drops nothing that it knows.
func TestGenericAgentLoadsIt(t *testing.T) {
	dir := os.Getenv("GENERICAGENT")
	if dir == "" {
		t.Skip("GENERICAGENT does not name a checkout of GenericAgent")
	}
	data, err := Export(everything())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "_history.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	const code = `
import json, sys, copy
sys.path.insert(0, sys.argv[1])
import llmcore
class Session(llmcore.BaseSession): pass
s = Session({"apikey": "k", "apibase": "http://127.0.0.1:1", "model": "m"})
s.history = json.loads(open(sys.argv[2], encoding="utf-8").read())
llmcore.trim_messages_history(s.history, s)
blocks = lambda ms: [b for m in ms for b in m["content"]]
plain = [{"role": m["role"], "content": list(m["content"])} for m in s.history]
fixed = llmcore._fix_messages(copy.deepcopy(plain))
want = [b for b in blocks(plain)]
lost = [b for b in want if b not in blocks(fixed)]
assert not lost, lost
oai = llmcore._msgs_claude2oai(copy.deepcopy(fixed))
calls = [c["id"] for m in oai for c in m.get("tool_calls", [])]
results = [m["tool_call_id"] for m in oai if m["role"] == "tool"]
assert sorted(calls) == sorted(results) == ["x1", "x2", "y1", "y2"], (calls, results)
claude = llmcore.ClaudeSession.make_messages(s, copy.deepcopy(plain))
assert all(m.get("content") != "(error)" for m in oai)
assert any(b.get("signature") == "s" for b in blocks(claude))
print(json.dumps(s.history, ensure_ascii=False), file=open(sys.argv[2], "w", encoding="utf-8"))
`
	if out, err := exec.Command("python3", "-c", code, dir, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// And what it would write comes back.
	data, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Import(data)
	if err != nil {
		t.Fatal(err)
	}
	valid(t, back)
	if len(back) != len(everything()) {
		t.Errorf("%d messages came back:\n%s", len(back), script(back))
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(openAIForm))
	f.Add([]byte(blockForm))
	f.Add([]byte(`{"messages":[{"role":"system","content":"x"},{"role":"tool","content":"y"}]}`))
	f.Add([]byte(`"[{\"role\":\"user\",\"content\":\"\\ud800\"}]"`))
	if data, err := Export(everything()); err == nil {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		msgs, err := Import(data)
		if err != nil {
			var wrong *ImportError
			if !errors.As(err, &wrong) || wrong.Line < 1 || wrong.Offset < 0 {
				t.Fatal(err)
			}
			return
		}
		valid(t, msgs)
		if len(msgs) > 0 && msgs[0].Role == llm.System {
			t.Fatal("a system message is left")
		}
		out, err := Export(msgs)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Import(out)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if len(back) != len(msgs) {
			t.Fatalf("came back as\n%s\nwas\n%s", script(back), script(msgs))
		}
		for i, m := range msgs {
			b := back[i]
			if b.Role != m.Role || b.Content != m.Content || b.ToolCallID != m.ToolCallID || len(b.ToolCalls) != len(m.ToolCalls) {
				t.Fatalf("message %d came back as\n%swas\n%s", i, script(back[i:i+1]), script(msgs[i:i+1]))
			}
			for j, c := range m.ToolCalls {
				if got := b.ToolCalls[j]; got.ID != c.ID || got.Name != c.Name || got.Arguments != strings.TrimSpace(c.Arguments) {
					t.Fatalf("call %v came back as %v", c, got)
				}
			}
		}
	})
}

func TestImportManyMessages(t *testing.T) {
	list := func(n int) []byte {
		return []byte("[" + strings.Repeat(`{"role":"user","content":"x"},`, n-1) + `{"role":"user","content":"x"}]`)
	}
	if _, err := Import(list(maxMessages)); err != nil {
		t.Error(err)
	}
	if _, err := Import(list(maxMessages + 1)); err == nil || !strings.Contains(err.Error(), "more than 100000 messages") {
		t.Errorf("got %v", err)
	}
}
