package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// running is a round in its place: its output, and the runner once it is at work.
type running struct {
	output *taskdir.Output
	events *taskdir.Events
	// flushDue is when buffered output has to be written; filesDue when files that
	// were still being written are read again, before the runner starts.
	flushDue, filesDue time.Time
	contextFile        *taskdir.Pending
	historyFile        *taskdir.Pending

	// The channels below exist while the runner is at work.
	cancel   context.CancelCauseFunc
	emitted  chan emission
	inboxes  chan chan<- inboxReply
	returned chan round.Outcome
	spawns   chan spawnRequest
	ended    chan spawnEnd
	// jobs counts subagents that are waited for; regains are those done with that
	// wait for the round to have its place back.
	jobs    int
	regains []chan<- struct{}

	outcome round.Outcome
	// openCall is the tool call whose line in the output is unfinished.
	openCall   string
	latestTool string
	heading    bool
}

type emission struct {
	event round.Event
	done  chan error
}

type inboxReply struct {
	notes []round.Note
	err   error
}

func (s *Session) emissions() <-chan emission {
	if s.run == nil {
		return nil
	}
	return s.run.emitted
}

func (s *Session) inboxRequests() <-chan chan<- inboxReply {
	if s.run == nil {
		return nil
	}
	return s.run.inboxes
}

func (s *Session) spawnRequests() <-chan spawnRequest {
	if s.run == nil {
		return nil
	}
	return s.run.spawns
}

func (s *Session) spawnEnds() <-chan spawnEnd {
	if s.run == nil {
		return nil
	}
	return s.run.ended
}

func (s *Session) outcomes() <-chan round.Outcome {
	if s.run == nil {
		return nil
	}
	return s.run.returned
}

// setAside moves what the earlier session left to old/<n>/, where a round that is
// still on its way out gets its marker.
func (s *Session) setAside(ctx context.Context) error {
	dir, err := s.holdDir()
	if err != nil {
		return err
	}
	if s.phaseBefore() == Idle && s.memo == nil && s.st == nil {
		sight, err := dir.Look()
		if err != nil {
			return err
		}
		if sight.Outputs == 0 && !sight.HasStatus {
			return nil
		}
	}
	n, err := dir.NextOld()
	if err != nil {
		return fmt.Errorf("set the earlier session of task %q aside: %w", s.task, err)
	}
	if s.memo == nil || !s.memo.Adopted {
		if err := s.load(ctx); err != nil {
			return err
		}
		if s.st != nil {
			if err := s.commit(ctx, &record{Aside: &asideRecord{N: n}}); err != nil {
				return err
			}
		}
	}
	if _, err := dir.Archive(n); err != nil {
		return fmt.Errorf("set the earlier session of task %q aside: %w", s.task, err)
	}
	return nil
}

// phaseBefore tells whether there was a session before the happening in progress.
func (s *Session) phaseBefore() State {
	if s.st == nil && s.memo == nil {
		return Idle
	}
	return s.phase
}

// holdDir opens the directory and keeps it open.
func (s *Session) holdDir() (*taskdir.Dir, error) {
	dir, err := s.openDir()
	if err != nil {
		return nil, err
	}
	s.dir = dir
	return dir, nil
}

// openSession begins a session with the input that arrived, in a journal of its
// own; the journal of the session before keeps the number of its files.
func (s *Session) openSession(ctx context.Context) error {
	before, aside := 0, 0
	switch {
	case s.st != nil:
		before, aside = s.st.Session, s.st.Aside
	case s.memo != nil:
		before = s.memo.Session
	}
	dir, err := s.holdDir()
	if err != nil {
		return err
	}
	if s.j != nil {
		if err := s.j.Close(); err != nil {
			s.log.Warn("journal did not close cleanly", "err", err)
		}
		s.j = nil
	}
	if err := s.rotateJournal(aside); err != nil {
		return err
	}
	a := s.arrived
	s.arrived = arrival{}
	s.seenInput = fileMark{}
	s.held = nil
	s.st, s.memo = &state{}, nil
	s.nextSeq = max(s.nextSeq, 1)
	opened := &record{Opened: &openedRecord{
		Version: formatVersion, Task: s.task, Session: before + 1, Dir: dir.ID(),
		Input: inputMark{fileMark{a.Stat.Size, a.Stat.Mtime.UnixNano(), a.SHA256}, fileTime()},
		Text:  a.Text, Encoding: a.Encoding, Bytes: a.Bytes,
	}}
	if before > 0 {
		return s.commit(ctx, opened)
	}
	// A task's first session is held until the round's first commit: up to then
	// input.txt itself says what there is to do, and a sync is saved on the way to
	// the model.
	return s.hold(opened)
}

