package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/plan"
)

// What readers see of a session: the output file, status.json, events.jsonl and
// history.json. All of it is made from the journal's state and decides nothing.

func (s *Session) beginTurn(turn int) {
	s.finishCallLine()
	lead := "\n"
	if !s.run.heading {
		lead = ""
		s.run.heading = true
	}
	s.run.turn = turn
	s.run.output.Line(fmt.Sprintf("%sTurn %d ...\n", lead, turn))
	s.event("turn", map[string]any{"turn": turn})
	s.flush()
	s.statusSoon()
}

// showCallBegun notes that a call has begun. The first half of its line is written
// with the next flush, so that a reader sees what a long call is doing; one that is
// over by then has its line in one piece, whatever works beside it.
func (s *Session) showCallBegun(e round.ToolBegun) {
	r := s.run
	r.begun = append(r.begun, e)
	r.latestTool = e.Name
	s.event("tool_begun", map[string]any{"turn": e.Turn, "id": e.ID, "tool": e.Name, "args": e.Args})
	s.flushSoon()
	s.statusSoon()
}

// showBegun writes the first halves of the lines of calls that have begun.
func (s *Session) showBegun() {
	r := s.run
	for _, e := range r.begun {
		s.endCallLine()
		r.output.Part(s.callText(e.Name, e.Args))
		r.openCall = e.ID
	}
	r.begun = nil
}

func (s *Session) callText(name, args string) string {
	if s.st.Settings.Verbose || args == "" {
		return "🛠️ " + name
	}
	return fmt.Sprintf("🛠️ %s(%s)", name, args)
}

func (s *Session) showCallEnded(e round.ToolEnded) {
	out := s.run.output
	s.run.begun = slices.DeleteFunc(s.run.begun, func(b round.ToolBegun) bool { return b.ID == e.ID })
	if s.run.openCall != e.ID {
		s.endCallLine()
		out.Part(s.callText(e.Name, e.Args))
	}
	s.run.openCall = ""
	if s.st.Settings.Verbose {
		out.Text(fmt.Sprintf("\nargs:\n%s\nresult:\n%s\n", e.FullArgs, e.Result))
	} else {
		out.Text(" → " + e.Summary + "\n")
	}
	s.event("tool_ended", map[string]any{"turn": e.Turn, "id": e.ID, "tool": e.Name, "failed": e.Failed, "summary": e.Summary, "took_ms": e.Took.Milliseconds()})
	s.statusSoon()
}

// longEnough is from which wait on the output speaks of it.
const longEnough = 5 * time.Second

// showWait shows that the model's answer is late, and why: in status.json, and where
// it takes long for those who read along.
func (s *Session) showWait(e round.Waits) {
	r := s.run
	known := !e.Until.IsZero() && e.Until.Sub(r.waits.Until).Abs() < time.Second
	r.waits = e
	s.statusSoon()
	if e.Why == "" || known {
		return
	}
	fields := map[string]any{"turn": r.turn, "why": e.Why, "until": taskdir.Time{Time: e.Until}}
	s.event("waits", fields)
	if left := time.Until(e.Until); left >= longEnough {
		r.output.Line(fmt.Sprintf("[waits %s, until %s: %s]", left.Round(time.Second), e.Until.UTC().Format(time.RFC3339), e.Why))
	}
}

// finishCallLine ends what stands of calls, for what comes next.
func (s *Session) finishCallLine() {
	s.showBegun()
	s.endCallLine()
}

func (s *Session) endCallLine() {
	if s.run.openCall != "" {
		s.run.openCall = ""
		s.run.output.Text("\n")
	}
}

// showOutcome ends the output with the result, or with what went wrong in words.
// streamed says that the text of the last answer stands there already.
func showOutcome(out *taskdir.Output, o round.Outcome, streamed bool) {
	if o.Result != "" && (o.CompletedBy != "text" || !streamed) {
		out.Line("")
		out.Text(o.Result)
	}
	switch o.Reason {
	case round.Completed:
	case round.Stopped:
		out.Line("\n[stopped by the supervisor]")
	case round.Replaced:
		out.Line("\n[replaced by a new input.txt]")
	default:
		text := string(o.Reason)
		if o.Error != nil {
			text += ": " + o.Error.Message
		}
		out.Line("\n[" + text + "]")
	}
	for _, p := range o.OpenPoints {
		out.Line("[left open: " + p + "]")
	}
}

// flushSoon has buffered output written soon.
func (s *Session) flushSoon() {
	if s.run.flushDue.IsZero() {
		s.run.flushDue = time.Now().Add(cmp.Or(s.cfg.flush, flushEvery))
	}
}

// flush writes buffered output. What cannot be written is tried again.
func (s *Session) flush() {
	if s.run == nil || s.run.output == nil {
		return
	}
	s.run.flushDue = time.Time{}
	s.showBegun()
	if err := s.run.output.Flush(); err != nil {
		if !s.run.unwritten {
			s.log().Error("output cannot be written, trying again", "err", err)
		}
		s.run.unwritten = true
		s.run.flushDue = time.Now().Add(time.Second)
		return
	}
	s.run.unwritten = false
}

