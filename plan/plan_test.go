package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// line is a step written shortly: state, depth, marks, text and note.
func line(s Step) string {
	out := fmt.Sprintf("%s %d", s.State, s.Depth)
	if s.Mark != "" {
		out += " " + s.Mark
	}
	out += " " + s.Text
	if s.Note != "" {
		out += " | " + s.Note
	}
	return out
}

func lines(p Plan) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, line(s))
	}
	return out
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"empty":     {"", nil},
		"prose":     {"# Plan\n\nI will look at [the docs](https://example.com) first.\n- a list item\n1. another\n", nil},
		"bullets":   {"- [ ] a\n* [ ] b\n+ [ ] c\n• [ ] d\n", []string{"open 0 a", "open 0 b", "open 0 c", "open 0 d"}},
		"numbers":   {"1. [ ] a\n2) [ ] b\n3、[ ] c\n4：[ ] d\nN+1. [ ] e\n4.1. [ ] f\n4.2 [ ] g\n- 5. [ ] h", []string{"open 0 a", "open 0 b", "open 0 c", "open 0 d", "open 0 e", "open 0 f", "open 0 g", "open 0 h"}},
		"headings":  {"## [x] Step 1\n## [ ] Step 2\n", []string{"done 0 Step 1", "open 0 Step 2"}},
		"bare":      {"[x] a\n[ ] b\n[D] not a step\n[TODO] nor this\n[note] nor this", []string{"done 0 a", "open 0 b"}},
		"quoted":    {"> - [x] a\n> - [ ] b", []string{"done 0 a", "open 0 b"}},
		"capital":   {"- [X] a", []string{"done 0 a"}},
		"no space":  {"- [] a\n- [x]b\n1.[ ]c", []string{"open 0 a", "done 0 b", "open 0 c"}},
		"wide":      {"- [ x ] a\n- [\u3000] b", []string{"done 0 a", "open 0 b"}},
		"tick note": {"1. [✓ 12 files found] count the files", []string{"done 0 count the files | 12 files found"}},
		"tick text": {"1. [✓ done]\n2. [✓ 已生成: 报告]", []string{"done 0 done", "done 0 已生成: 报告"}},
		"dated":     {"- [✓ 2026-05-16 10:00] a\n- [x 2026-05-16] b\n- [2026-05-16 ✓] c", []string{"done 0 a | 2026-05-16 10:00", "done 0 b | 2026-05-16", "done 0 c | 2026-05-16"}},
		"ticks":     {"- [✔] a\n- [✔️] b\n- [√] c\n- [☑] d\n- [✅ ok] e", []string{"done 0 a", "done 0 b", "done 0 c", "done 0 d", "done 0 e | ok"}},
		"crosses":   {"- [✗] a\n- [✘] b\n- [❌ no network] c\n- [FAILED: timeout] d\n- [失败] e", []string{"failed 0 a", "failed 0 b", "failed 0 c | no network", "failed 0 d | timeout", "failed 0 e"}},
		"skips":     {"- [SKIP] a\n- [-] b\n- [skipped] c\n- [SKIP 依赖失败] d\n- [ ] e [SKIP]\n- [ ] [SKIP] f\n- [?][SKIP] g", []string{"skipped 0 a", "skipped 0 b", "skipped 0 c", "skipped 0 d | 依赖失败", "skipped 0 e", "skipped 0 f", "skipped 0 [?] g"}},
		"begun":     {"- [~] a\n- [/] b\n- [>] c\n- [WIP] d\n- [TODO] e\n- [in progress] f", []string{"open 0 a", "open 0 b", "open 0 c", "open 0 d", "open 0 e", "open 0 f"}},
		"marks": {"1. [D] a\n2. [P] b\n3. [?] c\n4. [ ] **[VERIFY] d**\n5. [ ] [FIX] e\n6. [D][P] f\n7. [D/P] g\n8. [P2] h\n9. [D ✓ found] i\n10. [✓][D] j\n11. **[VERIFY]** k\n12. [ ] l [P]",
			[]string{"open 0 [D] a", "open 0 [P] b", "open 0 [?] c", "open 0 [VERIFY] d", "open 0 [FIX] e", "open 0 [D][P] f", "open 0 [D][P] g", "open 0 [P] h", "done 0 [D] i | found", "done 0 [D] j", "open 0 [VERIFY] k", "open 0 [P] l"}},
		"no marks":      {"- [d] a\n- [API] b\n- [D](x) c\n- [done right](x)\n- [fix this] d\n- [1] e", nil},
		"crlf":          {"- [x] a\r\n- [ ] b\r\n", []string{"done 0 a", "open 0 b"}},
		"cr":            {"- [x] a\r- [ ] b", []string{"done 0 a", "open 0 b"}},
		"bom":           {"\uFEFF- [x] a", []string{"done 0 a"}},
		"broken text":   {"- [x] a\xff", []string{"done 0 a\uFFFD"}},
		"empty steps":   {"- [ ]\n- [x]  \n- [D]", nil},
		"index":         {"- [ ] set a[x]\n- [ ] set b [x]", []string{"open 0 set a[x]", "open 0 set b [x]"}},
		"names":         {"- [ ] __init__.py\n- [ ] *args\n- [ ] **Title**: 2**3", []string{"open 0 __init__.py", "open 0 *args", "open 0 Title: 2**3"}},
		"fence":         {"```\n- [ ] no\n```\n- [ ] a\n~~~md\n- [ ] no\n```\n- [ ] no\n~~~~\n- [ ] b\n", []string{"open 0 a", "open 0 b"}},
		"long fence":    {"````\n```\n- [ ] no\n```\n````\n- [ ] a", []string{"open 0 a"}},
		"nested fence":  {"- [ ] a\n  ```sh\n  - [ ] no\n  ```\n- [ ] b", []string{"open 0 a", "open 0 b"}},
		"open fence":    {"- [x] a\n```\n- [ ] b", []string{"done 0 a", "open 0 b"}},
		"code span":     {"```- [ ] no```\n- [ ] a\n```\n", []string{"open 0 a"}},
		"comment":       {"<!-- rules\n1. [ ] no\n-->\n- [ ] a <!-- [x] --> [P]\n<!-- - [ ] no -->\n- [ ] b", []string{"open 0 [P] a", "open 0 b"}},
		"open comment":  {"<!-- \n- [ ] a\n- [x] b", []string{"open 0 a", "done 0 b"}},
		"after comment": {"<!-- x\n--> - [ ] a", []string{"open 0 a"}},
		"nested": {"- [x] a\n  - [x] b\n    - [ ] c\n  - [ ] d\n- [ ] e\n\t- [ ] f\n   1. [ ] g",
			[]string{"done 0 a", "done 1 b", "open 2 c", "open 1 d", "open 0 e", "open 1 f", "open 1 g"}},
		"skipped branch": {"- [SKIP] a\n  - [ ] b\n    - [ ] c\n  - [x] d\n- [ ] e", []string{"skipped 0 a", "skipped 1 b", "skipped 2 c", "done 1 d", "open 0 e"}},
		"glyphs":         {"- ☑ a\n- ✅ b\n1. ☐ c\n- ⬜ d\n- ❌ e\n☐ prose", []string{"done 0 a", "done 0 b", "open 0 c", "open 0 d", "failed 0 e"}},
		"glyphs beside":  {"- ✅ a finding\n- [ ] b", []string{"open 0 b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(Parse(tc.text)); !slices.Equal(got, tc.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tc.want, "\n\t"))
			}
		})
	}
}

