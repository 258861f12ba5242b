package plan

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth bounds nesting, so that one line of spaces cannot make every later
// rendering of the plan large.
const maxDepth = 20

// maxLine is how many bytes of a line are looked at. It is far more than a step
// needs, and keeps reading fast whatever a line holds.
const maxLine = 4096

// item matches what may stand before the box of a step: block quotes, then a
// bullet, a number, both, or a heading. Group 2 is empty on a bare line.
var item = regexp.MustCompile(`^([ \t]*(?:>[ \t]?)*[ \t]*)(#{1,6}[ \t]+|(?:[-*+•][ \t]+)?(?:\d{1,6}(?:\.\d{1,6})+[ \t]+|(?:\d{1,6}|[A-Z]\+\d{1,6})(?:[.．]\d{1,6})*[ \t]?[.．)、:：）][ \t]*)?)`)

// Parse reads the steps of a plan. It takes any text, never fails, and takes time
// in proportion to the text's length.
func Parse(text string) Plan {
	text = strings.TrimPrefix(strings.ToValidUTF8(text, "\uFFFD"), "\uFEFF")
	var boxed, glyphed []Step
	var boxedAt, glyphedAt []int // columns
	for i, line := range visible(splitLines(text)) {
		// Boxes begin with a bracket, or are glyphs whose first byte is 0xE2.
		if strings.IndexByte(line, '[') < 0 && strings.IndexByte(line, 0xE2) < 0 {
			continue
		}
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "")
		}
		m := item.FindStringSubmatchIndex(line)
		listed := m[5] > m[4]
		rest := line[m[1]:]
		if step, ok := parseBoxes(rest, listed); ok {
			step.Line = i + 1
			boxed, boxedAt = append(boxed, step), append(boxedAt, columns(line[:m[3]]))
		} else if step, ok := parseGlyph(rest); ok && listed {
			step.Line = i + 1
			glyphed, glyphedAt = append(glyphed, step), append(glyphedAt, columns(line[:m[3]]))
		}
	}
	if len(boxed) == 0 {
		boxed, boxedAt = glyphed, glyphedAt
	}
	nest(boxed, boxedAt)
	return Plan{Steps: boxed}
}

// splitLines splits at LF, CRLF and lone CR, as every editor does.
func splitLines(text string) []string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Split(strings.ReplaceAll(text, "\r", "\n"), "\n")
}

// visible blanks the lines that stand in code fences and HTML comments, keeping
// their number. A fence or comment that is never closed hides nothing: half a
// document must not vanish because one line was forgotten, and with it the open
// steps that stand against completion.
func visible(lines []string) []string {
	c := newCurtain(lines)
	for i, line := range lines {
		lines[i] = c.shown(i, line)
	}
	return lines
}

// curtain is what hides the line that is read next.
type curtain struct {
	// closable holds by its character, for each line, the longest closing fence that
	// comes after it; lastEnd is the last line on which a comment can end.
	closable map[byte][]int
	lastEnd  int

	fence    byte // its character; 0 outside of fences
	fenceLen int
	comment  bool
}

func newCurtain(lines []string) *curtain {
	c := &curtain{closable: map[byte][]int{'`': make([]int, len(lines)), '~': make([]int, len(lines))}, lastEnd: -1}
	for i := len(lines) - 1; i > 0; i-- {
		for f, longest := range c.closable {
			longest[i-1] = longest[i]
			if n, info := fence(lines[i], f); info == "" {
				longest[i-1] = max(longest[i-1], n)
			}
		}
		if c.lastEnd < 0 && strings.Contains(lines[i], "-->") {
			c.lastEnd = i
		}
	}
	return c
}

// shown is what can be seen of line i.
func (c *curtain) shown(i int, line string) string {
	if c.fence != 0 {
		if n, info := fence(line, c.fence); n >= c.fenceLen && info == "" {
			c.fence = 0
		}
		return ""
	}
	if c.comment {
		_, after, ends := strings.Cut(line, "-->")
		if !ends {
			return ""
		}
		c.comment, line = false, after
	}
	if c.opensFence(i, line) {
		return ""
	}
	return c.withoutComments(i, line)
}

