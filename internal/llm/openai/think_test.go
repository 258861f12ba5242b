package openai

import (
	"strings"
	"testing"
	"unicode/utf8"
)

type split struct{ text, reasoning, raw, shown string }

// cut feeds the text in pieces of n bytes, or whole where n is 0.
func cut(s string, n int, unopened bool) split {
	t := thinkSplitter{unopened: unopened}
	var shown strings.Builder
	if n <= 0 {
		n = max(1, len(s))
	}
	for len(s) > 0 {
		k := min(n, len(s))
		text, _ := t.feed(s[:k])
		shown.WriteString(text)
		s = s[k:]
	}
	text, _ := t.end()
	shown.WriteString(text)
	var out split
	out.text, out.reasoning, out.raw = t.result()
	out.shown = shown.String()
	return out
}

func TestThinkSplitter(t *testing.T) {
	for _, tc := range []struct {
		name, in        string
		unopened        bool
		text, reasoning string
	}{
		{"plain", "hello", false, "hello", ""},
		{"opened", "<think>a b</think>\n\nhello", false, "hello", "a b"},
		{"after white space", "\n <think>a</think>hello", false, "hello", "a"},
		{"empty", "<think>\n</think>\nhello", false, "hello", ""},
		{"unclosed", "<think>a\nb", false, "", "a\nb"},
		{"half a tag", "<thi", false, "<thi", ""},
		{"half a closing tag", "<think>a</thi", false, "", "a</thi"},
		{"unopened, line of its own", "a\nb\n</think>\n\nhello", false, "hello", "a\nb"},
		{"unopened, end of line", "a b</think>\nhello", false, "hello", "a b"},
		{"unopened, start of line", "a b\n  </think> hello", false, "hello", "a b"},
		{"unopened, at the end", "a b</think>", false, "", "a b"},
		{"only the closing tag", "</think>\nhello", false, "hello", ""},
		{"tags in prose", "the tags `<think>` and `</think>` part it", false, "the tags `<think>` and `</think>` part it", ""},
		{"opening tag after text", "see <think>a</think> b", false, "see <think>a</think> b", ""},
		{"closing tag twice", "<think>a</think>b\n</think>\nc", false, "b\n</think>\nc", "a"},
		{"known unopened", "a b</think>\nhello", true, "hello", "a b"},
		{"known unopened, but text", "hello", true, "hello", ""},
		{"known unopened, but opened", "<think>a</think>hello", true, "hello", "a"},
		{"blanks only", " \n", false, " \n", ""},
		{"nothing", "", false, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := range 9 {
				got := cut(tc.in, n, tc.unopened)
				if got.text != tc.text || got.reasoning != tc.reasoning {
					t.Errorf("pieces of %d: text %q, reasoning %q; want %q, %q", n, got.text, got.reasoning, tc.text, tc.reasoning)
				}
			}
		})
	}
}

func TestThinkSplitterKeepsTags(t *testing.T) {
	for in, want := range map[string]string{
		"\n<think>a</think>\n\nhello": "\n<think>a</think>",
		"a\n</think>\nhello":          "a\n</think>",
		"hello":                       "",
	} {
		if got := cut(in, 3, false).raw; got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzThinkSplitter(f *testing.F) {
	for _, s := range []string{"hello", "<think>a</think>b", "a\n </think>\t\nb", "a </think> b</think>", "<think", " \n<think>x", "</think>", "a</think> \r\nb"} {
		f.Add(s, uint8(1), false)
		f.Add(s, uint8(4), true)
	}
	f.Fuzz(func(t *testing.T, s string, n uint8, unopened bool) {
		whole, pieces := cut(s, 0, unopened), cut(s, int(n), unopened)
		if whole.text != pieces.text || whole.reasoning != pieces.reasoning || whole.raw != pieces.raw {
			t.Errorf("%q in pieces of %d:\n%+v\nwhole:\n%+v", s, n, pieces, whole)
		}
		// What is not reasoning was shown, and nothing of the answer is lost.
		if !strings.HasSuffix(pieces.shown, pieces.text) {
			t.Errorf("%q: text %q was not shown: %q", s, pieces.text, pieces.shown)
		}
		if !strings.Contains(s, "think>") && pieces.text != s && !(unopened && pieces.text == s) {
			t.Errorf("%q has no tags and became %q", s, pieces.text)
		}
		if utf8.ValidString(s) && !utf8.ValidString(pieces.text) {
			t.Errorf("%q became invalid UTF-8", s)
		}
	})
}
