package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"
)

func TestReadFile(t *testing.T) {
	w := newWorld(t, nil)
	gb, err := simplifiedchinese.GB18030.NewEncoder().String("第一行：中文内容\n第二行\n")
	if err != nil {
		t.Fatal(err)
	}
	w.write("work/small.txt", "one\ntwo\nthree")
	w.write("work/crlf.txt", "one\r\ntwo\r\n")
	w.write("work/empty.txt", "")
	w.write("work/gb.txt", gb)
	w.write("work/u16.txt", "\xff\xfeh\x00i\x00\n\x00")
	w.write("work/bom.txt", "\xef\xbb\xbfhi\n")
	w.write("work/bad.txt", "naïve\nb\xffad\n")
	w.write("work/bin", "\x7fELF\x00\x01")
	w.write("work/wide.txt", strings.Repeat("日本", 5000)+"\nshort\n")
	var long strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&long, "line %d\n", i+1)
	}
	w.write("work/long.txt", long.String())
	w.write("outside/secret", "secret")
	w.write("temp/t/subagent_plan.md", "- [ ] step\n")
	for _, c := range []struct {
		args  m
		want  string // the whole text, or with failed a part of it
		fails bool
	}{
		{m{"path": "small.txt"}, "3 lines\none\ntwo\nthree\n", false},
		{m{"path": w.path("work/small.txt")}, "small.txt, 3 lines\none\ntwo\nthree\n", false},
		{m{"path": "small.txt", "start_line": 2}, "lines 2-3 of 3\ntwo\nthree\n", false},
		{m{"path": "small.txt", "start_line": 0, "line_count": 2}, "lines 1-2 of 3; start_line 3 goes on\none\ntwo\n", false},
		{m{"path": "small.txt", "start_line": 4}, "has 3 lines; there is no line 4", true},
		{m{"path": "crlf.txt"}, "2 lines\none\ntwo\n", false},
		{m{"path": "empty.txt"}, "empty.txt is empty", false},
		{m{"path": "gb.txt"}, "2 lines; the file is GB18030\n第一行：中文内容\n第二行\n", false},
		{m{"path": "u16.txt"}, "1 line; the file is UTF-16 (little endian)\nhi\n", false},
		{m{"path": "bom.txt"}, "1 line; the file is UTF-8 with a byte order mark\nhi\n", false},
		{m{"path": "bad.txt"}, "2 lines; the file is UTF-8 with broken characters\nnaïve\nb�ad\n", false},
		{m{"path": "subagent_plan.md"}, w.path("temp/t/subagent_plan.md") + ", 1 line\n- [ ] step\n", false},
		{m{"path": "bin"}, "binary file of 6 bytes", true},
		{m{"path": "."}, "is a directory", true},
		{m{"path": "SMALL.TXT"}, "does not exist; its directory has small.txt", true},
		{m{"path": "no/such/dir/x"}, "does not exist; the deepest directory on the way that does is " + w.path("work"), true},
		{m{"path": w.path("outside/secret")}, "outside of what this task may read", true},
		{m{"path": "../outside/secret"}, "context.json's input_files", true},
	} {
		r := w.call(ReadFile, c.args)
		if r.Failed != c.fails || !c.fails && r.Text != c.want || !strings.Contains(r.Text, c.want) {
			t.Errorf("%v: failed %v\n%q, want\n%q", c.args, r.Failed, r.Text, c.want)
		}
	}

	// A long file is read in parts that meet.
	var got strings.Builder
	next, parts := 1, 0
	for next > 0 && parts < 100 {
		r := w.must(ReadFile, m{"path": "long.txt", "start_line": next})
		head, body, _ := strings.Cut(r.Text, "\n")
		got.WriteString(body)
		parts++
		if len(r.Text) > w.env.ResultCap {
			t.Errorf("%d bytes", len(r.Text))
		}
		next = 0
		if _, on, ok := strings.Cut(head, "; start_line "); ok {
			fmt.Sscan(on, &next)
		}
	}
	if got.String() != long.String() || parts < 3 {
		t.Errorf("%d parts with %d bytes of %d", parts, got.Len(), long.Len())
	}
	r := w.must(ReadFile, m{"path": "wide.txt"}, "lines 1-1 of 2", "the end of line 1 is left out", "start_line 2 goes on")
	if !utf8.ValidString(r.Text) || len(r.Text) > w.env.ResultCap {
		t.Errorf("%d bytes", len(r.Text))
	}
	w.must(ReadFile, m{"path": "wide.txt", "start_line": 2}, "short")

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("stopped"))
	if r := w.env.read(ctx, "long.txt", 1, 10); !r.Failed || !strings.Contains(r.Text, "stopped") {
		t.Errorf("got %+v", r)
	}
}

