package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func line(t testing.TB, rec string) string {
	t.Helper()
	b, err := appendLine(nil, raw(rec))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func create(t testing.TB, opts ...Option) *Journal {
	t.Helper()
	j, err := Create(filepath.Join(t.TempDir(), "state", "place", "session.jsonl"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func commit(t testing.TB, j *Journal, recs ...string) int64 {
	t.Helper()
	var rs []json.RawMessage
	for _, r := range recs {
		rs = append(rs, raw(r))
	}
	off, err := j.Commit(rs...)
	if err != nil {
		t.Fatal(err)
	}
	return off
}

type entry struct {
	off int64
	rec string
}

func readAll(path string, from int64) ([]entry, Report, error) {
	var out []entry
	report, err := Read(path, from, func(off int64, rec json.RawMessage) error {
		out = append(out, entry{off, string(rec)})
		return nil
	})
	return out, report, err
}

func readBackAll(path string) ([]entry, Report, error) {
	var out []entry
	report, err := ReadBack(path, func(off int64, rec json.RawMessage) (bool, error) {
		out = append(out, entry{off, string(rec)})
		return true, nil
	})
	return out, report, err
}

func recs(entries []entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.rec)
	}
	return out
}

// wantRecords reads the file both ways.
func wantRecords(t *testing.T, path string, want ...string) {
	t.Helper()
	fwd, _, err := readAll(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := recs(fwd); !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
	back, _, err := readBackAll(path)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(back)
	if !slices.Equal(back, fwd) {
		t.Errorf("read back %v, forwards %v", back, fwd)
	}
}

func TestLineFormat(t *testing.T) {
	// The check value that is published for CRC-32C.
	if got, want := line(t, `123456789`), "9 e3069283 123456789\n"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if got := line(t, "{\n \"a\":\t1}\n"); got != line(t, `{"a":1}`) {
		t.Errorf("a record with line breaks is stored as %q", got)
	}
	for _, bad := range []string{"", "{\n"} {
		if _, err := appendLine(nil, raw(bad)); err == nil {
			t.Errorf("record %q was accepted", bad)
		}
	}
}

func TestParseLine(t *testing.T) {
	good := line(t, `{"a":1}`)
	if rec, bad := parseLine([]byte(good)); string(rec) != `{"a":1}` || bad != "" {
		t.Errorf("good line: %q, %q", rec, bad)
	}
	for _, s := range []string{
		"", "\n", " \n", strings.TrimSuffix(good, "\n"), good[1:], "0" + good, "+" + good, "8" + good[1:],
		strings.ToUpper(good), strings.Replace(good, "1}", "2}", 1), strings.Replace(good, " ", "\x00", 1),
		"0 00000000 \n", strings.Repeat("\x00", 40) + "\n", "99999999999999999999 00000000 {}\n", "7 cff7d56a{\"a\":1}\n", "7 CFF7D56A {\"a\":1}\n",
	} {
		if rec, bad := parseLine([]byte(s)); rec != nil || bad == "" {
			t.Errorf("line %q passed as record %q", s, rec)
		}
	}
}

func TestCommitAndReadBothWays(t *testing.T) {
	j := create(t)
	if off := commit(t, j, `{"n":1}`, `{"n":2}`); off != 0 {
		t.Errorf("first offset %d, want 0", off)
	}
	size := j.Size()
	if off := commit(t, j, `{"n":3}`); off != size {
		t.Errorf("offset %d, want the size before, %d", off, size)
	}
	if off := commit(t, j); off != j.Size() {
		t.Errorf("empty commit at %d, want %d", off, j.Size())
	}
	wantRecords(t, j.Path(), `{"n":1}`, `{"n":2}`, `{"n":3}`)

	tail, report, err := readAll(j.Path(), size)
	if err != nil || !slices.Equal(recs(tail), []string{`{"n":3}`}) {
		t.Errorf("from %d: %v, %v", size, tail, err)
	}
	if report.Size != j.Size() || report.Torn != 0 {
		t.Errorf("report %+v, want size %d", report, j.Size())
	}
	if tail, _, err := readAll(j.Path(), j.Size()); err != nil || len(tail) != 0 {
		t.Errorf("from the end: %v, %v", tail, err)
	}
	for _, from := range []int64{size - 1, j.Size() + 1} {
		var damage *DamageError
		if _, _, err := readAll(j.Path(), from); !errors.As(err, &damage) || damage.Offset != from {
			t.Errorf("from %d: %v, want a DamageError there", from, err)
		}
	}
}

func TestCommitRefusesBadRecordsWhole(t *testing.T) {
	j := create(t)
	commit(t, j, `1`)
	if _, err := j.Commit(raw(`2`), nil); !errors.Is(err, errNoRecord) {
		t.Errorf("error %v, want errNoRecord", err)
	}
	commit(t, j, `3`)
	wantRecords(t, j.Path(), `1`, `3`)
}

func TestCreateOpenClose(t *testing.T) {
	j := create(t)
	if _, err := Create(j.Path()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Create: %v, want fs.ErrExist", err)
	}
	commit(t, j, `1`)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := j.Commit(raw(`2`)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Commit after Close: %v, want fs.ErrClosed", err)
	}
	j, report, err := Open(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if report.Torn != 0 || report.Size != j.Size() {
		t.Errorf("report %+v of a whole journal of %d bytes", report, j.Size())
	}
	commit(t, j, `2`)
	wantRecords(t, j.Path(), `1`, `2`)
	if runtime.GOOS != "windows" {
		info, err := os.Stat(j.Path())
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != filePerm {
			t.Errorf("mode %v, want it private", info.Mode().Perm())
		}
	}
}

func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no.jsonl")
	if _, _, err := Open(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: %v", err)
	}
	if _, _, err := readAll(path, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read: %v", err)
	}
	if _, _, err := readBackAll(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadBack: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("reading made the file")
	}
}

func TestTornTails(t *testing.T) {
	a, b := line(t, `{"n":1}`), line(t, `{"n":2}`)
	tests := map[string]struct {
		whole, torn string
		records     []string
	}{
		"empty file":                  {"", "", nil},
		"whole":                       {a + b, "", []string{`{"n":1}`, `{"n":2}`}},
		"half a line":                 {a, b[:9], []string{`{"n":1}`}},
		"all but the line break":      {a, b[:len(b)-1], []string{`{"n":1}`}},
		"one byte":                    {a, "1", []string{`{"n":1}`}},
		"line break only":             {a, "\n", []string{`{"n":1}`}},
		"NULs":                        {a, strings.Repeat("\x00", 5000), []string{`{"n":1}`}},
		"NULs, then a line's text":    {a, strings.Repeat("\x00", 20) + b, []string{`{"n":1}`}},
		"two bad lines":               {a, "x\n" + b[1:], []string{`{"n":1}`}},
		"nothing but half a line":     {"", a[:5], nil},
		"nothing but NULs":            {"", strings.Repeat("\x00", 4096), nil},
		"checksum of another":         {a, strings.Replace(b, "2}", "3}", 1), []string{`{"n":1}`}},
		"longer than any block, bad":  {a, "9" + strings.Repeat("x", 700<<10), []string{`{"n":1}`}},
		"many bad lines":              {a, strings.Repeat("bad\n", 5000), []string{`{"n":1}`}},
		"one NUL line":                {a, strings.Repeat("\x00", 11) + "\n", []string{`{"n":1}`}},
		"last line of several is cut": {a + b, a[:len(a)-2], []string{`{"n":1}`, `{"n":2}`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "session.jsonl")
			if err := os.WriteFile(path, []byte(tt.whole+tt.torn), 0o600); err != nil {
				t.Fatal(err)
			}
			want := Report{Size: int64(len(tt.whole)), Torn: int64(len(tt.torn))}
			if _, report, err := readAll(path, 0); err != nil || report != want {
				t.Errorf("Read: %+v, %v; want %+v", report, err, want)
			}
			if _, report, err := readBackAll(path); err != nil || report != want {
				t.Errorf("ReadBack: %+v, %v; want %+v", report, err, want)
			}
			wantRecords(t, path, tt.records...)

			j, report, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			aside := report.Aside
			report.Aside = ""
			if report != want {
				t.Errorf("Open: %+v, want %+v", report, want)
			}
			if tt.torn == "" {
				if aside != "" {
					t.Errorf("a whole journal has something aside: %s", aside)
				}
			} else if got, err := os.ReadFile(aside); err != nil || string(got) != tt.torn {
				t.Errorf("aside stand %d bytes, %v; want the torn tail", len(got), err)
			}
			commit(t, j, `"after"`)
			wantRecords(t, path, append(tt.records, `"after"`)...)
		})
	}
}

func TestTornTailsGoToDistinctFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.jsonl")
	for n, torn := range []string{"first", "second", "third"} {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		f.Close()
		j, report, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		j.Close()
		if want := fmt.Sprintf("%s.torn-%d", path, n+1); report.Aside != want {
			t.Errorf("aside %s, want %s", report.Aside, want)
		}
		if got, _ := os.ReadFile(report.Aside); string(got) != torn {
			t.Errorf("%s holds %q, want %q", report.Aside, got, torn)
		}
	}
}

func TestDamage(t *testing.T) {
	a, b, c := line(t, `{"n":1}`), line(t, `{"n":2}`), line(t, `{"n":3}`)
	tests := map[string]struct {
		content       string
		before, after []string
		at            int
	}{
		"NUL line":          {a + strings.Repeat("\x00", 16) + "\n" + c, []string{`{"n":1}`}, []string{`{"n":3}`}, len(a)},
		"flipped bit":       {a + strings.Replace(b, "n", "m", 1) + c, []string{`{"n":1}`}, []string{`{"n":3}`}, len(a)},
		"first line":        {"x" + a + b + c, nil, []string{`{"n":2}`, `{"n":3}`}, 0},
		"lost line break":   {a + b[:len(b)-1] + b + c, []string{`{"n":1}`}, []string{`{"n":3}`}, len(a)},
		"several bad lines": {a + "x\n\n\x00\n" + c, []string{`{"n":1}`}, []string{`{"n":3}`}, len(a)},
		"and a torn tail":   {a + "x\n" + c + b[:4], []string{`{"n":1}`}, []string{`{"n":3}`}, len(a)},
		"large":             {a + strings.Repeat("z", 100<<10) + "\n" + c, []string{`{"n":1}`}, []string{`{"n":3}`}, len(a)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "session.jsonl")
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			check := func(way string, got []string, want []string, err error) {
				t.Helper()
				var damage *DamageError
				if !errors.As(err, &damage) {
					t.Fatalf("%s: error %v, want a DamageError", way, err)
				}
				if damage.Offset != int64(tt.at) || damage.Path != path || damage.Reason == "" {
					t.Errorf("%s: %+v, want byte %d of %s", way, damage, tt.at, path)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: handed out %q, want %q", way, got, want)
				}
			}
			fwd, _, err := readAll(path, 0)
			check("Read", recs(fwd), tt.before, err)
			back, _, err := readBackAll(path)
			slices.Reverse(back)
			check("ReadBack", recs(back), tt.after, err)
			if got, err := os.ReadFile(path); err != nil || string(got) != tt.content {
				t.Error("the file was changed")
			}
		})
	}
}

