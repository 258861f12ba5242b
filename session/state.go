package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// state is a session as its journal tells it. It is what the records add up to
// and nothing else: apply is the only place that changes it, when a record is
// written and when a journal is read back.
type state struct {
	Version int    `json:"version"`
	Task    string `json:"task"`
	Session int    `json:"session"`
	// Phase is Queued (a round is open), Awaiting or Ended.
	Phase  State        `json:"phase"`
	Reason round.Reason `json:"reason,omitempty"`

	Dir       taskdir.FileID `json:"dir"`
	Input     inputMark      `json:"input"`
	StartedAt time.Time      `json:"started_at"`
	// Aside is the n of old/<n>/ where the files belong; 0 while they are in place.
	Aside int `json:"aside,omitempty"`
	// Past are messages of earlier sessions that may come back.
	Past []pastMessage `json:"past,omitempty"`

	Settings    round.Settings  `json:"settings"`
	ContextMark fileMark        `json:"context_mark"`
	HistoryMark fileMark        `json:"history_mark"`
	Prepared    *round.Prepared `json:"prepared,omitempty"`

	Round     int    `json:"round"`
	RoundFrom string `json:"round_from"`
	RoundText string `json:"round_text,omitempty"`
	// Refused is why nothing can be done about the message that opened the round; ""
	// where something can.
	Refused      string    `json:"refused,omitempty"`
	RoundStarted time.Time `json:"round_started,omitzero"`
	// Began says that the open round has begun to run.
	Began bool `json:"began,omitempty"`
	Turn  int  `json:"turn"`
	// Answers counts the answers recorded in the open round.
	Answers int `json:"answers,omitempty"`
	// Begun holds the calls that change something and have no result yet.
	Begun map[string]bool `json:"begun,omitempty"`
	// Cut is what the length limit took of the answer that is the newest message.
	Cut round.Cut `json:"cut,omitempty"`
	// Crashes counts the crashes of the open round without progress. Paused says that
	// the daemon was told to stop meanwhile, which is none.
	Crashes int  `json:"crashes,omitempty"`
	Paused  bool `json:"paused,omitempty"`
	// Stop says that a _stop was taken which has not done its work yet.
	Stop bool `json:"stop,omitempty"`

	Conversation []llm.Message `json:"conversation"`
	// Forked is how many messages at its beginning came from another task.
	Forked int `json:"forked,omitempty"`
	// Joined says that RoundText is part of Conversation.
	Joined  bool   `json:"joined,omitempty"`
	KeyInfo string `json:"key_info,omitempty"`
	// Notes were taken and not applied yet.
	Notes    []round.Note `json:"notes,omitempty"`
	Seq      uint64       `json:"seq"`
	Receipts []Receipt    `json:"receipts,omitempty"`

	Spent llm.Usage `json:"spent"`
	// Estimated is round.Input's; Reserved is set aside for the request under way.
	Estimated llm.Amount `json:"estimated,omitzero"`
	Reserved  llm.Amount `json:"reserved,omitzero"`
	ToolCalls int        `json:"tool_calls"`
	Context   int        `json:"context,omitempty"`
	Window    int        `json:"window,omitempty"`
	Agent     string     `json:"agent,omitempty"`
	LLM       string     `json:"llm,omitempty"`
	Model     string     `json:"model,omitempty"`

	// Parent is the task that this one is a subagent of; Depth counts those above it.
	Parent string `json:"parent,omitempty"`
	Depth  int    `json:"depth,omitempty"`
	// Children are the session's subagents.
	Children []childRecord `json:"children,omitempty"`

	Outcome  *closedRecord `json:"outcome,omitempty"`
	ClosedAt time.Time     `json:"closed_at,omitzero"`
	Deadline time.Time     `json:"deadline,omitzero"`
	Warnings []string      `json:"warnings,omitempty"`
	// ContextWarnings are about the context.json that was read last.
	ContextWarnings []string `json:"context_warnings,omitempty"`
	// Updated is the time of the last record.
	Updated time.Time `json:"updated"`

	// from is the offset of the last snapshot, or of the first record, and to that of
	// the record after it; 0 while there is none.
	from, to int64
}