func (c *curtain) opensFence(i int, line string) bool {
	for f, longest := range c.closable {
		n, info := fence(line, f)
		// A backtick in what follows a backtick fence makes it a code span.
		if n > 0 && longest[i] >= n && (f == '~' || !strings.Contains(info, "`")) {
			c.fence, c.fenceLen = f, n
		}
	}
	return c.fence != 0
}

func (c *curtain) withoutComments(i int, line string) string {
	var shown strings.Builder
	for {
		before, rest, opens := strings.Cut(line, "<!--")
		shown.WriteString(before)
		if !opens {
			return shown.String()
		}
		_, after, ends := strings.Cut(rest, "-->")
		if !ends {
			if c.comment = i < c.lastEnd; !c.comment {
				shown.WriteString("<!--" + rest)
			}
			return shown.String()
		}
		line = after
	}
}

// fence returns how many characters f a line begins with where these are three or
// more, and what follows them.
func fence(line string, f byte) (n int, info string) {
	line = strings.TrimLeft(line, " \t>")
	rest := strings.TrimLeft(line, string(f))
	if n = len(line) - len(rest); n < 3 {
		return 0, rest
	}
	return n, strings.TrimSpace(rest)
}

// nest sets the depths from the columns that the steps begin at. Indentation
// counts relative to the steps above, by how many columns does not matter.
func nest(steps []Step, at []int) {
	var above []int // columns of the steps that this one is nested in
	skipped := -1   // depth of the skipped step that this one is nested in
	for i := range steps {
		for len(above) > 0 && above[len(above)-1] >= at[i] {
			above = above[:len(above)-1]
		}
		s := &steps[i]
		s.Depth = min(len(above), maxDepth)
		above = append(above, at[i])
		if skipped >= 0 && s.Depth > skipped && s.State == Open {
			s.State = Skipped
		} else if s.Depth <= skipped || skipped < 0 {
			skipped = -1
			if s.State == Skipped {
				skipped = s.Depth
			}
		}
	}
}

// columns is the width of an indentation, a tab reaching to the next multiple of four.
func columns(indent string) int {
	n := 0
	for _, r := range indent {
		if r == '\t' {
			n += 4 - n%4
		} else {
			n++
		}
	}
	return n
}

// parseBoxes reads boxes, marks and text of a step from what follows the bullet.
// Only a listed line is a step by a mark or a word alone.
func parseBoxes(rest string, listed bool) (Step, bool) {
	var s Step
	rest, isStep := s.takeGroups(rest, listed)
	if !isStep {
		return Step{}, false
	}
	return s, s.setText(rest)
}

// parseGlyph reads a step whose box is a glyph: "☑ collect the files".
func parseGlyph(rest string) (Step, bool) {
	r, size := utf8.DecodeRuneInString(rest)
	var s Step
	switch {
	case strings.ContainsRune(openGlyphs, r):
	case strings.ContainsRune("☑✅", r):
		s.State = Done
	case strings.ContainsRune("☒❌", r):
		s.State = Failed
	default:
		return Step{}, false
	}
	rest, _ = s.takeGroups(strings.TrimPrefix(rest[size:], "\uFE0F"), true)
	return s, s.setText(rest)
}

