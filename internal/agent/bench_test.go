package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// BenchmarkRound is what the loop itself costs: 20 turns with one call each, with a
// model and a journal that take no time.
func BenchmarkRound(b *testing.B) {
	b.ReportAllocs()
	w := newWorld(b)
	w.client = clientFunc(func(_ context.Context, req llm.Request, onDelta func(llm.Delta)) (llm.Response, error) {
		n := len(req.Messages)
		onDelta(llm.Delta{Text: "working"})
		c := llm.ToolCall{ID: fmt.Sprintf("c%d", n), Name: "read", Arguments: fmt.Sprintf(`{"n":%d}`, n)}
		if n > 39 {
			c.Name, c.Arguments = completionTool, `{"result":"r"}`
		}
		return llm.Response{Message: llm.Message{Role: llm.Assistant, Content: "working", ToolCalls: []llm.ToolCall{c}}}, nil
	})
	r := New(w.cfg)
	turns := 0
	for b.Loop() {
		in := w.input("go")
		in.StartedAt = time.Now()
		out := r.Run(context.Background(), in, func(e round.Event) error {
			if _, ok := e.(round.TurnStarted); ok {
				turns++
			}
			return nil
		})
		if out.Result != "r" {
			b.Fatalf("outcome %+v", out)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(turns), "µs/turn")
}
