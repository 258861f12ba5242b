// Package plan reads and writes the plan that an agent keeps for its task: a
// Markdown checklist whose ticks are the agent's checkpoint.
//
// Plans are written by models and by people, so reading is tolerant: whatever is
// recognisably a step counts, whatever is not is prose, and nothing is an error.
// A step is a list item (bullet, number or heading, at any depth, in block quotes
// too) or a bare line that begins with a box:
//
//	[ ]                                open; [~], [/], [>], [TODO] and the like, too
//	[x] [X] [✓] [✓ what came of it]    done; the text after the tick is a note
//	[✗] [FAILED: why]                  failed
//	[SKIP] [-]                         skipped, with everything nested below
//
// or with a mark, which may stand in place of the box or beside it: [D] for
// delegate, [P] for parallel, [?] for a branch that depends on a condition,
// [VERIFY] for a check, [FIX] for a repair. A list item with a mark and no box is
// open. In a plan without a single bracket the glyphs ☐ ☑ ✅ ☒ ❌ serve as boxes.
//
// Lines in code fences and HTML comments are never steps.
//
// The package is pure: no I/O, no clock.
package plan

import "strings"

// State is how a step stands.
type State int

const (
	Open State = iota
	Done
	Failed
	Skipped
)

func (s State) String() string {
	switch s {
	case Done:
		return "done"
	case Failed:
		return "failed"
	case Skipped:
		return "skipped"
	}
	return "open"
}

// ParseState reads the words that String writes.
func ParseState(s string) (State, bool) {
	for _, st := range []State{Open, Done, Failed, Skipped} {
		if s == st.String() {
			return st, true
		}
	}
	return Open, false
}

// The marks that a step may carry.
const (
	MarkDelegate  = "[D]"
	MarkParallel  = "[P]"
	MarkCondition = "[?]"
	MarkVerify    = "[VERIFY]"
	MarkFix       = "[FIX]"
)

// Step is one step of a plan.
type Step struct {
	// Text is what is to be done, on one line, without boxes and marks.
	Text  string
	State State
	// Mark holds the marks in the order in which they stood, each once, as in "[D][P]".
	Mark string
	// Note is what stood beside the tick in the box: what came of the step.
	Note string
	// Depth is 0 at the top, one more for each level of nesting.
	Depth int
	// Line is the number of the line that the step stands on, from 1; 0 where it
	// does not come from a text.
	Line int
}

// Is reports whether the step carries the mark, one of the Mark constants.
func (s Step) Is(mark string) bool { return mark != "" && strings.Contains(s.Mark, mark) }

// Plan is a plan as it was read. The zero value is "no plan".
type Plan struct{ Steps []Step }

// Progress counts the steps that are done, and all that were to be done: skipped
// ones are not, failed ones are. So done reaches total exactly where every step
// succeeded that was not skipped.
func (p Plan) Progress() (done, total int) {
	for _, s := range p.Steps {
		if s.State != Skipped {
			total++
		}
		if s.State == Done {
			done++
		}
	}
	return done, total
}

// Current is the step to work on: the first open one, or the first open one
// nested below it. ok is false where none is open.
func (p Plan) Current() (step Step, ok bool) {
	for _, s := range p.Steps {
		if ok && s.Depth <= step.Depth {
			return step, true
		}
		if s.State == Open {
			step, ok = s, true
		}
	}
	return step, ok
}

// Open returns the open steps in order.
func (p Plan) Open() []Step {
	var open []Step
	for _, s := range p.Steps {
		if s.State == Open {
			open = append(open, s)
		}
	}
	return open
}

// Finished reports whether there is a plan and none of its steps is open.
func (p Plan) Finished() bool {
	for _, s := range p.Steps {
		if s.State == Open {
			return false
		}
	}
	return len(p.Steps) > 0
}

// Unverified returns the steps marked [VERIFY] that are not done, in order. A check
// that was skipped or has failed is among them: nothing was verified.
func (p Plan) Unverified() []Step {
	var undone []Step
	for _, s := range p.Steps {
		if s.Is(MarkVerify) && s.State != Done {
			undone = append(undone, s)
		}
	}
	return undone
}

// Render writes steps as a checklist in the form that Parse reads back to the same
// steps, but for their line numbers; it is readable for GenericAgent's plan views.
// Steps without text are left out. Marks may also stand in the text.
func Render(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		text := strings.Join(strings.Fields(strings.ToValidUTF8(s.Text, "\uFFFD")), " ")
		if text == "" {
			continue
		}
		// A document cannot be nested more deeply than its lines are.
		b.WriteString(strings.Repeat("  ", min(max(s.Depth, 0), maxDepth)))
		b.WriteString("- ")
		box := map[State]string{Done: "✓", Failed: "✗", Skipped: "SKIP"}[s.State]
		if note := cleanNote(s.Note); note != "" && box != "" {
			box += " " + note
		}
		if box == "" {
			box = " "
		}
		b.WriteString("[" + box + "]")
		if s.Mark != "" {
			b.WriteString(" " + s.Mark)
		}
		b.WriteString(" " + text + "\n")
	}
	return b.String()
}
