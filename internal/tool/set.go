package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/redact"
)

// DefaultCap is the size in bytes of the largest result that a Set hands on
// where its maker names none.
const DefaultCap = 64 << 10

// Set is the tools that one agent was granted. It is the whitelist: what is not
// in it cannot be called, whatever the model writes. A Set does not change once
// made and may be used by many goroutines at once.
type Set struct {
	cap   int
	keys  *redact.Replacer
	names []string
	tools map[string]Tool
}

// NewSet returns the set of tools, whose results are capped at capBytes bytes
// (0: DefaultCap). The order is kept, since it is part of the prefix that prompt
// caches work on. Of two tools with one name the first stands.
func NewSet(capBytes int, tools ...Tool) *Set {
	if capBytes <= 0 {
		capBytes = DefaultCap
	}
	s := &Set{cap: capBytes, tools: make(map[string]Tool, len(tools))}
	for _, t := range tools {
		name := t.Spec().Name
		if _, taken := s.tools[name]; taken {
			continue
		}
		s.tools[name] = t
		s.names = append(s.names, name)
	}
	return s
}

// Redacting returns the same set with keys taken out of its results, before these are
// cut: of a key that is cut in two nobody could tell what it was.
func (s *Set) Redacting(keys *redact.Replacer) *Set {
	clean := *s
	clean.keys = keys
	return &clean
}

// Specs returns what the model is told of the tools, in their order.
func (s *Set) Specs() []llm.ToolSpec {
	specs := make([]llm.ToolSpec, 0, len(s.names))
	for _, n := range s.names {
		specs = append(specs, s.tools[n].Spec())
	}
	return specs
}

// Names returns the names of the tools, in their order.
func (s *Set) Names() []string { return append([]string(nil), s.names...) }

// Has reports whether the set holds a tool of that name.
func (s *Set) Has(name string) bool {
	_, ok := s.tools[name]
	return ok
}

// Changes reports whether a call of the tool changes something outside the
// conversation, so that it must not be run again unasked. A tool that is not in
// the set is never run and changes nothing.
func (s *Set) Changes(name string) bool {
	c, ok := s.tools[name].(Changer)
	return ok && c.Changes()
}

// Dispatch runs one call and returns what the model is told. It blocks as long
// as the tool does. Whatever goes wrong is a failed Result: a tool that is not
// in the set, arguments that are not a JSON object, a panic in the tool, a ctx
// that has ended already. The Result is valid UTF-8, within the cap, and has a
// Summary.
func (s *Set) Dispatch(ctx context.Context, call llm.ToolCall) Result {
	t, ok := s.tools[call.Name]
	if !ok {
		return s.finish(s.refuse(call.Name))
	}
	args, err := checkArguments(call.Arguments)
	if err != nil {
		return s.finish(Failure("%s: %v", call.Name, err))
	}
	if ctx.Err() != nil {
		return s.finish(Failure("%s was not run: %v", call.Name, context.Cause(ctx)))
	}
	return s.finish(run(ctx, t, Call{ID: call.ID, Args: args}))
}

// Failure returns a failed result that says why.
func Failure(format string, args ...any) Result {
	return Result{Text: fmt.Sprintf(format, args...), Failed: true}
}

func (s *Set) refuse(name string) Result {
	what := fmt.Sprintf("there is no tool %q here", bounded(name, 60))
	if name == "" {
		what = "the call names no tool"
	}
	if len(s.names) == 0 {
		return Failure("%s: this agent has no tools", what)
	}
	return Failure("%s; the tools are: %s", what, strings.Join(s.names, ", "))
}

// finish puts a result into the form that callers rely on.
func (s *Set) finish(r Result) Result {
	r.Text, r.Summary = s.keys.String(r.Text), s.keys.String(r.Summary)
	r.Text = Cap(strings.ToValidUTF8(r.Text, "�"), s.cap)
	if strings.TrimSpace(r.Text) == "" {
		r.Text = "(no output)"
		if r.Failed {
			r.Text = "failed, without a message"
		}
	}
	if r.Summary == "" {
		r.Summary = r.Text
	}
	r.Summary = oneLine(r.Summary, summaryRunes)
	return r
}

// run calls the tool and turns a panic into a result: one broken tool must not
// end the session, far less the daemon.
func run(ctx context.Context, t Tool, c Call) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			r = Failure("the tool broke (a fault in it, not in the call): %v", p)
			r.Text += "\n" + panicSite(debug.Stack())
		}
	}()
	return t.Run(ctx, c)
}

// panicSite returns the line of the stack where the panic was raised, which is
// what a report of the fault needs.
func panicSite(stack []byte) string {
	_, after, ok := bytes.Cut(stack, []byte("panic("))
	if !ok {
		return ""
	}
	lines := strings.SplitN(string(after), "\n", 5)
	if len(lines) < 4 {
		return ""
	}
	return "at " + strings.TrimSpace(lines[2]) + " " + strings.TrimSpace(lines[3])
}

// checkArguments returns the arguments as a JSON object. Models that call a tool
// without parameters often send nothing at all, which stands for {}.
func checkArguments(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return json.RawMessage("{}"), nil
	}
	raw := json.RawMessage(text)
	var fields map[string]json.RawMessage
	if text[0] != '{' {
		return nil, fmt.Errorf("the arguments must be a JSON object, not %s", preview(text))
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("the arguments are not a JSON object (%v): %s", err, preview(text))
	}
	return raw, nil
}

// preview quotes enough of a broken text to recognise it by.
func preview(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", bounded(text, most), len(text))
}