func TestWriteToFile(t *testing.T) {
	w := newWorld(t, nil)
	w.must(WriteToFile, m{"path": "a/b/new.txt", "content": "one\ntwo\n"}, "created "+w.path("work/a/b/new.txt"), "8 bytes, 2 lines")
	w.must(WriteToFile, m{"path": "a/b/new.txt", "content": "x"}, "overwrote", "1 byte, 1 line")
	w.must(WriteToFile, m{"path": "a/b/new.txt", "content": "y", "mode": "append"}, "added to")
	w.must(WriteToFile, m{"path": "log", "content": "y", "mode": "append"}, "created")
	if got := w.read("work/a/b/new.txt"); got != "xy" {
		t.Errorf("got %q", got)
	}
	w.must(WriteToFile, m{"path": "subagent_plan.md", "content": "- [ ] x"}, w.path("temp/t/subagent_plan.md"))
	w.mustFail(WriteToFile, m{"path": "x", "content": "", "mode": "prepend"}, "overwrite or append")
	w.mustFail(WriteToFile, m{"path": w.path("temp/t/input.txt"), "content": ""}, "protocol")
	w.mustFail(WriteToFile, m{"path": w.path("temp/new/input.txt"), "content": ""}, "protocol")
	w.mustFail(WriteToFile, m{"path": w.path("outside/x"), "content": ""}, "outside of what this task may write", "work_dir")
	w.mustFail(WriteToFile, m{"path": "a", "content": ""}, "is a directory")
	if _, err := os.Lstat(w.path("temp/new")); err == nil {
		t.Error("a task directory was made")
	}
}

func TestReplaceInFile(t *testing.T) {
	w := newWorld(t, nil)
	gb, err := simplifiedchinese.GB18030.NewEncoder().String("第一行：旧内容在此\n第二行也有文字\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, before, old, new string
		after                  string // "" where it fails
		says                   string
	}{
		{"once", "a\nb\nc\n", "b", "B\nB", "a\nB\nB\nc\n", "replaced 1 line by 2 lines at line 2 of f"},
		{"deleted", "a\nb\nc\n", "b\n", "", "a\nc\n", "by 0 lines"},
		{"special characters", "a $1 [x]\n", "$1 [x]", "$2", "a $2\n", "line 1"},
		{"file with CRLF", "a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n", "line 1"},
		{"more lines for one in a file with CRLF", "a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n", "line 2"},
		{"line ends of both kinds", "a\r\nb\n", "b", "x\ny", "a\r\nx\ny\n", "line 2"},
		{"broken characters are kept", "a\xff\nb\n", "b", "c", "a\xff\nc\n", "line 2"},
		{"another encoding", gb, "旧内容", "新内容", "", "replaced 1 line by 1 line at line 1 of f (kept as GB18030)"},
		{"absent", "a\nb\n", "zzz", "y", "", "does not stand in f; read the file again"},
		{"twice", "x = 1\ny\nx = 1\n", "x = 1", "y", "", "stands in f 2 times (lines 1, 3)"},
		{"other white space", "func a() {\n\treturn 1\n}\n", "func a() {\n    return 1\n}", "y", "", "with other white space at line 1, as follows:\nfunc a() {\n\treturn 1\n}"},
		{"first line right", "func a() {\n\treturn 1\n}\nend\n", "func a() {\n\treturn 2\n}", "y", "", "line 1 is the same as line 1 of old, others differ. Lines 1-3 are:\nfunc a() {\n\treturn 1\n}"},
		{"empty old", "a\n", "", "y", "", "old is empty"},
		{"the same", "a\n", "a", "a", "", "nothing would change"},
		{"binary", "a\x00b", "a", "b", "", "binary"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.write("work/f", c.before)
			r := w.call(ReplaceInFile, m{"path": "f", "old": c.old, "new": c.new})
			if !strings.Contains(r.Text, c.says) {
				t.Errorf("got %q", r.Text)
			}
			got := w.read("work/f")
			switch {
			case c.name == "another encoding":
				if r.Failed || decode([]byte(got)) != "第一行：新内容在此\n第二行也有文字\n" || utf8.ValidString(got) {
					t.Errorf("failed %v, %q", r.Failed, decode([]byte(got)))
				}
			case c.after == "" && (!r.Failed || got != c.before), c.after != "" && (r.Failed || got != c.after):
				t.Errorf("failed %v, file %q", r.Failed, got)
			}
		})
	}
	w.mustFail(ReplaceInFile, m{"path": "none", "old": "a", "new": "b"}, "does not exist")
	w.write("work/f", "a\n")
	w.must(ReplaceInFile, m{"file_path": "f", "old_string": "a", "new_string": ""}, "replaced")
}

