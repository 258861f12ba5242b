package taskdir

import (
	"errors"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	for name, want := range map[string]bool{
		"input.txt": true, "reply.txt": true, "_stop": true, "_keyinfo": true, "_intervene": true,
		"_history.json": true, "context.json": true,
		"output.txt": false, "output1.txt": false, "status.json": false, "events.jsonl": false, "history.json": false,
		"result.json": false, "subagent_plan.md": false, ".input.txt.tmp": false, "input.txt~": false, ".input.txt.swp": false,
		".taken-1-reply.txt": false, "": false, "4913": false,
	} {
		if got := Counts(name); got != want {
			t.Errorf("Counts(%q) = %v", name, got)
		}
	}
}

func TestRests(t *testing.T) {
	for name, want := range map[string]bool{
		"input.txt": true, "_history.json": true, "context.json": true,
		"reply.txt": false, "_stop": false, "_keyinfo": false, "_intervene": false,
	} {
		if got := Rests(name); got != want {
			t.Errorf("Rests(%q) = %v", name, got)
		}
	}
}

func TestIsProtocol(t *testing.T) {
	for name, want := range map[string]bool{
		"input.txt": true, "_stop": true, "output.txt": true, "output12.txt": true, "status.json": true, "old": true,
		".taken-1-reply.txt": true, ".refused-1-reply.txt": true, ".stray-1-output.txt": true,
		"subagent_plan.md": false, "report.md": false, "outputs.txt": false,
	} {
		if got := IsProtocol(name); got != want {
			t.Errorf("IsProtocol(%q) = %v", name, got)
		}
	}
}

func TestOutputNames(t *testing.T) {
	for round, name := range map[int]string{0: "output.txt", 1: "output1.txt", 10: "output10.txt"} {
		if got := OutputName(round); got != name {
			t.Errorf("OutputName(%d) = %q", round, got)
		}
		if got, ok := parseOutput(name); !ok || got != round {
			t.Errorf("parseOutput(%q) = %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"output0.txt", "output01.txt", "output-1.txt", "output1.txt.bak", "output.md", "outputtxt", "output1234567890.txt", "output１.txt", "xoutput.txt"} {
		if round, ok := parseOutput(name); ok {
			t.Errorf("parseOutput(%q) = %d", name, round)
		}
	}
}

func FuzzParseTaken(f *testing.F) {
	for _, s := range []string{".taken-1-reply.txt", ".taken-18446744073709551615-_stop", ".taken-01-_stop", ".taken-1-input.txt", ".taken--_stop", ".taken-1", "reply.txt"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		seq, name, ok := parseTaken(s)
		if ok && (takenName(seq, name) != s || !taken(name)) {
			t.Errorf("%q parsed as %d, %q", s, seq, name)
		}
	})
}

func TestParseTaken(t *testing.T) {
	if seq, name, ok := parseTaken(".taken-18446744073709551615-_stop"); !ok || seq != 1<<64-1 || name != StopFile {
		t.Error(seq, name, ok)
	}
	for _, s := range []string{".taken-01-_stop", ".taken-1-input.txt", ".taken--_stop", ".taken-1", ".taken-+1-_stop", ".taken-18446744073709551616-_stop", ".taken-1-../reply.txt"} {
		if _, _, ok := parseTaken(s); ok {
			t.Errorf("%q counts as taken", s)
		}
	}
}

func TestCheckName(t *testing.T) {
	good := []string{"audit", "my task", " x ", "审计", "a\nb", "émile.v2", "-n", "old", "nul", "a:b", `a\b`, "100%", strings.Repeat("x", 255)}
	bad := []string{"", ".", "..", ".hidden", "a/b", "/", "a\x00b", strings.Repeat("x", 256)}
	badOnWindows := []string{"nul", "NUL.txt", "com1", "LPT9.log", "com¹", "a:b", `a\b`, "a?", "a\nb", "x.", "x ", "aux .txt", "con"}
	for _, name := range good {
		if err := checkName(name, false); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"audit", "my task", "审计", "common", "com", "com10", "nullify"} {
		if err := checkName(name, true); err != nil {
			t.Error(err)
		}
	}
	check := func(names []string, windows bool) {
		for _, name := range names {
			var ne *NameError
			if err := checkName(name, windows); !errors.As(err, &ne) || ne.Name != name {
				t.Errorf("checkName(%q, %v) = %v", name, windows, err)
			}
		}
	}
	check(bad, false)
	check(bad, true)
	check(badOnWindows, true)
}
