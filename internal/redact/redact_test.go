package redact

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

const (
	key1 = "sk-abcdefghijklmnop"
	key2 = "sk-abcdefghijklmnopqrstuvwx"
	key3 = "zzzzzzzzzzzzzzzzzzzz"
)

func TestReplacer(t *testing.T) {
	r := New(key1, key2+"\n", key3, "short", key1)
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "sk-abcdefgh is no key", "sk-abcdefgh is no key"},
		{"alone", key1, Mark},
		{"within", "key=" + key1 + ";", "key=" + Mark + ";"},
		{"longest", key2, Mark},
		{"a longer one that breaks off", key1 + "qrst.", Mark + "qrst."},
		{"at the end", "is " + key1 + "qrst", "is " + Mark + "qrst"},
		{"one after the other", key1 + key2 + key3, Mark + Mark + Mark},
		{"a key that repeats itself", "z" + key3 + "z", Mark + "zz"},
		{"begun twice", "sk-abcsk-sk-abcdefghijklmnop", "sk-abcsk-" + Mark},
		{"too short to be one", "short", "short"},
		{"not UTF-8", "\xff" + key1 + "\xfe", "\xff" + Mark + "\xfe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := r.String(tc.in); got != tc.want {
				t.Errorf("whole: %q, want %q", got, tc.want)
			}
			for n := 1; n <= len(tc.in); n++ {
				s := r.Stream()
				var b strings.Builder
				for at := 0; at < len(tc.in); at += n {
					b.WriteString(s.Next(tc.in[at:min(at+n, len(tc.in))]))
				}
				b.WriteString(s.End())
				if b.String() != tc.want {
					t.Errorf("in pieces of %d: %q, want %q", n, b.String(), tc.want)
				}
			}
		})
	}
	if got := New(`quo"ted-key-of-some-length`).String(`{"a":"quo\"ted-key-of-some-length"}`); got != `{"a":"`+Mark+`"}` {
		t.Errorf("a key in JSON: %s", got)
	}
	if New("short") != nil || New() != nil {
		t.Error("a replacer of nothing")
	}
	none := New()
	s := none.Stream()
	if none.String(key1) != key1 || s.Next("a")+s.End() != "a" || none.Text("x") != "x" {
		t.Error("a nil replacer changes text")
	}
}

func FuzzStream(f *testing.F) {
	f.Add("text "+key1+" and "+key2+key3, key1, key2, uint64(0b1010110))
	f.Add(strings.Repeat("a", 60), strings.Repeat("a", 16), strings.Repeat("a", 20), uint64(1<<40-1))
	f.Add("abababababababababababab", "abababababababab", "babababababababa", uint64(0xAAAA))
	f.Fuzz(func(t *testing.T, text, a, b string, cuts uint64) {
		r := New(a, b)
		want := r.String(text)
		s := r.Stream()
		var got strings.Builder
		from := 0
		for i := range text {
			if i > from && cuts>>(i%64)&1 == 1 {
				got.WriteString(s.Next(text[from:i]))
				from = i
			}
		}
		got.WriteString(s.Next(text[from:]))
		got.WriteString(s.End())
		if got.String() != want {
			t.Fatalf("in pieces %q, whole %q", got.String(), want)
		}
		if r == nil {
			if want != text {
				t.Fatalf("changed without keys: %q", want)
			}
			return
		}
		for _, part := range strings.Split(want, Mark) {
			for _, k := range r.keys {
				// A key that the text itself only forms around a mark is none of its keys.
				if strings.Contains(part, k) {
					t.Fatalf("%q still holds %q", want, k)
				}
			}
		}
	})
}

