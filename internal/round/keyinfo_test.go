package round

import "testing"

func TestKeyInfo(t *testing.T) {
	k := AddKeyInfo("", " use port 8080 \n")
	if want := "[supervisor] use port 8080"; k != want {
		t.Fatalf("add to nothing: %q, want %q", k, want)
	}
	k = ReplaceKeyInfo(k, "found the bug in a.go")
	if want := "found the bug in a.go\n[supervisor] use port 8080"; k != want {
		t.Fatalf("the agent's text beside a note: %q, want %q", k, want)
	}
	k = AddKeyInfo(k, "two\nlines")
	k = ReplaceKeyInfo(k, "fixed\n[supervisor] use port 8080\n")
	if want := "fixed\n[supervisor] use port 8080\n[supervisor] two\nlines"; k != want {
		t.Fatalf("replaced: %q, want %q", k, want)
	}
	if got, want := ReplaceKeyInfo(k, ""), "[supervisor] use port 8080\n[supervisor] two\nlines"; got != want {
		t.Fatalf("emptied: %q, want %q", got, want)
	}
	if got := ReplaceKeyInfo("old", "new"); got != "new" {
		t.Fatalf("without notes: %q", got)
	}
	if got := AddKeyInfo("old", "  "); got != "old" {
		t.Fatalf("a blank note: %q", got)
	}
}
