//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestFinalErrorsOfTheProvider(t *testing.T) {
	t.Parallel()
	replies := map[string]struct {
		reply llmtest.Reply
		says  string
	}{
		"key":   {llmtest.Status(401, "Incorrect API key provided.").Code("invalid_api_key"), "Incorrect API key provided."},
		"bad":   {llmtest.Status(400, "Unsupported value: 'temperature'."), "Unsupported value: 'temperature'."},
		"quota": {llmtest.Status(429, "You exceeded your current quota.").Code("insufficient_quota").Type("insufficient_quota"), "You exceeded your current quota."},
	}
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		for name, c := range replies {
			if strings.Contains(r.FirstUser(), "fails: "+name) {
				return c.reply
			}
		}
		return llmtest.Done("done")
	})
	for name, c := range replies {
		d.begin(name, "fails: "+name)
		wants(t, "output", d.output(name, 0), c.says, "failed")
		st := d.comes(name, taskdir.AwaitingReply)
		if st.Reason != "failed" || st.Error == nil || !strings.Contains(st.Error.Message, c.says) {
			t.Errorf("%s: reason %q, error %+v", name, st.Reason, st.Error)
		}
		if n := len(d.requests("fails: " + name)); n != 1 {
			t.Errorf("%s: %d attempts, want 1", name, n)
		}
		// The LLM stays open for others.
		begun := time.Now()
		d.fence("after " + name)
		if took := time.Since(begun); took > prompt {
			t.Errorf("%s: the next task took %s", name, took)
		}
	}
}

func TestTwentyTasksOnAnLLMThatAllowsTwo(t *testing.T) {
	t.Parallel()
	const n, wait = 20, time.Second
	var mu sync.Mutex
	answered := map[int]bool{}
	script := func(r *llmtest.Request) llmtest.Reply {
		mu.Lock()
		defer mu.Unlock()
		answered[r.Ordinal] = true
		return llmtest.Done("done").After(20 * time.Millisecond)
	}
	d := newPlaceWith(t, llmtest.NewServer(t, script, llmtest.MaxInFlight(2, wait)))
	d.start()
	for i := range n {
		d.begin(fmt.Sprint(i), fmt.Sprintf("number<%d>", i))
	}
	for i := range n {
		wants(t, "output", d.output(fmt.Sprint(i), 0), "done")
	}
	refused := 0
	newest := map[string]time.Time{}
	for _, r := range d.model.Requests() {
		task := number.FindString(r.FirstUser())
		if before, again := newest[task]; again && r.At.Sub(before) < wait-10*time.Millisecond {
			t.Errorf("%s was sent again %s after it was refused, want at least %s", task, r.At.Sub(before), wait)
		}
		delete(newest, task)
		if !answered[r.Ordinal] {
			refused++
			newest[task] = r.At
		}
	}
	t.Logf("%d requests for %d tasks, %d of them refused", d.model.Count(), n, refused)
	if refused == 0 || refused > n {
		t.Errorf("%d requests were refused, want a few: some at first, and spread requests after", refused)
	}
	for i := range n {
		if st := d.comes(fmt.Sprint(i), taskdir.AwaitingReply); st.Reason != "completed" {
			t.Errorf("task %d: reason %q", i, st.Reason)
		}
	}
}