func TestListFiles(t *testing.T) {
	w := newWorld(t, nil)
	for _, f := range []string{"src/main.go", "src/deep/er/x.go", "README.md", ".git/config", "node_modules/a/b.js", "out/log.txt", "src/gen.pb.go", "src/keep.pb.go", "z/.hidden"} {
		w.write("work/"+f, "x")
	}
	w.write("work/.gitignore", "# comment\n/out/\n*.pb.go\n!keep.pb.go\n")
	w.write("work/src/.gitignore", "er/\n")
	if err := os.Symlink("src", w.path("work/link")); err != nil {
		t.Fatal(err)
	}
	r := w.must(ListFiles, m{"path": "."})
	if want := "., 7 entries (1 that .gitignore names are left out)\n.git/\n.gitignore\nREADME.md\nlink (link)\nnode_modules/\nsrc/\nz/\n"; r.Text != want {
		t.Errorf("got\n%s", r.Text)
	}
	r = w.must(ListFiles, m{"path": ".", "recursive": true})
	want := "., 12 entries (3 that .gitignore names are left out)\n.git/ (not listed)\n.gitignore\nREADME.md\nlink (link)\nnode_modules/ (not listed)\n" +
		"src/\nsrc/.gitignore\nsrc/deep/\nsrc/keep.pb.go\nsrc/main.go\nz/\nz/.hidden\n"
	if r.Text != want || r.Summary != "12 entries" {
		t.Errorf("got\n%s", r.Text)
	}
	w.must(ListFiles, m{"path": "link"}, "main.go")
	w.write("work/src/deep/one/a", "")
	if r := w.must(ListFiles, m{"path": "src/deep/one"}); r.Summary != "1 entry" || r.Text != "src/deep/one, 1 entry\na\n" {
		t.Errorf("one entry: %+v", r)
	}
	w.mustFail(ListFiles, m{"path": "README.md"}, "is a file", ReadFile)
	w.mustFail(ListFiles, m{"path": "none"}, "does not exist")
	w.mustFail(ListFiles, m{"path": w.path("outside")}, "outside of what")

	for i := range 900 {
		w.write(fmt.Sprintf("work/many/d%d/file%04d.go", i%2, i), "")
	}
	r = w.must(ListFiles, m{"path": "many", "recursive": true}, "many, 2 entries", "(900 deeper or later ones are left out", "d0/\nd1/\n")
	if len(r.Text) > w.env.ResultCap {
		t.Errorf("%d bytes", len(r.Text))
	}
	r = w.must(ListFiles, m{"path": "many/d1"}, "left out")
	if n := strings.Count(r.Text, "\n"); n < 100 || len(r.Text) > w.env.ResultCap {
		t.Errorf("%d lines, %d bytes", n, len(r.Text))
	}
}

