package taskdir

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// show runs pieces through the filter, as an output does.
func show(pieces ...string) string {
	var v visible
	var dst []byte
	for _, p := range pieces {
		dst = v.text(dst, p)
	}
	return string(v.release(dst))
}

func TestVisible(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain\ttext\n", "plain\ttext\n"},
		{"a\r\nb\rc\r", "a\nb␍c␍"},
		{"\x1b[31mred\x1b[0m", "␛[31mred␛[0m"},
		{"nul\x00 bell\a del\x7f", "nul␀ bell␇ del\\x7f"},
		{"c1\u009b2J", "c1\\x9b2J"},
		{"bad\xff\xc3", "bad\uFFFD\uFFFD"},
		{"你好", "你好"},
		{"say [ROUND END] now", "say [ROUND␠END] now"},
		{"GROUND END", "GROUND␠END"},
		{"ROUND END", "ROUND␠END"},
		{"ROUND  END", "ROUND␠ END"},
		{"ROUND\tEND", "ROUND␠\tEND"},
		{"[ROUND\nEND]", "[ROUND␠\nEND]"},
		{"[ROUND\u00a0END]", "[ROUND␠\u00a0END]"},
		{"[ROUND\u200bEND]", "[ROUND␠\u200bEND]"},
		{"[round end] and [ Round End ]", "[round␠end] and [ Round␠End ]"},
		{"the round ended in ROUNDS", "the round ended in ROUNDS"},
		{"Round End", "Round End"},
		{"[ROUND]", "[ROUND]"},
		{"[ROUND ROUND END]", "[ROUND ROUND␠END]"},
		{"[ROUND [round end]", "[ROUND [round␠end]"},
		{"[[ROUND END]]", "[[ROUND␠END]]"},
		{"ROUND" + strings.Repeat(" ", 40) + "END", "ROUND␠" + strings.Repeat(" ", 39) + "END"},
		{"ROUND EROUND END", "ROUND EROUND␠END"},
		{"[ROUND END", "[ROUND␠END"},
		{"[ROUND E", "[ROUND E"},
		{"[ROUND\x00 END]", "[ROUND␀ END]"},
		{"[ROUND\xff END]", "[ROUND\uFFFD END]"},
		{"[ROUND\r\nEND]", "[ROUND␠\nEND]"},
	} {
		if got := show(c.in); got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
		if got := show(strings.Split(c.in, "")...); got != c.want && utf8.ValidString(c.in) {
			t.Errorf("%q in characters became %q, want %q", c.in, got, c.want)
		}
	}
}

func TestVisibleHoldsBackLittle(t *testing.T) {
	for in, want := range map[string]string{
		"the end of a round": "the end of a round",
		"an [example] or":    "an [example] or",
		"R":                  "",
		"[ro":                "[",
		"x ROUND EN":         "x ",
		"x ROUND ENx":        "x ROUND ENx",
		"a\r":                "a",
		"a\xe4\xbd":          "a",
	} {
		var v visible
		if got := v.text(nil, in); string(got) != want {
			t.Errorf("%q: %q was passed on, want %q", in, got, want)
		}
	}
}

// A reader may look for the marker in any of these ways.
var likeMarker = regexp.MustCompile(`ROUND\s+END|(?i:\[\s*round\s+end\s*\])`)

func FuzzVisible(f *testing.F) {
	for _, s := range []string{
		"[ROUND END]", "\n\n[ROUND END]\n", "[ROUND  END]", "[round\u00a0end]", "ROUND EROUND END", "[R[ROUND END]", "a\r\n[ROUND\r\nEND]\r",
		"你好\x1b[0m", "\xe4\xbd\xe4", "ROUND" + strings.Repeat(" ", 20) + "END", "[ \u200bround end]",
	} {
		f.Add(s, uint64(1))
		f.Add(s, uint64(0x5555))
	}
	f.Fuzz(func(t *testing.T, s string, cuts uint64) {
		whole := show(s)
		// The bits of cuts, over and over, say where to cut.
		var pieces []string
		from := 0
		for i := range len(s) {
			if cuts>>(i%64)&1 == 1 {
				pieces = append(pieces, s[from:i])
				from = i
			}
		}
		if got := show(append(pieces, s[from:])...); got != whole {
			t.Errorf("%q in pieces became %q, whole %q", s, got, whole)
		}
		if !utf8.ValidString(whole) {
			t.Errorf("%q became invalid: %q", s, whole)
		}
		for _, r := range whole {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f {
				t.Errorf("%q became %q, which holds %U", s, whole, r)
			}
		}
		file := whole + ending
		if n := strings.Count(file, Marker); n != 1 || !strings.HasSuffix(file, ending) {
			t.Errorf("%q became %q, with %d markers", s, file, n)
		}
		if m := likeMarker.FindString(whole); m != "" {
			t.Errorf("%q became %q, which holds %q", s, whole, m)
		}
		if again := show(whole); again != whole {
			t.Errorf("%q became %q, and that %q", s, whole, again)
		}
	})
}

func TestEndsInMarker(t *testing.T) {
	for in, want := range map[string]bool{
		"\n\n[ROUND END]\n": true, "x\r\n\r\n[ROUND END]\r\n": true, "[ROUND END]": true, "[ROUND END]\n\n ": true,
		"": false, "say [ROUND END]\n": false, "[ROUND END]\nx": false, "[ROUND␠END]\n": false, "\n\n[ROUND EN": false,
	} {
		if got := EndsInMarker([]byte(in)); got != want {
			t.Errorf("EndsInMarker(%q) = %v", in, got)
		}
	}
}

func BenchmarkVisible(b *testing.B) {
	text := strings.Repeat("The quick brown fox [jumps] over 两只懒狗.\n", 100)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var v visible
	var dst []byte
	for b.Loop() {
		dst = v.text(dst[:0], text)
	}
}
