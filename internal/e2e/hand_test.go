//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestThreeRoundsByHand(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.ByTurn(
		call("list_files", "path", ".").Text("I look around."),
		llmtest.Done("There are two of them."),
		llmtest.Done("One is older than a year."),
		llmtest.Done("It is Ada's."),
	))
	d.sh(`mkdir temp/audit && echo "List the TODOs under src" > temp/audit/input.txt`)
	first := d.output("audit", 0)
	wants(t, "output.txt", first, "Turn 1 ...", "I look around.", "list_files(", "Turn 2 ...", "There are two of them.")
	d.sh(`echo "Now only those older than a year" > temp/audit/reply.txt`)
	wants(t, "output1.txt", d.output("audit", 1), "One is older than a year.")
	d.sh(`echo "Whose is it?" > temp/audit/reply.txt`)
	wants(t, "output2.txt", d.output("audit", 2), "It is Ada's.")

	if now := d.output("audit", 0); now != first {
		t.Errorf("a finished output changed from\n%s\nto\n%s", first, now)
	}
	d.accepted()
	requests := d.model.Requests()
	if len(requests) != 4 {
		t.Fatalf("%d requests, want 4", len(requests))
	}
	for i, want := range []string{"List the TODOs under src", "List the TODOs under src", "Now only those older than a year", "Whose is it?"} {
		wants(t, fmt.Sprintf("newest message of request %d", i+1), requests[i].LastUser(), want)
	}
	st := d.comes("audit", taskdir.AwaitingReply)
	if st.Reason != "completed" || st.Round != 2 || st.Session != 1 || st.Result != "It is Ada's." || st.Usage.Requests != 4 {
		t.Errorf("status says reason %q, round %d, session %d, result %q, %d requests", st.Reason, st.Round, st.Session, st.Result, st.Usage.Requests)
	}
	if len(st.Messages) != 3 || st.Messages[2].File != "reply.txt" || st.Messages[2].Outcome != "opened round 2" {
		t.Errorf("receipts: %+v", st.Messages)
	}
	if _, err := os.Stat(d.task("audit", "reply.txt")); !os.IsNotExist(err) {
		t.Errorf("reply.txt is still there: %v", err)
	}
}

func TestReplyDuringARoundOpensTheNext(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.ByTurn(llmtest.Done("first").When(gate), llmtest.Done("second")))
	d.begin("a", "begin")
	d.asked(1)
	d.sh(`echo "and then this" > temp/a/reply.txt`)
	d.comes("a", taskdir.Running)
	if n := len(d.requests("begin")); n != 1 {
		t.Fatalf("%d requests while the first round runs, want 1", n)
	}
	close(gate)
	wants(t, "output.txt", d.output("a", 0), "first")
	wants(t, "output1.txt", d.output("a", 1), "second")
	last := d.requests("begin")[1]
	wants(t, "the reply's request", last.LastUser(), "and then this")
	d.accepted()
}