// noteReply is a reply that was taken while a round was open: it opens the next one.
const noteReply round.NoteKind = taskdir.ReplyFile

// errFormat says that a journal is whole and not understood.
var errFormat = errors.New("journal is not in a format that this program reads")

// apply adds a record, which stands at offset off, to the state.
func (s *state) apply(r *record, off int64) error {
	if s.to == 0 && off > s.from {
		s.to = off
	}
	switch {
	case r.Opened != nil:
		if err := s.open(r, off); err != nil {
			return err
		}
	case r.Message != nil:
		s.addMessage(r)
	case r.Round != nil:
		s.openRound(r.Round)
	case r.Began != nil:
		s.begin(r)
	case r.Resumed != nil:
		s.resume()
	case r.Paused != nil:
		s.Paused = true
	case r.Head != nil:
		s.Prepared = r.Head
		s.Agent, s.LLM, s.Model = r.Head.Agent, r.Head.LLM, r.Head.Model
	case r.Answer != nil:
		s.answer(r.Answer)
	case r.Append != nil:
		s.add(r.Append)
	case r.Rewrite != nil:
		s.Conversation, s.Forked, s.Context = r.Rewrite.Messages, 0, 0
	case r.Spent != nil:
		s.spend(*r.Spent, r.Estimated)
	case r.Reserved != nil:
		s.Reserved = *r.Reserved
	case r.Child != nil:
		s.addChild(*r.Child)
	case r.Warning != nil:
		s.warn(*r.Warning)
	case r.Moved != nil:
		s.Dir = *r.Moved
	case r.Aside != nil:
		s.setAside(r.Aside.N)
	case r.Closed != nil:
		s.close(r)
	case r.Ended != nil:
		s.end(r.Ended.Reason)
	case r.Snapshot != nil:
		*s = *r.Snapshot
		s.from, s.to = off, 0
	default:
		return fmt.Errorf("%w: it has a record of an unknown kind; use the program that wrote it, or a newer one", errFormat)
	}
	s.Updated = r.At
	return nil
}

func (s *state) open(r *record, off int64) error {
	o := r.Opened
	if o.Version > formatVersion {
		return fmt.Errorf("%w: it has format %d, this program reads up to %d; use a newer one", errFormat, o.Version, formatVersion)
	}
	*s = state{
		Version: o.Version, Task: o.Task, Session: o.Session, Dir: o.Dir, Input: o.Input, Seq: o.Seq, Past: o.Past,
		Phase: Queued, StartedAt: r.At, RoundFrom: taskdir.InputFile, RoundText: o.Text, from: off,
	}
	s.Conversation, s.Forked = o.History, len(o.History)
	if o.Parent != "" {
		s.Parent, s.Depth, s.Settings, s.Prepared = o.Parent, o.Depth, *o.Settings, o.Prepared
		if o.Prepared != nil {
			s.Agent, s.LLM, s.Model = o.Prepared.Agent, o.Prepared.LLM, o.Prepared.Model
		}
	}
	if o.Rounds > 0 {
		s.Phase, s.Round, s.Reason, s.RoundText = Ended, o.Rounds-1, round.Completed, ""
		s.Joined, s.Forked = true, 0
		return nil
	}
	outcome := fmt.Sprintf("began session %d", o.Session)
	switch {
	case o.Refused != "":
		s.Refused, outcome = o.Refused, outcomeRefused+o.Refused
	case o.Parent == "" && blank(o.Text):
		s.refuseBlank()
		outcome = outcomeRefused + outcomeBlank
	}
	s.addReceipt(Receipt{
		File: taskdir.InputFile, TakenAt: r.At, Bytes: o.Bytes, SHA256: o.Input.SHA256, Encoding: o.Encoding, Outcome: outcome,
	})
	return nil
}

