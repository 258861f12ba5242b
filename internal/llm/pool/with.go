package pool

import "github.com/gasupervisor/gasupervisor/internal/llm"

// With returns l with another client, behind the same gate: another model at the
// same provider.
func (l *LLM) With(c llm.Client) *LLM {
	cfg := l.cfg
	cfg.Client = c
	return &LLM{cfg: cfg, gate: l.gate}
}
