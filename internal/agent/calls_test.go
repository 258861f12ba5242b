package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// Bad arguments and names are answered, and the calls beside them still run.
func TestBadCalls(t *testing.T) {
	junk := strings.Repeat("junk ", 200_000)
	for _, tc := range []struct {
		name, tool, args string
		failed           bool
		want             []string
	}{
		{"cut", "read", `{"a":`, true, []string{"cut off", "Split the work", `{"a":`}},
		{"cut in a string", "write", `{"content":"half a li`, true, []string{"cut off", "Split the work"}},
		{"null", "read", `null`, true, []string{"not a JSON object", "null"}},
		{"list", "read", `[]`, true, []string{"not a JSON object", "[]"}},
		{"text", "read", `"x"`, true, []string{"not a JSON object", `"x"`}},
		{"junk", "read", junk, true, []string{"not a JSON object", "junk junk"}},
		{"broken", "read", `{a: 1}`, true, []string{"not JSON"}},
		{"nothing", "read", ``, false, []string{"read {}"}},
		{"blank", "read", ` `, false, []string{"read {}"}},
		{"unknown", "delete_all", `{}`, true, []string{"delete_all", "read, write, broken", "attempt_completion"}},
		{"odd name", "a b/ü", `{}`, true, []string{"read, write, broken"}},
		{"panics", "panics", `{}`, true, []string{"the tool broke"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := llmtest.Call("write", `{"n":1}`).Call(tc.tool, tc.args).Call("write", `{"n":2}`)
			if len(tc.args) > 1000 {
				calls = calls.AsJSON() // in one piece
			}
			w := newWorld(t, calls, llmtest.Done("r"))
			w.tools = append(w.tools, fn("panics", func(context.Context, tool.Call) tool.Result { panic("oh") }))
			rec := &record{}
			if out := w.run(w.input("x"), rec); out.Result != "r" {
				t.Fatalf("outcome %+v\n%s", out, rec)
			}
			if diff := cmp.Diff([]string{`write {"n":1}`, `write {"n":2}`}, w.ran); diff != "" {
				t.Errorf("beside it ran: %s", diff)
			}
			got := rec.results()[1]
			if strings.HasPrefix(got, "Error: ") != tc.failed || len(got) > 2000 {
				t.Errorf("answer of %d bytes: %.300q", len(got), got)
			}
			for _, text := range tc.want {
				if !strings.Contains(got, text) {
					t.Errorf("the answer lacks %q: %.300q", text, got)
				}
			}
			size := 0
			for _, m := range rec.conv {
				b, _ := json.Marshal(m)
				size += len(b)
			}
			if size > 10_000 {
				t.Errorf("the conversation grew to %d bytes", size)
			}
		})
	}
}

// Calls that the length limit cut are not run, however whole they look.
func TestCutCalls(t *testing.T) {
	for _, tc := range []struct{ name, text, args, want string }{
		{"cut", "", `{"content":"ha`, cutCallAnswer},
		{"whole", "", `{"n":1}`, cutCallAnswer},
		{"beside text", "I write.", `{"n":1}`, "I write."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, llmtest.Text(tc.text).Call("write", tc.args).Finish("length"), llmtest.Done("r"))
			rec := &record{}
			if out := w.run(w.input("x"), rec); out.Result != "r" || len(w.ran) > 0 {
				t.Fatalf("outcome %+v, ran %v", out, w.ran)
			}
			if got := rec.conv[1]; got.Content != tc.want || len(got.ToolCalls) > 0 {
				t.Errorf("recorded %+v", got)
			}
			if got := w.srv.Requests()[1].Last().Content; !strings.Contains(got, "Split the work") {
				t.Errorf("the model was told %q", got)
			}
		})
	}
}