// blank says that nothing stands in a message: white space, or the NULs of a file that
// was made long enough and not written to.
func blank(text string) bool {
	return strings.TrimFunc(text, func(r rune) bool { return r == 0 || unicode.IsSpace(r) }) == ""
}

// refuseBlank refuses the round's message, in which nothing is asked for: a model
// would be paid to say so.
func (s *state) refuseBlank() {
	s.Refused, s.RoundText = s.RoundFrom+" "+outcomeBlank+"; write what is to be done into it", ""
}

func (s *state) addMessage(r *record) {
	m := r.Message
	s.Seq = max(s.Seq, m.Seq)
	s.addReceipt(Receipt{
		Seq: m.Seq, Taken: cmp.Or(m.Taken, m.Seq), File: m.File, TakenAt: r.At, Bytes: m.Bytes, SHA256: m.SHA256, Encoding: m.Encoding,
		Round: s.Round, Turn: s.Turn, Outcome: cmp.Or(m.Outcome, outcomeTaken), Fingerprint: m.Fingerprint,
	})
	mark := fileMark{Size: m.Fingerprint.Size, Mtime: m.Fingerprint.Mtime, SHA256: m.Fingerprint.SHA256}
	switch m.File {
	case taskdir.ContextFile:
		s.ContextMark = mark
	case taskdir.ForkFile:
		s.HistoryMark = mark
	}
	if m.Refused {
		s.warn(m.File + " was " + m.Outcome)
	}
	if m.Refused && m.File == taskdir.ReplyFile {
		s.Notes = append(s.Notes, round.Note{Seq: m.Seq, Kind: noteReply})
	}
	if m.Outcome != "" {
		return
	}
	switch kind := round.NoteKind(m.File); kind {
	case taskdir.StopFile:
		s.Stop = true
	case round.NoteKeyInfo:
		if s.Phase != Queued {
			s.KeyInfo = round.AddKeyInfo(s.KeyInfo, m.Text)
			s.settle(m.Seq, outcomeRemembered)
			return
		}
		s.Notes = append(s.Notes, round.Note{Seq: m.Seq, Kind: kind, Text: m.Text})
	case round.NoteIntervene, noteReply:
		s.Notes = append(s.Notes, round.Note{Seq: m.Seq, Kind: kind, Text: m.Text})
	}
}

func (s *state) openRound(o *roundRecord) {
	s.Phase, s.Reason = Queued, ""
	s.Round, s.RoundFrom, s.RoundText, s.Refused = o.Round, o.From, "", ""
	s.RoundStarted, s.Began, s.Joined, s.Turn, s.Answers, s.Begun, s.Cut = time.Time{}, false, false, 0, 0, nil, round.NotCut
	s.Crashes, s.Paused, s.Aside = 0, false, 0
	s.Outcome, s.Deadline = nil, time.Time{}
	if i := slices.IndexFunc(s.Notes, func(n round.Note) bool { return n.Seq == o.Seq }); i >= 0 {
		s.RoundText = s.Notes[i].Text
		s.Notes = slices.Delete(s.Notes, i, i+1)
	}
	outcome := fmt.Sprintf("opened round %d", o.Round)
	r := s.receipt(o.Seq)
	switch {
	case r != nil && strings.HasPrefix(r.Outcome, outcomeRefused):
		outcome = r.Outcome
		s.Refused = o.From + ": " + outcome
	case blank(s.RoundText):
		s.refuseBlank()
		outcome = outcomeRefused + outcomeBlank
	}
	if r != nil {
		r.Round, r.Turn, r.Outcome = o.Round, 0, outcome
	}
}

// filesCount reports whether the session's files have been read for good: a model
// has been asked with what they say. Up to then each round reads them, so that one
// that was refused can be put right and never counts as absent.
func (s *state) filesCount() bool {
	return s.Parent != "" || s.Round > 0 && s.Prepared != nil
}