// takeGroups applies the boxes and marks that rest begins with and returns what
// follows them. isStep reports whether they make the line a step.
func (s *Step) takeGroups(rest string, listed bool) (after string, isStep bool) {
	rest = strings.TrimSpace(rest)
	for {
		// Emphasis is there for the eye: **[VERIFY] run the tests**.
		group := strings.TrimLeft(rest, "*_")
		emphasis := rest[:len(rest)-len(group)]
		inner, after, ok := bracket(group)
		b := classify(inner)
		if !ok || b.kind == notBox || b.kind != checkbox && strings.HasPrefix(after, "(") { // prose, a link
			unwrapped := plain(rest)
			if unwrapped == rest {
				return rest, isStep
			}
			rest = unwrapped
			continue
		}
		s.apply(b)
		isStep = isStep || listed || b.kind == checkbox
		if emphasis != "" {
			after = strings.Replace(after, emphasis, "", 1)
		}
		rest = strings.TrimSpace(after)
	}
}

// setText takes the text of the step; false where none is left.
func (s *Step) setText(text string) bool {
	s.Text = text
	// Marks and verdicts are appended as often as they are put first. A lone x is
	// none there: it is more likely an index.
	for strings.HasSuffix(s.Text, "]") {
		at := strings.LastIndex(s.Text, " [")
		if at < 0 {
			break
		}
		inner := s.Text[at+2 : len(s.Text)-1]
		b := classify(inner)
		if b.kind == notBox || strings.ContainsAny(inner, "[]xX") && b.kind == checkbox {
			break
		}
		s.apply(b)
		s.Text = strings.TrimSpace(s.Text[:at])
	}
	if s.Text == "" {
		s.Text, s.Note = plain(s.Note), ""
	}
	return s.Text != ""
}

// plain is s on one line, without the emphasis of a title as in "**Title**: what to do".
func plain(s string) string {
	s = strings.TrimSpace(s)
	for strings.HasPrefix(s, "**") {
		before, after, ok := strings.Cut(s[2:], "**")
		if !ok {
			break
		}
		s = strings.TrimSpace(before + after)
	}
	return strings.Join(strings.Fields(s), " ")
}

func (s *Step) apply(b boxed) {
	if s.State == Open {
		s.State = b.state
	}
	if s.Note == "" {
		s.Note = b.note
	}
	for _, m := range b.marks {
		if !s.Is(m) {
			s.Mark += m
		}
	}
}

// bracket splits "[inner]after". Brackets inside may nest; where they do not
// balance, the first closing one counts.
func bracket(s string) (inner, after string, ok bool) {
	if !strings.HasPrefix(s, "[") {
		return "", "", false
	}
	depth, first := 0, -1
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			if first < 0 {
				first = i
			}
			if depth--; depth == 0 {
				return s[1:i], s[i+1:], true
			}
		}
	}
	if first < 0 {
		return "", "", false
	}
	return s[1:first], s[first+1:], true
}

type boxKind int

const (
	notBox   boxKind = iota // prose in brackets
	checkbox                // a box that makes any line a step
	word                    // a mark or a word that makes a list item a step
)

type boxed struct {
	kind  boxKind
	state State
	marks []string
	note  string
}

const (
	doneGlyphs   = "✓✔√☑✅"
	failedGlyphs = "✗✘×✕✖❌☒"
	openGlyphs   = "☐⬜"
	// Alone in a box these say how an open step stands: begun, postponed, asked about.
	openBoxes = "~/>*.!…○◯◐→⏳🔄" + openGlyphs + "□"
)

// words are what models write into boxes instead of ticks.
var words = []struct {
	text  string
	state State
}{
	{"DONE", Done}, {"OK", Done}, {"PASS", Done}, {"PASSED", Done}, {"COMPLETE", Done}, {"COMPLETED", Done}, {"完成", Done}, {"已完成", Done},
	{"FAIL", Failed}, {"FAILED", Failed}, {"ERROR", Failed}, {"失败", Failed}, {"已失败", Failed},
	{"SKIP", Skipped}, {"SKIPPED", Skipped}, {"CANCELLED", Skipped}, {"CANCELED", Skipped}, {"N/A", Skipped}, {"跳过", Skipped}, {"已跳过", Skipped},
	{"TODO", Open}, {"WIP", Open}, {"DOING", Open}, {"OPEN", Open}, {"PENDING", Open}, {"BLOCKED", Open}, {"IN PROGRESS", Open}, {"IN_PROGRESS", Open}, {"待办", Open}, {"进行中", Open}, {"未完成", Open},
}

