package builtin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

func TestSpecs(t *testing.T) {
	w := newWorld(t, nil)
	if got := w.set.Names(); !slices.Equal(got, Names()) {
		t.Errorf("names %v", got)
	}
	for _, s := range w.set.Specs() {
		var schema struct {
			Type       string
			Properties map[string]struct {
				Type string
			}
			Required []string
		}
		if err := json.Unmarshal(s.Parameters, &schema); err != nil {
			t.Fatalf("%s: %v in %s", s.Name, err, s.Parameters)
		}
		if schema.Type != "object" || len(schema.Required) == 0 {
			t.Errorf("%s: schema %s", s.Name, s.Parameters)
		}
		for _, r := range schema.Required {
			if _, ok := schema.Properties[r]; !ok {
				t.Errorf("%s: required %s is no property", s.Name, r)
			}
		}
		for name, p := range schema.Properties {
			if p.Type == "" {
				t.Errorf("%s: property %s has no type", s.Name, name)
			}
		}
		if s.Description == "" || len(s.Description) > 500 || strings.TrimSpace(s.Description) != s.Description {
			t.Errorf("%s: description of %d bytes", s.Name, len(s.Description))
		}
	}
}

func TestNew(t *testing.T) {
	tools, err := New(Env{}, []string{"search_files", "read_file"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tl := range tools {
		names = append(names, tl.Spec().Name)
	}
	if want := []string{ReadFile, SearchFiles, Completion}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	if _, err := New(Env{}, []string{"read_fil"}); err == nil || !strings.Contains(err.Error(), "read_fil") || !strings.Contains(err.Error(), ReadFile) {
		t.Errorf("got %v", err)
	}
	w := newWorld(t, nil)
	for _, n := range Names() {
		want := n == ExecuteCommand || n == WriteToFile || n == ReplaceInFile || n == Task
		if w.set.Changes(n) != want {
			t.Errorf("%s: changes is %v", n, !want)
		}
	}
	if Writes(ReadOnlyNames()) || !Writes(nil) || !Writes([]string{ReplaceInFile}) || Writes([]string{}) {
		t.Error("Writes is wrong")
	}
}

// What is wrong with the arguments is said, whatever it is, and nothing panics.
func TestArguments(t *testing.T) {
	w := newWorld(t, nil)
	w.write("work/a.txt", "one\ntwo\nthree\n")
	for _, n := range Names() {
		for _, raw := range []string{"", "{}", `{"a":`, "null", "[]", `"x"`, strings.Repeat("junk", 1<<18), `{"path":null}`, `{"path":{"a":1},"steps":3,"command":[]}`} {
			r := w.set.Dispatch(t.Context(), llm.ToolCall{Name: n, Arguments: raw})
			if strings.Contains(r.Text, "fault in it") || len(r.Text) > 1000 {
				t.Errorf("%s(%.20s): %.300s", n, raw, r.Text)
			}
			if !r.Failed && n != ListFiles {
				t.Errorf("%s(%.20s) worked: %.300s", n, raw, r.Text)
			}
		}
	}
	w.mustFail(WriteToFile, m{"pfad": "x"}, `"path" is missing`, `"content" is missing`, "pfad")
	w.mustFail(ReadFile, m{"path": "a.txt", "start_line": "two"}, "start_line", "whole number")
	w.mustFail(ReadFile, m{"path": "a.txt", "line_count": 0}, "line_count", "at least 1")
	w.mustFail(ListFiles, m{"path": ".", "recursive": "maybe"}, "recursive")
	w.must(ReadFile, m{"path": "a.txt", "start_line": "2", "line_count": 1.0}, "lines 2-2 of 3", "two\n")
	w.must(ReadFile, m{"file_path": "a.txt", "offset": 3, "limit": "9"}, "lines 3-3 of 3", "three\n")
	w.must(ListFiles, m{"path": ".", "recursive": "true"}, "a.txt")
	w.must(WriteToFile, m{"path": "o.json", "content": m{"a": 1}}, "7 bytes")
	if got := w.read("work/o.json"); got != `{"a":1}` {
		t.Errorf("wrote %q", got)
	}
}

// A tool that would ask a person does not exist, and says so at once.
func TestNoAsking(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"ask_user", "ask_followup_question", "AskUserQuestion"} {
		w.mustFail(name, m{"question": "May I?"}, name, ReadFile, Completion)
	}
}

func TestNotes(t *testing.T) {
	w := newWorld(t, nil)
	w.must(UpdateCheckpoint, m{"key_info": "port 8080"}, "saved")
	if w.keyInfo != "port 8080" {
		t.Errorf("key info %q", w.keyInfo)
	}
	r := w.must(UpdatePlan, m{"steps": []any{
		m{"text": "look", "status": "done"}, m{"text": "[VERIFY] run\nthe tests", "status": "open"}, m{"content": "write", "status": "in_progress"},
		m{"text": "- [ ] x", "status": "skipped"}, "- [x] as text", m{"text": "no status"},
	}}, "plan saved", "next: run the tests")
	if want := "- [✓] look\n- [ ] [VERIFY] run the tests\n- [ ] write\n- [SKIP] x\n- [✓] as text\n- [ ] no status\n"; w.plan != want {
		t.Errorf("plan\n%s\nwant\n%s\n%+v", w.plan, want, r)
	}
	w.plan = ""
	w.must(UpdatePlan, m{"steps": `[{"text":"list in a text","status":"open"}]`}, "0 of 1")
	w.mustFail(UpdatePlan, m{"steps": []any{}}, "empty")
	w.mustFail(UpdatePlan, m{"steps": []any{m{"text": "a", "status": "perhaps"}}}, "step 1", "perhaps", "skipped")
	w.mustFail(UpdatePlan, m{"steps": []any{m{"status": "open"}}}, "text of step 1")
	w.mustFail(UpdatePlan, m{"steps": []any{3}}, "step 1")
	w.mustFail(UpdatePlan, m{"steps": "do it"}, "list")
	w.must(Completion, m{"result": "done"})
	w.mustFail(Completion, m{"result": " "}, "empty")
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"path":"a.txt"}`, `{"path":"a.txt","start_line":-1}`, `{"steps":[{"text":"a","status":"open"}]}`, `{"steps":["x"]}`, `{"path":".","regex":"("}`, `{"path":"a.txt","old":"one","new":""}`} {
		f.Add(s)
	}
	w := newWorld(f, nil)
	w.write("work/a.txt", "one\ntwo\n")
	f.Fuzz(func(t *testing.T, raw string) {
		for _, n := range []string{ReadFile, ListFiles, SearchFiles, ReplaceInFile, UpdatePlan} {
			if n == ReplaceInFile && !strings.Contains(raw, "a.txt") {
				continue
			}
			r := w.set.Dispatch(t.Context(), llm.ToolCall{Name: n, Arguments: raw})
			if strings.Contains(r.Text, "fault in it") {
				t.Errorf("%s: %s", n, r.Text)
			}
		}
	})
}
