package session

import (
	"fmt"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/plan"
)

// What readers see of a session: the output file, status.json, events.jsonl and
// history.json. All of it is made from the journal's state and decides nothing.

func (s *Session) beginTurn(turn int) {
	s.finishCallLine()
	lead := "\n\n"
	if !s.run.heading {
		lead = ""
		s.run.heading = true
	}
	s.run.output.Line(fmt.Sprintf("%sTurn %d ...\n\n", lead, turn))
	s.event("turn", map[string]any{"turn": turn})
	s.flush()
	s.statusSoon()
}

// showCallBegun writes the first half of a call's line, so that a reader sees
// what a long call is doing; showCallEnded completes it with the outcome.
func (s *Session) showCallBegun(e round.ToolBegun) {
	s.finishCallLine()
	if s.st.Settings.Verbose {
		s.run.output.Line(fmt.Sprintf("\n🛠️ %s", e.Name))
	} else {
		s.run.output.Line(fmt.Sprintf("\n🛠️ %s(%s)", e.Name, e.Args))
	}
	s.run.openCall = e.ID
	s.run.latestTool = e.Name
	s.event("tool_begun", map[string]any{"turn": e.Turn, "id": e.ID, "tool": e.Name, "args": e.Args})
	s.flush()
	s.statusSoon()
}

func (s *Session) showCallEnded(e round.ToolEnded) {
	out := s.run.output
	if s.run.openCall != e.ID {
		s.finishCallLine()
		out.Line(fmt.Sprintf("\n🛠️ %s(%s)", e.Name, e.Args))
	}
	s.run.openCall = ""
	if s.st.Settings.Verbose {
		out.Line(fmt.Sprintf("\nargs:\n%s\nresult:\n%s\n", e.FullArgs, e.Result))
	} else {
		out.Line(" → " + e.Summary)
	}
	s.event("tool_ended", map[string]any{"turn": e.Turn, "id": e.ID, "tool": e.Name, "failed": e.Failed, "summary": e.Summary, "took_ms": e.Took.Milliseconds()})
	s.statusSoon()
}

func (s *Session) finishCallLine() {
	if s.run.openCall != "" {
		s.run.openCall = ""
		s.run.output.Line("\n")
	}
}

// showOutcome ends the output with the result, or with what went wrong in words.
func (s *Session) showOutcome(o round.Outcome) {
	out := s.run.output
	if out == nil {
		return
	}
	s.run.openCall = ""
	if o.Result != "" && o.CompletedBy != "text" {
		out.Line("\n\n")
		out.Text(o.Result)
	}
	switch o.Reason {
	case round.Completed:
	case round.Stopped:
		out.Line("\n\n[stopped by the supervisor]")
	case round.Replaced:
		out.Line("\n\n[replaced by a new input.txt]")
	default:
		text := string(o.Reason)
		if o.Error != nil {
			text += ": " + o.Error.Message
		}
		out.Line(fmt.Sprintf("\n\n[%s]", text))
	}
	for _, p := range o.OpenPoints {
		out.Line("\n[left open: " + p + "]")
	}
}

// statusSoon has status.json written soon, so that it is live while a round runs.
func (s *Session) statusSoon() {
	if s.statusDue.IsZero() {
		s.statusDue = time.Now().Add(statusEvery)
	}
}

// writeStatus replaces status.json. It never fails the session: the file is made
// from the journal, and made again at the next change.
func (s *Session) writeStatus(sync bool) {
	s.statusDue = time.Time{}
	if s.st == nil {
		return
	}
	dir := s.dir
	if dir == nil {
		var err error
		if dir, err = s.holdDir(); err != nil {
			return
		}
	}
	if err := dir.WriteStatus(s.status(dir), sync); err != nil {
		s.log.Error("status.json cannot be written", "err", err)
	}
}

// writeStatusAside leaves the last word on a replaced session beside its files.
func (s *Session) writeStatusAside() {
	s.statusDue = time.Time{}
	old, err := s.dir.Old(s.st.Aside)
	if err != nil {
		s.log.Warn("status of the replaced session cannot be written", "err", err)
		return
	}
	defer old.Close()
	st := s.status(s.dir)
	st.State = "ended"
	if err := old.WriteStatus(st, false); err != nil {
		s.log.Warn("status of the replaced session cannot be written", "err", err)
	}
}