func TestLateReplyRevivesAStoppedSession(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.ByTurn(llmtest.Done("the answer is 42"), llmtest.Done("still 42")))
	d.begin("a", "find the answer")
	d.output("a", 0)
	d.comes("a", taskdir.AwaitingReply)
	d.sh(`touch temp/a/_stop`)
	if st := d.comes("a", taskdir.Ended); st.Reason != "stopped" {
		t.Errorf("reason %q, want stopped", st.Reason)
	}
	d.until("_stop is taken", func() bool { _, err := os.Stat(d.task("a", "_stop")); return os.IsNotExist(err) })
	d.sh(`echo "are you sure?" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "still 42")
	last := d.model.Requests()[1]
	wants(t, "the conversation", string(last.Body), "find the answer", "the answer is 42", "are you sure?")
	d.accepted()
}

func TestInterventionIsReadBeforeTheNextTurn(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.ByTurn(call("list_files", "path", ".").When(gate), llmtest.Done("done")))
	d.begin("a", "begin")
	d.asked(1)
	d.sh(`echo "leave the tests alone" > temp/a/_intervene`)
	close(gate)
	d.output("a", 0)
	wants(t, "the second request", d.requests("begin")[1].LastUser(), "leave the tests alone")
	st := d.comes("a", taskdir.AwaitingReply)
	last := st.Messages[len(st.Messages)-1]
	if last.File != "_intervene" || last.Turn != 1 || last.Round != 0 {
		t.Errorf("receipt: %+v", last)
	}
	d.accepted()
}

func TestInterventionAsTheModelCompletesIsActedOn(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.ByTurn(llmtest.Done("too early").When(gate), llmtest.Done("now with a table")))
	d.begin("a", "write a report")
	d.asked(1)
	d.sh(`echo "put it into a table" > temp/a/_intervene`)
	close(gate)
	wants(t, "output.txt", d.output("a", 0), "now with a table")
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Round != 0 || st.Result != "now with a table" {
		t.Errorf("round %d, result %q; want the intervention in the same round", st.Round, st.Result)
	}
	wants(t, "the second request", d.requests("write a report")[1].LastUser(), "put it into a table")
	d.accepted()
}

func TestKeyInfoIsSeenFromTheNextTurnOn(t *testing.T) {
	t.Parallel()
	const info = "the database is called orders_v2"
	gate := make(chan struct{})
	d := start(t, llmtest.ByTurn(
		call("list_files", "path", ".").When(gate), llmtest.Done("one"), llmtest.Done("two"), llmtest.Done("three")))
	d.begin("a", "begin")
	d.asked(1)
	d.sh(`echo "` + info + `" > temp/a/_keyinfo`)
	close(gate)
	d.output("a", 0)
	d.comes("a", taskdir.AwaitingReply)
	const later = "invoices are read-only"
	d.sh(`echo "` + later + `" > temp/a/_keyinfo`)
	d.until("_keyinfo is taken", func() bool { _, err := os.Stat(d.task("a", "_keyinfo")); return os.IsNotExist(err) })
	d.sh(`echo go on > temp/a/reply.txt`)
	d.output("a", 1)
	d.sh(`echo go on > temp/a/reply.txt`)
	d.output("a", 2)

	requests := d.requests("begin")
	lacks(t, "the first request", string(requests[0].Body), info)
	for i, r := range requests[1:] {
		if n := strings.Count(string(r.Body), info); n != 1 {
			t.Errorf("request %d has the key info %d times, want once", i+2, n)
		}
	}
	lacks(t, "the first round", string(requests[1].Body), later)
	for i, r := range requests[2:] {
		if n := strings.Count(string(r.Body), later); n != 1 {
			t.Errorf("request %d has the later key info %d times, want once", i+3, n)
		}
	}
	d.accepted()
}

// genericHistory is a conversation as GenericAgent keeps it: content blocks, tools
// by their names there.
const genericHistory = `[
 {"role":"user","content":[{"type":"text","text":"Where is the port set?"}]},
 {"role":"assistant","content":[
  {"type":"thinking","thinking":"The config, surely.","signature":"c2ln"},
  {"type":"text","text":"I read the config."},
  {"type":"tool_use","id":"toolu_01A","name":"file_read","input":{"path":"conf/app.ini","count":20}},
  {"type":"tool_use","id":"toolu_01B","name":"code_run","input":{"code":"grep -rn PORT src"}}]},
 {"role":"user","content":[
  {"type":"tool_result","tool_use_id":"toolu_01A","content":"port = 8081"},
  {"type":"tool_result","tool_use_id":"toolu_01B","content":[{"type":"text","text":"src/main.c:12"}]},
  {"type":"text","text":"Mind the comment above it."}]},
 {"role":"assistant","content":[{"type":"text","text":"It is 8081, in conf/app.ini."}]}
]`

func TestForkFromAGenericAgentHistory(t *testing.T) {
	t.Parallel()
	d := start(t, llmtest.ByTurn(llmtest.Status(400, "no history"), llmtest.Status(400, "half a history"),
		call("list_files", "path", "."), llmtest.Done("Changed to 9090.")))
	d.sh(`mkdir temp/fork`)
	d.write("temp/fork/_history.json", genericHistory)
	d.sh(`echo "Set it to 9090" > temp/fork/input.txt`)
	wants(t, "output.txt", d.output("fork", 0), "Changed to 9090.")
	first := d.model.Requests()[0]
	var calls, results []string
	for _, m := range first.Messages {
		for _, c := range m.ToolCalls {
			calls = append(calls, c.Name)
		}
		if m.Role == llm.ToolRole {
			results = append(results, m.Content)
		}
	}
	if fmt.Sprint(calls) != "[file_read code_run]" || fmt.Sprint(results) != "[port = 8081 src/main.c:12]" {
		t.Errorf("calls %q, results %q", calls, results)
	}
	wants(t, "the conversation", string(first.Body), "Where is the port set?", "Mind the comment above it.", "It is 8081, in conf/app.ini.")
	wants(t, "its newest message", first.LastUser(), "Set it to 9090")
	d.accepted()

	// Copied into another task, what the daemon wrote forks this one.
	d.comes("fork", taskdir.AwaitingReply)
	d.sh(`mkdir temp/fork2 && cp temp/fork/history.json temp/fork2/_history.json && echo "Set it to 7070" > temp/fork2/input.txt`)
	d.asked(3)
	d.output("fork2", 0)
	again := d.model.Requests()[2]
	wants(t, "the fork of the fork", string(again.Body), "port = 8081", "Changed to 9090.", "Set it to 7070")
	d.accepted()

	var blocks []struct {
		Content json.RawMessage
	}
	text := d.read(d.task("fork", "history.json"))
	if err := json.Unmarshal([]byte(text), &blocks); err != nil || len(blocks) == 0 || blocks[0].Content[0] != '[' {
		t.Errorf("history.json is not in the form of content blocks (%v):\n%s", err, text)
	}
	if _, err := history.Import([]byte(text)); err != nil {
		t.Error(err)
	}
}

// GenericAgent's scripts write input.txt first.
func TestFilesWrittenJustAfterTheInputAreInTheConversation(t *testing.T) {
	t.Parallel()
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		if r.Has("It is 8081") && r.Has("schema version 7") {
			return llmtest.Done("with everything")
		}
		return llmtest.Text("I begin with what I").StallAfter(1)
	})
	d.begin("late", "Set it to 9090")
	written := time.Now()
	d.asked(1)
	// Not a wait for something, but the pace of the script that writes.
	time.Sleep(time.Until(written.Add(30 * time.Millisecond)))
	d.write("temp/late/context.json", `{"dependencies": ["schema version 7"]}`)
	d.write("temp/late/_history.json", genericHistory)
	wants(t, "output.txt", d.output("late", 0), "the round starts over", "with everything")
	requests := d.model.Requests()
	last := requests[len(requests)-1]
	wants(t, "the newest message", last.LastUser(), "Set it to 9090", "schema version 7")
	if n := strings.Count(string(last.Body), "Set it to 9090"); n != 1 {
		t.Errorf("the input is in the conversation %d times", n)
	}
	for _, r := range d.model.Refusals() {
		t.Error(r)
	}
	st := d.comes("late", taskdir.AwaitingReply)
	if st.Session != 1 || st.Round != 0 || st.Reason != "completed" {
		t.Errorf("session %d, round %d, reason %q", st.Session, st.Round, st.Reason)
	}
}
