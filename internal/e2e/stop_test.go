//go:build unix

package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// prompt is how long a stop may take here. It takes a few milliseconds; the test
// logs how many.
const prompt = 2 * time.Second

// stopRound touches _stop and returns the output of the round that it ends.
func (d *daemon) stopRound(task string, round int) string {
	d.t.Helper()
	f, err := os.Create(d.task(task, "_stop"))
	if err != nil {
		d.t.Fatal(err)
	}
	f.Close()
	stopped := time.Now()
	text := d.output(task, round)
	took := time.Since(stopped)
	d.t.Logf("the round ended %s after _stop", took.Round(100*time.Microsecond))
	if took > prompt {
		d.t.Errorf("the round ended %s after _stop, want at most %s", took, prompt)
	}
	return text
}

func TestStopInMidStream(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.ByTurn(
		llmtest.Text("One thing is certain, and the other").StallAfter(2), llmtest.Done("I went on.")))
	d.begin("a", "tell me everything")
	d.until("the answer streams", func() bool {
		b, _ := os.ReadFile(d.task("a", "output.txt"))
		return strings.Contains(string(b), "One thing is certain")
	})
	wants(t, "output.txt", d.stopRound("a", 0), "One thing is certain", "stopped")
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Reason != "stopped" {
		t.Errorf("reason %q, want stopped", st.Reason)
	}
	d.sh(`echo "go on" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "I went on.")
	wants(t, "the conversation", string(d.model.Requests()[1].Body), "tell me everything", "One thing is certain", "go on")
	d.accepted()
}

func TestStopDuringACommand(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, llmtest.ByTurn(command("echo begun; "+sleep), llmtest.Done("I went on.")))
	d.begin("a", "wait for it")
	d.until("the command runs", func() bool { return len(processes(t, sleep)) > 0 })
	wants(t, "output.txt", d.stopRound("a", 0), "execute_command", "stopped")
	if left := processes(t, sleep); len(left) > 0 {
		t.Errorf("processes %v of the command live on after the marker", left)
	}
	d.sh(`echo "go on" > temp/a/reply.txt`)
	d.output("a", 1)
	wants(t, "the conversation", string(d.model.Requests()[1].Body), "begun", "go on")
	d.accepted()
}

func TestStopEndsProcessesThatHideFromTheirGroup(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, llmtest.ByTurn(command("setsid "+sleep+" & ("+sleep+" &) ; "+sleep), llmtest.Done("done")))
	d.begin("a", "wait for it")
	d.until("all three run", func() bool {
		n := 0
		for _, pid := range processes(t, sleep) {
			if comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); string(comm) == "sleep\n" {
				n++
			}
		}
		return n == 3
	})
	d.stopRound("a", 0)
	if left := processes(t, sleep); len(left) > 0 {
		t.Errorf("processes %v of the command live on after the marker", left)
	}
}

func TestCommandsThatLeaveSomethingRunningReturnAtOnce(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"background": "sh -c '%s & echo hi'",
		"setsid":     "sh -c 'setsid %s & echo hi'",
		"redirected": "%s >/dev/null 2>&1 & echo hi",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sleep := nap(t)
			d := start(t, llmtest.ByTurn(command(strings.ReplaceAll(line, "%s", sleep)), llmtest.Done("done")))
			begun := time.Now()
			d.begin("a", "begin")
			d.output("a", 0)
			t.Logf("the round took %s", time.Since(begun).Round(time.Millisecond))
			if left := processes(t, sleep); len(left) > 0 {
				t.Errorf("processes %v of the command live on", left)
			}
			wants(t, "the result", d.model.Requests()[1].Results()[0], "hi")
		})
	}
}

func TestCommandsReadNothingFromStandardInput(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.ByTurn(command("cat; echo ended with $?"), llmtest.Done("done")))
	d.begin("a", "begin")
	d.output("a", 0)
	wants(t, "the result", d.model.Requests()[1].Results()[0], "ended with 0")
}

// A model that has gone silent on an open connection.
func TestStopWhileTheModelIsSilent(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.Always(llmtest.Text("never").StallAfter(0)))
	d.begin("a", "begin")
	d.asked(1)
	wants(t, "output.txt", d.stopRound("a", 0), "stopped")
}

func TestSilentModelIsAskedAgain(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.Queue(llmtest.Text("half an answer, and then nothing more").StallAfter(2), llmtest.Done("whole")),
		"GASUPERVISOR_AGENT_IDLE_TIMEOUT=1s")
	d.begin("a", "begin")
	wants(t, "output.txt", d.output("a", 0), "half an answer", "[answer interrupted, asked again]", "whole")
	if st := d.comes("a", taskdir.AwaitingReply); st.Reason != "completed" || st.Usage.Requests != 2 {
		t.Errorf("reason %q after %d requests, want completed after 2", st.Reason, st.Usage.Requests)
	}
	d.accepted()
}

// A message that was stopped in the queue joins the conversation as any other does.
func TestStopInTheQueueKeepsTheMessage(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.Route(
		llmtest.Task("busy", llmtest.Done("done").When(gate)),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("done")))), "GASUPERVISOR_MAX_RUNNING=1")
	d.begin("busy", "busy")
	d.asked(1)
	d.begin("a", "the task")
	d.comes("a", taskdir.Queued)
	d.sh(`touch temp/a/_stop`)
	wants(t, "the output", d.output("a", 0), "[stopped by the supervisor]")
	d.sh(`echo "the reply" > temp/a/reply.txt`)
	close(gate)
	d.output("a", 1)
	of := d.requests("the task")
	if len(of) != 1 {
		t.Fatalf("%d requests, want one", len(of))
	}
	var said []string
	for _, m := range of[0].Messages {
		if m.Role == "user" {
			said = append(said, m.Content)
		}
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "[supervisor]\nthe task") || !strings.HasPrefix(said[1], "[supervisor]\nthe reply") {
		t.Errorf("the model is told %q, want both messages with their mark", said)
	}
}
