package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/usage"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
	"github.com/gasupervisor/gasupervisor/session"
)

// What context.json and config.toml say reaches the turn loop, and what comes of it
// the files.
func TestEngineKeepsToSettings(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	done := func(result string) llmtest.Reply {
		return llmtest.Text("<tool name=\"attempt_completion\">"+result+"</tool>").Usage(1000, 100, 0)
	}
	srv := llmtest.NewServer(t, llmtest.Route(
		llmtest.Task("count", done(`{"result":"three"}`), done(`{"result":{"count": 3}}`)),
		llmtest.Rule{When: func(r *llmtest.Request) bool { return strings.Contains(r.FirstUser(), "spend") }, Script: llmtest.Always(done(`{"result":"x"}`))},
	))
	d := startDaemon(t, dir, srv, `tool_calls = "text"
price = { input = 100.0, output = 1000.0 }
reply_reserve = 200
[limits]
cost_per_day = 1.2
`)
	d.task("a", "count", `{"output_schema":{"type":"object","required":["count"]},"max_tokens":50000,"max_cost_usd":1.5}`)
	st := d.wait("a")
	if st.Reason != "completed" || st.Usage.Requests != 2 || st.Usage.CostUSD == nil || *st.Usage.CostUSD != 0.4 {
		t.Errorf("status %+v, usage %+v", st, st.Usage)
	}
	if data, err := os.ReadFile(filepath.Join(d.dir("a"), taskdir.ResultFile)); err != nil || string(data) != "{\"count\":3}\n" {
		t.Errorf("the result as data: %q, %v", data, err)
	}
	// A budget that no request fits into costs nothing.
	d.task("b", "spend", `{"max_tokens":100}`)
	if st := d.wait("b"); st.Reason != "budget" || st.Usage.Requests != 0 || st.Error == nil || !strings.Contains(st.Error.Message, "of 100 tokens") {
		t.Errorf("status %+v", st)
	}
	days, err := usage.Read(filepath.Join(d.config.StateDir, usage.DirName), "", "")
	if err != nil || len(days) != 1 || days[0].LLMs["scripted"].CostUSD != 0.4 || days[0].LLMs["scripted"].Requests != 2 {
		t.Errorf("accounts %+v, %v", days, err)
	}
	// A request costs 0.20, and may cost more: at some point the day has no room for it.
	for i := range 6 {
		name := fmt.Sprint("c", i)
		d.task(name, "spend", "")
		if st = d.wait(name); st.Reason == "budget" {
			break
		}
	}
	if st.Reason != "budget" || !strings.Contains(st.Error.Message, "cost_per_day") || !strings.Contains(st.Error.Message, "of $1.2 are spent") {
		t.Errorf("status %+v", st)
	}
	for _, r := range srv.Requests() {
		if r.Fields["tools"] != nil || !strings.Contains(r.System(), "## read_file") {
			t.Error("tools did not go out as text")
		}
	}
}