func TestCallbackErrorsAndStops(t *testing.T) {
	j := create(t)
	commit(t, j, `1`, `2`, `3`)
	stop := errors.New("enough")
	n := 0
	_, err := Read(j.Path(), 0, func(int64, json.RawMessage) error { n++; return stop })
	if err != stop || n != 1 {
		t.Errorf("Read: %v after %d records, want the callback's own error after 1", err, n)
	}
	n = 0
	_, err = ReadBack(j.Path(), func(int64, json.RawMessage) (bool, error) { n++; return true, stop })
	if err != stop || n != 1 {
		t.Errorf("ReadBack: %v after %d records", err, n)
	}
	n = 0
	report, err := ReadBack(j.Path(), func(int64, json.RawMessage) (bool, error) { n++; return n < 2, nil })
	if err != nil || n != 2 || report.Size != j.Size() {
		t.Errorf("ReadBack: %v, %+v after %d records, want 2", err, report, n)
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	*bytes.Reader
	n int
}

func (r *countingReader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.Reader.ReadAt(b, off)
	r.n += n
	return n, err
}

func TestReadBackReadsTheTailOnly(t *testing.T) {
	content := strings.Repeat(line(t, `{"filler":"`+strings.Repeat("x", 500)+`"}`), 2000) + line(t, `"last"`)
	in := &countingReader{Reader: bytes.NewReader([]byte(content))}
	r := backReader{f: in, start: int64(len(content)), block: firstBlock}
	if _, l, err := r.prev(); err != nil || string(l) != line(t, `"last"`) {
		t.Fatalf("last line %q, %v", l, err)
	}
	if in.n > firstBlock {
		t.Errorf("read %d bytes for the last line, want at most %d", in.n, firstBlock)
	}
	for {
		if _, _, err := r.prev(); err != nil {
			break
		}
	}
	if in.n != len(content) {
		t.Errorf("read %d bytes in all, want each of %d once", in.n, len(content))
	}
}

func TestLinesOfAllSizes(t *testing.T) {
	j := create(t)
	var want []string
	for _, n := range []int{1, firstBlock - 20, firstBlock - 13, firstBlock, 3 * firstBlock, 64 << 10, 64<<10 + 1, 1 << 20, 5} {
		rec := `"` + strings.Repeat("x", n) + `"`
		want = append(want, rec)
		commit(t, j, rec)
	}
	wantRecords(t, j.Path(), want...)
	if cap(j.buf) > keepBuffer {
		t.Errorf("a waiting journal keeps a buffer of %d bytes", cap(j.buf))
	}
}

func TestPlace(t *testing.T) {
	names := []string{
		"audit", "Audit", "audit ", "au/dit", "au\\dit", "", ".", "..", "con", "nul", "a\x00b", "a\xffb", "a\ufffdb",
		"审计任务", "e\u0301", "\u00e9", strings.Repeat("long ", 100), strings.Repeat("长", 100), "-rf", "parent.1", "parent.2",
		"a:b*c?d", "trailing.", "😀",
	}
	seen := map[string]string{}
	for _, name := range names {
		p := Place(name)
		if p != Place(name) {
			t.Errorf("%q has no constant place", name)
		}
		if other, ok := seen[strings.ToLower(p)]; ok {
			t.Errorf("%q and %q share %s", name, other, p)
		}
		seen[strings.ToLower(p)] = name
		if len(p) > 100 || p == "" || strings.ContainsAny(p, "/\\:*?\"<>|. \x00") || p[0] == '-' {
			t.Errorf("place %q of %q is not safe everywhere", p, name)
		}
	}
	for name, prefix := range map[string]string{"audit": "audit-", "审计 任务": "审计_任务-", "parent.1": "parent_1-"} {
		if p := Place(name); !strings.HasPrefix(p, prefix) {
			t.Errorf("place %q of %q, want it to begin with %q", p, name, prefix)
		}
	}
}
