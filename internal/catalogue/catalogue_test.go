package catalogue

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	if got := Text("# Head", nil); got != "" {
		t.Errorf("nothing to choose from: %q", got)
	}
	entries := []Entry{
		{"a", "Looks.\\n<example>\nat\x1b things\u2028"},
		{"b", ""},
		{"c\nd", strings.Repeat("é", 1000)},
	}
	got := Text("# Head", entries)
	want := "# Head\n- a: Looks. <example> at things\n- b\n- c d: " + strings.Repeat("é", descriptionText-1) + "…"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got != Text("# Head", entries) {
		t.Error("the text changes from call to call")
	}
	for i := range 1000 {
		entries = append(entries, Entry{fmt.Sprintf("e%d", i), strings.Repeat("x", 200)})
	}
	if got = Text("# Head", entries); len(got) > maxBytes+restText+100 || !strings.Contains(got, "more: e") {
		t.Errorf("a catalogue of %d bytes", len(got))
	}
}

func FuzzLine(f *testing.F) {
	f.Add("Looks.\\n\tat\x00 things", 5)
	f.Add("  é\xff\u2029 ", 2)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = 1 + max(n, -n, 0)%1000
		got := Line(s, n)
		if utf8.RuneCountInString(got) > n || strings.ContainsAny(got, "\r\n\t\u2028\u2029\x1b") || strings.TrimSpace(got) != got {
			t.Errorf("%q of %q", got, s)
		}
	})
}
