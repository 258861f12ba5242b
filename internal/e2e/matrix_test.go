//go:build unix

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// control are the files that a supervisor may write at any time, and what it writes.
// Texts hold a word and the cell's number, so that requests can be searched for them.
var control = []struct{ file, text string }{
	{"input.txt", "newin<%d>"},
	{"reply.txt", "reply<%d>"},
	{"_stop", ""},
	{"_keyinfo", "keyin<%d>"},
	{"_intervene", "inter<%d>"},
	{"context.json", `{"dependencies": ["depen<%d>"]}`},
	{"_history.json", `[{"role": "user", "content": "histo<%d>"}, {"role": "assistant", "content": "I see."}]`},
}

// cell is a task in some state, at which two files are written one after the other.
type cell struct {
	n             int
	first, second string
}

func cells() (all []cell) {
	for _, a := range control {
		for _, b := range control {
			if a.file != b.file {
				all = append(all, cell{len(all), a.file, b.file})
			}
		}
	}
	return all
}

func (c cell) name() string { return fmt.Sprintf("%d %s %s", c.n, c.first, c.second) }
func (c cell) has(files ...string) bool {
	return slices.Contains(files, c.first) || slices.Contains(files, c.second)
}
func (c cell) says(word string) string { return fmt.Sprintf("%s<%d>", word, c.n) }

var question = regexp.MustCompile(`(?:orig|newin|reply|inter|probe)<\d+>`)

// asks is the newest of the supervisor's messages that a request is about.
func asks(r *llmtest.Request) string {
	for _, m := range slices.Backward(r.Messages) {
		if found := question.FindAllString(m.Content, -1); m.Role == llm.User && len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

// Every pair of files, in both orders, in every state: each is taken and has its
// receipt, each message is answered once at most, and what the protocol says of the
// pair is what the conversation shows in the end.
func TestPairsOfControlFiles(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"queued", "asking", "working", "awaiting", "ended"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			testPairs(t, state)
		})
	}
}

