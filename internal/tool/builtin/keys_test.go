package builtin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/redact"
)

// No tool shows a part of a key, wherever it cuts what it shows.
func TestKeysThatAreCut(t *testing.T) {
	const key = "Q1w2E3r4T5y6U7i8O9p0"
	long := strings.Repeat("Z9", 400)
	keys := redact.New(key, long)
	w := newWorld(t, func(e *Env) { e.Keys = keys })
	w.set = w.set.Redacting(keys)
	dots := func(n int) string { return strings.Repeat(".", n) }
	clean := func(what string, text string) {
		t.Helper()
		for _, k := range []string{key, long} {
			for i := range len(k) - 3 {
				if strings.Contains(text, k[i:i+3]) {
					t.Errorf("%s: %q of a key stands in:\n%s", what, k[i:i+3], text)
					return
				}
			}
		}
	}
	room := w.env.room()
	for off := range len(key) + 1 {
		at := fmt.Sprint("cut at ", off)

		half := room / 2
		w.write("work/long", dots(half-off)+key+dots(room)+key+dots(half-off))
		if r := w.must(ExecuteCommand, map[string]any{"command": "cat long"}, "bytes left out here"); !strings.Contains(r.Text, dots(half-len(key))) {
			t.Errorf("too much is cut: %s", r.Text)
		} else {
			clean("command, "+at, r.Text)
		}

		w.write("work/line", dots(room-off)+key+dots(room))
		clean("read, "+at, w.must(ReadFile, map[string]any{"path": "line"}, "is left out", dots(room-len(key))).Text)

		w.write("work/hit", dots(300)+key+dots(60-off)+"needle"+dots(174-off)+key+dots(300))
		clean("search, "+at, w.must(SearchFiles, map[string]any{"path": "hit", "regex": "needle"}, "needle").Text)

		w.write("work/code.py", `def f(a="`+dots(190-off)+key+dots(100)+"\"):\n    pass\n")
		clean("definitions, "+at, w.must(CodeDefinitions, map[string]any{"path": "code.py"}, "def f(").Text)

		near := "a  " + dots(1997-off) + key
		w.write("work/near", near+"\n")
		clean("near miss, "+at, w.mustFail(ReplaceInFile, map[string]any{"path": "near", "old": strings.Replace(near, "  ", " ", 1), "new": "b"}, "white space").Text)
	}
	w.write("work/hit", dots(300)+"begin"+long+"end"+dots(300))
	for _, regex := range []string{"Z9Z9", "begin", "end", "(Z9){300}e"} {
		clean("search for "+regex, w.must(SearchFiles, map[string]any{"path": "hit", "regex": regex}, "end", redact.Mark).Text)
	}
}
