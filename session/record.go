package session

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// formatVersion is the version of the records below. A journal with a higher
// one is left alone.
const formatVersion = 1

// record is one entry of a session's journal: what happened, at what time. Exactly
// one of the pointers is set, but for Memo, which may stand beside any.
type record struct {
	At time.Time `json:"at"`

	Opened   *openedRecord   `json:"opened,omitempty"`
	Message  *messageRecord  `json:"message,omitempty"`
	Round    *roundRecord    `json:"round,omitempty"`
	Began    *beganRecord    `json:"began,omitempty"`
	Resumed  *struct{}       `json:"resumed,omitempty"`
	Paused   *struct{}       `json:"paused,omitempty"`
	Head     *round.Prepared `json:"head,omitempty"`
	Answer   *answerRecord   `json:"answer,omitempty"`
	Append   *appendRecord   `json:"append,omitempty"`
	Rewrite  *rewriteRecord  `json:"rewrite,omitempty"`
	Spent    *llm.Usage      `json:"spent,omitempty"`
	Child    *childRecord    `json:"child,omitempty"`
	Warning  *string         `json:"warning,omitempty"`
	Aside    *asideRecord    `json:"aside,omitempty"`
	Closed   *round.Outcome  `json:"closed,omitempty"`
	Ended    *endedRecord    `json:"ended,omitempty"`
	Snapshot *state          `json:"snapshot,omitempty"`

	// Memo is what waiting needs. A journal whose last record has one is known
	// without reading the rest.
	Memo *Memo `json:"memo,omitempty"`
}

type (
	// openedRecord is the first record of every journal.
	openedRecord struct {
		Version int            `json:"version"`
		Task    string         `json:"task"`
		Session int            `json:"session"`
		Dir     taskdir.FileID `json:"dir"`
		Input   inputMark      `json:"input"`
		// Text is the input; empty in a session that was adopted.
		Text     string `json:"text"`
		Encoding string `json:"encoding,omitempty"`
		Bytes    int64  `json:"bytes"`
		// Rounds is how many outputs stood there already, in a session that was
		// adopted from another program.
		Rounds int `json:"rounds,omitempty"`
		// Parent makes the session a subagent's, which takes its settings and what it
		// goes on from here instead of from files.
		Parent   string          `json:"parent,omitempty"`
		Depth    int             `json:"depth,omitempty"`
		Settings *round.Settings `json:"settings,omitempty"`
		Prepared *round.Prepared `json:"prepared,omitempty"`
		History  []llm.Message   `json:"history,omitempty"`
	}

	// childRecord names the child that does a job of this session's; later ones for
	// the same job replace it.
	childRecord struct {
		// Call and N are the job's: see round.Spawn.
		Call string `json:"call"`
		N    int    `json:"n"`
		Task string `json:"task"`
		// Done says that its first round is over; Spent is what that cost.
		Done  bool      `json:"done,omitempty"`
		Spent llm.Usage `json:"spent,omitzero"`
	}

	// messageRecord is a control file that was taken.
	messageRecord struct {
		Seq         uint64              `json:"seq"`
		File        string              `json:"file"`
		Text        string              `json:"text,omitempty"`
		Encoding    string              `json:"encoding,omitempty"`
		Fingerprint taskdir.Fingerprint `json:"fingerprint"`
		// Outcome is set where the message has done all that it will do.
		Outcome string `json:"outcome,omitempty"`
	}

	// roundRecord opens a round with a message.
	roundRecord struct {
		Round int    `json:"round"`
		From  string `json:"from"`
		Text  string `json:"text"`
		// Seq is the message's, 0 for input.txt.
		Seq uint64 `json:"seq,omitempty"`
	}

	// beganRecord says that the first round began, with the files that it found. A
	// second one starts the round over.
	beganRecord struct {
		Settings round.Settings `json:"settings"`
		Warnings []string       `json:"warnings,omitempty"`
		History  []llm.Message  `json:"history,omitempty"`
		// Context and HistoryMark are what was read, zero where there was no file.
		Context     fileMark  `json:"context"`
		HistoryMark fileMark  `json:"history_mark"`
		Receipts    []Receipt `json:"receipts,omitempty"`
	}

	answerRecord struct {
		Turn    int         `json:"turn"`
		Message llm.Message `json:"message"`
		Spent   llm.Usage   `json:"spent"`
		Context int         `json:"context,omitempty"`
		Window  int         `json:"window,omitempty"`
		LLM     string      `json:"llm,omitempty"`
		Model   string      `json:"model,omitempty"`
		Begun   []string    `json:"begun,omitempty"`
	}

	appendRecord struct {
		Turn     int           `json:"turn"`
		Messages []llm.Message `json:"messages"`
		Applied  []uint64      `json:"applied,omitempty"`
		KeyInfo  *string       `json:"key_info,omitempty"`
	}

	rewriteRecord struct {
		Messages []llm.Message `json:"messages"`
		Cause    string        `json:"cause"`
		Dropped  string        `json:"dropped,omitempty"`
	}

	// asideRecord says that the session's files belong in old/<N>/.
	asideRecord struct {
		N int `json:"n"`
	}

	endedRecord struct {
		Reason round.Reason `json:"reason"`
	}
)

