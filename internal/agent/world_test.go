package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/llm/openai"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// world is all that a round touches, with the parts that tests look at.
type world struct {
	t      testing.TB
	cfg    Config
	model  llm.Model
	def    agentdef.Definition
	srv    *llmtest.Server
	client llm.Client // in place of srv

	mu    sync.Mutex
	ran   []string // calls of changing tools, in the order in which they ended
	tools []tool.Tool
	files map[string]time.Time // for Exists; nil: no question asked
	plan  string
	facts Toolset
	asked []ToolRequest
	// closed counts toolsets given back.
	closed int
}

func newWorld(t testing.TB, replies ...llmtest.Reply) *world {
	return newScripted(t, llmtest.ByTurn(replies...))
}

func newScripted(t testing.TB, script llmtest.Script, opts ...llmtest.Option) *world {
	w := &world{t: t, def: agentdef.General()}
	w.srv = llmtest.NewServer(t, script, opts...)
	w.model = llm.Model{Name: "default", ID: "test", ContextWindow: 100000, Client: openai.New(openai.Config{Name: "default", BaseURL: w.srv.URL, Model: "test"})}
	w.tools = []tool.Tool{
		fn("read", func(_ context.Context, c tool.Call) tool.Result { return tool.Result{Text: "read " + string(c.Args)} }),
		w.changing("write"),
		fn("broken", func(context.Context, tool.Call) tool.Result { return tool.Failure("no such file") }),
	}
	w.cfg = Config{
		Models: func(_ context.Context, name, model string) (llm.Model, error) {
			if name != "" && name != "default" {
				return llm.Model{}, fmt.Errorf("no such LLM; there are: default")
			}
			m := w.model
			if w.client != nil {
				m.Client = w.client
			}
			if model != "" {
				m.ID = model
			}
			return m, nil
		},
		Agents: func(name string) (agentdef.Definition, error) {
			if name != "" && name != w.def.Name {
				return agentdef.Definition{}, fmt.Errorf("no such agent; there are: %s", w.def.Name)
			}
			return w.def, nil
		},
		Tools: func(r ToolRequest) (Toolset, error) {
			w.asked = append(w.asked, r)
			var granted []tool.Tool
			for _, t := range w.tools {
				if r.Names == nil || slices.Contains(r.Names, t.Spec().Name) {
					granted = append(granted, t)
				}
			}
			ts := w.facts
			ts.Set = tool.NewSet(4000, granted...)
			ts.Close = func() error { w.mu.Lock(); defer w.mu.Unlock(); w.closed++; return nil }
			if w.files != nil {
				ts.Exists = func(path string) (time.Time, bool) {
					w.mu.Lock()
					defer w.mu.Unlock()
					at, ok := w.files[path]
					return at, ok
				}
			}
			return ts, nil
		},
	}
	return w
}

// changing is a tool that changes something, and is seen to.
func (w *world) changing(name string) tool.Tool {
	return changer{fn(name, func(_ context.Context, c tool.Call) tool.Result {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran = append(w.ran, name+" "+string(c.Args))
		return tool.Result{Text: "done " + string(c.Args)}
	})}
}

func (w *world) input(message string) round.Input {
	return round.Input{
		Task: "t", Dir: filepath.FromSlash("/temp/t"), Session: 1, Message: message, StartedAt: time.Now(),
		ReadPlan:  func() (string, error) { w.mu.Lock(); defer w.mu.Unlock(); return w.plan, nil },
		WritePlan: func(s string) error { w.mu.Lock(); defer w.mu.Unlock(); w.plan = s; return nil },
	}
}

func (w *world) run(in round.Input, rec *record) round.Outcome {
	w.t.Helper()
	return w.runCtx(context.Background(), in, rec)
}