func TestSearchFiles(t *testing.T) {
	w := newWorld(t, nil)
	w.write("work/a.go", "package a\nfunc Foo() {}\n")
	w.write("work/sub/b.go", "package b\n\tfoo()\n")
	w.write("work/sub/c.txt", "foo\r\nbar\n")
	w.write("work/.git/x", "foo\n")
	w.write("work/bin", "foo\x00")
	w.write("work/long.txt", strings.Repeat("é", 5000)+"needle"+strings.Repeat("é", 5000)+"\n")
	w.write("outside/secret", "foo\n")
	if err := os.Symlink(w.path("outside"), w.path("work/link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  m
		want  string
		fails bool
	}{
		{m{"path": ".", "regex": "foo"}, "2 matching lines in 2 files (1 binary file not searched)\nsub/b.go:2: \tfoo()\nsub/c.txt:1: foo\n", false},
		{m{"path": ".", "regex": "(?i)foo", "file_pattern": "*.go"}, "2 matching lines in 2 files\na.go:2: func Foo() {}\nsub/b.go:2: \tfoo()\n", false},
		{m{"path": ".", "regex": "foo", "file_pattern": "sub/*.{txt,md}"}, "1 matching line in 1 file\nsub/c.txt:1: foo\n", false},
		{m{"path": ".", "pattern": "^foo$", "glob": "**/*.txt"}, "1 matching line in 1 file\nsub/c.txt:1: foo\n", false},
		{m{"path": "sub", "regex": "package"}, "1 matching line in 1 file\nsub/b.go:1: package b\n", false},
		{m{"path": "sub/b.go", "regex": "package"}, "1 matching line in 1 file\nsub/b.go:1: package b\n", false},
		{m{"path": ".", "regex": "nothing like it", "file_pattern": "*.go"}, "no match in 2 files under .\n", false},
		{m{"path": ".", "regex": "a(?=b)"}, "RE2", true},
		{m{"path": ".", "regex": "a", "file_pattern": "*.{go"}, "not closed", true},
		{m{"path": "none", "regex": "a"}, "does not exist", true},
		{m{"path": w.path("outside"), "regex": "foo"}, "outside of what", true},
	} {
		r := w.call(SearchFiles, c.args)
		if r.Failed != c.fails || !c.fails && r.Text != c.want || !strings.Contains(r.Text, c.want) {
			t.Errorf("%v: failed %v\n%q, want\n%q", c.args, r.Failed, r.Text, c.want)
		}
	}
	r := w.must(SearchFiles, m{"path": ".", "regex": "needle"}, "long.txt:1: …é", "needle")
	if len(r.Text) > 500 || !utf8.ValidString(r.Text) {
		t.Errorf("%d bytes", len(r.Text))
	}
	w.write("work/many.txt", strings.Repeat("needle in a rather long line of hay\n", 1000))
	r = w.must(SearchFiles, m{"path": ".", "regex": "needle"}, "there are more: narrow")
	if len(r.Text) > w.env.ResultCap {
		t.Errorf("%d bytes", len(r.Text))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("stopped"))
	if r := w.env.search(ctx, ".", &search{re: nil}); !r.Failed || !strings.Contains(r.Text, "stopped") {
		t.Errorf("got %+v", r)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{"*.go", "a.go", true}, {"*.go", "x/y/a.go", true}, {"*.go", "a.gox", false}, {"*.go", "ago", false},
		{"src/*.go", "src/a.go", true}, {"src/*.go", "src/x/a.go", false}, {"src/**/*.go", "src/x/y/a.go", true}, {"src/**/*.go", "src/a.go", true},
		{"*.{ts,tsx}", "a.tsx", true}, {"*.{ts,tsx}", "a.t", false}, {"[ab].c", "b.c", true}, {"[!ab].c", "b.c", false}, {"a?c", "a/c", false},
		{"a,b", "a,b", true}, {"日*.txt", "日本.txt", true}, {`\*`, "*", true}, {`\*`, "a", false}, {"[", "[", true}, {"./a.go", "a.go", true},
	} {
		re, err := compileGlob(c.glob)
		if err != nil {
			t.Errorf("%s: %v", c.glob, err)
			continue
		}
		if got := re.MatchString(c.path); got != c.want {
			t.Errorf("%s on %s: %v (%s)", c.glob, c.path, got, re)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*.go", "**/x", "{a,b}", "[!a-z]", `\`, "[[]", "[\\]", "!a/"} {
		f.Add(s, "a/b.go")
	}
	f.Fuzz(func(t *testing.T, glob, path string) {
		if re, err := compileGlob(glob); err == nil {
			re.MatchString(path)
		}
		parseIgnore(nil, "", glob).ignores(path, true)
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"plain", "\xff\xfeh\x00i\x00", "\xfe\xff\x00h", "\xef\xbb\xbfx", "\xd6\xd0\xce\xc4\xc4\xda\xc8\xdd", "a\xffb", "\x00", "日\xe6"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := decode(b)
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		if utf8.Valid(b) && !strings.HasPrefix(string(b), "\ufeff") && got != string(b) {
			t.Errorf("%q became %q", b, got)
		}
		if s := tidy(got); !utf8.ValidString(s) || len(s) > len(got) {
			t.Errorf("%q was tidied to %q", got, s)
		}
		sniff(b, false)
	})
}

// What a file is taken for does not depend on where its beginning is cut off.
func TestSniffCut(t *testing.T) {
	text := "中文内容，日本語のテキスト\n"
	for i := range len(text) {
		if got := sniff([]byte(text[:i]), false); got != utf8Text {
			t.Errorf("UTF-8 cut at %d is taken for %s", i, got)
		}
	}
	gb, err := simplifiedchinese.GB18030.NewEncoder().String(strings.Repeat("中文内容很多", 3))
	if err != nil {
		t.Fatal(err)
	}
	for i := 2; i <= len(gb); i++ {
		if got := sniff([]byte(gb[:i]), false); got != gb18030 && i > 8 {
			t.Errorf("GB18030 cut at %d is taken for %s", i, got)
		}
	}
}

func BenchmarkReadFile(b *testing.B) {
	w := newWorld(b, nil)
	w.write("work/f", strings.Repeat("0123456789012345678901234567890\n", 64))
	b.ReportAllocs()
	for b.Loop() {
		if r := w.call(ReadFile, `{"path":"f"}`); r.Failed {
			b.Fatal(r.Text)
		}
	}
}

func BenchmarkSearchFiles(b *testing.B) {
	w := newWorld(b, nil)
	for i := range 500 {
		w.write(fmt.Sprintf("work/d%d/f%d.go", i%10, i), strings.Repeat("package something // with a line of text\n", 50))
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := w.call(SearchFiles, `{"path":".","regex":"needle"}`); r.Failed {
			b.Fatal(r.Text)
		}
	}
}