// fileMark recognises a file that was read in place.
type fileMark struct {
	Size   int64  `json:"size,omitempty"`
	Mtime  int64  `json:"mtime,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// inputMark is the input.txt that the session works on.
type inputMark struct {
	fileMark
	// TakenAt is when it was read. A later mtime makes the file new.
	TakenAt time.Time `json:"taken_at"`
}

func (m fileMark) sees(s *taskdir.Stat) bool {
	return s != nil && s.Size == m.Size && s.Mtime.UnixNano() == m.Mtime
}

// Receipt tells a supervisor what became of a file that it wrote.
type Receipt struct {
	Seq      uint64    `json:"seq,omitempty"`
	File     string    `json:"file"`
	TakenAt  time.Time `json:"taken_at"`
	Bytes    int64     `json:"bytes"`
	SHA256   string    `json:"sha256"`
	Encoding string    `json:"encoding"`
	Round    int       `json:"round"`
	// Turn is the turn from whose end on it was seen; 0 before the first.
	Turn    int    `json:"turn"`
	Outcome string `json:"outcome"`

	// Fingerprint recognises the file should it come back after a power failure.
	Fingerprint taskdir.Fingerprint `json:"fingerprint"`
}

// maxReceipts is how many receipts a session keeps.
const maxReceipts = 100

// Memo is all that a session keeps in memory while it waits, and what a journal's
// last record says of it.
type Memo struct {
	Session  int            `json:"session"`
	Round    int            `json:"round"`
	Phase    State          `json:"phase"`
	Dir      taskdir.FileID `json:"dir"`
	Input    inputMark      `json:"input"`
	Seq      uint64         `json:"seq"`
	ClosedAt time.Time      `json:"closed_at"`
	Deadline time.Time      `json:"deadline,omitzero"`
	// From is the offset at which a full reading may begin.
	From int64 `json:"from"`
	// Adopted marks a session that another program ran: there is no journal.
	Adopted bool `json:"adopted,omitempty"`
}

// state is a session as its journal tells it. It is what the records add up to
// and nothing else: apply is the only place that changes it, when a record has
// been made durable and when a journal is read back.
type state struct {
	Version int    `json:"version"`
	Task    string `json:"task"`
	Session int    `json:"session"`
	// Phase is Idle, Queued (a round is open), Awaiting or Ended.
	Phase  State        `json:"phase"`
	Reason round.Reason `json:"reason,omitempty"`

	Dir       taskdir.FileID `json:"dir"`
	Input     inputMark      `json:"input"`
	StartedAt time.Time      `json:"started_at"`
	// Aside is the n of old/<n>/ where the files belong; 0 while they are in place.
	Aside int `json:"aside,omitempty"`

	Settings    round.Settings  `json:"settings"`
	ContextMark fileMark        `json:"context_mark"`
	HistoryMark fileMark        `json:"history_mark"`
	Prepared    *round.Prepared `json:"prepared,omitempty"`

	Round        int       `json:"round"`
	RoundFrom    string    `json:"round_from"`
	RoundText    string    `json:"round_text,omitempty"`
	RoundStarted time.Time `json:"round_started,omitzero"`
	// Began says that the open round has begun to run.
	Began bool `json:"began,omitempty"`
	Turn  int  `json:"turn"`
	// Answers counts the answers recorded in the open round.
	Answers int `json:"answers,omitempty"`
	// Begun holds the calls that change something and have no result yet.
	Begun map[string]bool `json:"begun,omitempty"`
	// Crashes counts the restarts of the open round without progress.
	Crashes int `json:"crashes,omitempty"`

	Conversation []llm.Message `json:"conversation"`
	// joined says that RoundText is part of Conversation.
	Joined  bool   `json:"joined,omitempty"`
	KeyInfo string `json:"key_info,omitempty"`
	// Notes were taken and not applied yet.
	Notes    []round.Note `json:"notes,omitempty"`
	Seq      uint64       `json:"seq"`
	Receipts []Receipt    `json:"receipts,omitempty"`

	Spent     llm.Usage `json:"spent"`
	ToolCalls int       `json:"tool_calls"`
	Context   int       `json:"context,omitempty"`
	Window    int       `json:"window,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	LLM       string    `json:"llm,omitempty"`
	Model     string    `json:"model,omitempty"`

	// Parent is the task that this one is a subagent of; Depth counts those above it.
	Parent string `json:"parent,omitempty"`
	Depth  int    `json:"depth,omitempty"`
	// Children are the session's subagents.
	Children []childRecord `json:"children,omitempty"`

	Outcome  *round.Outcome `json:"outcome,omitempty"`
	ClosedAt time.Time      `json:"closed_at,omitzero"`
	Deadline time.Time      `json:"deadline,omitzero"`
	Warnings []string       `json:"warnings,omitempty"`
	// Updated is the time of the last record.
	Updated time.Time `json:"updated"`

	// from is the offset of the last snapshot, or of the first record.
	from int64
}

