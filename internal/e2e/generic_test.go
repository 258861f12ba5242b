//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

var pidLine = regexp.MustCompile(`(?m)^PID: (\d+)$`)

// endDaemonOf ends the daemon that a command started in the background.
func (d *daemon) endDaemonOf(stateDir string) {
	who, err := lock.ReadHolder(stateDir)
	if err != nil || who.PID == os.Getpid() {
		return
	}
	if err := syscall.Kill(who.PID, syscall.SIGTERM); err != nil {
		return
	}
	d.until("the daemon in the background ends", func() bool { return !alive(who.PID) })
}

func (d *daemon) pidOf(out string) int {
	d.t.Helper()
	m := pidLine.FindStringSubmatch(out)
	if m == nil {
		d.t.Fatalf("no line PID: n in %q", out)
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil {
		d.t.Fatal(err)
	}
	return pid
}

func TestGenericAgentTaskStartsADaemon(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.ByTurn(llmtest.Done("one"), llmtest.Done("two")), "GASUPERVISOR_REPLY_TIMEOUT=2s")
	t.Cleanup(func() { d.endDaemonOf(d.path("state")) })
	out, errOut, code := d.cli("--task", "X", "--input", "count the files", "--llm_no", "0")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	pid := d.pidOf(out)
	wants(t, "output.txt", d.output("X", 0), "one")
	if !alive(pid) {
		t.Error("the process ended while the session waits for a reply")
	}
	d.sh(`echo "count again" > temp/X/reply.txt`)
	wants(t, "output1.txt", d.output("X", 1), "two")
	if st := d.comes("X", taskdir.Ended); st.Reason != "reply_timeout" {
		t.Errorf("reason %q", st.Reason)
	}
	d.until("the process ends with the session", func() bool { return !alive(pid) })
	wants(t, "the first message", d.model.Requests()[0].FirstUser(), "count the files")

	// Another one uses the daemon that runs, and does not take the old answer for its own.
	who, err := lock.ReadHolder(d.path("state"))
	if err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := d.cli("--task", "X", "--input", "another question"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	d.until("the model is asked anew", func() bool { return len(d.requests("another question")) == 1 })
	d.output("X", 0)
	if again, err := lock.ReadHolder(d.path("state")); err != nil || again.PID != who.PID {
		t.Errorf("daemon %d, then %d (%v); want one", who.PID, again.PID, err)
	}
	d.comes("X", taskdir.Ended)
}

func TestGenericAgentTaskIsStoppedBySignal(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.Always(llmtest.Text("I think about it for a long time").StallAfter(2)))
	t.Cleanup(func() { d.endDaemonOf(d.path("state")) })
	out, errOut, code := d.cli("--task", "X", "--input", "think")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	pid := d.pidOf(out)
	d.asked(1)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wants(t, "output.txt", d.output("X", 0), "stopped")
	d.until("the process ends", func() bool { return !alive(pid) })
}

func TestGenericAgentFunction(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.ByTurn(call("list_files", "path", "."), llmtest.Done("forty-two")))
	d.write("prompt.txt", "what is the answer?")
	out, errOut, code := d.cli("--func", "prompt.txt", "--nobg", "--llm_no", "7", "--nolog", "--no-user-tools")
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errOut)
	}
	wants(t, "prompt.out.txt", d.finished(d.path("prompt.out.txt")), "forty-two")
	wants(t, "the request", d.model.Requests()[0].FirstUser(), "what is the answer?")

	d.write("again.md", "what is the answer?")
	d.write("again.out.txt", "an old answer\n\n[ROUND END]\n")
	out, errOut, code = d.cli("--func", "again.md")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	pid := d.pidOf(out)
	if old, err := os.ReadFile(d.path("again.out.txt")); strings.Contains(string(old), "old answer") {
		t.Errorf("when the number is printed the old answer is still there: %q, %v", old, err)
	}
	wants(t, "again.out.txt", d.finished(d.path("again.out.txt")), "forty-two")
	d.until("the process in the background ends", func() bool { return !alive(pid) })
}

// What would end the process in the background is said before it is one.
func TestGenericAgentFunctionWithoutAPrompt(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.Always(llmtest.Done("nothing")))
	out, errOut, code := d.cli("--func", "missing.txt")
	if code != 2 || strings.Contains(out, "PID") {
		t.Errorf("exit code %d, output %q", code, out)
	}
	wants(t, "the message", errOut, "missing.txt")
}

