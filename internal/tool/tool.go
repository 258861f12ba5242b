// Package tool is what an agent can call: the Tool interface, and the Set that
// an agent was granted, which enforces the whitelist and checks arguments at
// dispatch, and bounds what a result may weigh. The tools themselves are in
// tool/builtin.
package tool

import (
	"context"
	"encoding/json"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Tool is one thing that an agent can do.
//
// Run blocks until the call is over or ctx ends, and leaves nothing running. It
// never asks a person. What goes wrong is a Result for the model, not an error:
// the model can read it and try something else. Run may be called by several
// goroutines at once.
type Tool interface {
	Spec() llm.ToolSpec
	Run(ctx context.Context, call Call) Result
}

// Changer is implemented by tools that change something outside the
// conversation. A tool without it is read-only, and its calls are simply run
// again after a crash.
type Changer interface{ Changes() bool }

// Call is one call with checked arguments.
type Call struct {
	ID string
	// Args is a JSON object.
	Args json.RawMessage
}

// Result is what the model is told.
type Result struct {
	// Text is the answer for the model: valid UTF-8, capped by the Set.
	Text string
	// Summary is the outcome on one line for the output file; the Set makes one
	// from Text where it is empty.
	Summary string
	// Failed marks an error that the model should see as one.
	Failed bool
}
