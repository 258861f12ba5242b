package session

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// testdata/journal-v1 holds journals of format 1, and beside each the state that it
// adds up to. They are a promise to those who have such journals: they are not
// written again as the code changes. A change of the records that this test does
// not pass with is a new format, and needs a way to read the old one.
var write = flag.Bool("write-journals", false, "write testdata/journal-v1, which is for a new format only")

const formatOne = "testdata/journal-v1"

func TestJournalsOfFormatOneAreRead(t *testing.T) {
	if *write {
		writeFormatOne(t)
	}
	files, err := filepath.Glob(filepath.Join(formatOne, "*.jsonl"))
	if err != nil || len(files) != 3 {
		t.Fatalf("found %q, %v", files, err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		st := &state{}
		if _, err := replay(file, 0, st, func(r *record) error { kinds[kindOf(r)] = true; return nil }); err != nil {
			t.Error(err)
			continue
		}
		golden, err := os.ReadFile(strings.TrimSuffix(file, ".jsonl") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal(golden, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, asJSON(t, st)); diff != "" {
			t.Errorf("%s adds up to another state than it did (-then +now):\n%s", file, diff)
		}
	}
	fields := reflect.TypeFor[record]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		if f.Type.Kind() == reflect.Pointer && f.Name != "Memo" && !kinds[f.Name] {
			t.Errorf("no journal has a record of kind %s: add one, in a file of its own", f.Name)
		}
	}

	// What matters most, said in so many words.
	st := &state{}
	if _, err := replay(filepath.Join(formatOne, "replaced.jsonl"), 0, st, nil); err != nil {
		t.Fatal(err)
	}
	if st.Task != "a" || st.Session != 1 || st.Phase != Ended || st.Reason != round.Replaced || st.Round != 4 || st.Aside != 1 ||
		st.KeyInfo != "[supervisor] the budget is 3" || st.Settings.MaxTurns != 9 || st.Seq != 7 || len(st.Receipts) != 10 || st.Spent.Requests != 8 {
		t.Errorf("replaced.jsonl: %+v", st)
	}
	memo, _, err := tail(filepath.Join(formatOne, "waiting.jsonl"))
	if err != nil || memo == nil || memo.Phase != Awaiting || memo.Session != 2 || memo.Round != 1 {
		t.Errorf("waiting.jsonl: %+v, %v", memo, err)
	}
}

// kindOf names what a record says.
func kindOf(r *record) string {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() && v.Type().Field(i).Name != "Memo" {
			return v.Type().Field(i).Name
		}
	}
	return ""
}

