package pool

import (
	"context"
	"errors"
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// WithFallback returns a client that asks first, and the others in their order
// where one has failed for good: its attempts are used up, its key does not work
// or its quota is spent. What is wrong with the request itself is not asked
// elsewhere. An LLM that failed is passed over for a while.
//
// The LLMs may be shared with other clients; each has one gate for all.
func WithFallback(first *LLM, others ...*LLM) llm.Client {
	if len(others) == 0 {
		return first
	}
	return &chain{append([]*LLM{first}, others...)}
}

type chain struct{ llms []*LLM }

// Complete implements llm.Client. Response.LLM names who answered.
func (c *chain) Complete(ctx context.Context, req llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
	order := c.order()
	var spent llm.Usage
	for i, l := range order {
		foreign := l != c.llms[0]
		r := req
		if foreign {
			r.Messages = portable(req.Messages)
		}
		resp, shown, err := l.run(ctx, r, onDelta)
		spent = spent.Add(resp.Spent)
		resp.Spent = spent
		if err == nil {
			if foreign {
				// Only the LLM that the session is on gets its own fields back.
				resp.Message = portable([]llm.Message{resp.Message})[0]
			}
			return resp, nil
		}
		var e *llm.Error
		if ctx.Err() != nil || !errors.As(err, &e) || !movesOn(e.Kind) || i == len(order)-1 {
			if e != nil && foreign {
				// The window of another LLM says nothing about the session's own.
				e.Window = 0
			}
			return resp, err
		}
		l.cfg.Log.Warn("LLM given up, another one is asked", "error", e, "fallback", order[i+1].Name())
		if shown && onDelta != nil {
			onDelta(llm.Delta{Restarted: e})
		}
	}
	panic("unreachable: the last LLM returns")
}

// order returns the LLMs to ask: those that are not down, or all where each is.
func (c *chain) order() []*LLM {
	var up []*LLM
	for _, l := range c.llms {
		if !l.isDown() {
			up = append(up, l)
		}
	}
	if len(up) == 0 {
		return c.llms
	}
	return up
}

func movesOn(k llm.ErrorKind) bool {
	return !k.Final() && k != llm.KindTooLong || k == llm.KindAuth || k == llm.KindQuota
}

// portable returns the messages without the fields that only the provider
// understands which sent them. Reasoning as text stays: whether it is sent is
// the client's to know.
func portable(msgs []llm.Message) []llm.Message {
	out := make([]llm.Message, len(msgs))
	for i, m := range msgs {
		if len(m.Extra) > 0 {
			kept := map[string]llm.RawJSON{}
			for _, name := range []string{"name", "reasoning_content", "reasoning", "reasoning_text"} {
				if v, ok := m.Extra[name]; ok {
					kept[name] = v
				}
			}
			m.Extra = kept
			if len(kept) == 0 {
				m.Extra = nil
			}
		}
		if slices.ContainsFunc(m.ToolCalls, func(c llm.ToolCall) bool { return c.Extra != nil }) {
			m.ToolCalls = slices.Clone(m.ToolCalls)
			for k := range m.ToolCalls {
				m.ToolCalls[k].Extra = nil
			}
		}
		out[i] = m
	}
	return out
}
