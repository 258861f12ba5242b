//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// spender is a model whose agents never finish: a parent sends out six, and each
// reads on for ever. spent adds up what the server was paid for.
func spender(spent *atomic.Int64) llmtest.Script {
	return func(r *llmtest.Request) llmtest.Reply {
		in := int64(r.Size() / 4)
		spent.Add(in + 50)
		if strings.Contains(r.FirstUser(), "send them out") && !strings.Contains(r.FirstUser(), "part<") && r.Turn() == 1 {
			return sendOut(parts(6)...).Usage(in, 50, 0)
		}
		return call("list_files", "path", fmt.Sprintf("no such place %d", r.Turn())).Usage(in, 50, 0)
	}
}

// Six children at once draw on their parent's budget: together they stay below it,
// whichever of them comes first.
func TestBudgetsOfAFamily(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		context string
		limit   float64
		of      func(tokens int64) float64
	}{
		"tokens": {`{"max_tokens": 120000}`, 120000, func(n int64) float64 { return float64(n) }},
		"money":  {`{"max_cost_usd": 0.12}`, 0.12, func(n int64) float64 { return float64(n) / 1e6 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var spent atomic.Int64
			d := start(t, spender(&spent), "GASUPERVISOR_LLM_0_PRICE_INPUT=1", "GASUPERVISOR_LLM_0_PRICE_OUTPUT=1")
			d.sh(`mkdir temp/a && echo '` + c.context + `' > temp/a/context.json && echo "send them out" > temp/a/input.txt`)
			d.output("a", 0)
			st := d.comes("a", taskdir.AwaitingReply)
			if st.Reason != "budget" || st.Error == nil || st.Error.Kind != "budget" {
				t.Errorf("reason %q, error %+v", st.Reason, st.Error)
			}
			paid := c.of(spent.Load())
			if paid > c.limit || paid < c.limit/2 {
				t.Errorf("%g of %g were spent; want most of it, and no more", paid, c.limit)
			}
			if n := st.Usage.InputTokens + st.Usage.OutputTokens; n != spent.Load() || st.Usage.Requests != int64(d.model.Count()) {
				t.Errorf("status.json says %d tokens in %d requests, the server %d in %d", n, st.Usage.Requests, spent.Load(), d.model.Count())
			}
			for _, name := range children("a") {
				if st := d.comes(name, taskdir.Ended); st.Reason != "budget" {
					t.Errorf("%s ended with %q", name, st.Reason)
				}
			}
			d.accepted()
		})
	}
}

func TestCostOfADay(t *testing.T) {
	t.Parallel()
	const limit = 0.10
	var spent atomic.Int64
	d := start(t, spender(&spent), "GASUPERVISOR_LLM_0_PRICE_INPUT=1", "GASUPERVISOR_LLM_0_PRICE_OUTPUT=1",
		fmt.Sprintf("GASUPERVISOR_LIMITS_COST_PER_DAY=%g", limit))
	d.begin("a", "send them out")
	d.begin("b", "read on")
	for _, name := range []string{"a", "b"} {
		d.output(name, 0)
		if st := d.comes(name, taskdir.AwaitingReply); st.Reason != "budget" || st.Error == nil || !strings.Contains(st.Error.Message, "cost_per_day") {
			t.Errorf("%s: reason %q, error %+v", name, st.Reason, st.Error)
		}
	}
	if paid := float64(spent.Load()) / 1e6; paid > limit || paid < limit/2 {
		t.Errorf("$%g of $%g were spent; want most of it, and no more", paid, limit)
	}
	// Neither another task nor a restart has more.
	before := d.model.Count()
	d.kill()
	d.start()
	d.begin("c", "read on")
	d.sh(`echo "and on" > temp/b/reply.txt`)
	wants(t, "output.txt", d.output("c", 0), "cost_per_day")
	wants(t, "output1.txt", d.output("b", 1), "cost_per_day")
	if n := d.model.Count(); n != before {
		t.Errorf("%d requests beyond the limit", n-before)
	}
}

// tasks_per_hour holds sessions back, not rounds; a held back one can be stopped, and
// a restart neither lets it through nor takes the start back that another was given.
func TestTasksOfAnHour(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.Route(
		llmtest.Task("first", llmtest.Done("one").When(gate), llmtest.Done("one").When(gate), llmtest.Done("two")),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("done")))),
		"GASUPERVISOR_LIMITS_TASKS_PER_HOUR=2", "GASUPERVISOR_MAX_RUNNING=1")
	d.begin("a", "first")
	d.asked(1)
	d.begin("b", "second, in the queue")
	d.comes("b", taskdir.Queued)
	d.begin("c", "third, held back")
	held := func() bool {
		st := d.status("c")
		return st != nil && st.State == taskdir.Queued && strings.Contains(fmt.Sprint(st.Warnings), "tasks_per_hour")
	}
	d.until("c is held back", held)
	d.kill()
	d.start()
	d.asked(2)
	close(gate)
	wants(t, "output.txt", d.output("a", 0), "one")
	wants(t, "the output of the one that had been let in", d.output("b", 0), "done")
	d.sh(`echo "go on" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "two")
	d.until("c is held back still", held)
	wants(t, "output.txt", d.stopRound("c", 0), "stopped")
	if st := d.comes("c", taskdir.AwaitingReply); st.Usage.Requests != 0 {
		t.Errorf("%d requests of a session that was held back", st.Usage.Requests)
	}
}