// A plan as GenericAgent's planning instructions make agents write it: a comment
// with rules that mention boxes, marks in place of boxes, lines of detail below.
const genericAgentPlan = `<!-- EXECUTION PROTOCOL
1. read the plan, find the first [ ]
4. mark [ ] -> [✓] and a short result
5. [ ] this one is an example
-->
# Make the report
Need: one table | Limits: none

## Findings
- finding 1: three sources (file_read)
- open: [unclear](notes.md)

## Steps
1. [✓ 3 sources] Collect the sources
   SOP: collect_sop.md
2. [D] Extract the numbers
   SOP: extract_sop.md
   depends on: 1
3. [P] Draw the charts
4. [?] If charts failed: tables
   condition: X -> 4.1, else 4.2
5. [✗] Old API

---

## Checks
N+1. [ ] **[VERIFY] start an independent check**
     do: read, run, compare
---
`

func TestGenericAgentsForm(t *testing.T) {
	p := Parse(genericAgentPlan)
	want := []string{"done 0 Collect the sources | 3 sources", "open 0 [D] Extract the numbers", "open 0 [P] Draw the charts", "open 0 [?] If charts failed: tables", "failed 0 Old API", "open 0 [VERIFY] start an independent check"}
	if got := lines(p); !slices.Equal(got, want) {
		t.Fatalf("got\n\t%s", strings.Join(got, "\n\t"))
	}
	if done, total := p.Progress(); done != 1 || total != 6 {
		t.Errorf("progress %d of %d", done, total)
	}
	if s, ok := p.Current(); !ok || s.Text != "Extract the numbers" || s.Line != 16 {
		t.Errorf("current %+v", s)
	}
	if got := p.Unverified(); len(got) != 1 || got[0].State != Open {
		t.Errorf("unverified %+v", got)
	}
	if p.Finished() {
		t.Error("finished")
	}
}

func TestProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		text        string
		done, total int
		current     string
		finished    bool
		open        int
		unverified  int
	}{
		"none":              {"", 0, 0, "", false, 0, 0},
		"fresh":             {"- [ ] a\n- [ ] b", 0, 2, "a", false, 2, 0},
		"midway":            {"- [X] a\n* [x] b\n1. [✓ done] c\n- [ ] d\n- [ ] e\n", 3, 5, "d", false, 2, 0},
		"skipped":           {"- [x] a\n- [SKIP] b\n- [x] c", 2, 2, "", true, 0, 0},
		"failed":            {"- [x] a\n- [✗] b", 1, 2, "", true, 0, 0},
		"nested":            {"- [ ] a\n  - [x] b\n  - [ ] c\n- [ ] d", 1, 4, "c", false, 3, 0},
		"deeper":            {"- [ ] a\n  - [ ] b\n    - [ ] c\n    - [ ] d", 0, 4, "c", false, 4, 0},
		"parent unticked":   {"- [ ] a\n  - [x] b\n- [ ] c", 1, 3, "a", false, 2, 0},
		"check outstanding": {"- [x] a\n- [SKIP] [VERIFY] b\n- [✗] [VERIFY] c\n- [x] [VERIFY] d", 2, 3, "", true, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := Parse(tc.text)
			done, total := p.Progress()
			cur, ok := p.Current()
			if done != tc.done || total != tc.total || cur.Text != tc.current || ok != (tc.current != "") ||
				p.Finished() != tc.finished || len(p.Open()) != tc.open || len(p.Unverified()) != tc.unverified {
				t.Errorf("%d of %d, current %q, finished %v, %d open, %d unverified", done, total, cur.Text, p.Finished(), len(p.Open()), len(p.Unverified()))
			}
		})
	}
}

func TestRender(t *testing.T) {
	got := Render([]Step{
		{Text: "look at\nthe files"},
		{Text: "count", State: Done, Note: "12 [new]"},
		{Text: "nested", Depth: 1, State: Failed, Mark: MarkDelegate + MarkParallel},
		{Text: "[VERIFY] run the tests", State: Skipped},
		{Text: " "},
	})
	want := "- [ ] look at the files\n- [✓ 12 (new)] count\n  - [✗] [D][P] nested\n- [SKIP] [VERIFY] run the tests\n"
	if got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
	if p := Parse(got); !p.Steps[3].Is(MarkVerify) || p.Steps[3].Text != "run the tests" || p.Steps[1].Note != "12 (new)" {
		t.Errorf("read back: %v", lines(p))
	}
}

func TestParseState(t *testing.T) {
	for _, st := range []State{Open, Done, Failed, Skipped} {
		if got, ok := ParseState(st.String()); !ok || got != st {
			t.Errorf("%v: %v, %v", st, got, ok)
		}
	}
	if _, ok := ParseState("finished"); ok {
		t.Error("an unknown word was taken")
	}
}

func TestLongLines(t *testing.T) {
	for _, piece := range []string{"*[x]*", "[x]", "**", "[", "]", " [D]", "<!--", "-->", "> ", "```", "1. "} {
		long := strings.Repeat(piece, 1<<20/len(piece))
		Parse("- [ ] a\n- [ ] " + long + "\n" + long + "\n- [x] b")
		Parse(strings.Repeat(piece+"\n", 100_000))
	}
	p := Parse("- [ ] " + strings.Repeat("é", maxLine) + "\n- [x] b")
	if len(p.Steps) != 2 || len(p.Steps[0].Text) > maxLine || strings.Trim(p.Steps[0].Text, "é") != "" {
		t.Errorf("%d steps, the long one has %d bytes", len(p.Steps), len(p.Steps[0].Text))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(genericAgentPlan)
	f.Add("- [ ] a\r\n\t* [x] b\n1. [✓ c]\n```\n- [ ] d\n")
	f.Add("<!-- - [ ] a\n**[D]** [✗ [x] y] ** b [P] [SKIP]")
	f.Fuzz(func(t *testing.T, text string) {
		p := Parse(text)
		done, total := p.Progress()
		if done > total || total > len(p.Steps) {
			t.Fatalf("progress %d of %d with %d steps", done, total, len(p.Steps))
		}
		if _, ok := p.Current(); ok != (len(p.Open()) > 0) {
			t.Fatal("a current step without open ones, or none with")
		}
		if slices.ContainsFunc(p.Steps, func(s Step) bool { return len(s.Text+s.Note+s.Mark) > maxLine-100 }) {
			return // the box in front pushes its end out of sight
		}
		again := Parse(Render(p.Steps))
		if got, want := lines(again), lines(p); !slices.Equal(got, want) {
			t.Fatalf("rendered and read again:\n%q\nwas\n%q", got, want)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := strings.Repeat(genericAgentPlan, 20)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		Parse(text)
	}
}
