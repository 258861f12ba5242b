package agentdef

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// world is agent files on disk.
type world struct {
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) world { return world{t, t.TempDir()} }

func (w world) path(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

// write makes a file whose time lies long enough ago to be trusted.
func (w world) write(name, text string) {
	w.t.Helper()
	path := w.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w world) age(name string, by time.Duration) {
	w.t.Helper()
	when := time.Now().Add(-by)
	if err := os.Chtimes(w.path(name), when, when); err != nil {
		w.t.Fatal(err)
	}
}

func (w world) sources() Sources {
	g := General()
	return Sources{General: g, Dirs: []Dir{{Path: w.path("agents")}, {Path: w.path(".claude/agents"), SessionTools: true}}, Options: testOptions()}
}

func (w world) load() *Snapshot {
	w.t.Helper()
	return w.sources().Load()
}

func TestLoad(t *testing.T) {
	w := newWorld(t)
	if s := w.load(); len(s.Agents) != 0 || len(s.Broken) != 0 {
		t.Fatalf("without directories: %+v", s)
	}
	w.write("agents/reviewer.md", "---\ndescription: ours\n---\nReview.")
	w.write("agents/b.md", "---\nname: twin\ndescription: first\n---\nb")
	w.write("agents/c.md", "---\nname: twin\ndescription: second\n---\nc")
	w.write("agents/README.md", "What these are.")
	w.write("agents/bad.md", "---\nname: bad\ntools: [x\n---\nbody")
	w.write("agents/notes.txt", "no agent")
	w.write("agents/.hidden.md", "no agent")
	w.write("agents/sub/deep.md", "no agent")
	w.write(".claude/agents/reviewer.md", "---\nname: reviewer\ndescription: theirs\n---\nReview theirs.")
	w.write(".claude/agents/free.md", "---\ndescription: d\n---\nbody")
	if err := os.Mkdir(w.path("agents/dir.md"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.path("nowhere"), w.path("agents/dangling.md")); err != nil {
		t.Skip(err)
	}

	s := w.load()
	var names, broken []string
	for _, a := range s.Agents {
		names = append(names, a.Name+"="+filepath.Base(a.Source))
	}
	for _, b := range s.Broken {
		broken = append(broken, fmt.Sprintf("%s:%d", filepath.Base(b.Path), b.Line))
	}
	if got, want := strings.Join(names, " "), "free=free.md reviewer=reviewer.md twin=b.md"; got != want {
		t.Errorf("agents %s, want %s", got, want)
	}
	if got, want := strings.Join(broken, " "), "bad.md:3 c.md:0 dangling.md:0 reviewer.md:0"; got != want {
		t.Errorf("broken %s, want %s", got, want)
	}
	if d, err := s.Lookup("reviewer"); err != nil || d.Description != "ours" {
		t.Errorf("of two directories the second won: %+v, %v", d, err)
	}
	if d, _ := s.Lookup("twin"); d.Description != "first" {
		t.Errorf("of two files the second won: %+v", d)
	}
	if d, _ := s.Lookup("reviewer"); len(d.Tools) > 0 {
		d.Tools[0] = "execute_command"
		if again, _ := s.Lookup("reviewer"); again.Tools[0] == d.Tools[0] {
			t.Error("a caller changed what others look up")
		}
	} else {
		t.Errorf("%+v has no tools", d)
	}
	if d, _ := s.Lookup("free"); d.Tools != nil {
		t.Errorf("an agent of .claude/agents without tools has %v, want the session's", d.Tools)
	}
	var unknown *UnknownError
	if _, err := s.Lookup("bad"); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "bad.md:3: no valid YAML") {
		t.Errorf("a broken agent: %v", err)
	}
	if _, err := s.Lookup("nobody"); err == nil || !strings.Contains(err.Error(), "free, general, reviewer, twin") {
		t.Errorf("no agent: %v", err)
	}
	for _, name := range []string{"", "general"} {
		if d, err := s.Lookup(name); err != nil || d.Kind != KindGeneral {
			t.Errorf("%q: %+v, %v", name, d.Kind, err)
		}
	}
}

func TestLoadReplacesGeneral(t *testing.T) {
	w := newWorld(t)
	w.write("agents/general.md", "---\ndescription: d\n---\nMine.")
	s := w.load()
	if d, err := s.Lookup(""); err != nil || d.Prompt != "Mine." {
		t.Errorf("%+v, %v", d, err)
	}
	if len(s.Agents) != 1 || len(s.Agents[0].Warnings) != 1 || !strings.Contains(s.Agents[0].Warnings[0].Text, "built-in") {
		t.Errorf("nobody is told: %+v", s.Agents)
	}
}

func TestLibraryFollowsFiles(t *testing.T) {
	w := newWorld(t)
	var told []string
	l, err := NewLibrary(w.sources(), func(before, now *Snapshot) {
		if before == nil {
			told = append(told, fmt.Sprintf("read %d", len(now.Agents)))
			return
		}
		for _, c := range Diff(before.Record(), now.Record()) {
			told = append(told, strings.TrimSpace(c.Kind+" "+c.Agent+" "+filepath.Base(c.Path)))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := func(name, prompt string) {
		t.Helper()
		d, err := l.Lookup(name)
		if prompt == "" && err == nil || prompt != "" && d.Prompt != prompt {
			t.Fatalf("%s: %q, %v; want %q", name, d.Prompt, err, prompt)
		}
	}
	want("a", "")
	w.write("agents/a.md", "one")
	want("a", "one")
	w.write("agents/a.md", "two") // as long as before, within the same tick
	want("a", "two")
	w.age("agents/a.md", time.Hour)
	want("a", "two")
	w.write("agents/a.md", "---\ntools: [\n---\nx")
	want("a", "")
	want("a", "")
	w.write("agents/a.md", "four")
	want("a", "four")
	if err := os.Rename(w.path("agents/a.md"), w.path("agents/b.md")); err != nil {
		t.Fatal(err)
	}
	want("a", "")
	want("b", "four")
	if err := os.RemoveAll(w.path("agents")); err != nil {
		t.Fatal(err)
	}
	want("b", "")
	if got, want := strings.Join(told, ", "), "read 0, added a a.md, changed a a.md, removed a a.md, broken  a.md, added a a.md, added b b.md, removed a a.md, removed b b.md"; got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}

func TestLibraryManyCallers(t *testing.T) {
	w := newWorld(t)
	w.write("agents/a.md", "one")
	l, err := NewLibrary(w.sources(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 50 {
				d, err := l.Lookup("a")
				if err != nil {
					t.Error(err)
					return
				}
				d.Tools[0] = fmt.Sprint(i)
			}
		})
	}
	wg.Wait()
	if d, _ := l.Lookup("a"); d.Tools[0] != "read_file" {
		t.Error("a caller changed the library")
	}
}

func TestDiff(t *testing.T) {
	a := Record{Agents: []RecordAgent{{"a", "a.md", "1"}, {"b", "b.md", "1"}, {"c", "c.md", "1"}}, Broken: []RecordFile{{"x.md", "bad"}}}
	b := Record{Agents: []RecordAgent{{"a", "a.md", "1"}, {"b", "b.md", "2"}, {"d", "d.md", "1"}}, Broken: []RecordFile{{"x.md", "bad"}, {"y.md", "worse"}}}
	if got := Diff(a, a); len(got) != 0 {
		t.Errorf("nothing changed: %v", got)
	}
	want := "[{changed b b.md } {added d d.md } {removed c c.md } {broken  y.md worse}]"
	if got := fmt.Sprint(Diff(a, b)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestCatalogue(t *testing.T) {
	if got := Catalogue([]Definition{General()}); got != "" {
		t.Errorf("no custom agents: %q", got)
	}
	got := Catalogue([]Definition{General(), {Name: "a", Kind: KindCustom, Description: "Looks."}, {Name: "b", Kind: KindCustom}})
	if want := catalogueHead + "\n- a: Looks.\n- b"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func BenchmarkLookupUnchanged(b *testing.B) {
	dir := b.TempDir()
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprintf("a%d.md", i))
		if err := os.WriteFile(path, []byte("body"), 0o644); err != nil {
			b.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			b.Fatal(err)
		}
	}
	l, err := NewLibrary(Sources{General: General(), Dirs: []Dir{{Path: dir}}, Options: testOptions()}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Lookup("a1"); err != nil {
			b.Fatal(err)
		}
	}
}
