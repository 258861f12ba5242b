package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/journal"
)

func TestRenamedJournalIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.jsonl")
	j, err := journal.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Commit(json.RawMessage(`{"opened":{"task":"a","n":1}}`), json.RawMessage(`{"text":"of a task"}`)); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	renamed, err := renameJournal(read(t, path), "a", `b "2"`)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, renamed)
	var got string
	report, err := journal.Read(path, 0, func(_ int64, rec json.RawMessage) error {
		got += string(rec)
		return nil
	})
	if err != nil || report.Torn > 0 {
		t.Fatalf("read renamed journal: %v, %+v", err, report)
	}
	if want := `{"opened":{"task":"b \"2\"","n":1}}{"text":"of a task"}`; got != want {
		t.Errorf("records are %s, want %s", got, want)
	}
}