func TestRepeatedIDs(t *testing.T) {
	two := llmtest.Reply{}.CallID("same", "read", `{"a":1}`).CallID("same", "read", `{"a":2}`)
	w := newWorld(t, two, two, llmtest.Reply{}.CallID("same", "write", `{"w":1}`), llmtest.Done("r"))
	rec := &record{}
	if out := w.run(w.input("x"), rec); out.Result != "r" {
		t.Fatalf("outcome %+v\n%s", out, rec)
	}
	if diff := cmp.Diff([]string{`read {"a":1}`, `read {"a":2}`, `read {"a":1}`, `read {"a":2}`, `done {"w":1}`, accepted}, rec.results()); diff != "" {
		t.Error(diff)
	}
}

// Reading calls run side by side; a changing one waits for those before it, and
// those after it for it.
func TestOrderOfCalls(t *testing.T) {
	w := newWorld(t,
		llmtest.Call("meet", `{"n":1}`).Call("meet", `{"n":2}`).Call("write", `{"n":3}`).Call("meet", `{"n":4}`).Call("meet", `{"n":5}`).Call("write", `{"n":6}`),
		llmtest.Done("r"))
	// Two calls of meet wait for one another, so that they end only if they overlap.
	meeting := make(chan struct{})
	w.tools = append(w.tools, fn("meet", func(ctx context.Context, c tool.Call) tool.Result {
		select {
		case meeting <- struct{}{}:
		case <-meeting:
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			return tool.Failure("nobody came")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran = append(w.ran, "meet")
		return tool.Result{Text: "met"}
	}))
	rec := &record{}
	w.run(w.input("x"), rec)
	if diff := cmp.Diff([]string{"meet", "meet", `write {"n":3}`, "meet", "meet", `write {"n":6}`}, w.ran); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"met", "met", `done {"n":3}`, "met", "met", `done {"n":6}`, accepted}, rec.results()); diff != "" {
		t.Errorf("results in another order than the calls: %s", diff)
	}
}

func TestParallelCallsAreBounded(t *testing.T) {
	var calls llmtest.Reply
	for i := range 20 {
		calls = calls.Call("count", fmt.Sprintf(`{"n":%d}`, i))
	}
	w := newWorld(t, calls, llmtest.Done("r"))
	w.cfg.Limits.ParallelCalls = 3
	now, peak := 0, 0
	full := make(chan struct{})
	w.tools = append(w.tools, fn("count", func(_ context.Context, c tool.Call) tool.Result {
		w.mu.Lock()
		now++
		if peak = max(peak, now); now == 3 && full != nil {
			close(full)
			full = nil
		}
		wait := full
		w.mu.Unlock()
		if wait != nil {
			<-wait
		}
		w.mu.Lock()
		now--
		w.mu.Unlock()
		return tool.Result{Text: string(c.Args)}
	}))
	rec := &record{}
	if out := w.run(w.input("x"), rec); out.Result != "r" || peak != 3 {
		t.Errorf("outcome %+v, %d at once", out, peak)
	}
}

func TestShortArgs(t *testing.T) {
	for _, tc := range [][2]string{
		{`{}`, ""},
		{`{"path":"a.go"}`, "a.go"},
		{`{"path":"a.go","line":3}`, "path=a.go, line=3"},
		{`{"z":"1","a":["x", 2]}`, `z=1, a=["x", 2]`},
		{`{"cmd":"a\nb\tc\u001b[1m"}`, "a b c [1m"},
		{`not json`, "not json"},
		{`{"text":"` + strings.Repeat("é", 200) + `"}`, strings.Repeat("é", 60) + "…"},
		{`{"a":1,`, "a=1"},
	} {
		if got := shortArgs(llm.ToolCall{Arguments: tc[0]}); got != tc[1] {
			t.Errorf("%s: %q, want %q", tc[0], got, tc[1])
		}
	}
}

