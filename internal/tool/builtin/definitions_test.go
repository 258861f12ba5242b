package builtin

import (
	"fmt"
	"strings"
	"testing"
)

func TestCodeDefinitions(t *testing.T) {
	w := newWorld(t, nil)
	w.write("work/src/a.go", "package a\n\ntype T struct{}\n\nfunc (t T) M() {}\n")
	w.write("work/src/b.py", "class B:\n    def m(self): pass\n")
	w.write("work/src/notes.txt", "def no(): pass\n")
	w.write("work/src/node_modules/x.js", "function no() {}\n")
	w.write("work/src/gen/c.py", "def no(): pass\n")
	w.write("work/src/.gitignore", "gen/\n")
	w.write("outside/o.py", "def no(): pass\n")

	want := "4 definitions in 2 files\nsrc/a.go\n    3: type T struct\n    5: func (t T) M()\nsrc/b.py\n    1: class B\n    2:   def m(self)\n"
	if r := w.call(CodeDefinitions, `{"path":"src"}`); r.Failed || r.Text != want {
		t.Errorf("directory: %+v\nwant %s", r, want)
	}
	if r := w.call(CodeDefinitions, `{"file_path":"src/b.py"}`); r.Failed || r.Text != "2 definitions in 1 file\nsrc/b.py\n    1: class B\n    2:   def m(self)\n" {
		t.Errorf("file: %+v", r)
	}
	for args, want := range map[string]string{
		`{"path":"src/notes.txt"}`: "in no language that this tool knows",
		`{"path":"nope"}`:          "nope",
		`{}`:                       "missing",
		fmt.Sprintf(`{"path":%q}`, w.path("outside/o.py")): "refused",
	} {
		if r := w.call(CodeDefinitions, args); !r.Failed || !strings.Contains(r.Text, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	w.write("work/empty/x.py", "x = 1\n")
	if r := w.call(CodeDefinitions, `{"path":"empty"}`); r.Failed || !strings.Contains(r.Text, "no definitions in empty") {
		t.Errorf("nothing defined: %+v", r)
	}
}

func TestCodeDefinitionsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	methods := strings.Repeat("    def method(self, argument): pass\n", 200)
	w.write("work/a/x.py", "class X:\n"+methods)
	r := w.call(CodeDefinitions, `{"path":"a"}`)
	if r.Failed || len(r.Text) > 4000 || !strings.Contains(r.Text, "201 definitions in 1 file (only those at the top level") || strings.Contains(r.Text, "method") || !strings.Contains(r.Text, "class X") {
		t.Errorf("many methods: %d bytes: %s", len(r.Text), r.Text)
	}
	for i := range 300 {
		w.write(fmt.Sprintf("work/b/file%03d.py", i), "class X: pass\nclass Y: pass\n")
	}
	r = w.call(CodeDefinitions, `{"path":"b"}`)
	if r.Failed || len(r.Text) > 4000 || !strings.Contains(r.Text, "600 definitions in 300 files") || !strings.Contains(r.Text, "files are left out") || !strings.Contains(r.Text, "b/file000.py: 2\n") {
		t.Errorf("many files: %d bytes: %s", len(r.Text), r.Text)
	}
	w.write("work/c/big.py", strings.Repeat("def f(): pass\n", 100_000))
	if r := w.call(CodeDefinitions, `{"path":"c"}`); r.Failed || !strings.Contains(r.Text, "no definitions") {
		t.Errorf("a big file: %.300s", r.Text)
	}
}

func TestIgnoreFilesAboveCount(t *testing.T) {
	w := newWorld(t, nil)
	w.write("work/.gitignore", "*.log\n/repo/\n")
	w.write("work/repo/.gitignore", "/src/gen/\n*.tmp\n!src/keep.tmp\nsub/only-there\n{a,b}.txt\nout*\n")
	w.write("work/repo/.git/info/exclude", "secret.txt\n")
	for _, f := range []string{"gen/x", "a.tmp", "keep.tmp", "b.log", "secret.txt", "a.txt", "{a,b}.txt", "outer", "deep/c.tmp", "deep/gen/y"} {
		w.write("work/repo/src/"+f, "needle\n")
	}
	got := w.call(ListFiles, `{"path":"repo/src","recursive":true}`).Text
	want := "repo/src, 8 entries (6 that .gitignore names are left out)\na.txt\nb.log\ndeep/\ndeep/gen/\ndeep/gen/y\nkeep.tmp\n"
	if body := got[strings.Index(got, "\n")+1:]; body != want[strings.Index(want, "\n")+1:] {
		t.Errorf("listed %s\nwant %s", got, want)
	}
	if r := w.call(SearchFiles, `{"path":"repo/src","regex":"needle"}`); !strings.HasPrefix(r.Text, "4 matching lines in 4 files") {
		t.Errorf("searched %s", r.Text)
	}
	if r := w.call(SearchFiles, `{"path":"repo/src","regex":"needle","file_pattern":"**/gen/*"}`); !strings.Contains(r.Text, "deep/gen/y") || strings.Contains(r.Text, "src/gen") {
		t.Errorf("searched by pattern %s", r.Text)
	}
	// What is asked for by name is shown, though its parent would leave it out, and
	// without a checkout nothing above counts.
	if r := w.call(ListFiles, `{"path":"repo/src/gen"}`); !strings.Contains(r.Text, "x") {
		t.Errorf("asked for by name: %s", r.Text)
	}
	w.write("work/loose/x.log", "needle\n")
	if r := w.call(SearchFiles, `{"path":"loose","regex":"needle"}`); !strings.HasPrefix(r.Text, "1 matching line") {
		t.Errorf("outside of a checkout: %s", r.Text)
	}
}
