//go:build unix

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestRelativePathsStartAtTheConfigFile(t *testing.T) {
	t.Parallel()
	d := start(t, done) // its working directory is "/"
	wants(t, "the log", d.log(), "temp_dir="+d.path("temp"), "state_dir="+d.path("state"), "config="+d.path("config.toml"))
	d.fence("a")
	if fi, err := os.Stat(d.path("state")); err != nil || !fi.IsDir() {
		t.Errorf("state: %v, %v", fi, err)
	}
}

func TestSecondDaemonSaysWhoIsThere(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	begun := time.Now()
	_, errOut, code := d.cli("run")
	if code == 0 {
		t.Error("the second daemon ends with 0")
	}
	if took := time.Since(begun); took > prompt {
		t.Errorf("the second daemon took %s to end", took)
	}
	wants(t, "its message", errOut, fmt.Sprint(d.cmd.Process.Pid))
	d.fence("the first goes on")
}

func TestWhatADeadDaemonLeftDoesNotBlock(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.fence("a")
	d.kill()
	// The number may belong to a program that has nothing to do with it.
	who := lock.Holder{PID: os.Getpid(), Started: time.Now(), TempDir: d.path("temp")}
	d.write("state/daemon.json", string(who.Encode()))
	if out, errOut, _ := d.cli("ls"); !strings.Contains(out+errOut, "no daemon") {
		t.Errorf("ls does not say that no daemon runs:\n%s%s", out, errOut)
	}
	d.start()
	d.fence("b")
}

func TestRestartDuringARoundGoesOn(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.ByTurn(
		command("echo once >> effects").Text("First the effect."), llmtest.Done("finished").When(gate)))
	d.begin("a", "begin")
	d.asked(2)
	begun := time.Now()
	d.stop()
	t.Logf("the daemon ended after %s", time.Since(begun).Round(time.Millisecond))
	if b := d.read(d.task("a", "output.txt")); strings.Contains(b, taskdir.Marker) {
		t.Errorf("the output of a round that goes on has the marker:\n%s", b)
	}
	close(gate)
	d.start()
	text := d.output("a", 0)
	wants(t, "output.txt", text, "First the effect.", "restart", "finished")
	if n := strings.Count(text, "First the effect."); n != 1 {
		t.Errorf("the first answer is shown %d times", n)
	}
	if got := d.read(d.path("temp", "effects")); got != "once\n" {
		t.Errorf("the effect: %q, want it once", got)
	}
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Session != 1 || st.Round != 0 || st.Reason != "completed" {
		t.Errorf("session %d, round %d, reason %q", st.Session, st.Round, st.Reason)
	}
	d.accepted()
}

func TestRestartWhileWaitingSpendsNothing(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.ByTurn(llmtest.Done("one"), llmtest.Done("two")))
	d.begin("a", "begin")
	before := d.output("a", 0)
	d.comes("a", taskdir.AwaitingReply)
	d.stop()
	d.start()
	d.fence("fence")
	if n := len(d.requests("begin")); n != 1 {
		t.Fatalf("%d requests after a restart, want 1", n)
	}
	if now := d.output("a", 0); now != before {
		t.Errorf("the output changed to\n%s", now)
	}
	d.sh(`echo "go on" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "two")
	d.accepted()
}

func TestKillDuringACommand(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, llmtest.ByTurn(command("echo once >> effects; "+sleep), llmtest.Done("I looked: it had happened.")))
	d.begin("a", "begin")
	d.until("the command runs", func() bool {
		// The shell's own line names the sleep, too, before anything of it has run.
		effect, err := os.ReadFile(d.path("temp", "effects"))
		return err == nil && len(effect) > 0 && len(processes(t, sleep)) > 0
	})
	d.kill()
	d.start()
	wants(t, "output.txt", d.output("a", 0), "interrupted", "I looked: it had happened.")
	results := d.model.Requests()[1].Results()
	if len(results) != 1 {
		t.Fatalf("results %q, want one", results)
	}
	wants(t, "what the model is told", strings.ToLower(results[0]), "interrupted", "unknown")
	if got := d.read(d.path("temp", "effects")); got != "once\n" {
		t.Errorf("the effect: %q, want it once", got)
	}
	if st := d.comes("a", taskdir.AwaitingReply); st.Reason != "completed" {
		t.Errorf("reason %q", st.Reason)
	}
	d.accepted()
	// Commands are not confined yet: one that the killed daemon had started may live.
	endAll(t, sleep)
}

func endAll(t *testing.T, text string) {
	t.Helper()
	for _, pid := range processes(t, text) {
		if err := exec.Command("kill", "-9", fmt.Sprint(pid)).Run(); err != nil {
			t.Logf("end process %d: %v", pid, err)
		}
		t.Logf("process %d of the command outlived the killed daemon", pid)
	}
}

func TestKillInMidStreamLosesNothingThatWasPromised(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.Queue(
		llmtest.Text("half an answer that is not to be").StallAfter(2), llmtest.Done("whole"), llmtest.Done("and on")))
	d.begin("a", "begin")
	d.until("the answer streams", func() bool {
		b, _ := os.ReadFile(d.task("a", "output.txt"))
		return strings.Contains(string(b), "half an answer")
	})
	d.sh(`echo "next" > temp/a/reply.txt; echo "important" > temp/a/_keyinfo`)
	d.kill()
	d.start()
	wants(t, "output.txt", d.output("a", 0), "half an answer", "whole")
	wants(t, "output1.txt", d.output("a", 1), "and on")
	last := d.model.Requests()[2]
	wants(t, "the conversation", string(last.Body), "next", "important")
	lacks(t, "the conversation", string(last.Body), "half an answer")
	d.accepted()
}