func FuzzRecordable(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":`, "null", "[]", `"x"`, "\x00\xff", `{"a":"\ud800"}`, `{"invalid_arguments":1}`, `{"invalid_arguments":"x","problem":"y"}`} {
		f.Add("read", s)
	}
	f.Add("", "{}")
	f.Add("ü b", "{}")
	f.Fuzz(func(t *testing.T, name, args string) {
		c := recordable(llm.ToolCall{ID: "1", Name: name, Arguments: args})
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(c.Arguments), &object) != nil || object == nil {
			t.Fatalf("%q is recorded as %q, which is no object", args, c.Arguments)
		}
		conv := history.New([]llm.Message{userMessage("x"), tidy(llm.Message{ToolCalls: []llm.ToolCall{c}}, false)})
		conv.Settle("")
		if err := history.Validate(conv.Messages()); err != nil {
			t.Fatalf("name %q, arguments %q: %v", name, args, err)
		}
		if again := recordable(c); again.Arguments != c.Arguments || again.Name != c.Name {
			t.Fatalf("%q is not stable: %q", c.Arguments, again.Arguments)
		}
		var given map[string]json.RawMessage
		whole := strings.TrimSpace(args) == "" || json.Unmarshal([]byte(args), &given) == nil && given != nil
		if _, bad := invalidArguments(c); bad == whole && !strings.HasPrefix(args, invalidKey) {
			t.Fatalf("%q: invalid %v", args, bad)
		}
		shortArgs(llm.ToolCall{Arguments: args})
	})
}

func TestStop(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cause  error
		reason round.Reason
		silent bool
	}{
		{"stopped", round.ErrStopped, round.Stopped, false},
		{"replaced", round.ErrReplaced, round.Replaced, false},
		{"shutdown", round.ErrShutdown, round.Interrupted, true},
		{"restart", round.ErrRestart, round.Interrupted, true},
		{"unknown", nil, round.Interrupted, true},
	} {
		t.Run(tc.name+" in mid stream", func(t *testing.T) {
			w := newWorld(t, llmtest.Text(strings.Repeat("word ", 50)).StallAfter(2))
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			rec := &record{}
			var stopped time.Time
			events := 0
			rec.after = func(n int, e round.Event) error {
				if _, ok := e.(round.TextStreamed); ok && stopped.IsZero() {
					stopped = time.Now()
					cancel(tc.cause)
					events = n + 1
				}
				return nil
			}
			out := w.runCtx(ctx, w.input("x"), rec)
			promptly(t, stopped)
			if out.Reason != tc.reason {
				t.Fatalf("outcome %+v", out)
			}
			if tc.silent {
				if len(rec.events) != events {
					t.Errorf("reported after the end: %s", rec)
				}
				return
			}
			last := rec.last()
			if last.Role != llm.Assistant || !strings.HasPrefix(last.Content, "word ") || !strings.HasSuffix(last.Content, "["+tc.cause.Error()+"]") {
				t.Errorf("the partial answer was recorded as %+v", last)
			}
			// The conversation goes on from there.
			rec.nextRound()
			w.srv.Close()
			w2 := newWorld(t, llmtest.Done("no"), llmtest.Done("went on"))
			if out := w2.run(w2.input("go on"), rec); out.Result != "went on" {
				t.Errorf("outcome %+v", out)
			}
		})
		t.Run(tc.name+" in mid tool", func(t *testing.T) {
			w := newWorld(t, llmtest.Call("read", `{"n":1}`).Call("slow", `{}`).Call("write", `{"n":2}`).Call("attempt_completion", `{"result":"r"}`), llmtest.Done("went on"))
			inSlow := make(chan struct{})
			w.tools = append(w.tools, fn("slow", func(ctx context.Context, _ tool.Call) tool.Result {
				close(inSlow)
				<-ctx.Done()
				return tool.Failure("killed, output so far: half")
			}))
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			rec := &record{}
			ended := make(chan struct{})
			rec.after = func(_ int, e round.Event) error {
				if e, ok := e.(round.ToolEnded); ok && e.Name == "read" {
					close(ended)
				}
				return nil
			}
			var stopped time.Time
			go func() {
				<-inSlow
				<-ended
				stopped = time.Now()
				cancel(tc.cause)
			}()
			in := w.input("x")
			out := w.runCtx(ctx, in, rec)
			promptly(t, stopped)
			if out.Reason != tc.reason || len(w.ran) > 0 {
				t.Fatalf("outcome %+v, ran %v", out, w.ran)
			}
			results := rec.results()
			if tc.silent {
				if len(results) > 0 {
					t.Errorf("recorded: %q", results)
				}
				return
			}
			if len(results) != 4 {
				t.Fatalf("results: %q", results)
			}
			for i, want := range []string{"read {", "half", "Not run: " + tc.cause.Error(), "Not run: "} {
				if !strings.Contains(results[i], want) {
					t.Errorf("result %d: %q lacks %q", i, results[i], want)
				}
			}
			rec.nextRound()
			rec.after = nil
			if out := w.run(w.input("go on"), rec); out.Result != "went on" {
				t.Errorf("outcome %+v\n%s", out, rec)
			}
		})
	}
}

