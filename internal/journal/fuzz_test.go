package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzReadAgree holds Read and ReadBack against each other and against Open on
// files of any content.
func FuzzReadAgree(f *testing.F) {
	a, b := line(f, `{"n":1}`), line(f, `["two",2]`)
	for _, s := range []string{
		"", "\n", a, a + b, a + b[:7], a + "\x00\x00\n" + b, "x" + a + b, a + "\n\n" + b + "\n", a[:3], a + b + a + "\x00",
		strings.Repeat(a, 600), a + strings.Repeat("y", 9000) + "\n" + b, line(f, `"`+strings.Repeat("z", 20000)+`"`) + b,
		"7 cff7d56a {\"a\":1}\r\n", "0 00000000 \n",
	} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "session.jsonl")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		fwd, rf, ferr := readAll(path, 0)
		back, rb, berr := readBackAll(path)
		slices.Reverse(back)
		for _, e := range slices.Concat(fwd, back) {
			if !bytes.HasPrefix(content[e.off:], []byte(line(t, e.rec))) {
				t.Fatalf("record %q does not stand at %d", e.rec, e.off)
			}
		}

		var df, db *DamageError
		if errors.As(ferr, &df) != errors.As(berr, &db) {
			t.Fatalf("Read says %v, ReadBack %v", ferr, berr)
		}
		if df != nil {
			// Each stops at the damage that it meets first.
			if df.Offset > db.Offset || len(back) == 0 || back[0].off < db.Offset {
				t.Fatalf("Read: %v; ReadBack: %v with %v", df, db, back)
			}
			if n := len(fwd); n > 0 && fwd[n-1].off >= df.Offset {
				t.Fatalf("Read handed out %v, past %v", fwd[n-1], df)
			}
			return
		}
		if ferr != nil || berr != nil {
			t.Fatalf("Read: %v; ReadBack: %v", ferr, berr)
		}
		if !slices.Equal(fwd, back) || rf != rb {
			t.Fatalf("Read: %v, %+v; ReadBack: %v, %+v", fwd, rf, back, rb)
		}
		if rf.Size+rf.Torn != int64(len(content)) {
			t.Fatalf("report %+v of %d bytes", rf, len(content))
		}

		j, report, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		j.Close()
		if report.Aside != "" {
			if tail, err := os.ReadFile(report.Aside); err != nil || !bytes.Equal(tail, content[rf.Size:]) {
				t.Fatalf("aside stands %q, %v", tail, err)
			}
			os.Remove(report.Aside)
		}
		if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, content[:rf.Size]) {
			t.Fatalf("Open left %q, %v", kept, err)
		}
	})
}

// FuzzParseLine looks for lines that pass though they are not what a commit writes.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte(line(f, `{"n":1}`)))
	f.Add([]byte("07 cff7d56a {\"a\":1}\n"))
	f.Fuzz(func(t *testing.T, l []byte) {
		rec, bad := parseLine(l)
		if (rec == nil) == (bad == "") {
			t.Fatalf("record %q and reason %q", rec, bad)
		}
		if rec != nil && !bytes.Contains(rec, []byte("\n")) && line(t, string(rec)) != string(l) {
			t.Fatalf("line %q passed", l)
		}
	})
}