func testPairs(t *testing.T, state string) {
	gate := make(chan struct{})
	script := func(r *llmtest.Request) llmtest.Reply {
		about := asks(r)
		reply := llmtest.Done("answer to " + about)
		switch {
		case strings.Contains(r.FirstUser(), "holds the place"):
			return reply.When(gate)
		case !strings.HasPrefix(about, "orig"):
		case state == "asking":
			return reply.When(gate)
		case state == "working" && len(r.Results()) == 0:
			return command("cat fifo")
		}
		return reply
	}
	places := 100
	if state == "queued" {
		places = 1
	}
	d := start(t, script, fmt.Sprintf("GASUPERVISOR_MAX_RUNNING=%d", places), "GASUPERVISOR_LLM_0_MAX_CONCURRENT=100")
	all := cells()
	open := func() {}
	switch state {
	case "queued":
		d.begin("blocker", "holds the place")
		d.asked(1)
		open = func() { close(gate) }
	case "asking":
		open = func() { close(gate) }
	case "working":
		d.sh("mkfifo temp/fifo")
		// With both ends open readers block, until it is closed.
		fifo, err := os.OpenFile(d.path("temp", "fifo"), os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		open = func() {
			// Who comes late finds a file, and waits for nobody.
			d.sh("rm temp/fifo && touch temp/fifo")
			fifo.Close()
		}
	}
	for _, c := range all {
		d.begin(c.name(), c.says("orig"))
	}
	for _, c := range all {
		d.comesTo(c, state)
	}
	for _, c := range all {
		for _, file := range []string{c.first, c.second} {
			for _, f := range control {
				if f.file == file {
					text := f.text
					if text != "" {
						text = fmt.Sprintf(text, c.n)
					}
					d.write("temp/"+c.name()+"/"+file, text)
				}
			}
		}
	}
	if state == "asking" || state == "working" || state == "queued" {
		d.fenceLooks(all, state)
	}
	open()
	for _, c := range all {
		d.settles(c, state)
		d.write("temp/"+c.name()+"/reply.txt", c.says("probe"))
	}
	asked := map[string]int{}
	for _, c := range all {
		d.until(c.name()+" answers the last message", func() bool {
			st := d.status(c.name())
			return st != nil && st.State == taskdir.AwaitingReply && string(st.Result) == "answer to "+c.says("probe")
		})
	}
	for _, r := range d.model.Requests() {
		asked[asks(r)]++
	}
	for _, c := range all {
		d.checkCell(c, state, asked)
	}
	for _, r := range d.model.Refusals() {
		t.Errorf("the model refused %s", r)
	}
}

// comesTo waits until a cell's task is in its state.
func (d *daemon) comesTo(c cell, state string) {
	d.t.Helper()
	switch state {
	case "queued":
		d.comes(c.name(), taskdir.Queued)
	case "asking":
		d.until(c.name()+" asks", func() bool {
			return slices.ContainsFunc(d.model.Requests(), func(r *llmtest.Request) bool { return asks(r) == c.says("orig") })
		})
	case "working":
		d.until(c.name()+" works", func() bool {
			b, _ := os.ReadFile(d.task(c.name(), "events.jsonl"))
			return strings.Contains(string(b), `"tool_begun"`)
		})
	default:
		d.output(c.name(), 0)
		d.comes(c.name(), taskdir.AwaitingReply)
	}
	if state == "ended" {
		d.write("temp/"+c.name()+"/_stop", "")
		d.comes(c.name(), taskdir.Ended)
		d.until("_stop is taken", func() bool { return !d.there(c, "_stop") })
	}
}

func (d *daemon) there(c cell, file string) bool {
	_, err := os.Lstat(d.task(c.name(), file))
	return err == nil
}

// fenceLooks waits until the daemon has acted on what has to be acted on while a
// round is queued or running.
func (d *daemon) fenceLooks(all []cell, state string) {
	d.t.Helper()
	for _, c := range all {
		if c.has("input.txt") {
			d.until(c.name()+": the new input is seen", func() bool { return d.there(c, "old/1") })
		}
		if c.has("_stop") {
			d.until(c.name()+": _stop is taken", func() bool { return !d.there(c, "_stop") })
		}
		for _, f := range []string{"context.json", "_history.json"} {
			if state == "working" && c.has(f) && !c.has("input.txt", "_stop") {
				d.until(c.name()+": "+f+" has its receipt", func() bool { return slices.Contains(d.receipts(c), f) })
			}
		}
	}
}

// receipts are those of a task's files, over all its sessions.
func (d *daemon) receipts(c cell) (files []string) {
	for _, dir := range []string{d.task(c.name()), d.task(c.name(), "old", "1")} {
		if st, err := taskdir.ReadStatus(dir); err == nil && st != nil {
			for _, m := range st.Messages {
				files = append(files, m.File)
			}
		}
	}
	return files
}

// settles waits until nothing is left to be done about a cell's files.
func (d *daemon) settles(c cell, state string) {
	d.t.Helper()
	why := ""
	defer func() {
		if d.t.Failed() {
			d.t.Log(why)
		}
	}()
	d.until(c.name()+" settles", func() bool {
		st := d.status(c.name())
		if st == nil || st.State != taskdir.AwaitingReply && st.State != taskdir.Ended {
			why = fmt.Sprintf("status %+v", st)
			return false
		}
		files := d.receipts(c)
		for _, f := range []string{c.first, c.second} {
			switch f {
			case "input.txt":
				if !d.there(c, "old/1") {
					why = "the new input is not seen"
					return false
				}
			case "context.json", "_history.json":
				if !slices.Contains(files, f) && state != "awaiting" && state != "ended" && !c.has("_stop") {
					why = fmt.Sprintf("no receipt for %s: %q", f, files)
					return false
				}
			default:
				if d.there(c, f) || !slices.Contains(files, f) {
					why = fmt.Sprintf("%s there: %v, receipts %q", f, d.there(c, f), files)
					return false
				}
			}
		}
		return true
	})
}

func (d *daemon) checkCell(c cell, state string, asked map[string]int) {
	d.t.Helper()
	bad := func(format string, args ...any) {
		d.t.Helper()
		d.t.Errorf("%s: %s", c.name(), fmt.Sprintf(format, args...))
	}
	var last *llmtest.Request
	for _, r := range d.model.Requests() {
		if asks(r) == c.says("probe") {
			last = r
		}
	}
	said := map[string]int{}
	for _, m := range last.Messages {
		if m.Role == llm.User {
			for _, word := range []string{"orig", "newin", "reply", "inter", "keyin", "depen", "histo"} {
				said[word] += strings.Count(m.Content, c.says(word))
			}
		}
	}
	starts := 0 // how often files of the start may begin a round anew
	for _, f := range []string{"context.json", "_history.json"} {
		if c.has(f) {
			starts++
		}
	}
	for word, most := range map[string]int{"orig": 1 + starts, "newin": 1 + starts, "reply": 1, "inter": 1, "probe": 1} {
		if word == "orig" && state == "working" {
			most++ // the turn after its tool
		}
		if got := asked[c.says(word)]; got > most {
			bad("%s was asked %d times", word, got)
		}
	}
	for word, n := range said {
		if n > 1 {
			bad("%s stands %d times in the conversation", word, n)
		}
	}
	fresh := c.has("input.txt")
	if want := map[bool]string{true: "newin", false: "orig"}[fresh]; said[want] != 1 {
		bad("%s is not in the conversation", want)
	}
	if fresh && said["orig"] > 0 {
		bad("the earlier session's input is in the conversation")
	}
	if !fresh {
		for file, word := range map[string]string{"reply.txt": "reply", "_intervene": "inter", "_keyinfo": "keyin"} {
			if c.has(file) && said[word] != 1 {
				bad("%s is lost", word)
			}
		}
	}
	// Files of the start count up to the first answer.
	for file, word := range map[string]string{"context.json": "depen", "_history.json": "histo"} {
		early := state == "queued" || state == "asking"
		switch {
		case !c.has(file):
		case fresh && c.first == file, !fresh && early && !c.has("_stop"):
			if said[word] != 1 {
				bad("%s does not count", file)
			}
		case !fresh && !early:
			if said[word] != 0 {
				bad("%s counts, and came too late", file)
			}
		}
	}
	st := d.status(c.name())
	for round := range st.Round + 1 {
		d.output(c.name(), round)
	}
	if d.there(c, taskdir.OutputName(st.Round+1)) {
		bad("there is an output of a round that was not")
	}
	entries, err := os.ReadDir(d.task(c.name()))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".refused") || strings.HasPrefix(e.Name(), ".stray") {
			bad("%s is there", e.Name())
		}
	}
}
