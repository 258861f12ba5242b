//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// sendOut is a call that sends out a subagent for each prompt.
func sendOut(prompts ...string) llmtest.Reply {
	b, err := json.Marshal(map[string]any{"description": "several parts", "prompts": prompts})
	if err != nil {
		panic(err) // texts always marshal
	}
	return llmtest.Call("task", string(b))
}

func parts(n int) (prompts []string) {
	for i := range n {
		prompts = append(prompts, fmt.Sprintf("part<%d>", i+1))
	}
	return prompts
}

// Thirty-two subagents and one place: the parent lends it, and gets their results
// in the order in which it asked.
func TestThirtyTwoSubagentsAndOnePlace(t *testing.T) {
	t.Parallel()
	const n = 32
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case strings.Contains(r.FirstUser(), "part<"):
			_, text, _ := strings.Cut(r.FirstUser(), "part<")
			no, _, _ := strings.Cut(text, ">")
			if r.Turn() == 1 {
				return call("list_files", "path", ".").Usage(100, 10, 50)
			}
			return llmtest.Done("result<"+no+">").Usage(200, 20, 100)
		case len(r.Results()) > 0:
			return llmtest.Done("together").Usage(3000, 30, 0)
		}
		return sendOut(parts(n)...).Usage(1000, 300, 0)
	}, "GASUPERVISOR_MAX_RUNNING=1")
	d.begin("a", "send them out")
	d.output("a", 0)
	st := d.comes("a", taskdir.AwaitingReply)
	u := st.Usage
	if st.Reason != "completed" || len(st.Children) != n || u.Requests != 2+2*n || u.InputTokens != 4000+300*n || u.OutputTokens != 330+30*n || u.CachedTokens != 150*n {
		t.Errorf("reason %q, %d children, usage %+v", st.Reason, len(st.Children), u)
	}
	of := d.requests("send them out")
	results := strings.Join(of[len(of)-1].Results(), "\n")
	at := 0
	for i := range n {
		want := fmt.Sprintf("result<%d>", i+1)
		k := strings.Index(results[at:], want)
		if k < 0 {
			t.Fatalf("%s is missing or out of order in\n%s", want, results)
		}
		at += k
	}
	for i := range n {
		name := fmt.Sprintf("a.%d", i+1)
		d.output(name, 0)
		if st := d.comes(name, taskdir.Ended); st.Reason != "completed" || string(st.Result) != fmt.Sprintf("result<%d>", i+1) || st.Usage.Requests != 2 {
			t.Errorf("%s: reason %q, result %q, %d requests", name, st.Reason, st.Result, st.Usage.Requests)
		}
	}
	if _, peak := d.model.InFlight(); peak != 1 {
		t.Errorf("%d requests at once with one place", peak)
	}
	d.accepted()
}