func (s *state) begin(r *record) {
	b := r.Began
	s.Began = true
	if s.RoundStarted.IsZero() {
		s.RoundStarted = r.At
	}
	if s.filesCount() {
		return
	}
	s.Settings, s.ContextMark, s.HistoryMark, s.ContextWarnings = b.Settings, b.Context, b.HistoryMark, b.Warnings
	// What was said in rounds that asked no model stays.
	var said []llm.Message
	if s.Round > 0 {
		said = s.Conversation[s.Forked:]
	}
	s.Conversation, s.Forked = slices.Concat(b.History, said), len(b.History)
	s.Joined, s.Prepared, s.Turn = false, nil, 0
	for _, c := range b.Receipts {
		s.addReceipt(c)
	}
}

// resume counts what ended the round before: a crash, unless the daemon was told
// to stop.
func (s *state) resume() {
	if !s.Paused {
		s.Crashes++
	}
	s.Paused = false
	// The request that was under way may have been paid for.
	s.Estimated, s.Reserved = s.Estimated.Add(s.Reserved), llm.Amount{}
}

func (s *state) spend(spent llm.Usage, estimated llm.Amount) {
	s.Spent = s.Spent.Add(spent)
	s.Estimated, s.Reserved = s.Estimated.Add(estimated), llm.Amount{}
}

func (s *state) answer(a *answerRecord) {
	s.Conversation = append(s.Conversation, a.Message)
	s.Turn, s.Crashes, s.Cut = a.Turn, 0, a.Cut
	s.Answers++
	s.spend(a.Spent, a.Estimated)
	s.ToolCalls += len(a.Message.ToolCalls)
	s.Begun = nil
	for _, id := range a.Begun {
		if s.Begun == nil {
			s.Begun = map[string]bool{}
		}
		s.Begun[id] = true
	}
	s.Context = a.Context
	s.Window = cmp.Or(a.Window, s.Window)
	s.LLM, s.Model = cmp.Or(a.LLM, s.LLM), cmp.Or(a.Model, s.Model)
}

func (s *state) add(a *appendRecord) {
	s.Conversation = append(s.Conversation, a.Messages...)
	s.Joined, s.Begun, s.Cut = true, nil, round.NotCut
	// The round's first message and hints are added at every start and are no progress.
	if slices.ContainsFunc(a.Messages, func(m llm.Message) bool { return m.Role == llm.ToolRole }) {
		s.Crashes = 0
	}
	if a.KeyInfo != nil {
		s.KeyInfo = *a.KeyInfo
	}
	for _, seq := range a.Applied {
		if r := s.receipt(seq); r != nil {
			r.Round, r.Turn, r.Outcome = s.Round, a.Turn, outcomeApplied
		}
	}
	s.Notes = slices.DeleteFunc(s.Notes, func(n round.Note) bool { return slices.Contains(a.Applied, n.Seq) })
}

func (s *state) setAside(n int) {
	s.Aside = n
	if s.Phase == Queued {
		return // The round that is open is closed by a record of its own.
	}
	if s.Phase == Awaiting {
		s.Reason = round.Replaced
	}
	s.Phase, s.Deadline = Ended, time.Time{}
}

