//go:build unix

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// Names that shells, terminals and file systems find hard.
func TestOddNames(t *testing.T) {
	t.Parallel()
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		switch results := r.Results(); {
		case strings.Contains(r.LastUser(), "once more"), strings.Contains(r.FirstUser(), "fence"):
			return llmtest.Done("again")
		case strings.Contains(r.FirstUser(), "the part of a subagent"):
			return llmtest.Done("found by the subagent")
		case len(results) > 0:
			return llmtest.Done("told: " + results[0])
		}
		return call("task", "description", "one part", "prompt", "the part of a subagent")
	})
	long := strings.Repeat("é", 126) + "abc"
	names := []string{"with  two spaces ", "new\nline", "caf\u00e9", "cafe\u0301", "-rf", "--help", "🦊\t\x1b[31m", `q'"$(x)\`, "a.1", "a", long,
		"output.txt", "con", strings.Repeat("x", 253)}
	for _, name := range names {
		d.begin(name, "begin")
	}
	for _, name := range names {
		child := "found by the subagent"
		if len(name) > 253 {
			child = "not run" // there is no room for its name
		}
		wants(t, "the output of "+name, d.output(name, 0), child)
		st := d.comes(name, taskdir.AwaitingReply)
		if st.Reason != "completed" || string(st.Task) != name {
			t.Errorf("%q: reason %q, task %q", name, st.Reason, st.Task)
		}
		if _, errOut, code := d.cli("reply", "--wait", "--", name, "once more"); code != 0 {
			t.Errorf("reply %q exits with %d: %s", name, code, errOut)
		}
		wants(t, "the second output of "+name, d.output(name, 1), "again")
	}
	// What is no text is a name all the same.
	d.begin("\xff\xfe", "once more")
	d.output("\xff\xfe", 0)
	asked := d.model.Count()
	d.kill()
	d.start()
	d.fence("fence")
	if n := d.model.Count(); n != asked+1 {
		t.Errorf("%d requests after a restart, want none but the fence's", n-asked)
	}
	d.sh(`for t in temp/*; do printf 'once more' > "$t/.r"; mv "$t/.r" "$t/reply.txt"; done`)
	d.until("all replies are answered", func() bool { return d.model.Count() == asked+1+2*len(names)+1 })
	out, _, code := d.cli("ls")
	if code != 0 {
		t.Errorf("ls exits with %d", code)
	}
	lacks(t, "ls", out, "\x1b[31m")
	if got, want := strings.Count(out, "\n"), 2*len(names)-2; got < want {
		t.Errorf("ls has %d lines, want a line for each of %d tasks:\n%s", got, want, out)
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}
}

// Files that editors, other systems and accidents write: each is a message, or is
// refused in so many words, and none keeps the task from going on.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	d := start(t, answersIts)
	files := map[string]struct {
		script string // writes "$1"
		heard  string // what the model hears; "" where the file is refused
	}{
		"crlf":      {`printf 'one\r\ntwo\r\n' > "$1"`, "\none\r\ntwo"},
		"bom":       {`printf '\357\273\277one\n' > "$1"`, "\none"},
		"utf-16":    {`printf '\376\377\000o\000n\000e' > "$1"`, "\none"},
		"nul":       {`printf 'one\000two' > "$1"`, "\none\x00two"},
		"invalid":   {`printf 'one \377 two' > "$1"`, "\none \uFFFD two"},
		"read-only": {`echo one > "$1.x"; chmod 400 "$1.x"; mv "$1.x" "$1"`, "\none"},
		"later":     {`: > "$1"; sleep 0.1; echo one > "$1"`, "\none"},
		"hole":      {`truncate -s 64K "$1.x"; echo one >> "$1.x"; mv "$1.x" "$1"`, "\x00one"},
		"sparse":    {`truncate -s 3G "$1"`, ""},
	}
	for name, f := range files {
		d.begin(name, "begin "+name)
		d.output(name, 0)
		d.sh(`mkdir 'temp/new ` + name + `'; w() { ` + f.script + `; }; w 'temp/` + name + `/reply.txt'; w 'temp/new ` + name + `/input.txt'`)
	}
	for name, f := range files {
		var st *taskdir.Status
		d.until(name+" has its receipt", func() bool { st = d.status(name); return len(st.Messages) > 1 })
		if f.heard == "" {
			wants(t, "the receipt of "+name, string(st.Messages[1].Outcome), "refused")
			wants(t, "what the refused reply opened", d.output(name, 1), "failed", "limit")
			wants(t, "what the refused input opened", d.output("new "+name, 0), "failed", "limit")
			d.sh(`echo better > 'temp/` + name + `/reply.txt'; echo better > 'temp/new ` + name + `/input.txt'`)
			f.heard = "\nbetter"
		}
		d.until("the reply "+name+" is heard", func() bool {
			of := d.requests("begin " + name)
			return strings.Contains(of[len(of)-1].LastUser(), f.heard)
		})
		// A task's first message goes on with what the daemon says of it.
		d.until("the input "+name+" is heard", func() bool {
			return slices.ContainsFunc(d.requests(f.heard), func(r *llmtest.Request) bool {
				return strings.Contains(r.FirstUser(), "/new "+name+"\n")
			})
		})
		if _, err := os.Lstat(d.task(name, "reply.txt")); !os.IsNotExist(err) {
			t.Errorf("%s: reply.txt lies there: %v", name, err)
		}
	}
	d.fence("fence")
	if n := d.model.Count(); n != 3*len(files)+1 {
		t.Errorf("%d requests, want 3 for each of %d and the fence's", n, len(files))
	}
	d.accepted()
}