func (w *world) runCtx(ctx context.Context, in round.Input, rec *record) round.Outcome {
	w.t.Helper()
	rec.take(in)
	out := New(w.cfg).Run(ctx, rec.input(in), rec.emit)
	if bad := w.srv.Refusals(); len(bad) > 0 {
		w.t.Fatalf("the strict server refused: %v", bad)
	}
	if err := rec.check(); err != nil {
		w.t.Fatalf("events out of order: %v\n%s", err, rec)
	}
	return out
}

// record is what a session would have in its journal, and all events.
type record struct {
	events []round.Event
	// fail is asked before an event is stored, and after; an error is what emit returns.
	before, after func(n int, e round.Event) error

	prepared *round.Prepared
	conv     []llm.Message
	turn     int
	begun    map[string]bool
	cut      round.Cut
	keyInfo  string
	spent    llm.Usage
	applied  []uint64
	// reserved is open, estimated counts beside spent.
	reserved, estimated llm.Amount
	context             int
	lastLLM             string
	ran                 bool // Run was called for this round before
}

func (r *record) take(in round.Input) {
	if r.conv == nil {
		r.conv = slices.Clone(in.Conversation)
	}
	if r.prepared == nil {
		r.prepared = in.Prepared
	}
	if r.keyInfo == "" {
		r.keyInfo = in.KeyInfo
	}
}

// input is the input of the next call of Run.
func (r *record) input(in round.Input) round.Input {
	if r.ran {
		r.estimated, r.reserved = r.estimated.Add(r.reserved), llm.Amount{}
	}
	in.Prepared, in.Conversation, in.KeyInfo, in.Spent = r.prepared, slices.Clone(r.conv), r.keyInfo, r.spent
	in.Estimated, in.Context, in.LastLLM = r.estimated, r.context, r.lastLLM
	if r.ran {
		in.Resumed = &round.Resumed{Turn: r.turn, Begun: r.begun, Cut: r.cut}
	}
	r.ran = true
	return in
}

// nextRound forgets the round but keeps the session.
func (r *record) nextRound() {
	r.ran, r.turn, r.begun, r.cut, r.reserved = false, 0, nil, round.NotCut, llm.Amount{}
}

func (r *record) emit(e round.Event) error {
	n := len(r.events)
	if r.before != nil {
		if err := r.before(n, e); err != nil {
			return err
		}
	}
	r.events = append(r.events, e)
	switch e := e.(type) {
	case round.HeadPrepared:
		r.prepared = &e.Prepared
	case round.Answered:
		r.conv = append(r.conv, onDisk(e.Message))
		r.turn, r.cut = e.Turn, e.Cut
		r.spent = r.spent.Add(e.Spent)
		r.estimated, r.reserved = r.estimated.Add(e.Estimated), llm.Amount{}
		r.context, r.lastLLM = e.Context, e.LLM
		r.begun = map[string]bool{}
		for _, id := range e.Begun {
			r.begun[id] = true
		}
	case round.Appended:
		r.cut = round.NotCut
		for _, m := range e.Messages {
			r.conv = append(r.conv, onDisk(m))
			delete(r.begun, m.ToolCallID)
		}
		if e.KeyInfo != nil {
			r.keyInfo = *e.KeyInfo
		}
		r.applied = append(r.applied, e.Applied...)
	case round.Rewritten:
		r.conv, r.context = slices.Clone(e.Messages), 0
	case round.Reserved:
		r.reserved = e.Amount
	case round.SpentBeside:
		r.spent = r.spent.Add(e.Spent)
		r.estimated, r.reserved = r.estimated.Add(e.Estimated), llm.Amount{}
	}
	if r.after != nil {
		return r.after(n, e)
	}
	return nil
}

// onDisk is a message as it comes back from a journal.
func onDisk(m llm.Message) llm.Message {
	b, err := json.Marshal(m)
	if err == nil {
		m = llm.Message{}
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		panic(err)
	}
	return m
}