// A stop of the parent while one of many children has the only place ends those that
// run and those that only stand in the queue, and the place is free for others.
func TestStopOfAParentWhoseChildrenQueue(t *testing.T) {
	t.Parallel()
	const n = 32
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case strings.Contains(r.FirstUser(), "part<3>"):
			return llmtest.Done("never").When(gate)
		case strings.Contains(r.FirstUser(), "part<"), strings.Contains(r.FirstUser(), "fence"):
			return llmtest.Done("done")
		case strings.Contains(r.LastUser(), "go on"):
			return llmtest.Done("I know of them")
		}
		return sendOut(parts(n)...)
	}, "GASUPERVISOR_MAX_RUNNING=1")
	d.begin("a", "send them out")
	d.until("the child that hangs asks", func() bool { return len(d.requests("part<3>")) == 1 })
	// Calls begin side by side, so it may be any of the children. With one place, those
	// that asked before it have ended.
	before := d.model.Count()
	ran := before - 2
	wants(t, "output.txt", d.stopRound("a", 0), "stopped")
	d.fence("fence")
	asked := d.model.Count()
	born := d.comes("a", taskdir.AwaitingReply).Children
	if len(born) < ran+2 {
		t.Errorf("children %v, want the %d that ran, the one that hangs and some that wait for a place", born, ran)
	}
	ended := map[string]int{}
	for _, name := range born {
		d.output(name, 0)
		ended[string(d.comes(name, taskdir.Ended).Reason)]++
	}
	if ended["completed"] != ran || ended["stopped"] != len(born)-ran {
		t.Errorf("children ended %v, want %d completed and the others stopped", ended, ran)
	}
	d.sh(`echo "go on" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "I know of them")
	// A child that was given its place as the stop came may have asked before it heard
	// of it; of 32 no more than a few.
	if n := d.model.Count(); n != asked+1 || asked < before+1 || asked > before+1+3 {
		t.Errorf("%d requests before the stop, %d after it and the fence, %d in all; want one more each, or a few as the stop comes on a busy machine", before, asked, n)
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}
}

// Children of children down to the depth allowed; there a subagent is told that it
// may send out none, and everybody's spending arrives at the top.
func TestSubagentsDownToTheirDepth(t *testing.T) {
	t.Parallel()
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		_, text, _ := strings.Cut(r.FirstUser(), "depth<")
		depth, _, _ := strings.Cut(text, ">")
		if results := r.Results(); len(results) > 0 {
			return llmtest.Done("told at " + depth + ": " + strings.Join(results, " "))
		}
		if slices.Contains(r.ToolNames(), "task") == (depth == "0iii") {
			t.Errorf("at depth %s the tools are %q", depth, r.ToolNames())
		}
		return sendOut("depth<"+depth+"i>", "depth<"+depth+"i>")
	}, "GASUPERVISOR_MAX_RUNNING=1", "GASUPERVISOR_AGENT_MAX_DEPTH=3")
	d.begin("a", "depth<0>")
	d.output("a", 0)
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Reason != "completed" || st.Usage.Requests != 2*(1+2+4+8) {
		t.Errorf("reason %q, %d requests in all, want 30", st.Reason, st.Usage.Requests)
	}
	deepest := d.requests("depth<0iii>")
	if len(deepest) != 2*8 {
		t.Fatalf("%d requests at the greatest depth, want 16", len(deepest))
	}
	wants(t, "what the deepest is told", strings.Join(deepest[len(deepest)-1].Results(), "\n"), "task")
	for _, name := range []string{"a.1.1.1", "a.2.2.2"} {
		if st := d.comes(name, taskdir.Ended); st.Reason != "completed" || len(st.Children) != 0 {
			t.Errorf("%s: reason %q, children %v", name, st.Reason, st.Children)
		}
	}
	entries, err := os.ReadDir(d.path("temp"))
	if err != nil || len(entries) != 15 {
		t.Errorf("%d tasks (%v), want 15", len(entries), err)
	}
	d.accepted()
}

// Three hundred tasks of three rounds each, with the reply for the next round there
// before the one before is over, and a stop in every seventh: nobody is asked twice,
// and every round has its marker.
func TestThreeHundredTasksOfThreeRounds(t *testing.T) {
	t.Parallel()
	const n = 300
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		_, last, _ := strings.Cut(r.LastUser(), "\n")
		last = strings.TrimSpace(strings.SplitN(last, "\n", 2)[0])
		if strings.HasPrefix(last, "one of") && stopped(number.FindString(r.FirstUser())) {
			return llmtest.Text("this is never said to its end").Pieces(8).StallAfter(2)
		}
		return llmtest.Done("answer to " + last)
	}, "GASUPERVISOR_MAX_RUNNING=8")
	name := func(i int) string { return fmt.Sprintf("t%d", i) }
	for i := range n {
		d.begin(name(i), fmt.Sprintf("zero of number<%d>", i))
	}
	for i := range n {
		d.write("temp/"+name(i)+"/reply.txt", fmt.Sprintf("one of number<%d>", i))
	}
	next := map[int]int{}
	for i := range n {
		next[i] = 1
	}
	// Their supervisor: stops what hangs, and replies when the reply before is taken.
	goesOn := func(i int) bool {
		file := func(file string) string { b, _ := os.ReadFile(d.task(name(i), file)); return string(b) }
		switch {
		case next[i] == 1 && stopped(fmt.Sprintf("number<%d>", i)):
			if !strings.Contains(file("output1.txt"), "this is") {
				return false
			}
			d.write("temp/"+name(i)+"/_stop", "")
			next[i] = 2
		case next[i] <= 2:
			if file("reply.txt") != "" {
				return false
			}
			d.write("temp/"+name(i)+"/reply.txt", fmt.Sprintf("two of number<%d>", i))
			next[i] = 3
		default:
			if !strings.HasSuffix(file("output2.txt"), "\n\n"+taskdir.Marker+"\n") {
				return false
			}
			delete(next, i)
		}
		return true
	}
	for len(next) > 0 {
		d.until("any of the tasks goes on", func() bool {
			progress := false
			for i := range next {
				progress = goesOn(i) || progress
			}
			return progress
		})
	}
	asked := map[string]int{}
	for _, r := range d.model.Requests() {
		_, last, _ := strings.Cut(r.LastUser(), "\n")
		asked[strings.TrimSpace(strings.SplitN(last, "\n", 2)[0])]++
	}
	for i := range n {
		no := fmt.Sprintf("number<%d>", i)
		for round, word := range []string{"zero", "one", "two"} {
			text := d.output(name(i), round)
			if want := "answer to " + word + " of " + no; !strings.Contains(text, want) && !(round == 1 && stopped(no)) {
				t.Errorf("round %d of task %d lacks %q:\n%s", round, i, want, text)
			}
			if got := asked[word+" of "+no]; got != 1 {
				t.Errorf("task %d was asked %q %d times", i, word, got)
			}
		}
		if st := d.comes(name(i), taskdir.AwaitingReply); st.Round != 2 || st.Reason != "completed" {
			t.Errorf("task %d: round %d, reason %q", i, st.Round, st.Reason)
		}
	}
	if got := d.model.Count(); got != 3*n {
		t.Errorf("%d requests, want %d", got, 3*n)
	}
	if _, peak := d.model.InFlight(); peak > 8 {
		t.Errorf("%d requests at once with eight places", peak)
	}
	d.accepted()
}

// stopped tells the tasks whose second round is stopped.
func stopped(number string) bool {
	var i int
	fmt.Sscanf(number, "number<%d>", &i)
	return i%7 == 0
}