// What is left of a text that was cut has no part of a key where it was cut.
func TestCut(t *testing.T) {
	r := New(key1, key2, key3)
	for _, tc := range []struct{ name, in, end, start string }{
		{"no key", "a plain word", "a plain word", "a plain word"},
		{"the beginning of one", "is " + key1[:9], "is ", "is " + key1[:9]},
		{"the end of one", key2[9:] + " was it", key2[9:] + " was it", " was it"},
		{"a single byte", "is s", "is ", "is s"},
		{"a whole one", "is " + key2 + ".", "is " + key2 + ".", "is " + key2 + "."},
		{"one that another begins with", "is " + key1, "is ", "is " + key1},
		{"a whole one, then a part", key2 + key2[:20], key2, key2 + key2[:20]},
		{"a part, then a whole one", key2[20:] + key2, key2[20:] + key2, key2},
		{"a key that repeats itself", key3 + ".", key3 + ".", "."},
		{"a part that reaches into a whole one", "zz" + key3 + ".", "zz" + key3 + ".", "."},
		{"nothing", "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := r.CutEnd(tc.in); got != tc.end {
				t.Errorf("cut behind it: %q, want %q", got, tc.end)
			}
			if got := r.CutStart(tc.in); got != tc.start {
				t.Errorf("cut before it: %q, want %q", got, tc.start)
			}
		})
	}
	if none := New(); none.CutEnd(key1[:9]) != key1[:9] || none.CutStart(key1[9:]) != key1[9:] {
		t.Error("a nil replacer cuts")
	}
}

func FuzzCut(f *testing.F) {
	f.Add("text "+key1+" and "+key2+key3, key1, key2, uint(12))
	f.Add(strings.Repeat("a", 60), strings.Repeat("a", 16), strings.Repeat("a", 20), uint(30))
	f.Add("abababababababababababab", "abababababababab", "babababababababa", uint(9))
	f.Fuzz(func(t *testing.T, text, a, b string, cut uint) {
		r := New(a, b)
		if r == nil {
			return
		}
		at := int(cut % uint(len(text)+1))
		end := r.CutEnd(text[:at])
		if !strings.HasPrefix(r.String(text), r.String(end)) {
			t.Fatalf("%q shows something else than the whole, %q", r.String(end), r.String(text))
		}
		start := len(text) - len(r.CutStart(text[at:]))
		for _, k := range r.keys {
			for i := range text {
				if strings.HasPrefix(text[i:], k) && i < start && start < i+len(k) {
					t.Fatalf("%q begins within the key %q", text[start:], k)
				}
			}
		}
	})
}

func TestShapes(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"no keys here, sk-short, and risk-assessment-of-the-whole-thing", "no keys here, sk-short, and risk-assessment-of-the-whole-thing"},
		{"got sk-proj-0123456789abcdefXYZ.", "got " + Mark + "."},
		{"Authorization: Bearer abcdef0123456789", "Authorization: Bearer " + Mark},
		{`{"api_key": "0123456789abcdef"}`, `{"api_key": "` + Mark + `"}`},
		{"https://user:secretsecret12@host/v1", "https://user:" + Mark + "@host/v1"},
		{"postgres://user:secret/secret+12@host/db", "postgres://user:" + Mark + "@host/db"},
		{"cut https://user:secretsecret12", "cut https://user:" + Mark},
		{`Post "http://localhost:11434/v1/chat/completions": connection refused`, `Post "http://localhost:11434/v1/chat/completions": connection refused`},
		{"ghp_0123456789abcdefghijABCDEFGHIJ and AKIA0123456789ABCDEF", Mark + " and " + Mark},
		{"x -----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- y", "x " + Mark + " y"},
		{"cut -----BEGIN PRIVATE KEY-----\nabc", "cut " + Mark},
		{"sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
	} {
		if got := Shapes(tc.in); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestLogWithoutKeys(t *testing.T) {
	var out bytes.Buffer
	r := New(key3)
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: r.Attr}))
	log.Info("asked with "+key3, "text", "Bearer abcdef0123456789", "error", errors.New("bad key "+key1), "list", []string{key3, "plain"}, "n", 7)
	for _, secret := range []string{key3, "abcdef0123456789", key1} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the log holds %s: %s", secret, out.String())
		}
	}
	if !strings.Contains(out.String(), "plain") || !strings.Contains(out.String(), "n=7") {
		t.Errorf("the log lost what is no key: %s", out.String())
	}
}

func BenchmarkReplacer(b *testing.B) {
	r := New(key2, key3)
	text := strings.Repeat("func main() { fmt.Println(\"sketch of a zebra\") }\n", 200)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.String(text)
	}
}

func BenchmarkStream(b *testing.B) {
	s := New(key2, key3).Stream()
	b.ReportAllocs()
	for b.Loop() {
		s.Next("a word of a sketch ")
	}
}
