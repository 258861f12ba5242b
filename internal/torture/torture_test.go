package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/session"
)

// TestTorture is a bounded run, where GASUPERVISOR_INTERNAL_TORTURE says for how many seconds.
func TestTorture(t *testing.T) {
	seconds, _ := strconv.Atoi(os.Getenv("GASUPERVISOR_INTERNAL_TORTURE"))
	if seconds <= 0 {
		t.Skip("set GASUPERVISOR_INTERNAL_TORTURE to a number of seconds, such as 60")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_, err = runAll(t.Context(), options{
		Kills: 1 << 30, Limit: time.Duration(seconds) * time.Second, Seed: uint64(time.Now().Unix() % 1_000_000),
		Tasks: 20, Messages: 5 * seconds, Root: root, Out: &out,
	})
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
}

func TestFaultPoints(t *testing.T) {
	points, err := faultPoints("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"journal.written", "journal.synced", "message.claimed", "output.written", "atomicfile.renamed"} {
		if !slices.Contains(points, want) {
			t.Errorf("%s is not among %q", want, points)
		}
	}
}

func TestSchedule(t *testing.T) {
	if _, _, err := schedule(options{Only: []string{"flood"}}, io.Discard); err == nil {
		t.Error("an unknown kind is accepted")
	}
	once, mixed, err := schedule(options{Only: []string{"pickup", "kill"}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(once) != 1 || once[0].name != "pickup" {
		t.Errorf("runs %v once", once)
	}
	if i := slices.IndexFunc(mixed, func(k kind) bool { return k.name != "kill" }); i >= 0 || len(mixed) == 0 {
		t.Errorf("repeats %v", mixed)
	}
}

// said is a life in which the model was told these texts in this order, and whose
// journal has these messages.
func said(session int, journal []string, conv ...string) *life {
	l := &life{session: session, input: "msg-t0-00000."}
	for i, text := range journal {
		l.messages = append(l.messages, journalled{Seq: uint64(i + 1), File: taskdir.ReplyFile, Text: text})
	}
	for _, text := range conv {
		l.conv = append(l.conv, llm.Message{Role: llm.User, Content: text})
	}
	return l
}

func TestCheckMessages(t *testing.T) {
	const a, b = "msg-t0-00001.", "msg-t0-00002."
	for _, c := range []struct {
		name  string
		lives []*life
		want  string // part of the violation, "" for none
	}{
		{"well", []*life{said(1, []string{a, b}, a, b)}, ""},
		{"lost", []*life{said(1, []string{a}, a)}, "never taken"},
		{"twice taken", []*life{said(1, []string{a, b}, a, b), said(2, []string{b}, "x")}, "taken 2 times"},
		{"twice said", []*life{said(1, []string{a, b}, a, b, b)}, "said 2 times"},
		{"not said", []*life{said(1, []string{a, b}, a)}, "never said"},
		{"not said in a session that was replaced", []*life{said(1, []string{a, b}, a), said(2, nil, "x")}, ""},
		{"order", []*life{said(1, []string{a, b}, b, a)}, "written earlier"},
	} {
		e := &episode{model: newModel(1, "")}
		e.book.wrote(written{token: a, task: "t0", file: taskdir.ReplyFile, durable: true})
		e.book.wrote(written{token: b, task: "t0", file: taskdir.ReplyFile, durable: true})
		e.checkMessages(map[string][]*life{"t0": c.lives})
		expect(t, c.name, e.book.broken, c.want)
	}
}

func TestCheckRefused(t *testing.T) {
	const tok = "msg-t0-00001."
	for _, c := range []struct {
		name string
		kept int
		seen bool
		want string
	}{
		{"well", 1, false, ""},
		{"gone", 0, false, "kept 0 times"},
		{"twice", 2, false, "kept 2 times"},
		{"told", 1, true, "said to the model"},
	} {
		e := &episode{model: newModel(1, ""), temp: t.TempDir()}
		if err := os.Mkdir(filepath.Join(e.temp, "t0"), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range c.kept {
			name := fmt.Sprintf("%s%d-_keyinfo", refusedPrefix, i)
			if err := os.WriteFile(filepath.Join(e.temp, "t0", name), []byte(tok+" and more"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		e.model.seen[tok] = c.seen
		e.checkRefused(written{token: tok, task: "t0", file: taskdir.KeyInfoFile, durable: true})
		expect(t, c.name, e.book.broken, c.want)
	}
}

func TestCheckRemoved(t *testing.T) {
	opened := func(t *testing.T, e *episode, n int, tok string) {
		t.Helper()
		dir := filepath.Join(e.state, session.ArchivedName, fmt.Sprintf("%s.%d", journal.Place("r0"), n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Create(filepath.Join(dir, "session.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if _, err := j.Commit([]byte(`{"opened":{"session":1,"text":"` + tok + ` go"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		tokens []string
		back   bool
		want   string
	}{
		{"well", []string{"msg-r0-00001.", "msg-r0-00002."}, false, ""},
		{"begun again", []string{"msg-r0-00001.", "msg-r0-00001."}, false, "began 2 sessions"},
		{"made again", nil, true, "is there again"},
	} {
		e := &episode{temp: t.TempDir(), state: t.TempDir()}
		for i, tok := range c.tokens {
			opened(t, e, i+1, tok)
		}
		if c.back {
			if err := os.Mkdir(filepath.Join(e.temp, "r0"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if all := e.checkRemoved(); len(all) != len(c.tokens) {
			t.Errorf("%s: %d sessions", c.name, len(all))
		}
		expect(t, c.name, e.book.broken, c.want)
	}
}

func TestCheckTools(t *testing.T) {
	for _, c := range []struct {
		name   string
		ran    int
		known  bool
		result string
		want   string
	}{
		{"well", 1, true, "exit code 0, 0.0 s", ""},
		{"twice", 2, true, "exit code 0, 0.0 s", "ran 2 times"},
		{"twice, announced", 2, true, "Error: Interrupted, outcome unknown: ...", "ran 2 times"},
		{"announced, run", 1, true, "Error: Interrupted, outcome unknown: ...", ""},
		{"announced, not run", 0, true, "Error: Interrupted, outcome unknown: ...", ""},
		{"not recorded", 1, false, "", "no journal has"},
		{"not run after all", 0, true, "exit code 0, 0.0 s", "the ledger has it 0 times"},
		{"denied", 1, true, "Error: Not run: stopped by the supervisor.", "but the model was told"},
		{"asked for and forgotten", 0, false, "", ""},
	} {
		e := &episode{model: newModel(1, "")}
		e.model.issued["tool-000001-0."] = "call_1_0_e"
		answers, results := map[string]llm.Message{}, map[string]string{}
		if c.known {
			answers["call_1_0_e"] = llm.Message{}
		}
		if c.result != "" {
			results["call_1_0_e"] = c.result
		}
		ledger := map[string]int{}
		if c.ran > 0 {
			ledger["tool-000001-0."] = c.ran
		}
		e.checkTools(ledger, answers, results)
		expect(t, c.name, e.book.broken, c.want)
	}
}

func TestCheckChildren(t *testing.T) {
	temp := t.TempDir()
	dir := filepath.Join(temp, "t0")
	s := taskdir.NewStatus("t0")
	s.Usage.Requests = 5
	text, err := json.Marshal(s)
	if err == nil {
		err = errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, taskdir.StatusFile), text, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	child := func(n, requests int) []*life {
		return []*life{{session: 1, parent: "t0", input: fmt.Sprintf("job-000001-%d. do it", n), requests: requests}}
	}
	for _, c := range []struct {
		name   string
		second []*life
		known  []string
		want   string
	}{
		{"well", child(1, 1), []string{"t0.1", "t0.2"}, ""},
		{"twice", child(0, 1), []string{"t0.1", "t0.2"}, "was sent out for"},
		{"unknown", child(1, 1), []string{"t0.1"}, "no session of it knows"},
		{"not counted", child(1, 4), []string{"t0.1", "t0.2"}, "subagents 8"},
	} {
		e := &episode{temp: temp}
		parent := &life{session: 1, requests: 3, children: c.known}
		if c.name == "unknown" {
			parent.requests++
		}
		e.checkChildren(map[string][]*life{"t0": {parent}, "t0.1": child(0, 1), "t0.2": c.second})
		expect(t, c.name, e.book.broken, c.want)
		if e.counts.Subagents != 2 {
			t.Errorf("%s: %d subagents", c.name, e.counts.Subagents)
		}
	}
}

func TestCheckMarkers(t *testing.T) {
	e := &episode{}
	e.book.saw(marked{"t0", 1, 0})
	e.book.saw(marked{"t0", 1, 1})
	e.checkMarkers(map[string][]*life{"t0": {{session: 1, rounds: []roundLife{{0, "completed"}, {1, ""}}}}})
	expect(t, "open round", e.book.broken, "round 1 of session 1")
}

func expect(t *testing.T, name string, violations []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(violations) > 0:
		t.Errorf("%s: violated: %q", name, violations)
	case want != "" && (len(violations) != 1 || !strings.Contains(violations[0], want)):
		t.Errorf("%s: %q, want one with %q", name, violations, want)
	}
}