// rotateJournal gives the journal of a session that is set aside the number of
// its files.
func (s *Session) rotateJournal(n int) error {
	path := s.journalPath()
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to := filepath.Join(filepath.Dir(path), fmt.Sprintf("session.%d.jsonl", n))
	for i := n; ; i++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = filepath.Join(filepath.Dir(path), fmt.Sprintf("session.%d-%d.jsonl", n, i+1))
	}
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("set journal of task %q aside: %w", s.task, err)
	}
	return nil
}

// openRound begins a round with the message that arrived.
func (s *Session) openRound(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	a := s.arrived
	s.arrived = arrival{}
	// Held until the round's first commit, or until it has waited for its place for
	// a moment: up to then the taken file itself is what a restart finds.
	return s.hold(&record{Round: &roundRecord{Round: s.st.Round + 1, From: a.file, Text: a.Text, Seq: a.seq}})
}

// startRound prepares the round's files and starts the runner. While context.json
// or _history.json are being written it returns, to be called again.
func (s *Session) startRound(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	dir, err := s.holdDir()
	if err != nil {
		return s.noDir(ctx, err)
	}
	if s.run == nil {
		s.run = &running{}
	}
	resumed := false
	if s.run.output == nil {
		resumed = s.st.Began
		if err := s.openOutput(dir, resumed); err != nil {
			return s.noRunner(ctx, &round.Failure{Kind: "context", Message: err.Error()})
		}
	}
	if resumed {
		if s.st.Crashes >= maxCrashes {
			return s.runnerReturned(ctx, round.Outcome{Reason: round.Interrupted, Error: &round.Failure{
				Kind: "crash", Message: fmt.Sprintf("this round ended the daemon %d times in a row without getting further; a reply tries once more", s.st.Crashes)}})
		}
		if err := s.commit(ctx, &record{Resumed: &struct{}{}}); err != nil {
			return err
		}
	}
	if !s.st.Began || (s.st.Round == 0 && s.st.Answers == 0 && s.st.Parent == "") {
		began, failure, wait := s.readFiles(dir)
		if wait > 0 {
			s.run.filesDue = time.Now().Add(wait)
			return nil
		}
		if err := s.hold(&record{Began: began}); err != nil {
			return err
		}
		if failure != nil {
			return s.noRunner(ctx, failure)
		}
	}
	s.startRunner(resumed && s.st.Joined)
	s.event("state", map[string]any{"state": "running", "session": s.st.Session, "round": s.st.Round, "from": s.st.RoundFrom, "resumed": resumed})
	s.statusDue = time.Now().Add(flushEvery)
	return nil
}

// openOutput creates the round's output, or goes on with the one of a round that
// was cut short.
func (s *Session) openOutput(dir *taskdir.Dir, began bool) (err error) {
	r := s.run
	if began {
		r.output, err = dir.ReopenOutput(s.st.Round, 0)
		if err == nil && r.output.Size() > 0 {
			r.output.Line("\n[interrupted by a restart, goes on]")
		}
	}
	if r.output == nil || err != nil {
		r.output, err = dir.CreateOutput(s.st.Round)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", taskdir.OutputName(s.st.Round), err)
	}
	if r.events, err = dir.Events(); err != nil {
		s.log.Warn("events.jsonl cannot be written", "err", err)
	}
	return nil
}

