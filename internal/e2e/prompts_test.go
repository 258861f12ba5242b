//go:build unix

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// map lists its prompts in the order in which they were named, whichever is done
// first, and the files that it names are there.
func TestMapListsPromptsInTheirOrder(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.Route(
		llmtest.Task("first", llmtest.Done("one").After(300*time.Millisecond)),
		llmtest.Task("second", llmtest.Status(401, "Incorrect API key provided.")),
		llmtest.Task("third", llmtest.Done("three")),
	))
	d.write("b.md", "the first")
	d.write("c.md", "the second")
	d.write("a.md", "the third")
	out, errOut, code := d.cli("map", "b.md", "c.md", "a.md", "--json")
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	var got []struct {
		Prompt, Output, Reason string
		Status                 taskdir.Status
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, want := range []struct{ prompt, output, reason, text string }{
		{"b.md", "b.out.txt", "completed", "one"},
		{"c.md", "c.out.txt", "failed", "Incorrect API key"},
		{"a.md", "a.out.txt", "completed", "three"},
	} {
		r := got[i]
		if r.Prompt != want.prompt || r.Output != want.output || r.Reason != want.reason || string(r.Status.Output) != d.path(want.output) {
			t.Errorf("%d: prompt %s, output %s, reason %s, status.output %s; want %+v", i, r.Prompt, r.Output, r.Reason, r.Status.Output, want)
		}
		wants(t, want.output, d.finished(d.path(want.output)), want.text)
	}
}

// What prompt files cost stands in the accounts, beside what the daemon's tasks do,
// and counts for the limit of the day. Their agents see no more of the daemon's state
// than others.
func TestPromptFilesAreAccountedFor(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.Route(
		llmtest.Task("look", command("ls state; cat state/usage/*"), llmtest.Done("done").Usage(1000, 100, 0)),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("done").Usage(1000, 100, 0)))), "GASUPERVISOR_LIMITS_COST_PER_DAY=100")
	config := d.read(d.path("config.toml"))
	d.write("config.toml", strings.Replace(config, "model = \"test\"", "model = \"test\"\nprice = { input = 10000.0, cached = 10000.0, output = 0.0 }", 1))
	d.start()
	d.begin("a", "begin")
	d.output("a", 0)
	d.write("one.md", "the first")
	d.write("two.md", "the second")
	if out, errOut, code := d.cli("func", "one.md"); code != 0 {
		t.Fatalf("func exits with %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := d.cli("map", "one.md", "two.md"); code != 0 {
		t.Fatalf("map exits with %d: %s%s", code, out, errOut)
	}
	requests := func() int {
		out, _, _ := d.cli("usage", "--json")
		var days []struct {
			LLMs map[string]struct{ Requests int }
		}
		if err := json.Unmarshal([]byte(out), &days); err != nil || len(days) == 0 {
			t.Fatalf("%v\n%s", err, out)
		}
		n := 0
		for _, day := range days {
			n += day.LLMs["scripted"].Requests
		}
		return n
	}
	if n := requests(); n != 4 {
		t.Errorf("%d requests in the accounts, want 4", n)
	}
	d.write("look.md", "look around")
	d.cli("func", "look.md", "--work-dir", ".")
	of := d.requests("look around")
	lacks(t, "what an agent sees of the state directory", of[1].Results()[0], "scripted")

	// Some 60 of 100 USD are spent: for the daemon too, once there is no room.
	d.cli("map", "one.md", "two.md")
	d.begin("b", "another")
	wants(t, "the output", d.output("b", 0), "[budget: ")
	if _, errOut, code := d.cli("func", "one.md"); code != 4 {
		t.Errorf("func exits with %d beyond the limit: %s", code, errOut)
	}
}
