package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// stopGrace is how long calls that were told to stop may take to do so. A tool
// returns at once when its context ends; one that does not is left behind.
const stopGrace = 100 * time.Millisecond

// called is a call's answer.
type called struct {
	tool.Result
	// given is set once there is an answer.
	given bool
	took  time.Duration
}

// act runs the calls of an answer and records how they came out, with what joins
// the conversation after them.
func (s *state) act(ctx context.Context, calls []llm.ToolCall) *round.Outcome {
	results := make([]called, len(calls))
	if out := s.runCalls(ctx, calls, results); out != nil {
		return out
	}
	if ctx.Err() != nil {
		return s.recordCut(ctx, calls, results)
	}
	notes, applied, steers, out := s.notes(ctx)
	if out != nil {
		return out
	}
	s.repeats.shorten(calls, results)
	done := s.judge(calls, results, steers)
	if out := s.frameCompletions(ctx, calls, results); out != nil {
		return out
	}
	msgs, byID := resultMessages(calls, results)
	if done == nil {
		next := s.ledger.entry(calls, byID)
		msgs = append(msgs, daemonSays(s.hints(&next))...)
	}
	if out := s.appendMessages(ctx, applied, append(msgs, notes...)...); out != nil {
		return out
	}
	if done == nil {
		return nil
	}
	return s.finish(ctx, done)
}

// recordCut records the answers of calls that were cut short, so that every call
// has one, and ends the round.
func (s *state) recordCut(ctx context.Context, calls []llm.ToolCall, results []called) *round.Outcome {
	words := cutWords(context.Cause(ctx))
	for i := range results {
		switch {
		case results[i].given:
		case s.begunBefore(calls[i]):
			results[i].Result = tool.Result{Text: interrupted, Failed: true}
		default:
			results[i].Result = tool.Result{Text: notRun + words + ".", Failed: true}
		}
	}
	s.repeats.shorten(calls, results)
	msgs, _ := resultMessages(calls, results)
	if out := s.appendMessages(ctx, nil, msgs...); out != nil {
		return out
	}
	return s.cut(ctx)
}

// resultMessages are the answers as they join the conversation, also by the id of
// their call.
func resultMessages(calls []llm.ToolCall, results []called) ([]llm.Message, map[string]string) {
	msgs := make([]llm.Message, len(calls), len(calls)+2)
	byID := make(map[string]string, len(calls))
	for i, c := range calls {
		text := results[i].Text
		if results[i].Failed && !isFailed(text) {
			text = failedMark + text
		}
		if strings.TrimSpace(text) == "" {
			text = "(no output)"
		}
		msgs[i] = llm.Message{Role: llm.ToolRole, ToolCallID: c.ID, Content: text}
		byID[c.ID] = text
	}
	return msgs, byID
}

// runCalls fills results, but for those of attempt_completion and of calls that were
// not begun before ctx ended. Neighbouring calls that only read run side by side;
// one that changes something runs alone, after those before it.
func (s *state) runCalls(ctx context.Context, calls []llm.ToolCall, results []called) *round.Outcome {
	var batch []int
	flush := func() *round.Outcome {
		b := batch
		batch = nil
		return s.runBatch(ctx, calls, b, results)
	}
	for i, c := range calls {
		if c.Name == completionTool {
			continue
		}
		if !s.tools.Set.Changes(c.Name) || c.Name == taskTool {
			batch = append(batch, i)
			continue
		}
		if out := flush(); out != nil {
			return out
		}
		batch = []int{i}
		if out := flush(); out != nil {
			return out
		}
	}
	return flush()
}

type callEnded struct {
	i      int
	result tool.Result
	took   time.Duration
}

