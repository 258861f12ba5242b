package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// A key stands nowhere, whoever brings it up.
func TestNoKeysAnywhere(t *testing.T) {
	const key = "0123456789-abcdef-the-key"
	args := `{"text":"` + key + `"}`
	w := newWorld(t,
		llmtest.Text("The key is "+key+", I think: "+key[:10]).Pieces(3).Reasoning("so it is "+key).Call("env", args).CallField("signature", `"`+key+`"`),
		llmtest.Text("cut "+key).Pieces(1).Call("broken", args),
		llmtest.Done("the key is "+key))
	w.cfg.Redact = redact.New(key)
	w.tools = append(w.tools, fn("env", func(_ context.Context, c tool.Call) tool.Result {
		return tool.Result{Text: "OPENAI_API_KEY=" + key + "\n" + string(c.Args), Summary: "KEY=" + key}
	}))
	in := w.input("use " + key)
	in.KeyInfo = "[supervisor] " + key
	in.Inbox = notes(map[int][]round.Note{0: {{Seq: 1, Kind: round.NoteIntervene, Text: "really " + key}, {Seq: 2, Kind: round.NoteKeyInfo, Text: "and " + key}}})
	rec := &record{}
	out := w.run(in, rec)
	if out.Result != "the key is "+redact.Mark {
		t.Errorf("result %q", out.Result)
	}
	for i, e := range rec.events {
		if b, _ := json.Marshal(e); strings.Contains(string(b), key) {
			t.Errorf("event %d %T holds the key: %s", i, e, b)
		}
	}
	for _, r := range w.srv.Requests() {
		if strings.Contains(string(r.Body), key) {
			t.Errorf("request %d holds the key", r.Ordinal)
		}
	}
	var shown strings.Builder
	for _, e := range of[round.TextStreamed](rec) {
		shown.WriteString(e.Text)
	}
	if want := "The key is " + redact.Mark + ", I think: " + key[:10] + "cut " + redact.Mark; shown.String() != want {
		t.Errorf("shown %q, want %q", shown.String(), want)
	}
	if err := llmtest.CheckPrefixes(w.srv.Requests()); err != nil {
		t.Error(err)
	}
	// Nor after a restart, nor in what went wrong.
	rec.nextRound()
	w.client = clientFunc(func(context.Context, llm.Request, func(llm.Delta)) (llm.Response, error) {
		return llm.Response{}, &llm.Error{Kind: llm.KindBadRequest, Message: "your key " + key + " and sk-1234567890abcdefghij are bad"}
	})
	if out = w.run(in, rec); out.Error == nil || strings.Contains(fmt.Sprint(*out.Error), key) || strings.Contains(out.Error.Message, "sk-1234567890") {
		t.Errorf("outcome %+v", out.Error)
	}
}

// What a stop leaves of an answer has no half of a key held back for ever.
func TestHeldBackTextIsShown(t *testing.T) {
	w := newWorld(t)
	w.cfg.Redact = redact.New("abcdefghijklmnopqrstuvwxyz")
	ctx, cancel := context.WithCancelCause(t.Context())
	w.client = clientFunc(func(ctx context.Context, _ llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
		onDelta(llm.Delta{Text: "it begins abcdefgh"})
		cancel(round.ErrStopped)
		return llm.Response{}, ctx.Err()
	})
	rec := &record{}
	if out := w.runCtx(ctx, w.input("x"), rec); out.Reason != round.Stopped {
		t.Fatalf("outcome %+v", out)
	}
	if !rec.has(llm.Assistant, "it begins abcdefgh") {
		t.Errorf("%s", rec)
	}
}
