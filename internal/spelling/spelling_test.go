package spelling

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	words := []string{"max_turns", "timeout", "tools", "llm", "agent"}
	for word, want := range map[string]string{
		"max_turn": "max_turns", "maxTurns": "max_turns", "max-trnus": "max_turns", "Timeout": "timeout", "tiemout": "timeout",
		"toosl": "tools", "agnet": "agent", "lm": "llm", "x": "", "": "", "turns_at_most": "", "tmut": "",
		"timeout" + strings.Repeat("t", longest): "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Nearest("aab", []string{"aac", "aad"}); got != "aac" {
		t.Errorf("of two that are as near: %q", got)
	}
}