// A wait at the provider's rate limit is no silence: whoever looks sees it.
func TestWaitAtARateLimitIsShown(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.Always(llmtest.Status(429, "slow down, please").RetryAfter(time.Hour/10)))
	before := time.Now()
	d.begin("a", "begin")
	d.until("status.json says that it waits", func() bool {
		st := d.status("a")
		return st != nil && st.Waiting != nil
	})
	w := d.status("a").Waiting
	if left := w.Until.Sub(before); left < 6*time.Minute || left > 10*time.Minute || w.Since.Before(before.Add(-time.Second)) || w.Since.After(time.Now()) {
		t.Errorf("waits since %s, until %s; it was asked at %s and told to wait for six minutes", w.Since, w.Until, before)
	}
	wants(t, "why it waits", w.Why, "rate_limit", "slow down, please")
	ls, _, _ := d.cli("ls")
	wants(t, "ls", ls, "running, waits, ", " left", "slow down, please")
	show, _, _ := d.cli("show", "a")
	wants(t, "show", show, "waits", "slow down, please")
	wants(t, "events.jsonl", d.read(d.task("a", "events.jsonl")), `"event":"waits"`, "slow down, please")
	d.sh(`touch temp/a/_stop`)
	text := d.output("a", 0)
	wants(t, "output.txt", text, "[waits 6m", "slow down, please]")
	if n := strings.Count(text, "[waits"); n != 1 {
		t.Errorf("the output speaks of the wait %d times, want 1", n)
	}
	if st := d.comes("a", taskdir.AwaitingReply); st.Waiting != nil {
		t.Errorf("after the round it waits for %+v", st.Waiting)
	}
}

func TestProviderThatOnlyFails(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.Always(llmtest.Status(http.StatusInternalServerError, "The server had an error.")), "GASUPERVISOR_AGENT_RETRIES=1")
	d.begin("a", "begin")
	wants(t, "output.txt", d.output("a", 0), "failed", "The server had an error.")
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Reason != "failed" || st.Error == nil || st.Error.Kind == "" || st.Result != "" {
		t.Errorf("reason %q, error %+v, result %q", st.Reason, st.Error, st.Result)
	}
	if n := d.model.Count(); n != 2 {
		t.Errorf("%d requests, want one and one more", n)
	}
	if _, _, code := d.cli("wait", "a"); code != 1 {
		t.Errorf("wait exits with %d, want 1", code)
	}
}

func TestAgentWhoseEveryToolIsDenied(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.Always(call("write_to_file", "path", "a.txt", "content", "x")))
	d.sh(`mkdir temp/a && echo '{"tools": ["read_file", "list_files"]}' > temp/a/context.json && echo begin > temp/a/input.txt`)
	text := d.output("a", 0)
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Reason == "completed" || st.Reason == "" || st.Error == nil {
		t.Errorf("reason %q, error %+v; want what tells it from success", st.Reason, st.Error)
	}
	wants(t, "output.txt", text, string(st.Reason))
	wants(t, "the tool error", d.model.Requests()[1].Results()[0], "write_to_file", "read_file", "list_files")
	if _, _, code := d.cli("wait", "a"); code == 0 {
		t.Error("wait exits with 0")
	}
	if _, err := readable(d.path("temp", "a.txt")); err == nil {
		t.Error("the file was written")
	}
}

// A model that answers with half a call and nothing more is asked again, and
// nothing of the half is run.
func TestHalfACallIsNotRun(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.Queue(command("touch half").CutAfter(2), llmtest.Done("whole")))
	d.begin("a", "begin")
	wants(t, "output.txt", d.output("a", 0), "whole")
	if _, err := readable(d.path("temp", "half")); err == nil {
		t.Error("the half call was run")
	}
	d.accepted()
}

// A model that does not come to an end is cut off, and paid for twice at most. What
// it said is not kept for the requests to come.
func TestAnswersWithoutAnEnd(t *testing.T) {
	t.Parallel()
	const size = 34 << 20
	d := start(t, llmtest.Queue(
		llmtest.Done(strings.Repeat("on and on ", size/10)).Pieces(1<<20),
		llmtest.Done(strings.Repeat("on and on ", size/10)).Pieces(1<<20),
		llmtest.Done("short"),
	))
	d.begin("a", "begin")
	wants(t, "output.txt", d.output("a", 0), "[failed: ", "too_long", "cut off at 8 MB")
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Error == nil || st.Error.Kind != "too_long" || st.Usage.Requests != 2 {
		t.Errorf("error %+v after %d requests", st.Error, st.Usage.Requests)
	}
	d.sh(`echo "be brief" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "short")
	d.sh(`test $(du -sk state temp/a/history.json | awk '{n += $1} END {print n}') -lt 2000`)
	d.accepted()
}
