//go:build unix

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// sendsOut is a parent that sends out subagents once, with the arguments of its
// call; child is what each of them does whose prompt holds "part ".
func sendsOut(args string, child llmtest.Script, then llmtest.Script) llmtest.Script {
	return func(r *llmtest.Request) llmtest.Reply {
		switch {
		case strings.Contains(r.LastUser(), "part "):
			return child(r)
		case len(r.Results()) > 0:
			return then(r)
		}
		return llmtest.Call("task", args)
	}
}

// With one place, a parent whose round is stopped in the queue, after a restart,
// leaves no subagent at work.
func TestStopOfAParentInTheQueueEndsItsChildren(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]string{
		"stop":    `touch temp/a/_stop`,
		"input":   `echo "something else" > temp/a/input.txt`,
		"removed": `rm -r temp/a`,
	} {
		for _, when := range []string{"down", "up"} {
			t.Run(name+" while the daemon is "+when, func(t *testing.T) {
				t.Parallel()
				sleep := nap(t)
				script := sendsOut(`{"description":"parts","prompts":["part 1","part 2"]}`,
					func(r *llmtest.Request) llmtest.Reply { return command(sleep) }, done)
				d := newPlace(t, func(r *llmtest.Request) llmtest.Reply {
					if text := r.FirstUser(); strings.Contains(text, "something else") || strings.Contains(text, "fence") {
						return llmtest.Done("else")
					}
					return script(r)
				}, "GASUPERVISOR_MAX_RUNNING=1")
				d.start()
				d.begin("a", "send them out")
				d.until("a child works", func() bool { return napping(t, sleep) == 1 })
				d.kill()
				d.until("the commands die with the daemon", func() bool { return napping(t, sleep) == 0 })
				if when == "down" {
					d.sh(what)
				}
				d.start()
				if when == "up" {
					d.until("a child works again", func() bool { return napping(t, sleep) == 1 })
					d.sh(what)
				}
				for _, child := range []string{"a.1", "a.2"} {
					if st := d.comes(child, taskdir.Ended); st.Reason != "stopped" {
						t.Errorf("%s ended with %q", child, st.Reason)
					}
					d.output(child, 0)
				}
				d.until("nothing of them lives on", func() bool { return napping(t, sleep) == 0 })
				switch name {
				case "stop":
					d.output("a", 0)
				case "input":
					wants(t, "output", d.output("a", 0), "else")
				}
				d.fence("fence")
			})
		}
	}
}

// A subagent that is given another input is a task of its own from then on; its
// parent hears that it was replaced and does not wait for the new session.
func TestSubagentThatIsReplaced(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := newPlace(t, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case strings.Contains(r.LastUser(), "another"):
			return llmtest.Done("another one's result")
		case strings.Contains(r.LastUser(), "part "):
			return command(sleep)
		case len(r.Results()) > 0:
			return llmtest.Done("heard: " + r.Results()[0])
		}
		return llmtest.Call("task", `{"description":"parts","prompt":"part 1"}`)
	})
	d.start()
	d.begin("a", "send it out")
	d.until("the child works", func() bool { return napping(t, sleep) == 1 })
	d.write("temp/a.1/input.txt", "another")
	wants(t, "the new output", d.output("a.1", 0), "another one's result")
	begun := time.Now()
	text := d.output("a", 0)
	t.Logf("parent went on after %s", time.Since(begun))
	wants(t, "the parent's output", text, "replaced")
	lacks(t, "the parent's output", text, "another one's result")
}

// What subagents spent that a first result has made unnecessary is on their parent's
// account.
func TestFirstResultCountsAll(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		switch last := r.LastUser(); {
		case strings.Contains(last, "part 1"):
			return llmtest.Done("first").After(300 * time.Millisecond)
		case strings.Contains(last, "part "):
			return command(sleep)
		case len(r.Results()) == 1:
			return llmtest.Done("heard: " + r.Results()[0])
		}
		return llmtest.Call("task", `{"description":"parts","prompts":["part 1","part 2","part 3"],"mode":"any"}`)
	})
	d.begin("a", "send them out")
	wants(t, "output", d.output("a", 0), "first")
	if st := d.comes("a", taskdir.AwaitingReply); st.Usage.Requests != 5 {
		t.Errorf("%d requests are on the parent's account, want its 2 and one of each child", st.Usage.Requests)
	}
	for _, child := range children("a")[:3] {
		d.comes(child, taskdir.Ended)
	}
}

// A parent that goes on with the first result goes on in a place of its own, as one
// round among those that are allowed.
func TestFirstResultTakesAPlace(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		switch last := r.LastUser(); {
		case strings.Contains(last, "part "), strings.Contains(last, "neighbour"):
			return llmtest.Done("first")
		case len(r.Results()) == 1:
			return command(sleep)
		}
		return llmtest.Call("task", `{"description":"parts","prompts":["part 1","part 2","part 3"],"mode":"any"}`)
	}, "GASUPERVISOR_MAX_RUNNING=1")
	d.begin("a", "send them out")
	d.until("the parent goes on", func() bool { return napping(t, sleep) == 1 })
	d.begin("n", "neighbour")
	d.comes("n", taskdir.Queued)
	os.WriteFile(d.task("a", "_stop"), nil, 0o644)
	d.output("a", 0)
	d.output("n", 0)
}

// A crash between the end of a parent's round and that of its subagents leaves none
// at work: whoever nobody waits for stops at the next start.
func TestSubagentThatNobodyWaitsForStops(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, sendsOut(`{"description":"parts","prompt":"part 1"}`,
		func(r *llmtest.Request) llmtest.Reply { return command(sleep) }, done))
	d.begin("a", "send it out")
	d.until("the child works", func() bool { return napping(t, sleep) == 1 })
	d.kill()
	// The child is as the crash left it, and the parent's round is over.
	d.sh(`mkdir -p away/temp away/state && mv temp/a.1 away/temp/ && mv state/a_1* away/state/ && touch temp/a/_stop`)
	d.start()
	d.output("a", 0)
	d.kill()
	asked := d.model.Count()
	d.sh(`rm -rf temp/a.1 state/a_1* && mv away/temp/a.1 temp/ && mv away/state/* state/`)
	d.start()
	if st := d.comes("a.1", taskdir.Ended); st.Reason != "stopped" {
		t.Errorf("the child ended with %q", st.Reason)
	}
	d.output("a.1", 0)
	if n := d.model.Count() - asked; n != 0 {
		t.Errorf("%d requests were made for nobody", n)
	}
}