// readFiles reads context.json and _history.json for a first round. wait says
// when to call again for files that are not whole.
func (s *Session) readFiles(dir *taskdir.Dir) (*beganRecord, *round.Failure, time.Duration) {
	b := &beganRecord{}
	if s.st.Round > 0 || s.st.Parent != "" {
		return b, nil, 0
	}
	r := s.run
	if r.contextFile == nil {
		r.contextFile, r.historyFile = dir.InPlace(taskdir.ContextFile), dir.InPlace(taskdir.ForkFile)
	}
	var failure *round.Failure
	read := func(p *taskdir.Pending, mark *fileMark, use func(text string) error) time.Duration {
		c, err := dir.Read(p, time.Now())
		var notWhole taskdir.ErrNotWhole
		switch {
		case errors.As(err, &notWhole) && notWhole.Waited < longWait:
			return notWhole.RetryAfter
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, taskdir.ErrEmpty):
			return 0
		}
		if err == nil {
			*mark = fileMark{c.Stat.Size, c.Stat.Mtime.UnixNano(), c.SHA256}
			err = use(c.Text)
		}
		outcome := "read"
		if err != nil {
			outcome = "refused: " + err.Error()
			if failure == nil {
				failure = &round.Failure{Kind: "context", Message: p.Name() + ": " + err.Error()}
			}
		}
		b.Receipts = append(b.Receipts, Receipt{File: p.Name(), TakenAt: time.Now(), Bytes: c.Bytes, SHA256: c.SHA256, Encoding: c.Encoding, Outcome: outcome})
		return 0
	}
	wait := read(r.contextFile, &b.Context, func(text string) (err error) {
		b.Settings, b.Warnings, err = round.ParseSettings([]byte(text))
		return err
	})
	wait = max(wait, read(r.historyFile, &b.HistoryMark, func(text string) (err error) {
		b.History, err = history.Import([]byte(text))
		return err
	}))
	if wait > 0 {
		return b, nil, wait
	}
	r.contextFile, r.historyFile = nil, nil
	if from := b.Settings.ForkFrom; from != "" && failure == nil {
		failure = s.fork(b, from)
	}
	return b, failure, 0
}

// fork starts the conversation from another task's.
func (s *Session) fork(b *beganRecord, from string) *round.Failure {
	fail := func(format string, args ...any) *round.Failure {
		return &round.Failure{Kind: "context", Message: fmt.Sprintf("context.json, key \"fork_from\", value %q: ", from) + fmt.Sprintf(format, args...)}
	}
	if b.History != nil {
		return fail("there is a _history.json as well; a conversation starts from one of them")
	}
	conv, err := Conversation(s.cfg.StateDir, from, Latest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail("there is no such task; name one that has had a session")
	case err != nil:
		return fail("%v", err)
	}
	b.History = conv
	return nil
}

// noRunner ends a round before it costs anything.
func (s *Session) noRunner(ctx context.Context, f *round.Failure) error {
	return s.runnerReturned(ctx, round.Outcome{Reason: round.Failed, Error: f})
}

// startRunner starts the goroutine that runs the round. runnerReturned waits for it.
func (s *Session) startRunner(resumed bool) {
	st, r := s.st, s.run
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	r.emitted = make(chan emission)
	r.inboxes = make(chan chan<- inboxReply)
	r.returned = make(chan round.Outcome, 1)
	dir := s.dir
	in := round.Input{
		Task: s.task, Dir: dir.Path(), Session: st.Session, Round: st.Round,
		Message: st.RoundText, Settings: st.Settings, KeyInfo: st.KeyInfo,
		Prepared: st.Prepared, Conversation: slices.Clip(st.Conversation),
		Spent: st.Spent, StartedAt: st.RoundStarted,
		ReadPlan: dir.ReadPlan, WritePlan: dir.WritePlan,
	}
	if resumed {
		in.Resumed = &round.Resumed{Turn: st.Turn, Begun: st.Begun}
	}
	emitted, inboxes, returned := r.emitted, r.inboxes, r.returned
	in.Depth = st.Depth
	if st.Depth < s.cfg.Children.MaxDepth {
		r.spawns, r.ended = make(chan spawnRequest), make(chan spawnEnd)
		in.Spawn = s.spawner(r.spawns, r.ended)
	}
	in.Inbox = func(ctx context.Context) ([]round.Note, error) {
		answer := make(chan inboxReply, 1)
		select {
		case inboxes <- answer:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		reply := <-answer
		return reply.notes, reply.err
	}
	done := make(chan error, 1)
	emit := func(e round.Event) error {
		emitted <- emission{e, done}
		return <-done
	}
	log := s.log
	go func() {
		defer func() {
			if p := recover(); p != nil {
				log.Error("round panicked", "panic", p, "stack", string(debug.Stack()))
				returned <- round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "panic", Message: fmt.Sprintf("defect in gasupervisor: %v (the log has the stack)", p)}}
			}
		}()
		returned <- s.cfg.Runner.Run(ctx, in, emit)
	}()
}

// cancelRun cancels the runner, or ends a round whose runner has not started.
func (s *Session) cancelRun(ctx context.Context, cause error) error {
	if s.run == nil || s.run.cancel == nil {
		return s.runnerReturned(ctx, round.Outcome{Reason: round.Stopped})
	}
	s.run.cancel(cause)
	return nil
}