// check holds events against the order that a turn promises.
func (r *record) check() error {
	open := map[string]string{} // calls of the newest answer without a result: id to name
	begun := map[string]bool{}
	var framed []string
	for i, e := range r.events {
		switch e := e.(type) {
		case round.HeadPrepared:
			if i != 0 {
				return fmt.Errorf("event %d: head after other events", i)
			}
		case round.TurnStarted:
			if len(open) > 0 {
				return fmt.Errorf("event %d: turn %d starts with unanswered calls", i, e.Turn)
			}
		case round.Answered:
			if len(open) > 0 {
				return fmt.Errorf("event %d: an answer while calls are unanswered", i)
			}
			for _, c := range e.Message.ToolCalls {
				open[c.ID] = c.Name
			}
			begun = map[string]bool{}
			for _, id := range e.Begun {
				begun[id] = true
			}
		case round.ToolBegun:
			if _, ok := open[e.ID]; !ok {
				return fmt.Errorf("event %d: %s begins before its answer was recorded", i, e.Name)
			}
			framed = append(framed, e.ID)
		case round.ToolEnded:
			at := slices.Index(framed, e.ID)
			if at < 0 {
				return fmt.Errorf("event %d: %s ends without a beginning", i, e.Name)
			}
			framed = slices.Delete(framed, at, at+1)
			if e.Name == "write" && !e.Failed && !begun[e.ID] {
				return fmt.Errorf("event %d: %s changed something and was not recorded as begun", i, e.Name)
			}
			if e.Summary == "" {
				return fmt.Errorf("event %d: %s without a summary", i, e.Name)
			}
		case round.Appended:
			for _, m := range e.Messages {
				if m.Role != llm.ToolRole {
					if len(open) > 0 {
						return fmt.Errorf("event %d: %s message before all results", i, m.Role)
					}
					continue
				}
				if _, ok := open[m.ToolCallID]; !ok {
					return fmt.Errorf("event %d: result for %q, which is not open", i, m.ToolCallID)
				}
				delete(open, m.ToolCallID)
			}
			if len(open) > 0 {
				return fmt.Errorf("event %d: results are missing: %v", i, open)
			}
		}
	}
	return nil
}

func (r *record) String() string {
	var b strings.Builder
	for i, e := range r.events {
		text, _ := json.Marshal(e)
		fmt.Fprintf(&b, "%3d %T %s\n", i, e, clip(string(text), 300))
	}
	return b.String()
}

// of returns the events of one type.
func of[E round.Event](r *record) []E {
	var out []E
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

// last returns the newest message.
func (r *record) last() llm.Message { return r.conv[len(r.conv)-1] }

// results returns the contents of all tool results.
func (r *record) results() []string {
	var out []string
	for _, m := range r.conv {
		if m.Role == llm.ToolRole {
			out = append(out, m.Content)
		}
	}
	return out
}

func (r *record) has(role llm.Role, text string) bool {
	return slices.ContainsFunc(r.conv, func(m llm.Message) bool { return m.Role == role && strings.Contains(m.Content, text) })
}

// notes is an Inbox that gives each batch at the call of its number, from 0.
func notes(batches map[int][]round.Note) func(context.Context) ([]round.Note, error) {
	n := -1
	return func(context.Context) ([]round.Note, error) { n++; return batches[n], nil }
}

type fnTool struct {
	name string
	run  func(context.Context, tool.Call) tool.Result
}

func fn(name string, run func(context.Context, tool.Call) tool.Result) fnTool {
	return fnTool{name, run}
}

func (f fnTool) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: f.name, Description: f.name, Parameters: llm.RawJSON(`{"type":"object"}`)}
}
func (f fnTool) Run(ctx context.Context, c tool.Call) tool.Result { return f.run(ctx, c) }

type changer struct{ fnTool }

func (changer) Changes() bool { return true }

// clientFunc is a model inside the process, for what a server cannot time.
type clientFunc func(ctx context.Context, req llm.Request, onDelta func(llm.Delta)) (llm.Response, error)

func (f clientFunc) Complete(ctx context.Context, req llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
	return f(ctx, req, onDelta)
}

var errKilled = errors.New("killed")
