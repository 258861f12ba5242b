package taskdir

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"
)

func gb(t testing.TB, s string) string {
	t.Helper()
	b, err := simplifiedchinese.GB18030.NewEncoder().String(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecode(t *testing.T) {
	chinese := "请列出 src 目录下的所有 TODO，并写一份报告。"
	for _, c := range []struct{ name, data, text, encoding string }{
		{"empty", "", "", UTF8},
		{"ascii", "hi\n", "hi\n", UTF8},
		{"utf-8", "grüße 你好 🙂", "grüße 你好 🙂", UTF8},
		{"bom", "\xEF\xBB\xBFhi", "hi", UTF8BOM},
		{"bom only", "\xEF\xBB\xBF", "", UTF8BOM},
		{"utf-16 le", "\xFF\xFEh\x00\xfc\x00=\xd8B\xde", "hü🙂", UTF16LE},
		{"utf-16 be", "\xFE\xFF\x00h\x00\xfc", "hü", UTF16BE},
		{"utf-16 odd", "\xFF\xFEh\x00x", "h\uFFFD", UTF16LE},
		{"utf-16 lone surrogate", "\xFF\xFE=\xd8x\x00", "\uFFFDx", UTF16LE},
		{"a bad byte", "hello \xff world", "hello \uFFFD world", UTF8Repaired},
		{"bad byte after bom", "\xEF\xBB\xBF\xb0\xa1", "\uFFFD", UTF8Repaired},
		{"cut within a character", "你好世\xe7\x95", "你好世\uFFFD", UTF8Repaired},
		{"cut after one character", "你\xe5\xa5", "你\uFFFD", UTF8Repaired},
		{"latin-1 word", "caf\xe9", "caf\uFFFD", UTF8Repaired},
		{"latin-1 that decodes as gb18030", "r\xe9sum\xe9s", "r\uFFFDsum\uFFFDs", UTF8Repaired},
		{"latin-1 sentence", "d\xe9j\xe0 vu, na\xefve", "d\uFFFDj\uFFFD vu, na\uFFFDve", UTF8Repaired},
		{"gb18030", gb(t, chinese), chinese, GB18030},
		{"gb18030 word", gb(t, "啊"), "啊", GB18030},
		{"gb18030 with rare ones", gb(t, "你好，龘㐀世界"), "你好，龘㐀世界", GB18030},
		{"gb18030 cut", gb(t, chinese)[:3], strings.ToValidUTF8(gb(t, chinese)[:3], "\uFFFD"), UTF8Repaired},
		{"nul bytes", "a\x00b", "a\x00b", UTF8},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, encoding := Decode([]byte(c.data))
			if text != c.text || encoding != c.encoding {
				t.Errorf("got %q as %s, want %q as %s", text, encoding, c.text, c.encoding)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "hi", "\xEF\xBB\xBFhi", "\xFF\xFEh\x00", "\xFE\xFF\xd8", "caf\xe9", "\xb0\xa1\xc4\xe3", "\x81\x30\x81\x30\xb0\xa1", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text, encoding := Decode(data)
		if !utf8.ValidString(text) {
			t.Errorf("%q as %s is no UTF-8", text, encoding)
		}
		if encoding == UTF8 && text != string(data) {
			t.Errorf("%q became %q", data, text)
		}
		if encoding == GB18030 && utf8.Valid(data) {
			t.Errorf("valid UTF-8 %q was taken for GB18030", data)
		}
	})
}