// runBatch runs the calls at these indexes side by side, as many at once as are
// allowed, and waits for them.
func (s *state) runBatch(ctx context.Context, calls []llm.ToolCall, batch []int, results []called) *round.Outcome {
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan callEnded, len(batch))
	running := map[int]bool{}
	var out *round.Outcome // ends the round at once, but for the calls that run
	for out == nil && (len(running) > 0 || len(batch) > 0 && ctx.Err() == nil) {
		if len(batch) > 0 && ctx.Err() == nil && len(running) < s.cfg.Limits.ParallelCalls {
			i := batch[0]
			batch = batch[1:]
			if out = s.begin(ctx, callCtx, calls[i], i, ended); out == nil {
				running[i] = true
			}
			continue
		}
		select {
		case e := <-ended:
			delete(running, e.i)
			out = s.end(ctx, calls[e.i], e, &results[e.i])
		case <-ctx.Done():
			s.awaitStopped(ctx, calls, running, results, ended)
			return silenced(ctx)
		}
	}
	if len(running) > 0 {
		cancel()
		s.awaitStopped(ctx, calls, running, nil, ended)
	}
	return out
}

// begin starts one call and reports it begun. The goroutine that it starts sends to
// ended, which has room for it, and ends.
func (s *state) begin(ctx, callCtx context.Context, c llm.ToolCall, i int, ended chan<- callEnded) *round.Outcome {
	if out := s.emit(ctx, round.ToolBegun{Turn: s.turn, ID: c.ID, Name: c.Name, Args: shortArgs(c)}); out != nil {
		return out
	}
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		start := s.cfg.Now()
		r := s.dispatch(callCtx, c)
		ended <- callEnded{i, r, s.cfg.Now().Sub(start)}
	}()
	return nil
}

// begunBefore reports whether a call may have run before the daemon went down.
func (s *state) begunBefore(c llm.ToolCall) bool {
	r := s.in.Resumed
	return r != nil && r.Turn == s.turn && r.Begun[c.ID]
}

// dispatch runs one call, unless it must not be run.
func (s *state) dispatch(ctx context.Context, c llm.ToolCall) tool.Result {
	if s.begunBefore(c) && c.Name != taskTool {
		return tool.Result{Text: interrupted, Summary: "interrupted, outcome unknown", Failed: true}
	}
	if r, bad := invalidArguments(c); bad && s.tools.Set.Has(c.Name) {
		return r
	}
	r := s.tools.Set.Dispatch(ctx, c)
	if !s.tools.Set.Has(c.Name) && !s.tools.Set.Has(completionTool) {
		r.Text += "; and " + completionTool + ", to finish"
	}
	return r
}

// end keeps a call's answer and reports it.
func (s *state) end(ctx context.Context, c llm.ToolCall, e callEnded, into *called) *round.Outcome {
	if e.result.Failed && ctx.Err() != nil {
		words := cutWords(context.Cause(ctx))
		e.result.Summary = words
		e.result.Text = words + " while it ran; what it did until then stands.\n" + e.result.Text
	}
	e.result.Text, e.result.Summary = s.cfg.Redact.String(e.result.Text), s.cfg.Redact.String(e.result.Summary)
	*into = called{Result: e.result, given: true, took: e.took}
	return s.emit(ctx, s.toolEnded(c, *into))
}

// awaitStopped waits a moment for running calls, whose context has ended. Where
// results is not nil their answers are kept and reported.
func (s *state) awaitStopped(ctx context.Context, calls []llm.ToolCall, running map[int]bool, results []called, ended <-chan callEnded) {
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for len(running) > 0 {
		select {
		case e := <-ended:
			delete(running, e.i)
			if results != nil && s.end(ctx, calls[e.i], e, &results[e.i]) != nil {
				results = nil
			}
		case <-grace.C:
			s.abandoned = true
			for i := range running {
				s.cfg.Log.Warn("a tool goes on after it was told to stop", "task", s.in.Task, "tool", calls[i].Name)
				if results != nil {
					s.end(ctx, calls[i], callEnded{i: i, result: tool.Result{Text: "It did not stop in time; its outcome is unknown.", Failed: true}}, &results[i])
				}
			}
			return
		}
	}
}

