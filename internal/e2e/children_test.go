//go:build unix

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// sixOut is a parent that sends out two general subagents, two of the explorer's
// kind and two forks in one turn, and hands over what they found. child is what each
// of them does.
func sixOut(child func(r *llmtest.Request) llmtest.Reply) llmtest.Script {
	return func(r *llmtest.Request) llmtest.Reply {
		switch prompt := r.LastUser(); {
		case strings.Contains(prompt, "part "):
			return child(r)
		case len(r.Results()) > 0:
			return llmtest.Done("together: " + strings.Join(r.Results(), "\n"))
		}
		return llmtest.Text("I send six.").
			Call("task", `{"description":"two parts","prompts":["part 1","part 2"]}`).
			Call("task", `{"description":"two more","prompts":["part 3","part 4"],"subagent_type":"explorer"}`).
			Call("task", `{"description":"two forks","prompts":["part 5","part 6"],"fork":true}`)
	}
}

// startWithExplorer starts a daemon that knows one custom agent.
func startWithExplorer(t *testing.T, script llmtest.Script, overrides ...string) *daemon {
	t.Helper()
	d := newPlace(t, script, overrides...)
	d.sh(`mkdir agents && printf -- '---\nname: explorer\ndescription: looks around\ntools: Read, LS, Bash\n---\nYou explore.\n' > agents/explorer.md`)
	d.start()
	return d
}

// napping counts the shells' sleeps that run. A shell that only sleeps becomes it.
func napping(t *testing.T, sleep string) int { return len(processes(t, sleep)) }

func children(parent string) (names []string) {
	for n := 1; n <= 6; n++ {
		names = append(names, fmt.Sprintf("%s.%d", parent, n))
	}
	return names
}

func TestTwoParentsOfSixWithTwoPlaces(t *testing.T) {
	t.Parallel()
	d := startWithExplorer(t, sixOut(func(r *llmtest.Request) llmtest.Reply {
		if r.Last().Role != "user" {
			return llmtest.Done("found in " + r.LastUser())
		}
		return call("list_files", "path", ".").Usage(100, 10, 0)
	}), "GASUPERVISOR_MAX_RUNNING=2")
	d.begin("a", "send them out")
	d.begin("b", "send them out")
	for _, parent := range []string{"a", "b"} {
		text := d.output(parent, 0)
		for n := 1; n <= 6; n++ {
			wants(t, "the parent's output", text, fmt.Sprintf("found in [supervisor]\npart %d", n))
		}
		st := d.comes(parent, taskdir.AwaitingReply)
		if len(st.Children) != 6 || st.Usage.Requests != 2+6*2 {
			t.Errorf("%s has children %v and %d requests in all, want 6 and 14", parent, st.Children, st.Usage.Requests)
		}
		for _, name := range children(parent) {
			d.output(name, 0)
			st := d.comes(name, taskdir.Ended)
			if st.Reason != "completed" || string(st.Parent) != parent {
				t.Errorf("%s ended with %q, a child of %q", name, st.Reason, st.Parent)
			}
		}
	}
	explored := 0
	for _, r := range d.model.Requests() {
		if strings.HasPrefix(r.System(), "You explore.") {
			explored++
		}
	}
	if explored != 2*2*2 {
		t.Errorf("%d requests have the custom agent's prompt, want 8", explored)
	}
	for _, r := range d.requests("part 5") {
		if !strings.Contains(r.FirstUser(), "send them out") {
			t.Error("a fork does not begin with its parent's conversation")
		}
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}

	// A child whose session is over is revived by a reply, like any task.
	d.sh(`echo "part 7" > temp/a.1/reply.txt`)
	wants(t, "the child's second output", d.output("a.1", 1), "part 7")
	d.comes("a.1", taskdir.AwaitingReply)
}

func TestStopOfAParentEndsItsChildren(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := startWithExplorer(t, sixOut(func(*llmtest.Request) llmtest.Reply { return command(sleep) }))
	d.begin("a", "send them out")
	d.until("six commands run", func() bool { return napping(t, sleep) == 6 })
	os.WriteFile(d.task("a", "_stop"), nil, 0o644)
	stopped := time.Now()
	d.until("the commands are gone", func() bool { return napping(t, sleep) == 0 })
	t.Logf("all commands were gone %s after _stop", time.Since(stopped).Round(time.Millisecond))
	d.output("a", 0)
	if st := d.comes("a", taskdir.AwaitingReply); st.Reason != "stopped" {
		t.Errorf("the parent ended with %q", st.Reason)
	}
	for _, name := range children("a") {
		d.output(name, 0)
		if st := d.comes(name, taskdir.Ended); st.Reason != "stopped" {
			t.Errorf("%s ended with %q", name, st.Reason)
		}
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}
}

func TestKillWhileChildrenWork(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := startWithExplorer(t, sixOut(func(r *llmtest.Request) llmtest.Reply {
		if results := r.Results(); len(results) > 0 && !strings.Contains(results[0], "orked here") {
			return llmtest.Done("told: " + results[0])
		}
		return command(sleep)
	}))
	d.begin("a", "send them out")
	d.until("six commands run", func() bool { return napping(t, sleep) == 6 })
	d.kill()
	d.until("the commands die with the daemon", func() bool { return napping(t, sleep) == 0 })
	d.start()
	text := d.output("a", 0)
	if n := strings.Count(text, "outcome unknown"); n != 6 {
		t.Errorf("%d of 6 children were told that their command was interrupted:\n%s", n, text)
	}
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Reason != "completed" || st.Usage.Requests != 2+6*2 {
		t.Errorf("the parent ended with %q after %d requests in all, want 14", st.Reason, st.Usage.Requests)
	}
	entries, err := os.ReadDir(d.path("temp"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 7 {
		t.Errorf("%d entries in temp, want the parent and its six children: none was started twice", len(entries))
	}
	for _, name := range children("a") {
		if st := d.comes(name, taskdir.Ended); st.Reason != "completed" {
			t.Errorf("%s ended with %q", name, st.Reason)
		}
	}
}

// Subagents send out subagents where the configuration lets them, and elsewhere do
// not even see the tool for it.
func TestSubagentsOfSubagents(t *testing.T) {
	t.Parallel()
	send := func(prompt string) llmtest.Reply {
		return call("task", "description", "further down", "prompt", prompt)
	}
	script := func(r *llmtest.Request) llmtest.Reply {
		first := r.FirstUser()
		switch {
		case len(r.Results()) > 0:
			return llmtest.Done("from below: " + r.Results()[0])
		case strings.Contains(first, "the top"):
			return send("the middle")
		case strings.Contains(first, "the middle") && slices.Contains(r.ToolNames(), "task"):
			return send("the bottom")
		}
		return llmtest.Done("end of " + first[:strings.IndexByte(first, '\n')])
	}
	for depth, want := range map[string]int{"1": 2, "2": 3} {
		d := start(t, script, "GASUPERVISOR_AGENT_MAX_DEPTH="+depth)
		d.begin("a", "the top")
		text := d.output("a", 0)
		if n := len(d.requests("the bottom")); n != want-2 {
			t.Errorf("max_depth %s: %d requests of a subagent's subagent, want %d:\n%s", depth, n, want-2, text)
		}
		if _, err := os.Stat(d.task("a.1.1")); (err == nil) != (want == 3) {
			t.Errorf("max_depth %s: the directory of a subagent's subagent: %v", depth, err)
		}
		d.accepted()
	}
}
