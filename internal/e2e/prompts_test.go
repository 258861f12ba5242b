//go:build unix

package e2e

import (
	"encoding/json"
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