func asJSON(t *testing.T, v any) (tree any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// A reading may begin at a snapshot, wherever that was taken, and a crash may cut a
// journal after any record: what is known must be the same however it was put together.
func TestSnapshotsTellAll(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(formatOne, "*.jsonl"))
	for _, file := range files {
		var all []*record
		whole := &state{}
		if _, err := replay(file, 0, whole, func(r *record) error { all = append(all, r); return nil }); err != nil {
			t.Fatal(err)
		}
		for cut := 1; cut <= len(all); cut++ {
			before := &state{}
			for _, r := range all[:cut] {
				if err := before.apply(clone(t, r), 0); err != nil {
					t.Fatal(err)
				}
			}
			snapshot := clone(t, &record{At: before.Updated, Snapshot: before})
			after := &state{}
			if err := after.apply(snapshot, 0); err != nil {
				t.Fatal(err)
			}
			for _, r := range all[cut:] {
				if err := after.apply(clone(t, r), 0); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(whole, after, cmp.AllowUnexported(state{}, inputMark{}), cmpopts.IgnoreFields(state{}, "from", "to"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, snapshot after record %d (%s) (-without +with):\n%s", file, cut, kindOf(all[cut-1]), diff)
			}
		}
	}
}

// clone is a record as it comes back from the disk.
func clone(t *testing.T, r *record) *record {
	t.Helper()
	line, err := encode(r)
	var back record
	if err == nil {
		err = decode(line, &back)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &back
}

// writeFormatOne plays a rich history by real sessions, and adds a journal with the
// kinds of records that do not come up in it.
func writeFormatOne(t *testing.T) {
	th := newTheatre(t)
	th.play(th.history)
	th.check()
	p := placeOf(th.cfg.StateDir, actor)
	rare := filepath.Join(t.TempDir(), "place", "rare.jsonl")
	j, err := journal.Create(rare)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.UTC)
	keyInfo, warning := "remember", "context.json: not so good"
	records := []*record{
		{Opened: &openedRecord{Version: 1, Task: "p.1", Session: 1, Dir: taskdir.FileID{Dev: 1, Ino: 2}, Text: "do it", Bytes: 5, Encoding: "utf-8",
			Input: inputMark{fileMark{Size: 5, Mtime: 6, SHA256: "abc"}, at}, Seq: 3,
			Past:   []pastMessage{{Taken: 3, File: "reply.txt", Fingerprint: taskdir.Fingerprint{Ino: 9, Size: 1, Mtime: 2, SHA256: "d"}}},
			Parent: "p", Depth: 1, Settings: &round.Settings{MaxTurns: 4, Child: true}, Prepared: &round.Prepared{Agent: "fork", LLM: "x", Model: "y", System: "s"},
			History: []llm.Message{{Role: llm.User, Content: "before"}}}},
		{Began: &beganRecord{}},
		{Append: &appendRecord{Messages: []llm.Message{{Role: llm.User, Content: "do it"}}, KeyInfo: &keyInfo}},
		{Reserved: &llm.Amount{Tokens: 1000}},
		{Resumed: &struct{}{}},
		{Paused: &struct{}{}},
		{Resumed: &struct{}{}},
		{Spent: &llm.Usage{Requests: 1, InputTokens: 10}, Estimated: llm.Amount{Tokens: 7}},
		{Answer: &answerRecord{Turn: 1, Message: llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "c1", Name: "task", Arguments: "{}"}}},
			Spent: llm.Usage{Requests: 1}, Context: 50, Window: 1000, LLM: "x", Model: "y", Begun: []string{"c1"}, Break: "fallback"}},
		{Child: &childRecord{Call: "c1", N: 0, Task: "p.1.1"}},
		{Child: &childRecord{Call: "c1", N: 0, Task: "p.1.1", Done: true, Spent: llm.Usage{Requests: 3}}},
		{Warning: &warning},
		{Rewrite: &rewriteRecord{Messages: []llm.Message{{Role: llm.User, Content: "in short"}}, Cause: "compaction", Dropped: "2 messages"}},
		{Moved: &taskdir.FileID{Dev: 1, Ino: 77}},
		{Message: &messageRecord{Seq: 4, File: "_intervene", Text: "wait", Bytes: 4, SHA256: "e", Encoding: "utf-8", Fingerprint: taskdir.Fingerprint{Ino: 5, Size: 4, Mtime: 3, SHA256: "e"}}},
		{Message: &messageRecord{Seq: 5, Taken: 4, File: "_intervene", Text: "!", Bytes: 1, SHA256: "f", Encoding: "utf-8", Fingerprint: taskdir.Fingerprint{Ino: 5, Size: 5, Mtime: 4, SHA256: "g"}}},
		{Closed: &closedRecord{Outcome: round.Outcome{Reason: round.MaxTurns, Result: "so far", CompletedBy: "text", Error: &round.Failure{Kind: "max_turns", Message: "4"},
			OpenPoints: []string{"a step"}, MissingOutputs: []string{"out"}, Data: json.RawMessage(`{"n":1}`)}, Shown: 12, Deadline: at.Add(time.Hour)}},
		{Ended: &endedRecord{Reason: round.MaxTurns}},
	}
	st := &state{}
	for i, r := range records {
		r.At = at.Add(time.Duration(i) * time.Second)
		err = errors.Join(err, st.apply(r, 0))
	}
	whole := *st
	records = append(records, &record{At: at.Add(time.Minute), Snapshot: &whole})
	for _, r := range records {
		line, e := encode(r)
		_, e2 := j.Commit(line)
		err = errors.Join(err, e, e2)
	}
	if err := errors.Join(err, j.Close(), os.MkdirAll(formatOne, 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"replaced": p.old(1), "waiting": p.current(), "rare": rare} {
		st := &state{}
		_, err := replay(path, 0, st, nil)
		b, e := os.ReadFile(path)
		golden, e2 := json.MarshalIndent(st, "", " ")
		err = errors.Join(err, e, e2,
			os.WriteFile(filepath.Join(formatOne, name+".jsonl"), b, 0o644),
			os.WriteFile(filepath.Join(formatOne, name+".json"), slices.Concat(golden, []byte("\n")), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A crash may keep a subagent's name from being used, which another job's then gets.
// Whose directory was removed is not taken for it.
func TestOneNameForOneJob(t *testing.T) {
	d := newDesk(t, answer("hi"))
	s := New(d.cfg, "a", nil)
	s.st = &state{Session: 1, Phase: Queued}
	add := func(c childRecord) {
		if err := s.st.apply(&record{Child: &c}, 0); err != nil {
			t.Fatal(err)
		}
	}
	add(childRecord{Call: "c1", N: 0, Task: "a.1"})
	if name, err := s.childName(); err != nil || name != "a.1" {
		t.Errorf("the next name is %q (%v), and a.1 is free", name, err)
	}
	add(childRecord{Call: "c2", N: 0, Task: "a.1"})
	add(childRecord{Call: "c2", N: 0, Task: "a.1", Made: true})
	want := []childRecord{{Call: "c2", N: 0, Task: "a.1", Made: true}}
	if diff := cmp.Diff(want, s.st.Children); diff != "" {
		t.Errorf("children: %s", diff)
	}
	if name, err := s.childName(); err != nil || name != "a.2" {
		t.Errorf("the next name is %q (%v), and a.1 was a child that has gone", name, err)
	}
}

func TestLongConversationsAreNotWrittenAgainAndAgain(t *testing.T) {
	const turns, piece = 60, 20_000
	d := newDesk(t, runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		emit(round.HeadPrepared{})
		emit(round.Appended{Messages: []llm.Message{{Role: llm.User, Content: in.Message}}})
		for turn := 1; turn <= turns; turn++ {
			id := fmt.Sprint("c", turn)
			emit(round.Answered{Turn: turn, Message: llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: id, Name: "x", Arguments: "{}"}}}})
			emit(round.Appended{Turn: turn, Messages: []llm.Message{{Role: llm.ToolRole, ToolCallID: id, Content: strings.Repeat("x", piece)}}})
		}
		return round.Outcome{Reason: round.Completed, Result: "done"}
	}))
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	d.state("a", taskdir.AwaitingReply, round.Completed)
	l.end()
	snapshots := 0
	st := &state{}
	if _, err := replay(d.journal(), 0, st, func(r *record) error {
		if r.Snapshot != nil {
			snapshots++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if size := int64(len(d.readJournal())); snapshots < 2 || size > 4*turns*piece {
		t.Errorf("%d snapshots, and %d bytes for a conversation of %d", snapshots, size, turns*piece)
	}
	// A reading that begins at the last of them knows all.
	memo, _, err := tail(d.journal())
	if err != nil || memo == nil || memo.From == 0 {
		t.Fatalf("memo %+v, %v", memo, err)
	}
	part := &state{}
	if _, err := replay(d.journal(), memo.From, part, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asJSON(t, st), asJSON(t, part)); diff != "" {
		t.Errorf("from the snapshot on (-whole +part):\n%s", diff)
	}
}