// frameCompletions reports the calls of attempt_completion like any others.
func (s *state) frameCompletions(ctx context.Context, calls []llm.ToolCall, results []called) *round.Outcome {
	for i, c := range calls {
		if c.Name != completionTool {
			continue
		}
		out := s.emit(ctx, round.ToolBegun{Turn: s.turn, ID: c.ID, Name: c.Name, Args: shortArgs(c)}, s.toolEnded(c, results[i]))
		if out != nil {
			return out
		}
	}
	return nil
}

func (s *state) toolEnded(c llm.ToolCall, r called) round.ToolEnded {
	return round.ToolEnded{
		Turn: s.turn, ID: c.ID, Name: c.Name, Args: shortArgs(c), FullArgs: c.Arguments,
		Result: r.Text, Summary: r.Summary, Failed: r.Failed, Took: r.took,
	}
}

// invalidArgs stands in a conversation for arguments that are no JSON object, which
// many providers refuse to be sent again.
type invalidArgs struct {
	Invalid string `json:"invalid_arguments"`
	Problem string `json:"problem"`
}

const invalidKey = `{"invalid_arguments":`

// recordable returns a call whose arguments every provider accepts back. Only what no
// tool could run is changed. (Names are history's: its conversations hold no others.)
func recordable(c llm.ToolCall) llm.ToolCall {
	text := strings.TrimSpace(c.Arguments)
	if text == "" {
		c.Arguments = "{}"
		return c
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal([]byte(text), &object)
	if err == nil && object != nil {
		return c
	}
	const most = 300
	bad := invalidArgs{Invalid: strings.ToValidUTF8(clip(text, most), "\uFFFD"), Problem: "not a JSON object"}
	if err != nil && text[0] == '{' {
		bad.Problem = "not JSON: " + err.Error()
		if cutShort(text) {
			bad.Problem = "cut off in the middle"
		}
	}
	b, _ := json.Marshal(bad) // two strings always marshal
	c.Arguments = string(b)
	return c
}

// cutShort reports whether text is the beginning of a JSON value.
func cutShort(text string) bool {
	var v any
	return errors.Is(json.NewDecoder(strings.NewReader(text)).Decode(&v), io.ErrUnexpectedEOF)
}

// invalidArguments answers a call that recordable found to be without arguments to
// run it with.
func invalidArguments(c llm.ToolCall) (tool.Result, bool) {
	if !strings.HasPrefix(c.Arguments, invalidKey) {
		return tool.Result{}, false
	}
	var bad invalidArgs
	if json.Unmarshal([]byte(c.Arguments), &bad) != nil || bad.Problem == "" {
		return tool.Result{}, false
	}
	text := "Nothing was run: the arguments of " + c.Name + " must be one JSON object, but they are " + bad.Problem + "."
	if strings.HasPrefix(bad.Problem, "cut off") {
		text += splitCall
	}
	return tool.Result{Text: text + " They begin: " + bad.Invalid, Summary: "the arguments are " + bad.Problem, Failed: true}, true
}

// shortArgs is a call's arguments on one short line, for people; nothing for a
// completion, whose argument is the result that ends the output.
func shortArgs(c llm.ToolCall) string {
	if c.Name == completionTool {
		return ""
	}
	arguments := c.Arguments
	const most, mostEach = 120, 80
	dec := json.NewDecoder(strings.NewReader(arguments))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return clip(oneLine(arguments), most)
	}
	var parts []string
	var alone string
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			break
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			break
		}
		value := string(raw)
		alone = ""
		if json.Unmarshal(raw, &value) == nil {
			alone = clip(oneLine(value), most)
		}
		name, _ := key.(string)
		parts = append(parts, oneLine(name)+"="+clip(oneLine(value), mostEach))
	}
	if len(parts) == 1 && alone != "" {
		return alone
	}
	return clip(strings.Join(parts, ", "), most)
}

// oneLine makes control characters spaces.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return clip(oneLine(line), 120)
}

// clip shortens s to about n bytes, on whole characters, and shows that it did.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