func TestGenericAgentFunctionThatFailsHasItsFileAllTheSame(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.Always(llmtest.Status(401, "Incorrect API key provided.").Code("invalid_api_key")))
	d.write("prompt.txt", "what is the answer?")
	if _, errOut, code := d.cli("--func", "prompt.txt", "--nobg"); code != 0 {
		t.Errorf("exit code %d, want GenericAgent's 0\n%s", code, errOut)
	}
	wants(t, "prompt.out.txt", d.finished(d.path("prompt.out.txt")), "Incorrect API key provided.")
}

// agentmain.py lies where GenericAgent's would, and scripts call it by its path.
func TestAgentmainInPlaceOfGenericAgents(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here")
	}
	d := newPlace(t, llmtest.Route(
		llmtest.Task("a task", call("read_file", "path", "../memory/note.md"), command("cat ../memory/note.md; echo x > ../memory/mine"), llmtest.Done("done")),
		llmtest.Otherwise(done)))
	ga := d.path("GenericAgent")
	d.sh(`mkdir -p GenericAgent/memory; echo "what is remembered" > GenericAgent/memory/note.md; echo secret > GenericAgent/mykey.py`)
	script, err := os.ReadFile(filepath.Join("..", "..", "scripts", "agentmain.py"))
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(ga, "agentmain.py")
	if err := os.WriteFile(main, script, 0o644); err != nil {
		t.Fatal(err)
	}
	env := d.env[:0:0]
	for _, kv := range d.env {
		if !strings.HasPrefix(kv, "GASUPERVISOR_CONFIG=") {
			env = append(env, kv)
		}
	}
	if err := os.Remove(d.path("config.toml")); err != nil {
		t.Fatal(err)
	}
	d.env = append(env, "GASUPERVISOR="+binary, "OPENAI_BASE_URL="+d.model.URL, "OPENAI_MODEL=test", "OPENAI_API_KEY=sk-of-this-test")
	t.Cleanup(func() { d.endDaemonOf(filepath.Join(ga, "state")) })

	d.write("prompt.txt", "a function")
	if out, errOut, code := d.program(python, main, "--func", "prompt.txt", "--llm_no", "0", "--nobg", "--nolog", "--no-user-tools"); code != 0 {
		t.Fatalf("--func: exit code %d\n%s%s", code, out, errOut)
	}
	wants(t, "prompt.out.txt", d.finished(d.path("prompt.out.txt")), "done")

	out, errOut, code := d.program(python, main, "--task", "T", "--input", "a task")
	if code != 0 {
		t.Fatalf("--task: exit code %d\n%s%s", code, out, errOut)
	}
	pid := d.pidOf(out)
	wants(t, "output.txt", d.finished(filepath.Join(ga, "temp", "T", "output.txt")), "done")
	if err := os.WriteFile(filepath.Join(ga, "temp", "T", "_stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d.until("the process ends with the session", func() bool { return !alive(pid) })
	// Its agents read what they remember, and do not write it.
	of := d.requests("a task")
	wants(t, "the result of read_file", of[1].Results()[0], "what is remembered")
	wants(t, "the result of the command", of[2].Results()[0], "what is remembered")
	if _, err := os.Stat(filepath.Join(ga, "memory", "mine")); err == nil {
		t.Error("an agent has written to memory/")
	}
	for _, r := range d.model.Requests() {
		if got := r.Header.Get("Authorization"); got != "Bearer sk-of-this-test" {
			t.Errorf("Authorization %q", got)
		}
	}
}

// A prompt file works where the command line says, with the tools that it names.
func TestPromptFilesWithSettings(t *testing.T) {
	t.Parallel()
	d := newPlace(t, llmtest.ByTurn(call("read_file", "path", "note.txt"), llmtest.Done("read")))
	d.sh(`mkdir app; echo "the note" > app/note.txt; echo "read the note" > one.txt; cp one.txt two.txt`)
	for _, args := range [][]string{{"func", "one.txt"}, {"map", "two.txt"}} {
		before := d.model.Count()
		if out, errOut, code := d.cli(append(args, "--work-dir", "app", "--tools", "read_file")...); code != 0 {
			t.Fatalf("%s exits with %d: %s%s", args[0], code, out, errOut)
		}
		of := d.model.Requests()[before:]
		if got := of[0].ToolNames(); !slices.Equal(got, []string{"read_file", "attempt_completion"}) {
			t.Errorf("%s offers %q", args[0], got)
		}
		wants(t, "the result of read_file", of[1].Results()[0], "the note")
	}
}
