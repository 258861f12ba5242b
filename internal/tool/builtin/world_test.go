package builtin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// world is a task with all tools: dir/work is its working directory, dir/temp/t
// its own, dir/outside is not granted.
type world struct {
	t       testing.TB
	dir     string
	env     Env
	set     *tool.Set
	keyInfo string
	plan    string
}

func newWorld(t testing.TB, change func(*Env)) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir}
	for _, d := range []string{"work", "temp/t", "outside"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := sandbox.Ceiling{
		Roots: []string{w.path("work")}, TempDir: w.path("temp"), Share: true,
		Protocol: func(name string) bool { return name == "input.txt" },
	}
	p, err := sandbox.Build(c.Resolve(), sandbox.Ask{
		TaskDir: w.path("temp/t"), WorkDir: w.path("work"), Writes: true,
		Named: map[string]string{"subagent_plan.md": w.path("temp/t/subagent_plan.md")},
	}.Resolve())
	if err != nil {
		t.Fatal(err)
	}
	files := sandbox.OpenFiles(p)
	t.Cleanup(func() { files.Close() })
	w.env = Env{
		Files: files, WorkDir: p.WorkDir,
		SetKeyInfo: func(s string) { w.keyInfo = s },
		WritePlan:  func(s string) error { w.plan = s; return nil },
		Command:    CommandConfig{Env: []string{"PATH=" + os.Getenv("PATH")}},
		ResultCap:  4000,
	}
	if change != nil {
		change(&w.env)
	}
	tools, err := New(w.env, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.set = tool.NewSet(w.env.ResultCap, tools...)
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// call dispatches a call whose arguments are v, or the text that v is.
func (w *world) call(name string, v any) tool.Result {
	w.t.Helper()
	return w.callCtx(context.Background(), name, v)
}

func (w *world) callCtx(ctx context.Context, name string, v any) tool.Result {
	w.t.Helper()
	text, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(b)
	}
	r := w.set.Dispatch(ctx, llm.ToolCall{ID: "c", Name: name, Arguments: text})
	if strings.Contains(r.Text, "fault in it") {
		w.t.Errorf("%s panicked: %s", name, r.Text)
	}
	return r
}

// must fails the test unless the call worked out and its text has all of parts.
func (w *world) must(name string, v any, parts ...string) tool.Result {
	w.t.Helper()
	r := w.call(name, v)
	w.has(r, false, parts...)
	return r
}

// mustFail fails the test unless the call failed and its text has all of parts.
func (w *world) mustFail(name string, v any, parts ...string) tool.Result {
	w.t.Helper()
	r := w.call(name, v)
	w.has(r, true, parts...)
	return r
}

func (w *world) has(r tool.Result, failed bool, parts ...string) {
	w.t.Helper()
	if r.Failed != failed {
		w.t.Errorf("failed is %v: %s", r.Failed, r.Text)
	}
	for _, p := range parts {
		if !strings.Contains(r.Text, p) {
			w.t.Errorf("%q is missing in: %s", p, r.Text)
		}
	}
}

type m map[string]any
