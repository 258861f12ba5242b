//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// answersIts tells who was asked what last, so that conversations tell their own story.
func answersIts(r *llmtest.Request) llmtest.Reply {
	_, text, _ := strings.Cut(strings.TrimSpace(r.LastUser()), "\n")
	line, _, _ := strings.Cut(text, "\n")
	return llmtest.Done("answer to " + line)
}

// forks starts a fork with the program and waits for its first round.
func (d *daemon) forks(args ...string) {
	d.t.Helper()
	if _, errOut, code := d.cli(append([]string{"fork"}, args...)...); code != 0 {
		d.t.Fatalf("fork %q exits with %d: %s", args, code, errOut)
	}
	d.output(args[1], 0)
}

// A fork may be forked again, at any round and by either way, and knows what the
// one before it knew up to there and nothing else.
func TestForksOfForks(t *testing.T) {
	t.Parallel()
	d := start(t, answersIts)
	d.begin("a", "a-zero")
	d.output("a", 0)
	d.sh(`echo a-one > temp/a/reply.txt`)
	d.output("a", 1)

	d.forks("a", "b", "--round", "0", "--input", "b-zero")
	d.sh(`echo b-one > temp/b/reply.txt`)
	d.output("b", 1)
	d.forks("b", "c", "--input", "c-zero")
	d.forks("c", "c0", "--round", "0", "--input", "c0-zero")
	d.sh(`mkdir temp/e && echo '{"fork_from": "b", "dependencies": ["the moon"]}' > temp/e/context.json && echo e-zero > temp/e/input.txt`)
	d.output("e", 0)
	// Its context.json says where it came from, and goes with the fork.
	d.forks("e", "f", "--input", "f-zero")
	d.sh(`mkdir temp/g && echo '{"fork_from": "f"}' > temp/g/context.json && echo g-zero > temp/g/input.txt`)
	d.output("g", 0)

	for asked, knows := range map[string][]string{
		"b-zero":  {"a-zero", "b-zero"},
		"c-zero":  {"a-zero", "b-zero", "b-one", "c-zero"},
		"c0-zero": {"a-zero", "b-zero", "b-one", "c-zero", "c0-zero"},
		"e-zero":  {"a-zero", "b-zero", "b-one", "e-zero"},
		"f-zero":  {"a-zero", "b-zero", "b-one", "e-zero", "f-zero"},
		"g-zero":  {"a-zero", "b-zero", "b-one", "e-zero", "f-zero", "g-zero"},
	} {
		r := firstWith(d, asked)
		var heard []string
		for _, m := range r.Messages {
			for _, word := range []string{"a-zero", "a-one", "b-zero", "b-one", "c-zero", "c0-zero", "e-zero", "f-zero", "g-zero"} {
				if m.Role == "user" && strings.Contains(m.Content, word) {
					heard = append(heard, word)
				}
			}
		}
		if fmt.Sprint(heard) != fmt.Sprint(knows) {
			t.Errorf("who was asked %q had heard %q, want %q", asked, heard, knows)
		}
	}
	for _, name := range []string{"b", "c", "c0", "e", "f", "g"} {
		if st := d.comes(name, taskdir.AwaitingReply); st.Reason != "completed" || st.Error != nil {
			t.Errorf("%s: reason %q, error %+v", name, st.Reason, st.Error)
		}
	}
	d.fence("fence")
	if n := d.model.Count(); n != 10 {
		t.Errorf("%d requests, want 10: each message has one answer", n)
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}
	// The second session has no round 1.
	d.sh(`echo a-again > temp/a/input.txt`)
	d.finished(d.task("a", "old", "1", "output.txt"))
	d.until("the second session is through", func() bool {
		st := d.status("a")
		return st != nil && st.Session == 2 && st.State == taskdir.AwaitingReply
	})
	if _, errOut, code := d.cli("fork", "a", "h", "--round", "1", "--input", "never"); code != 1 || !strings.Contains(errOut, "round 1") {
		t.Errorf("fork of a round that its session does not have exits with %d: %s", code, errOut)
	}
	if d.status("h") != nil {
		t.Error("a fork that failed left a task behind")
	}
}

func firstWith(d *daemon, text string) *llmtest.Request {
	d.t.Helper()
	for _, r := range d.model.Requests() {
		if strings.Contains(r.LastUser(), text) {
			return r
		}
	}
	d.t.Fatalf("no request asks %q", text)
	return nil
}

// Forks of rounds that run, that have ended, that wait in the queue and that nobody
// knows.
func TestForksOfWhatIsNotAtRest(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case r.LastUser() == r.FirstUser() && strings.Contains(r.FirstUser(), "long work"):
			if r.Turn() == 1 {
				return call("list_files", "path", ".").Text("I look first.")
			}
			return llmtest.Done("the long work is done").When(gate)
		}
		return answersIts(r)
	})
	d.begin("busy", "long work")
	d.asked(2)
	d.forks("busy", "cli", "--input", "beside it, by command")
	if _, errOut, code := d.cli("fork", "busy", "early", "--round", "0", "--input", "never"); code != 1 || !strings.Contains(errOut, "round 0") {
		t.Errorf("fork of a round that is not over exits with %d: %s", code, errOut)
	}
	d.sh(`mkdir temp/file && echo '{"fork_from": "busy"}' > temp/file/context.json && echo "beside it, by file" > temp/file/input.txt`)
	d.output("file", 0)
	for _, asked := range []string{"beside it, by command", "beside it, by file"} {
		wants(t, "the fork of a running round", string(firstWith(d, asked).Body), "long work", "I look first.", asked)
	}
	close(gate)
	wants(t, "the forked round", d.output("busy", 0), "the long work is done")
	d.comes("busy", taskdir.AwaitingReply)
	d.sh(`touch temp/busy/_stop`)
	d.comes("busy", taskdir.Ended)
	d.forks("busy", "ended", "--round", "0", "--input", "after its end")
	wants(t, "the fork of an ended session", string(firstWith(d, "after its end").Body), "long work", "the long work is done")

	d.sh(`rm -r temp/busy`)
	d.until("the session ends with its directory", func() bool { return strings.Contains(d.log(), "directory is gone") })
	if _, errOut, code := d.cli("fork", "busy", "late", "--input", "never"); code == 0 || !strings.Contains(errOut, "busy") {
		t.Errorf("fork of a removed task exits with %d: %s", code, errOut)
	}
	for name, from := range map[string]string{"gone": "busy", "nobody": "nobody at all", "itself": "itself"} {
		d.sh(`mkdir temp/` + name + ` && echo '{"fork_from": "` + from + `"}' > temp/` + name + `/context.json && echo never > temp/` + name + `/input.txt`)
		wants(t, "the fork of "+from, d.output(name, 0), "fork_from", from, "failed")
		if st := d.comes(name, taskdir.AwaitingReply); st.Error == nil || st.Error.Kind != "context" {
			t.Errorf("fork of %s: error %+v", from, st.Error)
		}
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}
}