// apply adds a record, which stands at offset off, to the state.
func (s *state) apply(r *record, off int64) error {
	s.Updated = r.At
	switch {
	case r.Opened != nil:
		o := r.Opened
		if o.Version > formatVersion {
			return fmt.Errorf("journal has format %d, this program reads up to %d: use a newer one", o.Version, formatVersion)
		}
		*s = state{
			Version: o.Version, Task: o.Task, Session: o.Session, Dir: o.Dir, Input: o.Input,
			Phase: Queued, StartedAt: r.At, Updated: r.At, RoundFrom: taskdir.InputFile, RoundText: o.Text, from: off,
		}
		if o.Parent != "" {
			s.Parent, s.Depth, s.Settings, s.Prepared, s.Conversation = o.Parent, o.Depth, *o.Settings, o.Prepared, o.History
			if o.Prepared != nil {
				s.Agent, s.LLM, s.Model = o.Prepared.Agent, o.Prepared.LLM, o.Prepared.Model
			}
		}
		if o.Rounds > 0 {
			s.Phase, s.Round, s.Reason, s.RoundText = Ended, o.Rounds-1, round.Completed, ""
			break
		}
		s.addReceipt(Receipt{File: taskdir.InputFile, TakenAt: r.At, Bytes: o.Bytes, SHA256: o.Input.SHA256, Encoding: o.Encoding, Outcome: "taken"})
	case r.Message != nil:
		s.applyMessage(r)
	case r.Round != nil:
		s.openRound(r.Round)
	case r.Began != nil:
		s.begin(r)
	case r.Resumed != nil:
		s.Crashes++
	case r.Paused != nil:
		s.Crashes = max(0, s.Crashes-1)
	case r.Head != nil:
		s.Prepared = r.Head
		s.Agent, s.LLM, s.Model = r.Head.Agent, r.Head.LLM, r.Head.Model
	case r.Answer != nil:
		s.applyAnswer(r.Answer)
	case r.Append != nil:
		s.applyAppend(r.Append)
	case r.Rewrite != nil:
		s.Conversation = r.Rewrite.Messages
		s.Context = 0
	case r.Spent != nil:
		s.Spent = s.Spent.Add(*r.Spent)
	case r.Child != nil:
		s.applyChild(*r.Child)
	case r.Warning != nil:
		s.warn(*r.Warning)
	case r.Aside != nil:
		s.Aside = r.Aside.N
	case r.Closed != nil:
		s.close(r)
	case r.Ended != nil:
		s.Phase, s.Reason = Ended, r.Ended.Reason
	case r.Snapshot != nil:
		updated := s.Updated
		*s = *r.Snapshot
		s.Updated = updated
		s.from = off
	default:
		return fmt.Errorf("journal record of an unknown kind: written by a newer program?")
	}
	return nil
}

func (s *state) applyMessage(r *record) {
	m := r.Message
	s.Seq = max(s.Seq, m.Seq)
	s.addReceipt(Receipt{
		Seq: m.Seq, File: m.File, TakenAt: r.At, Bytes: m.Fingerprint.Size, SHA256: m.Fingerprint.SHA256, Encoding: m.Encoding,
		Round: s.Round, Turn: s.Turn, Outcome: cmp.Or(m.Outcome, "taken"), Fingerprint: m.Fingerprint,
	})
	if m.Outcome != "" {
		return
	}
	switch kind := round.NoteKind(m.File); kind {
	case round.NoteKeyInfo, round.NoteIntervene, noteReply:
		if kind == round.NoteKeyInfo && s.Phase != Queued {
			s.KeyInfo = round.AddKeyInfo(s.KeyInfo, m.Text)
			s.settle(m.Seq, "joined the working memory")
			return
		}
		s.Notes = append(s.Notes, round.Note{Seq: m.Seq, Kind: kind, Text: m.Text})
	}
}

