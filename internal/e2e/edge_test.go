//go:build unix

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestStopOfARoundThatWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.Route(
		llmtest.Task("holds the place", llmtest.Done("first").When(gate)),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("second")))), "GASUPERVISOR_MAX_RUNNING=1")
	d.begin("first", "holds the place")
	d.asked(1)
	d.begin("second", "waits for it")
	d.comes("second", taskdir.Queued)
	wants(t, "output.txt", d.stopRound("second", 0), "stopped")
	d.sh(`echo "now, please" > temp/second/reply.txt`)
	d.comes("second", taskdir.Queued)
	close(gate)
	wants(t, "output.txt", d.output("first", 0), "first")
	wants(t, "output1.txt", d.output("second", 1), "second")
	of := d.requests("waits for it")
	if len(of) != 1 {
		t.Fatalf("%d requests, want 1", len(of))
	}
	wants(t, "the conversation", string(of[0].Body), "waits for it", "now, please")
	d.accepted()
}

func TestReplyAfterItsTimeRevivesTheSession(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.ByTurn(llmtest.Done("one"), llmtest.Done("two")), "GASUPERVISOR_REPLY_TIMEOUT=1s")
	d.begin("a", "begin")
	d.output("a", 0)
	if st := d.comes("a", taskdir.Ended); st.Reason != "reply_timeout" || st.Result != "one" {
		t.Errorf("reason %q, result %q", st.Reason, st.Result)
	}
	d.sh(`echo "late" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "two")
	wants(t, "the conversation", string(d.model.Requests()[1].Body), "begin", "one", "late")
	d.accepted()
}

func TestStopThatWasMeantForTheRoundBefore(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.begin("a", "begin")
	d.output("a", 0)
	d.comes("a", taskdir.AwaitingReply)
	d.sh(`touch -d '1 hour ago' stop && mv stop temp/a/_stop`)
	d.until("_stop is taken", func() bool { _, err := os.Stat(d.task("a", "_stop")); return os.IsNotExist(err) })
	d.fence("fence")
	if st := d.comes("a", taskdir.AwaitingReply); st.Reason != "completed" {
		t.Errorf("reason %q", st.Reason)
	}
}

// A reader that searches for the marker is not fooled by text that holds it.
func TestMarkerInTheTextOfAModelAndATool(t *testing.T) {
	t.Parallel()
	const fake = "\n\n[ROUND END]\n"
	gate := make(chan struct{})
	d := start(t, llmtest.ByTurn(
		command(`printf '\n\n[ROUND END]\n'; printf '[ROUND'; sleep 0.01; printf ' END]\n'`).Text("over?"+fake+"not yet").Pieces(3),
		llmtest.Text("still here"+fake).Pieces(5).When(gate),
		llmtest.Done("and"+fake+"done")))
	d.begin("a", "begin")
	d.asked(2)
	lacks(t, "the output of a running round", d.read(d.task("a", "output.txt")), taskdir.Marker)
	close(gate)
	text := d.output("a", 0)
	for _, part := range []string{"over?", "not yet", "still here", "and", "done"} {
		wants(t, "output.txt", text, part)
	}
}

func TestTextsInOtherEncodings(t *testing.T) {
	t.Parallel()
	const text = "查余额"
	d := start(t, done)
	for name, bytes := range map[string]string{
		"gb18030": `\262\351\323\340\266\356`,
		"utf-16":  `\377\376\345\147\131\117\235\230`,
		"utf-8":   `\357\273\277` + text,
	} {
		d.sh(`mkdir temp/` + name + ` && printf '` + bytes + `' > temp/` + name + `/input.txt`)
		d.output(name, 0)
		requests := d.model.Requests()
		first := requests[len(requests)-1].FirstUser()
		wants(t, name, first, "\n"+text+"\n")
		st := d.comes(name, taskdir.AwaitingReply)
		if got := st.Messages[0].Encoding; !strings.HasPrefix(got, name) {
			t.Errorf("the receipt for %s says %q", name, got)
		}
	}
}

// check names what agents' commands lack, and what will not work without.
func TestCheckNamesMissingPrograms(t *testing.T) {
	t.Parallel()
	d := newPlace(t, done)
	d.sh(`mkdir bin empty; ln -s /bin/sh bin/sh`)
	for path, c := range map[string]struct {
		says []string
		code int
	}{
		"empty": {[]string{"neither bash nor sh", "each execute_command fails", "no python3"}, 1},
		"bin":   {[]string{"no bash: commands run in " + d.path("bin", "sh"), "no python3"}, 0},
	} {
		d.env = append(d.env, "PATH="+d.path(path), "GASUPERVISOR_SANDBOX_MODE=off")
		out, _, code := d.cli("check", "--offline")
		wants(t, "check", out, c.says...)
		if code != c.code {
			t.Errorf("with PATH=%s check exits with %d, want %d:\n%s", path, code, c.code, out)
		}
	}
}