// status is the session as status.json shows it.
func (s *Session) status(dir *taskdir.Dir) *taskdir.Status {
	st := s.st
	v := taskdir.NewStatus(s.task)
	v.Session, v.State, v.Round, v.Turn = st.Session, s.phase.Public(), st.Round, st.Turn
	v.UpdatedAt = time.Now()
	v.StartedAt = &st.StartedAt
	v.Reason = optional(string(st.Reason))
	v.Agent, v.LLM, v.Model = optional(st.Agent), optional(st.LLM), optional(st.Model)
	if s.phase == Awaiting && !st.Deadline.IsZero() {
		v.ReplyDeadline = &st.Deadline
	}
	if st.Began || st.Outcome != nil {
		v.Output = optional(taskdir.OutputName(st.Round))
	}
	if o := st.Outcome; o != nil {
		v.CompletedBy = optional(o.CompletedBy)
		if o.Reason == round.Completed || o.Result != "" {
			v.Result = &o.Result
		}
		if o.Error != nil {
			v.Error = &taskdir.StatusError{Kind: o.Error.Kind, Message: o.Error.Message}
		}
		v.OpenPoints = append(v.OpenPoints, o.OpenPoints...)
		v.MissingOutputs = append(v.MissingOutputs, o.MissingOutputs...)
	}
	v.Warnings = append(v.Warnings, st.Warnings...)
	for _, r := range st.Receipts {
		v.Messages = append(v.Messages, taskdir.StatusMessage{
			File: r.File, TakenAt: r.TakenAt, Bytes: r.Bytes, SHA256: r.SHA256, Encoding: r.Encoding, Round: r.Round, Turn: r.Turn, Outcome: r.Outcome,
		})
	}
	if s.run != nil {
		v.LatestTool = optional(s.run.latestTool)
	}
	u := &v.Usage
	u.Requests, u.ToolCalls = st.Spent.Requests, st.ToolCalls
	u.InputTokens, u.OutputTokens, u.CachedTokens = st.Spent.InputTokens, st.Spent.OutputTokens, st.Spent.CachedTokens
	u.UnreportedRequests = st.Spent.Unreported
	if st.Spent.Unpriced == 0 && st.Spent.Requests > 0 {
		u.CostUSD = &st.Spent.CostUSD
	}
	u.ContextTokens, u.ContextWindow = optional(st.Context), optional(st.Window)
	if st.Context > 0 && st.Window > 0 {
		percent := float64(st.Context*1000/st.Window) / 10
		u.ContextPercent = &percent
	}
	if text, err := dir.ReadPlan(); err == nil && text != "" {
		p := plan.Parse(text)
		done, total := p.Progress()
		v.Plan = &taskdir.StatusPlan{Done: done, Total: total}
		if step, open := p.Current(); open {
			v.Plan.Current = &step.Text
		}
	}
	return v
}

func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// writeHistory writes the conversation after the round, in the form that
// GenericAgent reads too.
func (s *Session) writeHistory() {
	b, err := history.Export(s.st.Conversation)
	if err == nil {
		err = s.dir.WriteHistory(b)
	}
	if err != nil {
		s.log.Error("history.json cannot be written", "err", err)
	}
}

// event appends to events.jsonl while a round runs.
func (s *Session) event(name string, fields map[string]any) {
	if s.run == nil || s.run.events == nil {
		return
	}
	if err := s.run.events.Append(name, fields); err != nil {
		s.log.Debug("events.jsonl cannot be written", "err", err)
	}
}

// appendEvent appends one event of a session at rest.
func (s *Session) appendEvent(name string, fields map[string]any) {
	if s.dir == nil {
		return
	}
	events, err := s.dir.Events()
	if err != nil {
		return
	}
	defer events.Close()
	if err := events.Append(name, fields); err != nil {
		s.log.Debug("events.jsonl cannot be written", "err", err)
	}
}