// runnerReturned takes the outcome; what the session wanted of the runner
// overrules what the runner says.
func (s *Session) runnerReturned(ctx context.Context, out round.Outcome) error {
	if r := s.run; r != nil {
		if r.cancel != nil {
			r.cancel(nil)
		}
		s.regained()
		r.cancel, r.emitted, r.inboxes, r.returned, r.spawns, r.ended, r.jobs = nil, nil, nil, nil, nil, nil, 0
		s.stopChildren()
		switch s.phase {
		case Stopping:
			if out.Reason != round.Completed {
				out = round.Outcome{Reason: round.Stopped}
			}
		case Replacing:
			out = round.Outcome{Reason: round.Replaced}
		}
		r.outcome = out
	}
	return s.happen(ctx, RoundOver)
}

// emitted stores and shows an event of the running round.
func (s *Session) emitted(ctx context.Context, e round.Event) error {
	if s.phase == Restarting || s.phase == Leaving {
		return round.ErrRestart
	}
	st, r := s.st, s.run
	switch e := e.(type) {
	case round.HeadPrepared:
		return s.hold(&record{Head: &e.Prepared})
	case round.TurnStarted:
		st.Turn = e.Turn
		s.beginTurn(e.Turn)
	case round.TextStreamed:
		s.finishCallLine()
		r.output.Text(e.Text)
	case round.AnswerRestarted:
		r.output.Line("\n[answer interrupted, asked again]\n")
		s.event("answer_restarted", map[string]any{"turn": st.Turn, "reason": e.Reason})
	case round.Answered:
		err := s.commit(ctx, &record{Answer: &answerRecord{
			Turn: e.Turn, Message: e.Message, Spent: e.Spent, Context: e.Context, Window: e.Window, LLM: e.LLM, Model: e.Model, Begun: e.Begun}})
		if err != nil {
			return err
		}
		s.event("usage", map[string]any{"turn": e.Turn, "llm": e.LLM, "spent": e.Spent})
		s.statusSoon()
	case round.ToolBegun:
		s.showCallBegun(e)
	case round.ToolEnded:
		s.showCallEnded(e)
	case round.Appended:
		err := s.commit(ctx, &record{Append: &appendRecord{Turn: e.Turn, Messages: e.Messages, Applied: e.Applied, KeyInfo: e.KeyInfo}})
		if err != nil {
			return err
		}
		for _, seq := range e.Applied {
			s.event("message_applied", map[string]any{"seq": seq, "turn": e.Turn})
		}
		s.statusSoon()
		if s.journalSize()-st.from > snapshotEvery {
			return s.snapshot(ctx)
		}
	case round.Rewritten:
		if err := s.commit(ctx, &record{Rewrite: &rewriteRecord{Messages: e.Messages, Cause: e.Cause, Dropped: e.Dropped}}); err != nil {
			return err
		}
		s.event("rewritten", map[string]any{"cause": e.Cause, "dropped": e.Dropped})
		return s.snapshot(ctx)
	case round.SpentBeside:
		return s.commit(ctx, &record{Spent: &e.Spent})
	case round.Warned:
		s.statusSoon()
		return s.hold(&record{Warning: &e.Text})
	default:
		return fmt.Errorf("event %T is not known to the session", e)
	}
	if r.output.Dirty() && r.flushDue.IsZero() {
		r.flushDue = time.Now().Add(flushEvery)
	}
	return nil
}

// snapshot writes the whole state, from which a later reading can begin.
func (s *Session) snapshot(ctx context.Context) error {
	snap := *s.st
	return s.commit(ctx, &record{Snapshot: &snap})
}

// flush writes buffered output.
func (s *Session) flush() {
	if s.run == nil || s.run.output == nil {
		return
	}
	s.run.flushDue = time.Time{}
	if err := s.run.output.Flush(); err != nil {
		s.log.Error("output cannot be written, trying again", "err", err)
		s.run.flushDue = time.Now().Add(time.Second)
	}
}

// closeRound ends the round for everybody to see, in the order that makes the
// marker the last: journal, history.json, status.json, marker.
func (s *Session) closeRound(ctx context.Context) error {
	r := s.run
	out := r.outcome
	s.showOutcome(out)
	s.flush()
	var memo *Memo
	if s.phase == Awaiting {
		memo = &Memo{Deadline: time.Now().Add(s.cfg.ReplyTimeout)}
	}
	if err := s.commit(ctx, &record{Closed: &out, Memo: memo}); err != nil {
		return err
	}
	replaced := out.Reason == round.Replaced
	if !replaced {
		s.writeHistory()
		if out.Reason == round.Completed && len(s.st.Settings.OutputSchema) > 0 {
			if err := s.dir.WriteResult([]byte(out.Result)); err != nil {
				s.log.Error("result.json cannot be written", "err", err)
			}
		}
		s.writeStatus(true)
	} else {
		s.writeStatusAside()
	}
	s.event("state", map[string]any{"state": s.phase.Public(), "session": s.st.Session, "round": s.st.Round, "reason": out.Reason, "error": out.Error})
	s.endOutput()
	s.run = nil
	s.log.Info("round ended", "session", s.st.Session, "round", s.st.Round, "reason", out.Reason, "turns", s.st.Turn, "took", time.Since(s.st.RoundStarted).Round(time.Millisecond))
	return nil
}

