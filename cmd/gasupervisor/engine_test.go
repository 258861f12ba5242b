package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/usage"
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
