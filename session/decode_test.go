package session

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/jsonscan"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// Whatever stands in a journal is read in one go, and as encoding/json reads it.
func TestRecordsAreReadAtOnce(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(formatOne, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		if _, err := journal.Read(file, 0, func(off int64, rec json.RawMessage) error {
			var got, want record
			if d := (decoder{s: jsonscan.New(rec)}); !d.record(&got) {
				t.Errorf("%s at %d is not read at once: %s", file, off, rec)
			}
			if err := json.Unmarshal(rec, &want); err != nil {
				return err
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s at %d was read as\n%+v, want\n%+v", file, off, got, want)
			}
			kinds[kindOf(&want)] = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(kinds) < reflect.TypeFor[record]().NumField()-4 {
		t.Errorf("the journals have records of the kinds %v only", kinds)
	}
}

func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join(formatOne, "*.jsonl"))
	for _, file := range files {
		_, _ = journal.Read(file, 0, func(_ int64, rec json.RawMessage) error { f.Add([]byte(rec)); return nil })
	}
	for _, seed := range []string{`{"append":null}`, `{"append":{"messages":null}}`, `{"snapshot":{"prepared":null}}`, `{"head":{"tools":[{"x":1}]}}`, `{"opened":{},"memo":{}}`, `{"append":{},"append":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want record
		err, wantErr := decode(b, &got), json.Unmarshal(b, &want)
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q was read as %+v, %v, want %+v, %v", b, got, err, want, wantErr)
		}
	})
}

// BenchmarkReplay reads back a session that waits, with a conversation of 20 KB.
func BenchmarkReplay(b *testing.B) {
	text := strings.Repeat("A line of some length in a conversation that has gone on.\n", 350)
	var tools []llm.ToolSpec
	for i := range 12 {
		tools = append(tools, llm.ToolSpec{Name: fmt.Sprint("tool", i), Description: strings.Repeat("what it does ", 20), Parameters: llm.RawJSON(`{"type":"object","properties":{"path":{"type":"string"}}}`)})
	}
	path := filepath.Join(b.TempDir(), "session.jsonl")
	j, err := journal.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range []*record{
		{Opened: &openedRecord{Version: 1, Task: "a", Session: 1, Text: text}},
		{Began: &beganRecord{}},
		{Head: &round.Prepared{Agent: "general", System: strings.Repeat("You are. ", 400), Tools: tools}},
		{Append: &appendRecord{Messages: []llm.Message{{Role: llm.User, Content: text}}}},
		{Answer: &answerRecord{Turn: 1, Message: llm.Message{Role: llm.Assistant, Content: "done"}}},
		{Closed: &closedRecord{}, Memo: &Memo{}},
	} {
		line, err := encode(r)
		if err == nil {
			_, err = j.Commit(line)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(j.Size())
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := replay(path, 0, &state{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