// statusSoon has status.json written soon, so that it is live while a round runs.
func (s *Session) statusSoon() {
	if s.statusDue.IsZero() {
		s.statusDue = time.Now().Add(statusEvery)
	}
}

// showStatus writes status.json when it is due. What it says is durable by then.
func (s *Session) showStatus(ctx context.Context) error {
	s.statusDue = time.Time{}
	if s.st == nil {
		return nil
	}
	if err := s.sync(ctx); err != nil {
		return err
	}
	s.writeStatus(false)
	if s.phase == Queued {
		// The wait for a place may be long, and many may wait.
		s.unload()
	}
	return nil
}

// writeStatus replaces status.json. It never fails the session: the file is made
// from the journal, and made again at the next change.
func (s *Session) writeStatus(sync bool) {
	s.statusDue = time.Time{}
	dir, err := s.openDir()
	if err == nil {
		err = dir.WriteStatus(s.status(dir), sync)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log().Error("status.json cannot be written", "err", err)
	}
}

// status is the session as status.json shows it.
func (s *Session) status(dir *taskdir.Dir) *taskdir.Status {
	st := s.st
	v := taskdir.NewStatus(s.task)
	v.Session, v.State, v.Round, v.Turn = st.Session, taskdir.State(s.phase.Public()), st.Round, st.Turn
	v.StartedAt, v.UpdatedAt = taskdir.Time{Time: st.StartedAt}, taskdir.Time{Time: time.Now()}
	v.Reason = taskdir.Text(st.Reason)
	v.Agent, v.LLM, v.Model = taskdir.Text(st.Agent), taskdir.Text(st.LLM), taskdir.Text(st.Model)
	if r := s.run; r != nil {
		v.Turn, v.LatestTool = max(v.Turn, r.turn), taskdir.Text(r.latestTool)
		if w := r.waits; w.Why != "" {
			v.Waiting = &taskdir.Waiting{Since: taskdir.Time{Time: w.Since}, Until: taskdir.Time{Time: w.Until}, Why: w.Why}
		}
	}
	if s.phase == Awaiting {
		v.ReplyDeadline = taskdir.Time{Time: s.deadline()}
	}
	if st.Began || st.Outcome != nil {
		v.Output = taskdir.Text(filepath.Join(dir.Path(), taskdir.OutputName(st.Round)))
	}
	if o := st.Outcome; o != nil {
		v.Result, v.CompletedBy, v.Error = taskdir.Text(o.Result), taskdir.Text(o.CompletedBy), o.Error
		v.OpenPoints, v.MissingOutputs = o.OpenPoints, o.MissingOutputs
	}
	v.Warnings = slices.Concat(st.Warnings, st.ContextWarnings)
	v.Parent = taskdir.Text(st.Parent)
	for _, c := range st.Children {
		v.Children = append(v.Children, c.Task)
	}
	for _, r := range st.Receipts {
		v.Messages = append(v.Messages, taskdir.Message{
			File: r.File, TakenAt: taskdir.Time{Time: r.TakenAt}, Bytes: r.Bytes, SHA256: r.SHA256, Encoding: r.Encoding,
			Round: r.Round, Turn: r.Turn, Outcome: taskdir.Text(r.Outcome),
		})
	}
	u := &v.Usage
	u.Requests, u.ToolCalls = int64(st.Spent.Requests), int64(st.ToolCalls)
	u.InputTokens, u.OutputTokens, u.CachedTokens = st.Spent.InputTokens, st.Spent.OutputTokens, st.Spent.CachedTokens
	u.UnreportedRequests = int64(st.Spent.Unreported)
	if st.Spent.Unpriced == 0 && st.Spent.Requests > 0 {
		cost := st.Spent.CostUSD
		u.CostUSD = &cost
	}
	u.SetContext(st.Context, st.Window)
	if text, err := dir.ReadPlan(); err == nil && text != "" {
		p := plan.Parse(text)
		v.Plan.Done, v.Plan.Total = p.Progress()
		if step, open := p.Current(); open {
			v.Plan.Current = taskdir.Text(step.Text)
		}
	}
	return v
}

// event appends to events.jsonl while a round runs.
func (s *Session) event(name string, fields map[string]any) {
	if s.run == nil || s.run.events == nil {
		return
	}
	if err := s.run.events.Append(time.Now(), name, fields); err != nil {
		s.log().Debug("events.jsonl cannot be written", "err", err)
	}
}

// eventAtRest appends an event of a session without a round.
func (s *Session) eventAtRest(name string, fields map[string]any) {
	dir, err := s.openDir()
	if err != nil {
		return
	}
	events, err := dir.Events()
	if err != nil {
		s.log().Debug("events.jsonl cannot be written", "err", err)
		return
	}
	defer events.Close()
	if err := events.Append(time.Now(), name, fields); err != nil {
		s.log().Debug("events.jsonl cannot be written", "err", err)
	}
}