// classify reads what stands between brackets.
func classify(inner string) boxed {
	inner = strings.TrimSpace(inner)
	if inner == "" {
		return boxed{kind: checkbox}
	}
	first, size := utf8.DecodeRuneInString(inner)
	rest := strings.TrimPrefix(inner[size:], "\uFE0F") // asks for the emoji form of a glyph
	alone := rest == ""
	switch {
	case strings.ContainsRune(doneGlyphs, first):
		return boxed{kind: checkbox, state: Done, note: cleanNote(rest)}
	case strings.ContainsRune(failedGlyphs, first):
		return boxed{kind: checkbox, state: Failed, note: cleanNote(rest)}
	case (first == 'x' || first == 'X') && (alone || strings.ContainsAny(rest[:1], " ,:")):
		return boxed{kind: checkbox, state: Done, note: cleanNote(rest)}
	case first == '-' && alone:
		return boxed{kind: checkbox, state: Skipped}
	case alone && strings.ContainsRune(openBoxes, first):
		return boxed{kind: checkbox}
	}
	if marks := marksOf(inner); marks != nil {
		return boxed{kind: word, marks: marks}
	}
	for _, w := range words {
		head, tail, ok := cutWord(inner, w.text)
		// In capitals a word is a verdict whatever follows, else it could be prose.
		if ok && (head == w.text || tail == "" || strings.ContainsAny(tail[:1], ":,")) {
			return boxed{kind: word, state: w.state, note: cleanNote(tail)}
		}
	}
	// A tick after a mark or a date: [D ✓ result].
	if at := strings.IndexAny(inner, doneGlyphs+failedGlyphs); at > 0 {
		b := classify(inner[at:])
		if b.marks = marksOf(inner[:at]); b.marks == nil {
			b.note = cleanNote(inner[:at] + " " + b.note)
		}
		b.kind = word
		return b
	}
	for _, m := range []string{"VERIFY", "FIX"} { // [FIX 2], [VERIFY: the tests]
		if head, _, ok := cutWord(inner, m); ok && head == m {
			return boxed{kind: word, marks: []string{"[" + m + "]"}}
		}
	}
	return boxed{}
}

// cutWord splits s after w, in whatever case it is written, where the word ends there.
func cutWord(s, w string) (head, tail string, ok bool) {
	if len(s) < len(w) || !strings.EqualFold(s[:len(w)], w) {
		return "", "", false
	}
	next, _ := utf8.DecodeRuneInString(s[len(w):])
	if len(s) > len(w) && (unicode.IsLetter(next) || unicode.IsDigit(next) || next == '_') {
		return "", "", false
	}
	return s[:len(w)], strings.TrimSpace(s[len(w):]), true
}

// marksOf reads marks that share brackets, as in [D/P] and [P2]; nil where
// anything else is among them.
func marksOf(s string) []string {
	var marks []string
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",/|+&、，", r) }) {
		switch f {
		case "D", "P", "?", "？", "VERIFY", "FIX":
		case "verify", "Verify", "fix", "Fix":
			f = strings.ToUpper(f)
		default:
			if strings.Trim(f[1:], "0123456789") != "" || f[0] != 'D' && f[0] != 'P' {
				return nil
			}
			f = f[:1] // groups are numbered: [P1], [P2]
		}
		marks = append(marks, "["+strings.Replace(f, "？", "?", 1)+"]")
	}
	return marks
}

// cleanNote is the text beside a tick on one line, in a form that fits into a box.
func cleanNote(s string) string {
	s = strings.NewReplacer("[", "(", "]", ")").Replace(strings.ToValidUTF8(s, "\uFFFD"))
	return strings.TrimLeft(strings.Join(strings.Fields(s), " "), " :：,，-—–")
}
