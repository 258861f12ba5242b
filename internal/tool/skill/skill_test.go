package skill

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// world has two directories with skills, good and bad.
func world(t *testing.T) (dirs []string) {
	a, b := filepath.Join(t.TempDir(), "skills"), filepath.Join(t.TempDir(), ".agents", "skills")
	write(t, filepath.Join(a, "pdf/SKILL.md"), "---\nname: pdf\ndescription: >\n  Reads PDF\n  files.\nlicense: MIT\nallowed-tools: Bash(pdftotext:*)\n---\n# PDF\n\nRun scripts/text.sh.\n")
	write(t, filepath.Join(a, "pdf/scripts/text.sh"), "pdftotext")
	write(t, filepath.Join(a, "pdf/references/deep/er/est/x.md"), "x")
	write(t, filepath.Join(a, "pdf/.git/config"), "x")
	write(t, filepath.Join(a, "plain/SKILL.md"), "Just do it.\n")
	write(t, filepath.Join(a, "wrong/SKILL.md"), "---\nname: [a\n---\nx\n")
	write(t, filepath.Join(a, "hollow/SKILL.md"), "---\nname: hollow\ndescription: d\n---\n\n")
	write(t, filepath.Join(a, "none/README.md"), "no skill")
	write(t, filepath.Join(a, "loose.md"), "no skill")
	write(t, filepath.Join(b, "pdf/SKILL.md"), "---\nname: pdf\ndescription: another\n---\nAnother.\n")
	write(t, filepath.Join(b, "moved/SKILL.md"), "---\nname: docx\ndescription: Writes: docx.\n---\nWrite.\n")
	return []string{a, b, filepath.Join(a, "missing")}
}

func TestLoad(t *testing.T) {
	s := Load(world(t))
	var got []string
	for _, k := range s.Skills {
		got = append(got, fmt.Sprintf("%s (%s) %d", k.Name, k.Description, len(k.Warnings)))
	}
	if want := "docx (Writes: docx.) 2, pdf (Reads PDF files.) 0, plain () 2"; strings.Join(got, ", ") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, ", "), want)
	}
	got = nil
	for _, b := range s.Broken {
		got = append(got, filepath.Base(filepath.Dir(b.Path))+": "+b.Err.Error())
	}
	all := strings.Join(got, "\n")
	if len(got) != 3 || !strings.Contains(all, "hollow: there is nothing") || !strings.Contains(all, "wrong: line 2: no valid YAML") || !strings.Contains(all, `has the name "pdf" already`) {
		t.Errorf("broken: %s", all)
	}
}

func TestTool(t *testing.T) {
	s := Load(world(t))
	set := tool.NewSet(0, Tool(s, 0))
	pdf, _ := s.Find("pdf")
	want := fmt.Sprintf("Skill pdf. Its directory is %s; paths in it start there.\n\n# PDF\n\nRun scripts/text.sh.\n\nFiles in its directory:\n- scripts/text.sh", pdf.Dir)
	for _, args := range []string{`{"skill_name":"pdf"}`, `{"name":" pdf "}`, `{"skill":"pdf"}`} {
		if r := set.Dispatch(context.Background(), llm.ToolCall{Name: Name, Arguments: args}); r.Failed || r.Text != want {
			t.Errorf("%s: %+v\nwant %s", args, r, want)
		}
	}
	for _, args := range []string{`{"skill_name":"../pdf"}`, `{"skill_name":"hollow"}`, `{}`, `{"skill_name":7}`} {
		r := set.Dispatch(context.Background(), llm.ToolCall{Name: Name, Arguments: args})
		if !r.Failed || strings.Contains(args, `"`+"../") && !strings.Contains(r.Text, "docx, pdf, plain") {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if set.Changes(Name) {
		t.Error("reading a skill is said to change something")
	}
	r := tool.NewSet(0, Tool(&Snapshot{}, 0)).Dispatch(context.Background(), llm.ToolCall{Name: Name, Arguments: `{"skill_name":"pdf"}`})
	if !r.Failed || !strings.Contains(r.Text, "no skills here") {
		t.Errorf("without skills: %+v", r)
	}
}

func TestToolIsBounded(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "long/SKILL.md"), "---\nname: long\ndescription: d\n---\n"+strings.Repeat("é", 100_000))
	for i := range 300 {
		write(t, filepath.Join(dir, "long", fmt.Sprintf("f%03d", i)), "")
	}
	k := Load([]string{dir}).Skills[0]
	text, err := k.Text(5000)
	if err != nil || len(text) > 5000 || !utf8.ValidString(text) || !strings.Contains(text, "read the rest in "+k.Path()) || !strings.Contains(text, "(and 200 more)") {
		t.Errorf("%d bytes, %v: %s", len(text), err, text)
	}
}

func TestCatalogueAndPreload(t *testing.T) {
	s := Load(world(t))
	want := "# Skills\nInstructions for kinds of work. When one fits what you are about to do, read it with use_skill first.\n- docx: Writes: docx.\n- pdf: Reads PDF files.\n- plain"
	if got := Catalogue(s); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := Catalogue(&Snapshot{}); got != "" {
		t.Errorf("without skills: %q", got)
	}
	text, missing := s.Preload([]string{"pdf", "nope", "plain"}, 10_000)
	if !strings.HasPrefix(text, "# Skill pdf.") || !strings.Contains(text, "\n\n# Skill plain.") || fmt.Sprint(missing) != "[nope]" {
		t.Errorf("%s, missing %v", text, missing)
	}
}

func TestLibraryFollowsFiles(t *testing.T) {
	dir := t.TempDir()
	told := 0
	l := NewLibrary([]string{dir}, func(*Snapshot) { told++ })
	if n := len(l.Snapshot().Skills); n != 0 {
		t.Fatalf("%d skills", n)
	}
	write(t, filepath.Join(dir, "a/SKILL.md"), "---\nname: a\ndescription: d\n---\nx")
	if _, ok := l.Snapshot().Find("a"); !ok || told != 1 {
		t.Errorf("a new skill: found %v, told %d times", ok, told)
	}
}