// promptly allows for a loaded machine: what is told apart is a stop that waits for
// something and one that does not.
func promptly(t *testing.T, stopped time.Time) {
	t.Helper()
	if d := time.Since(stopped); stopped.IsZero() || d > 2*time.Second {
		t.Errorf("the round ended %v after the stop", d)
	}
}

// A tool that ignores its context is left behind, and the tools are given back
// only when it is done with them.
func TestStubbornTool(t *testing.T) {
	w := newWorld(t, llmtest.Call("stubborn", `{}`))
	let := make(chan struct{})
	in := make(chan struct{})
	w.tools = append(w.tools, fn("stubborn", func(context.Context, tool.Call) tool.Result {
		close(in)
		<-let
		return tool.Result{Text: "late"}
	}))
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		<-in
		cancel(round.ErrStopped)
	}()
	rec := &record{}
	out := w.runCtx(ctx, w.input("x"), rec)
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if out.Reason != round.Stopped || closed != 0 {
		t.Fatalf("outcome %+v, closed %d", out, closed)
	}
	if r := rec.results(); len(r) != 1 || !strings.Contains(r[0], "outcome is unknown") {
		t.Errorf("results %q", r)
	}
	close(let)
	waittest.Until(t, "the tools are given back", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.closed == 1 })
}

func TestTimeout(t *testing.T) {
	w := newWorld(t)
	w.client = clientFunc(func(ctx context.Context, _ llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
		onDelta(llm.Delta{Text: "so far"})
		<-ctx.Done()
		return llm.Response{Spent: llm.Usage{Requests: 1}}, ctx.Err()
	})
	synctest.Test(t, func(t *testing.T) {
		in := w.input("x")
		in.Settings.Timeout = time.Hour
		// The time before a restart counts.
		in.StartedAt = time.Now().Add(-40 * time.Minute)
		start := time.Now()
		rec := &record{}
		out := w.run(in, rec)
		if out.Reason != round.Failed || out.Error == nil || out.Error.Kind != "timeout" || !strings.Contains(out.Error.Message, "1h0m0s") {
			t.Fatalf("outcome %+v", out)
		}
		if took := time.Since(start); took != 20*time.Minute {
			t.Errorf("ended after %v", took)
		}
		if last := rec.last(); !strings.HasPrefix(last.Content, "so far\n\n[cut off: the time limit") {
			t.Errorf("last message %+v", last)
		}
		if rec.spent.Requests != 1 {
			t.Errorf("spent %+v", rec.spent)
		}
	})
}

