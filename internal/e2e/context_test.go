//go:build unix

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func readable(path string) (string, error) {
	b, err := os.ReadFile(path)
	return string(b), err
}

func TestWrongContextsEndARoundBeforeAToken(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	for name, c := range map[string]struct {
		context string
		says    []string
	}{
		"missing input file": {`{"input_files": {"spec": "/nowhere/spec.md"}}`, []string{"input_files", `"spec"`, "/nowhere/spec.md"}},
		"no JSON":            {`{"task": "half of it`, []string{"context.json"}},
		"wrong type":         {`{"max_turns": "many"}`, []string{"max_turns", "many"}},
		"unknown agent":      {`{"agent": "nobody"}`, []string{"agent", "nobody"}},
		"unknown LLM":        {`{"llm": "gpt-17"}`, []string{"llm", "gpt-17", "scripted"}},
		"too high a number":  {`{"llm": 7}`, []string{"llm", "\"7\"", "scripted", "the number 0"}},
		"unknown tool":       {`{"tools": ["read_file", "fly"]}`, []string{"tools", "fly", "read_file"}},
	} {
		if err := os.Mkdir(d.task(name), 0o755); err != nil {
			t.Fatal(err)
		}
		d.write("temp/"+name+"/context.json", c.context)
		d.write("temp/"+name+"/input.txt", "begin")
		wants(t, name+": output.txt", d.output(name, 0), append(c.says, "failed")...)
		st := d.comes(name, taskdir.AwaitingReply)
		if st.Reason != "failed" || st.Error == nil || st.Usage.Requests != 0 {
			t.Errorf("%s: reason %q, error %+v, %d requests", name, st.Reason, st.Error, st.Usage.Requests)
		}
	}
	if n := d.model.Count(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

func TestInputFilePutThereAndAReply(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	spec := d.path("spec.md")
	d.sh(`mkdir temp/a && printf '{"input_files": {"spec": "%s"}}' "$PWD/spec.md" > temp/a/context.json && echo "follow the spec" > temp/a/input.txt`)
	wants(t, "output.txt", d.output("a", 0), "failed", spec)
	d.sh(`echo "Rule 1" > spec.md && echo "it is there now" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "done")
	wants(t, "the request", string(d.model.Requests()[0].Body), "follow the spec", spec, "it is there now")
	d.accepted()
}

func TestInputWrittenAgainDuringARound(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, llmtest.Route(
		llmtest.Task("first plan", command("echo begun; "+sleep).Text("I begin with the first plan."), llmtest.Done("never")),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("the second plan is done")))))
	d.begin("a", "first plan")
	d.until("its command runs", func() bool { return len(processes(t, sleep)) > 0 })
	d.sh(`echo "second plan" > temp/a/input.txt`)
	old := d.finished(d.task("a", "old", "1", "output.txt"))
	wants(t, "old/1/output.txt", old, "I begin with the first plan.", "replaced")
	if left := processes(t, sleep); len(left) > 0 {
		t.Errorf("processes %v of the replaced round live on", left)
	}
	wants(t, "output.txt", d.output("a", 0), "the second plan is done")
	lacks(t, "output.txt", d.output("a", 0), "first plan")
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Session != 2 || st.Round != 0 || st.Reason != "completed" {
		t.Errorf("session %d, round %d, reason %q; want 2, 0, completed", st.Session, st.Round, st.Reason)
	}
	lacks(t, "the second session", string(d.requests("second plan")[0].Body), "first plan")
	before, err := taskdir.ReadStatus(d.task("a", "old", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if before.State != taskdir.Ended || before.Reason != "replaced" {
		t.Errorf("old status: state %q, reason %q", before.State, before.Reason)
	}
	d.accepted()
}

// An agent, or a stranger, plants links where the daemon writes.
func TestPlantedLinksReachNoVictim(t *testing.T) {
	t.Parallel()
	files := []string{"output.txt", "status.json", "events.jsonl", "history.json", "subagent_plan.md"}
	plan := llmtest.Call("update_plan", `{"steps":[{"text":"look","status":"done"},{"text":"write","status":"done"}]}`)
	d := start(t, llmtest.Route(
		llmtest.Task("born with links", plan, llmtest.Done("done")),
		llmtest.Task("makes links",
			command(`for f in output1.txt status.json events.jsonl history.json subagent_plan.md; do ln -sf "$PWD/../victims/$f" "links/$f"; done; ls links`),
			plan, llmtest.Done("done"), plan, llmtest.Done("done")),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("done")))))
	d.sh(`mkdir victims temp/born outside; for f in ` + strings.Join(files, " ") + ` output1.txt; do echo precious > victims/$f; done
		for f in ` + strings.Join(files, " ") + `; do ln -s "$PWD/victims/$f" temp/born/$f; done
		echo "born with links" > temp/born/input.txt
		echo outside > outside/input.txt; ln -s "$PWD/outside" temp/linked
		mkfifo victims/pipe; mkdir temp/pipe; ln victims/output.txt victims/hard; mkfifo temp/pipe/input.txt`)
	d.output("born", 0)
	d.begin("links", "makes links")
	d.output("links", 0)
	d.sh(`echo again > temp/links/reply.txt`)
	d.output("links", 1)
	d.fence("fence")
	d.until("the linked directory is refused", func() bool { return strings.Contains(d.log(), "linked") })
	d.until("the fifo is refused", func() bool { return strings.Contains(d.log(), "task=pipe") })
	for _, f := range append(files, "output1.txt") {
		if got := d.read(d.path("victims", f)); got != "precious\n" {
			t.Errorf("victim %s holds %q", f, got)
		}
	}
	for _, path := range []string{d.task("born", "output.txt"), d.task("born", "status.json"), d.task("links", "output1.txt"), d.task("links", "status.json")} {
		if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v, %v; want a regular file", path, fi.Mode(), err)
		}
	}
	entries, err := os.ReadDir(d.path("outside"))
	if err != nil || len(entries) != 1 {
		t.Errorf("outside holds %v (%v), want nothing but input.txt", entries, err)
	}
	if n := len(d.requests("outside")); n != 0 {
		t.Errorf("%d requests for the linked directory", n)
	}
	d.accepted()
}

// What a session says at its limit is what works: a reply has as many turns again,
// another max_turns counts for a fork and from the next input.
func TestLimitsAreRaisedAsTheMessageSays(t *testing.T) {
	t.Parallel()
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Fields["tool_choice"] != nil {
			return llmtest.Text("so far")
		}
		if strings.Contains(r.LastUser(), "raised") && r.Turn() > 8 {
			return llmtest.Done("all of it")
		}
		return call("list_files", "path", fmt.Sprint("dir", r.Turn()))
	})
	d.sh(`mkdir temp/a; echo '{"max_turns": 2}' > temp/a/context.json; echo begin > temp/a/input.txt`)
	wants(t, "the output at the limit", d.output("a", 0), "[max_turns: ", "all of its 2 turns", "Reply to go on with as many again",
		"another max_turns in context.json counts from the next input.txt", "gasupervisor fork")
	d.sh(`echo '{"max_turns": 20}' > temp/a/context.json; echo "go on" > temp/a/reply.txt`)
	wants(t, "the output of the reply", d.output("a", 1), "all of its 2 turns")
	d.comes("a", taskdir.AwaitingReply)
	if out, errOut, code := d.cli("fork", "a", "b", "--input", "raised, go on", "--wait"); code != 0 || !strings.Contains(out, "all of it") {
		t.Errorf("the fork exits with %d: %s%s", code, out, errOut)
	}
	last := d.model.Requests()[d.model.Count()-1]
	if !last.Has("begin") {
		t.Error("the fork does not know the conversation")
	}
}

// An agent whose temporary directory nobody else sees is told so, once, in the head
// of its conversation.
func TestAgentsAreToldOfTheirOwnTmp(t *testing.T) {
	t.Parallel()
	const told = "Temporary directories (/tmp) are yours alone"
	d := start(t, done)
	d.begin("a", "the writer")
	d.sh(`mkdir temp/b; echo '{"tools": ["read_file"]}' > temp/b/context.json; echo "the reader" > temp/b/input.txt`)
	d.output("a", 0)
	d.output("b", 0)
	d.sh(`echo "go on" > temp/a/reply.txt`)
	d.output("a", 1)
	of := d.requests("the writer")
	wants(t, "the first message", of[0].FirstUser(), told)
	if n := strings.Count(string(of[1].Body), told); n != 1 {
		t.Errorf("the second round's request says it %d times, want once", n)
	}
	lacks(t, "the reader's request", string(d.requests("the reader")[0].Body), told)
	d.accepted()

	off := start(t, done, "GASUPERVISOR_SANDBOX_MODE=off")
	off.begin("a", "the writer")
	off.output("a", 0)
	lacks(t, "the request without confinement", string(off.requests("the writer")[0].Body), told)
}

// A context.json that comes while a session waits has a receipt that says so, once,
// also after a restart.
func TestContextThatComesWhileTheSessionWaits(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.begin("a", "begin")
	d.output("a", 0)
	d.comes("a", taskdir.AwaitingReply)
	d.sh(`echo '{"max_turns": 3}' > temp/a/context.json`)
	late := func() (n int) {
		for _, m := range d.status("a").Messages {
			if m.File == "context.json" && strings.HasPrefix(string(m.Outcome), "too late for this session") {
				n++
			}
		}
		return n
	}
	d.until("the receipt", func() bool { return late() == 1 })
	d.kill()
	d.start()
	d.sh(`echo note > temp/a/_keyinfo`)
	d.until("the note is taken", func() bool { return len(d.status("a").Messages) == 3 })
	if late() != 1 {
		t.Errorf("receipts: %+v", d.status("a").Messages)
	}
}