func (s *state) close(r *record) {
	c := r.Closed
	if c.Join {
		s.Conversation = append(s.Conversation, llm.Message{Role: llm.User, Content: round.SupervisorMark + s.RoundText})
		s.Joined = true
	}
	s.Phase, s.Outcome, s.Reason, s.ClosedAt, s.Deadline = Awaiting, c, c.Reason, r.At, c.Deadline
	s.Begun, s.Reserved = nil, llm.Amount{}
	for i := range s.Children {
		s.Children[i].Left = !s.Children[i].Done
	}
	switch c.Reason {
	case round.Stopped:
		s.settleStops(outcomeStopped)
	case round.Replaced:
		s.settleStops(outcomeReplaced)
	default:
		s.settleStops(outcomeCompleted)
	}
	if s.Aside > 0 {
		s.Phase, s.Deadline = Ended, time.Time{}
		for _, n := range s.Notes {
			s.settle(n.Seq, outcomeReplaced)
		}
		s.Notes = nil
		return
	}
	// Key info that the round did not get to is known to the next one.
	for _, n := range s.Notes {
		if n.Kind == round.NoteKeyInfo {
			s.KeyInfo = round.AddKeyInfo(s.KeyInfo, n.Text)
			s.settle(n.Seq, outcomeRemembered)
		}
	}
	s.Notes = slices.DeleteFunc(s.Notes, func(n round.Note) bool { return n.Kind == round.NoteKeyInfo })
}

func (s *state) end(reason round.Reason) {
	s.Phase, s.Reason, s.Deadline = Ended, reason, time.Time{}
	s.settleStops(outcomeEnded)
}

const maxWarnings = 50

func (s *state) warn(text string) {
	if !slices.Contains(s.Warnings, text) && len(s.Warnings) < maxWarnings {
		s.Warnings = append(s.Warnings, text)
	}
}

// atRest reports whether the session has nothing to do until something happens, so
// that its Memo says all there is to know.
func (s *state) atRest() bool {
	if s.childDone() {
		return false
	}
	return (s.Phase == Awaiting || s.Phase == Ended) && len(s.Notes) == 0 && !s.Stop && s.Aside == 0
}

// inFirstRound reports whether a subagent is at what its parent asked for.
func (s *state) inFirstRound() bool { return s.Parent != "" && s.Round == 0 }

// childDone reports whether a subagent is to end, since its first round is over.
func (s *state) childDone() bool { return s.inFirstRound() && s.Phase == Awaiting }

func (s *state) addChild(c childRecord) {
	// A name is given to another job where a crash kept it from being used.
	s.Children = slices.DeleteFunc(s.Children, func(o childRecord) bool {
		return o.Task == c.Task && (o.Call != c.Call || o.N != c.N) && !o.used()
	})
	i := slices.IndexFunc(s.Children, func(o childRecord) bool { return o.Call == c.Call && o.N == c.N })
	if i < 0 {
		s.Children = append(s.Children, c)
		return
	}
	if c.Done && !s.Children[i].Done {
		s.Spent = s.Spent.Add(c.Spent)
		s.Crashes = 0
	}
	s.Children[i] = c
}

// used reports whether the child's name was given to a task, which may have been
// removed since.
func (c childRecord) used() bool { return c.Made || c.Done }

// openChildren names the subagents that the open round waits for.
func (s *state) openChildren() (names []string) {
	for _, c := range s.Children {
		if !c.Done && !c.Left {
			names = append(names, c.Task)
		}
	}
	return names
}

// outgrown reports whether a journal of that size has grown enough since the last
// full record for another one: by snapshotEvery, and by as much as that one took,
// so that a long conversation is not written again and again.
func (s *state) outgrown(size int64) bool {
	return s.to > 0 && size-s.to > max(snapshotEvery, s.to-s.from)
}

// memo is what is kept while the session waits.
func (s *state) memo() Memo {
	m := Memo{
		Session: s.Session, Round: s.Round, Phase: s.Phase, Dir: s.Dir, Input: s.Input, Seq: s.Seq, Deadline: s.Deadline, From: s.from,
	}
	// The round that a reply opens reads them where no model was asked with them yet.
	if s.Parent == "" && s.Prepared != nil {
		late := s.lateMarks()
		m.Late = &late
	}
	return m
}

func (s *state) lateMarks() lateMarks {
	return lateMarks{{s.ContextMark.Size, s.ContextMark.Mtime}, {s.HistoryMark.Size, s.HistoryMark.Mtime}}
}