// endOutput writes the marker. A disk that does not take it is tried again, as
// long as the directory is there.
func (s *Session) endOutput() {
	r := s.run
	if r == nil || r.output == nil {
		return
	}
	if err := r.output.End(); err != nil {
		s.log.Error("end marker cannot be written; it is written at the next start", "err", err)
	}
	if r.events != nil {
		r.events.Close()
	}
}

// closeUnrun ends a round that never got its place.
func (s *Session) closeUnrun(ctx context.Context) error {
	dir, err := s.holdDir()
	if err != nil {
		return err
	}
	s.run = &running{outcome: round.Outcome{Reason: round.Stopped}}
	if err := s.openOutput(dir, s.st.Began); err != nil {
		return err
	}
	if !s.st.Began {
		// The message counts as said, for the reply that may come.
		join := &record{Append: &appendRecord{Messages: []llm.Message{{Role: llm.User, Content: s.st.RoundText}}}}
		if err := s.hold(join); err != nil {
			return err
		}
	}
	return s.closeRound(ctx)
}

// awaitReply waits for a reply, unless there is one already.
func (s *Session) awaitReply(ctx context.Context) error {
	if s.st.Parent != "" && s.st.Round == 0 {
		return s.endChild(ctx)
	}
	if opened, err := s.openNoted(ctx); opened || err != nil {
		return err
	}
	s.statusDue = time.Time{}
	s.unload()
	s.Look()
	return nil
}

// openNoted opens a round with a message that was taken and that no round has
// applied: an intervention before a reply.
func (s *Session) openNoted(ctx context.Context) (opened bool, err error) {
	for _, kind := range []round.NoteKind{round.NoteIntervene, noteReply} {
		i := slices.IndexFunc(s.st.Notes, func(n round.Note) bool { return n.Kind == kind })
		if i >= 0 {
			n := s.st.Notes[i]
			s.arrived = arrival{file: string(n.Kind), seq: n.Seq, Content: taskdir.Content{Text: n.Text}}
			return true, s.happen(ctx, MessageArrived)
		}
	}
	return false, nil
}

// endSession ends a session at rest.
func (s *Session) endSession(ctx context.Context, reason round.Reason) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	if err := s.commit(ctx, &record{Ended: &endedRecord{Reason: reason}, Memo: &Memo{}}); err != nil {
		return err
	}
	if _, err := s.holdDir(); err == nil {
		s.writeStatus(true)
		s.appendEvent("state", map[string]any{"state": "ended", "reason": reason})
	}
	s.log.Info("session ended", "session", s.st.Session, "reason", reason)
	s.statusDue = time.Time{}
	s.unload()
	return nil
}

// endGone ends a session whose directory is gone: nothing is written there, and
// the journal is kept where no later task of that name meets it.
func (s *Session) endGone() error {
	s.log.Info("task directory is gone, its session is over")
	if s.run != nil {
		if s.run.output != nil {
			s.run.output.Close()
		}
		if s.run.events != nil {
			s.run.events.Close()
		}
		s.run = nil
	}
	s.closeFiles()
	s.st, s.memo, s.pending, s.drops, s.held, s.statusDue = nil, nil, nil, nil, nil, time.Time{}
	s.phase = Idle
	s.seenInput = fileMark{}
	s.Look()
	place := filepath.Dir(s.journalPath())
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return archivePlace(s.cfg.StateDir, place)
}

// archivePlace moves a task's journals to archived/ in the state directory.
func archivePlace(stateDir, place string) error {
	dir := filepath.Join(stateDir, ArchivedName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("archive journal: %w", err)
	}
	for i := 1; ; i++ {
		to := filepath.Join(dir, fmt.Sprintf("%s.%d", filepath.Base(place), i))
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := os.Rename(place, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("archive journal: %w", err)
		}
		return nil
	}
}

// ArchivedName is the directory within the state directory that keeps the
// journals of tasks whose directories are gone.
const ArchivedName = "archived"