// With the configuration in the user's own directory, which makes that a root, the
// environment of the user's service lies beside it: it holds keys, and decides how
// the daemon starts next.
func TestEnvironmentOfServicesIsHidden(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only systemd's services have such a file")
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", home)
	dir := filepath.Join(home, "gasupervisor")
	env := filepath.Join(dir, "env")
	const planted, secret = "GASUPERVISOR_SANDBOX_MODE=off", "OPENAI_API_KEY=sk-0123456789"
	args := fmt.Sprintf(`{"path":%q,"content":%q,"command":"cat env; echo %s > env; echo %[2]s >> env"}`, env, planted, planted)
	srv := llmtest.NewServer(t, llmtest.ByTurn(
		llmtest.Call("read_file", args).Call("write_to_file", args).Call("execute_command", args), llmtest.Done("tried")))
	d := startDaemon(t, dir, srv, "")
	if fi, err := os.Stat(env); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the file is not there to be hidden: %v", err)
	}
	write(t, env, secret)
	d.task("a", "look", fmt.Sprintf(`{"work_dir":%q}`, dir))
	if st := d.wait("a"); st.Result != "tried" {
		t.Fatalf("status %+v", st)
	}
	results := srv.Requests()[1].Results()
	if len(results) != 3 || strings.Contains(strings.Join(results, "\n"), secret) {
		t.Errorf("results %q", results)
	}
	if text, err := os.ReadFile(env); err != nil || string(text) != secret {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// Nobody ends the rounds of an engine that has ended, so who waits for them must not.
func TestBatchEndsWithItsEngine(t *testing.T) {
	broken := errors.New("the disk is gone")
	working, end := startEngine(t.Context(), func(context.Context) error { return broken })
	temp := t.TempDir()
	p := newPrompt(filepath.Join(temp, "prompt.txt"))
	if err := os.WriteFile(p.path, []byte("do it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := (&batch{temp: temp}).run(working, "1", p, temp); !errors.Is(r.err, broken) {
		t.Errorf("the prompt's error: %v", r.err)
	}
	if err := end(); !errors.Is(err, broken) {
		t.Errorf("the engine's error: %v", err)
	}
	out, err := os.ReadFile(p.out)
	if err != nil || !strings.HasSuffix(string(out), "[interrupted]\n\n"+taskdir.Marker+"\n") {
		t.Errorf("out file %q, %v", out, err)
	}
}

// A daemon that died while it wrote leaves a part of a file, which may be as large
// as an archive.
func TestStartRemovesUnfinishedFiles(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, sub := range []string{"", usage.DirName, "archive"} {
		path := filepath.Join(dir, "state", sub, ".gasupervisor-0123456789abcdef.tmp")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		left = append(left, path)
	}
	srv := llmtest.NewServer(t, llmtest.Always(llmtest.Done("x")))
	d := startDaemon(t, dir, srv, "")
	d.task("a", "do it", "{}")
	d.wait("a") // by then it has started
	for _, path := range left {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Two prompts never write one file, however they are spelled.
func TestPromptsOfOneFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a.txt", "a.md", "a.out.txt"} {
		if err := os.WriteFile(name, []byte("do it"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, files := range [][]string{{"a.txt", "a.md"}, {"a.txt", "./a.md"}, {"a.txt", "./a.txt"}, {"a.txt", "./a.out.txt"}} {
		var e *exitError
		if _, err := promptsOf(files, mapFlags{}); !errors.As(err, &e) || e.code != exitUsage {
			t.Errorf("%v: %v", files, err)
		}
	}
	if ps, err := promptsOf([]string{"a.txt"}, mapFlags{}); err != nil || len(ps) != 1 {
		t.Errorf("%v, %v", ps, err)
	}
}

// An agent may have made a file of its task a link to what it cannot read itself.
// Nothing that is done with the task gives it the content.
func TestPlantedLinksAreNotRead(t *testing.T) {
	temp, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(`{"key":"k"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := taskdir.WriteInput(temp, "a", "do it"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{taskdir.HistoryFile, taskdir.ResultFile} {
		if err := os.Symlink(secret, filepath.Join(temp, "a", name)); err != nil {
			t.Skip(err)
		}
	}
	if data, err := forkHistory(t.TempDir(), temp, "a", session.Latest); err == nil {
		t.Errorf("history: %s", data)
	}
	if data, err := resultData(temp, "a"); err == nil {
		t.Errorf("result: %s", data)
	}
}

// What is added to a context.json leaves the rest of it as it was written.
func TestSettingsAreAdded(t *testing.T) {
	for text, want := range map[string]string{
		`{"max_tokens": 12345678901234567890, "llm": "a"}`: "{\n  \"agent\": \"x\",\n  \"llm\": \"a\",\n  \"max_tokens\": 12345678901234567890\n}\n",
		`null`: "{\n  \"agent\": \"x\"\n}\n",
	} {
		temp := t.TempDir()
		if err := taskdir.WriteContext(temp, "a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := addSettings(temp, "a", map[string]any{"agent": "x", "llm": "", "verbose": false}); err != nil {
			t.Fatal(err)
		}
		if got, err := taskdir.ReadFile(temp, "a", taskdir.ContextFile); string(got) != want || err != nil {
			t.Errorf("%s becomes %s, %v", text, got, err)
		}
	}
}

// The directory that the daemon has open and locked is not the one that tasks are
// written to any more: it must not go on as if it were.
func TestReplacedTempDirEndsTheDaemon(t *testing.T) {
	e := makeEngine(t, t.TempDir(), "[[llm]]\nname = \"none\"\nbase_url = \"http://127.0.0.1:1\"\napi_key_env = \"\"\nmodel = \"none\"\n")
	temp := e.config.TempDir
	if err := os.Mkdir(filepath.Join(temp, "task"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	waittest.Until(t, "the directory is watched", func() bool { m := e.watch.Mode(); return m.Watched+m.Polled > 0 })
	if err := os.Rename(temp, temp+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	if !errors.Is(err, errReplaced) || !strings.Contains(err.Error(), temp) {
		t.Errorf("the daemon ended with %v", err)
	}
}
