package llmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// object is a JSON object whose fields keep their order.
type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range o {
		b.WriteByte("{,"[min(i, 1)])
		name, _ := json.Marshal(m.name)
		b.Write(name)
		b.WriteByte(':')
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1)
	}
	if len(o) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func encode(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Only a script's own invalid JSON field gets here.
		return fmt.Sprintf(`{"error":{"message":%q}}`, "llmtest: "+err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// write sends the reply. It returns when it is sent, ctx ends or the client is gone.
func (r Reply) write(ctx context.Context, w http.ResponseWriter, req *Request) {
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-ctx.Done():
			return
		}
	}
	if !sleep(ctx, r.after) {
		return
	}
	for k, v := range r.header {
		w.Header()[k] = v
	}
	stream := req.Stream && !r.asJSON
	switch {
	case r.isRaw:
		if r.rawType != "" {
			w.Header().Set("Content-Type", r.rawType)
		}
		w.WriteHeader(r.status)
		_, _ = io.WriteString(w, r.raw)
	case r.status >= 400:
		writeError(w, r.status, r.apiErr)
	case stream:
		r.stream(ctx, w, req)
		if ctx.Err() != nil {
			// Not a clean end: what the server's Close cut short stays broken.
			panic(http.ErrAbortHandler)
		}
	default:
		writeJSON(w, http.StatusOK, r.completion(req))
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stream sends the reply as an event stream, with all that goes wrong on the way.
func (r Reply) stream(ctx context.Context, w http.ResponseWriter, req *Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flusher, _ := w.(http.Flusher)
	// send reports whether the stream may go on.
	send := func(s string) bool {
		_, err := io.WriteString(w, s)
		if flusher != nil {
			flusher.Flush()
		}
		return err == nil && ctx.Err() == nil
	}
	var deltas []object
	if !r.noChoices {
		deltas = r.deltas(req)
	}
	if !r.keepAlive(ctx, send) || !r.content(ctx, send, req, deltas) {
		return
	}
	switch r.end {
	case endsWell:
		r.finishStream(send, req)
	case endsReset:
		if len(deltas) == 0 || r.endAfter == 0 {
			send("")
		}
		panic(http.ErrAbortHandler)
	case endsStalled:
		send("")
		<-ctx.Done()
	}
}

// keepAlive sends the comments that come before the first chunk.
func (r Reply) keepAlive(ctx context.Context, send func(string) bool) bool {
	const comment = ": PROCESSING\n\n"
	if r.alive > 0 && r.aliveD == 0 {
		return send(strings.Repeat(comment, r.alive))
	}
	for range r.alive {
		if !send(comment) || !sleep(ctx, r.aliveD) {
			return false
		}
	}
	return true
}

// content sends the chunks of the message, and what is inserted among them.
func (r Reply) content(ctx context.Context, send func(string) bool, req *Request, deltas []object) bool {
	insert := func(due func(at int) bool) bool {
		for _, ins := range r.inserts {
			if due(ins.at) && !send(ins.text) {
				return false
			}
		}
		return true
	}
	for i, d := range deltas {
		if r.end != endsWell && i >= r.endAfter {
			break
		}
		if !insert(func(at int) bool { return at == i }) || i > 0 && !sleep(ctx, r.every) {
			return false
		}
		if !send(r.chunk(req, choices(d, nil), nil)) {
			return false
		}
	}
	return insert(func(at int) bool { return at >= len(deltas) })
}

// finishStream sends what follows the content of a stream that ends well.
func (r Reply) finishStream(send func(string) bool, req *Request) {
	switch {
	case r.noChoices:
		if !send(r.chunk(req, []any{}, nil)) {
			return
		}
	case !r.noFinish:
		if !send(r.chunk(req, choices(object{}, r.finishReason()), nil)) {
			return
		}
	}
	if req.IncludeUsage && !r.noUsage && !send(r.chunk(req, []any{}, r.usageObject(req))) {
		return
	}
	if !r.noDone {
		send("data: [DONE]\n\n")
	}
}

// chunk is one event; usage may be nil.
func (r Reply) chunk(req *Request, choices, usage any) string {
	o := append(r.head(req, "chat.completion.chunk"), member{"choices", choices})
	if usage != nil {
		o = append(o, member{"usage", usage})
	}
	return "data: " + encode(o) + "\n\n"
}

func choices(delta object, finish any) []any {
	return []any{object{{"index", 0}, {"delta", delta}, {"finish_reason", finish}}}
}

func (r Reply) head(req *Request, kind string) object {
	return object{
		{"id", fmt.Sprintf("chatcmpl-%d", req.Ordinal)}, {"object", kind},
		{"created", 1700000000}, {"model", req.Model},
	}
}

func (r Reply) finishReason() string {
	switch {
	case r.finish != "":
		return r.finish
	case len(r.calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (r Reply) usageObject(req *Request) object {
	u := r.usage
	if u == nil {
		n := len(r.text) + len(r.reasoning)
		for _, c := range r.calls {
			n += len(c.name) + len(c.args)
		}
		u = &usage{in: int64(req.Size()/4 + 1), out: int64(n/4 + 1)}
	}
	return object{
		{"prompt_tokens", u.in}, {"completion_tokens", u.out}, {"total_tokens", u.in + u.out},
		{"prompt_tokens_details", object{{"cached_tokens", u.cached}}},
	}
}

func (r Reply) callID(req *Request, i int) string {
	if r.calls[i].id != "" {
		return r.calls[i].id
	}
	return fmt.Sprintf("call_%d_%d", req.Ordinal, i)
}

// deltas are the content chunks of a stream, in order.
func (r Reply) deltas(req *Request) []object {
	piece := r.piece
	if piece <= 0 {
		piece = 24
	}
	var out []object
	if !r.noRole {
		out = append(out, object{{"role", "assistant"}, {"content", ""}})
	}
	for _, s := range pieces(r.reasoning, piece) {
		out = append(out, object{{r.reasoningField, s}})
	}
	for _, s := range pieces(r.text, piece) {
		out = append(out, object{{"content", s}})
	}
	for _, f := range r.fields {
		var text string
		if json.Unmarshal(f.json, &text) != nil {
			out = append(out, object{{f.name, f.json}})
			continue
		}
		for _, s := range pieces(text, piece) {
			out = append(out, object{{f.name, s}})
		}
	}
	for i, c := range r.calls {
		tool := func(first bool, fn object) object {
			var o object
			if !r.noIndex {
				o = append(o, member{"index", i})
			}
			if (first || r.noIndex) && !r.noIDs {
				o = append(o, member{"id", r.callID(req, i)})
			}
			if first {
				o = append(o, member{"type", "function"})
				for _, f := range c.fields {
					o = append(o, member{f.name, f.json})
				}
			}
			return object{{"tool_calls", []any{append(o, member{"function", fn})}}}
		}
		out = append(out, tool(true, object{{"name", c.name}, {"arguments", ""}}))
		for _, s := range pieces(c.args, piece) {
			out = append(out, tool(false, object{{"arguments", s}}))
		}
	}
	return out
}

// completion is the whole answer as one object.
func (r Reply) completion(req *Request) object {
	o := r.head(req, "chat.completion")
	if r.noChoices {
		return append(o, member{"choices", []any{}})
	}
	msg := object{{"role", "assistant"}, {"content", r.text}}
	if r.text == "" && len(r.calls) > 0 {
		msg[1].value = nil
	}
	if r.reasoning != "" {
		msg = append(msg, member{r.reasoningField, r.reasoning})
	}
	for _, f := range r.fields {
		msg = append(msg, member{f.name, f.json})
	}
	var calls []any
	for i, c := range r.calls {
		var tc object
		if !r.noIDs {
			tc = append(tc, member{"id", r.callID(req, i)})
		}
		tc = append(tc, member{"type", "function"},
			member{"function", object{{"name", c.name}, {"arguments", c.args}}})
		for _, f := range c.fields {
			tc = append(tc, member{f.name, f.json})
		}
		calls = append(calls, tc)
	}
	if calls != nil {
		msg = append(msg, member{"tool_calls", calls})
	}
	c := object{{"index", 0}, {"message", msg}}
	if !r.noFinish {
		c = append(c, member{"finish_reason", r.finishReason()})
	}
	o = append(o, member{"choices", []any{c}})
	if !r.noUsage {
		o = append(o, member{"usage", r.usageObject(req)})
	}
	return o
}

// pieces cuts s into runs of n characters.
func pieces(s string, n int) []string {
	var out []string
	start, count := 0, 0
	for i := range s {
		if count == n {
			out = append(out, s[start:i])
			start, count = i, 0
		}
		count++
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}