func TestFailures(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reply llmtest.Reply
		kind  string
		want  []string
	}{
		{"key", llmtest.Status(401, "bad key"), "auth", []string{"bad key", "api_key_env", `"default"`}},
		{"model", llmtest.Status(404, "no such model"), "bad_request", []string{"no such model", "base_url", `"test"`}},
		{"server", llmtest.Status(500, "oops"), "server", []string{"oops", "fallback"}},
		{"silent end", llmtest.Text("half").Cut(), "broken_stream", []string{"reply to go on"}},
		{"no choices", llmtest.NoChoices(), "no_choices", []string{"reply to go on"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newScripted(t, llmtest.Always(tc.reply))
			rec := &record{}
			out := w.run(w.input("x"), rec)
			if out.Reason != round.Failed || out.Error == nil || out.Error.Kind != tc.kind {
				t.Fatalf("outcome %+v, error %+v", out, out.Error)
			}
			for _, text := range tc.want {
				if !strings.Contains(out.Error.Message, text) {
					t.Errorf("the message lacks %q: %s", text, out.Error.Message)
				}
			}
			if len(of[round.Answered](rec)) > 0 || len(of[round.SpentBeside](rec)) != 1 {
				t.Errorf("events: %s", rec)
			}
		})
	}
}

func TestContextLength(t *testing.T) {
	big := strings.Repeat("line of text\n", 250)
	script := func(r *llmtest.Request) llmtest.Reply {
		if r.Turn() > 24 {
			return llmtest.Done("r")
		}
		return llmtest.Text(fmt.Sprintf("turn %d", r.Turn())).Call("big", fmt.Sprintf(`{"n":%d}`, r.Turn()))
	}
	w := newScripted(t, script, llmtest.Window(10_000))
	n := 0
	w.tools = []tool.Tool{fn("big", func(context.Context, tool.Call) tool.Result { n++; return tool.Result{Text: fmt.Sprint(n) + big} })}
	in := w.input("the task itself")
	rec := &record{}
	out := w.run(in, rec)
	if out.Reason != round.MaxTurns && out.Reason != round.Completed {
		t.Fatalf("outcome %+v %+v", out, out.Error)
	}
	rewritten := of[round.Rewritten](rec)
	if len(rewritten) == 0 || rewritten[0].Cause == "" || rewritten[0].Dropped == "" {
		t.Fatalf("rewritten: %+v", rewritten)
	}
	if !rec.has(llm.User, "[supervisor]\nthe task itself") {
		t.Error("the task was dropped")
	}

	// A window that nothing fits into ends readably, after a few attempts.
	w = newScripted(t, script, llmtest.Window(10))
	out = w.run(in, &record{})
	if out.Reason != round.Failed || out.Error.Kind != "context_length" || w.srv.Count() > 1+maxShrinks {
		t.Errorf("outcome %+v after %d requests", out, w.srv.Count())
	}
}

func TestFallbackIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.client = clientFunc(func(context.Context, llm.Request, func(llm.Delta)) (llm.Response, error) {
		return llm.Response{LLM: "spare", FinishReason: llm.FinishToolCalls, Message: llm.Message{
			Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "1", Name: completionTool, Arguments: `{"result":"r"}`}}}}, nil
	})
	inner := w.cfg.Models
	w.cfg.Models = func(ctx context.Context, name, model string) (llm.Model, error) {
		if name == "spare" {
			return llm.Model{Name: "spare", ID: "spare-1", ContextWindow: 7}, nil
		}
		return inner(ctx, name, model)
	}
	rec := &record{}
	w.run(w.input("x"), rec)
	if a := of[round.Answered](rec)[0]; a.LLM != "spare" || a.Model != "spare-1" || a.Window != 7 {
		t.Errorf("answered %+v", a)
	}
}

func TestClientPanic(t *testing.T) {
	w := newWorld(t)
	w.client = clientFunc(func(context.Context, llm.Request, func(llm.Delta)) (llm.Response, error) { panic("broken client") })
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "broken client") {
			t.Errorf("the round's goroutine saw %v", p)
		}
		if w.closed != 1 {
			t.Error("the tools were not given back")
		}
	}()
	w.run(w.input("x"), &record{})
}

func TestEmptyPromptSendsNoSystemMessage(t *testing.T) {
	w := newWorld(t, llmtest.Done("r"))
	w.def.Prompt = ""
	w.run(w.input("x"), &record{})
	if i := slices.IndexFunc(w.srv.Requests()[0].Messages, func(m llm.Message) bool { return m.Role == llm.System }); i >= 0 {
		t.Error("an empty system message was sent")
	}
}