// noteReply is a reply that was taken while a round runs: it opens the next one.
const noteReply round.NoteKind = taskdir.ReplyFile

func (s *state) openRound(o *roundRecord) {
	s.Phase, s.Reason = Queued, ""
	s.Round, s.RoundFrom, s.RoundText = o.Round, o.From, o.Text
	s.RoundStarted, s.Began, s.Joined, s.Turn, s.Answers, s.Begun, s.Crashes = time.Time{}, false, false, 0, 0, nil, 0
	s.Outcome, s.Deadline = nil, time.Time{}
	if o.Seq != 0 {
		s.settle(o.Seq, fmt.Sprintf("opened round %d", o.Round))
		s.Notes = slices.DeleteFunc(s.Notes, func(n round.Note) bool { return n.Seq == o.Seq })
	}
}

func (s *state) begin(r *record) {
	b := r.Began
	s.Began = true
	s.RoundStarted = r.At
	if s.Round > 0 || s.Parent != "" {
		return
	}
	s.Settings, s.ContextMark, s.HistoryMark = b.Settings, b.Context, b.HistoryMark
	s.Warnings = b.Warnings
	s.Conversation, s.Joined, s.Prepared, s.Turn = b.History, false, nil, 0
	for _, c := range b.Receipts {
		s.addReceipt(c)
	}
}

func (s *state) applyAnswer(a *answerRecord) {
	s.Conversation = append(s.Conversation, a.Message)
	s.Turn, s.Crashes = a.Turn, 0
	s.Answers++
	s.Spent = s.Spent.Add(a.Spent)
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

func (s *state) applyAppend(a *appendRecord) {
	s.Conversation = append(s.Conversation, a.Messages...)
	s.Joined, s.Begun, s.Crashes = true, nil, 0
	if a.KeyInfo != nil {
		s.KeyInfo = *a.KeyInfo
	}
	for _, seq := range a.Applied {
		s.settle(seq, "applied")
		for i := range s.Receipts {
			if s.Receipts[i].Seq == seq {
				s.Receipts[i].Turn = a.Turn
			}
		}
	}
	s.Notes = slices.DeleteFunc(s.Notes, func(n round.Note) bool { return slices.Contains(a.Applied, n.Seq) })
}

func (s *state) applyChild(c childRecord) {
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

// openChildren names the subagents whose first round is not known to be over.
func (s *state) openChildren() (names []string) {
	for _, c := range s.Children {
		if !c.Done {
			names = append(names, c.Task)
		}
	}
	return names
}

func (s *state) close(r *record) {
	s.Phase, s.Outcome, s.Reason, s.ClosedAt = Awaiting, r.Closed, r.Closed.Reason, r.At
	s.Begun = nil
	// Key info that the round did not get to is known to the next one.
	for _, n := range s.Notes {
		if n.Kind == round.NoteKeyInfo {
			s.KeyInfo = round.AddKeyInfo(s.KeyInfo, n.Text)
			s.settle(n.Seq, "joined the working memory")
		}
	}
	s.Notes = slices.DeleteFunc(s.Notes, func(n round.Note) bool { return n.Kind == round.NoteKeyInfo })
	if r.Memo != nil {
		s.Deadline = r.Memo.Deadline
	}
}

func (s *state) addReceipt(r Receipt) {
	s.Receipts = append(s.Receipts, r)
	if n := len(s.Receipts) - maxReceipts; n > 0 {
		s.Receipts = slices.Delete(s.Receipts, 0, n)
	}
}

// settle notes what became of the message with this number.
func (s *state) settle(seq uint64, outcome string) {
	for i := range s.Receipts {
		if s.Receipts[i].Seq == seq {
			s.Receipts[i].Outcome = outcome
		}
	}
}

func (s *state) warn(text string) {
	const most = 50
	if !slices.Contains(s.Warnings, text) && len(s.Warnings) < most {
		s.Warnings = append(s.Warnings, text)
	}
}

// knows reports whether a control file with this fingerprint was taken before.
func (s *state) knows(fp taskdir.Fingerprint) bool {
	return slices.ContainsFunc(s.Receipts, func(r Receipt) bool { return r.Fingerprint == fp })
}

// memo is what is kept while the session waits.
func (s *state) memo() *Memo {
	return &Memo{
		Session: s.Session, Round: s.Round, Phase: s.Phase, Dir: s.Dir, Input: s.Input, Seq: s.Seq,
		ClosedAt: s.ClosedAt, Deadline: s.Deadline, From: s.from,
	}
}

func cmpOr[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

func encode(r *record) (json.RawMessage, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode journal record: %w", err)
	}
	return b, nil
}
