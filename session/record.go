package session

import (
	"encoding/json"
	"fmt"
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
	Reserved *llm.Amount     `json:"reserved,omitempty"`
	Child    *childRecord    `json:"child,omitempty"`
	Warning  *string         `json:"warning,omitempty"`
	Moved    *taskdir.FileID `json:"moved,omitempty"`
	Aside    *asideRecord    `json:"aside,omitempty"`
	Closed   *closedRecord   `json:"closed,omitempty"`
	Ended    *endedRecord    `json:"ended,omitempty"`
	Snapshot *state          `json:"snapshot,omitempty"`

	// Estimated stands beside Spent: see round.SpentBeside.
	Estimated llm.Amount `json:"estimated,omitzero"`

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
		// Refused is why the input could not be read: the round ends with it, before it
		// costs anything.
		Refused string `json:"refused,omitempty"`
		// Seq is the highest number that earlier sessions gave to a message, and Past
		// the messages whose files may still be there, or come back after a power failure.
		Seq  uint64        `json:"seq,omitempty"`
		Past []pastMessage `json:"past,omitempty"`
		// Rounds is how many outputs stood there already, in a session that was
		// adopted from another program.
		Rounds int `json:"rounds,omitempty"`
		// Parent makes the session a subagent's, which takes its settings and what it
		// goes on from here instead of from files.
		Parent   string          `json:"parent,omitempty"`
		Depth    int             `json:"depth,omitempty"`
		Settings *round.Settings `json:"settings,omitempty"`
		Prepared *round.Prepared `json:"prepared,omitempty"`
		// History is the conversation that a subagent or an adopted session goes on from.
		History []llm.Message `json:"history,omitempty"`
	}

	// childRecord names the child that does a job of this session's; later ones for
	// the same job replace it.
	childRecord struct {
		// Call and N are the job's: see round.Spawn.
		Call string `json:"call"`
		N    int    `json:"n"`
		Task string `json:"task"`
		// Made says that its directory came to be: if it is gone, somebody has removed it.
		Made bool `json:"made,omitempty"`
		// Done says that its first round is over; Spent is what that cost.
		Done  bool      `json:"done,omitempty"`
		Spent llm.Usage `json:"spent,omitzero"`
		// Left says that its parent's round ended before that was known. Only snapshots
		// have it: it follows from the end of the round.
		Left bool `json:"left,omitempty"`
	}

	// pastMessage is a control file that an earlier session acted on.
	pastMessage struct {
		Taken       uint64              `json:"taken"`
		File        string              `json:"file"`
		Fingerprint taskdir.Fingerprint `json:"fingerprint"`
	}

	// messageRecord is a control file that was taken.
	messageRecord struct {
		Seq uint64 `json:"seq"`
		// Taken is the number in the name of the taken file, where that is not Seq: what
		// was added to a file after it was read is a message of its own.
		Taken       uint64              `json:"taken,omitempty"`
		File        string              `json:"file"`
		Text        string              `json:"text,omitempty"`
		Encoding    string              `json:"encoding,omitempty"`
		Bytes       int64               `json:"bytes,omitempty"`
		SHA256      string              `json:"sha256,omitempty"`
		Fingerprint taskdir.Fingerprint `json:"fingerprint"`
		// Outcome is set where the message has done all that it will do.
		Outcome string `json:"outcome,omitempty"`
		// Refused says that it could not be read, and Outcome why. A reply still opens a
		// round, which says so to whoever waits for its end.
		Refused bool `json:"refused,omitempty"`
	}

	// roundRecord opens a round with the message of that number, which was taken before.
	roundRecord struct {
		Round int    `json:"round"`
		From  string `json:"from"`
		Seq   uint64 `json:"seq"`
	}

	// beganRecord says that a round began to run, the first one with the files that it
	// found. A second one in a first round starts it over.
	beganRecord struct {
		Settings round.Settings `json:"settings,omitzero"`
		Warnings []string       `json:"warnings,omitempty"`
		History  []llm.Message  `json:"history,omitempty"`
		// Context and HistoryMark are what was read, zero where there was no file.
		Context     fileMark  `json:"context,omitzero"`
		HistoryMark fileMark  `json:"history_mark,omitzero"`
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
		// Cut is round.Answered's. Journals of earlier programs do not say.
		Cut round.Cut `json:"cut,omitempty"`
		// Estimated and Break are round.Answered's.
		Estimated llm.Amount `json:"estimated,omitzero"`
		Break     string     `json:"break,omitempty"`
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

	// asideRecord says that the session's files belong in old/<N>/: a new input.txt
	// takes its place.
	asideRecord struct {
		N int `json:"n"`
	}

	// closedRecord ends a round.
	closedRecord struct {
		round.Outcome
		// Shown is the size of the output with everything but the marker.
		Shown int64 `json:"shown,omitempty"`
		// Deadline is until when a reply is waited for.
		Deadline time.Time `json:"deadline,omitzero"`
		// Join says that the round's message joins the conversation with this record. One
		// of its own could be all that a crash leaves, and the message be said again.
		Join bool `json:"join,omitempty"`
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

func markOf(s taskdir.Stat, sha256 string) fileMark {
	return fileMark{Size: s.Size, Mtime: s.Mtime.UnixNano(), SHA256: sha256}
}

func (m fileMark) sees(s *taskdir.Stat) bool {
	return s != nil && s.Size == m.Size && s.Mtime.UnixNano() == m.Mtime
}

// lateMarks recognise context.json and _history.json, with as little as a session that
// waits can remember.
type lateMarks [2]lateMark

type lateMark struct {
	Size  int64 `json:"size,omitempty"`
	Mtime int64 `json:"mtime,omitempty"`
}

func lateMarkOf(s *taskdir.Stat) lateMark { return lateMark{s.Size, s.Mtime.UnixNano()} }

func (m lateMark) sees(s *taskdir.Stat) bool { return s != nil && lateMarkOf(s) == m }

// inputMark is the input.txt that the session works on.
type inputMark struct {
	fileMark
	// TakenAt is when it was read. A later mtime makes the file new.
	TakenAt time.Time `json:"taken_at"`
}

// takenNow marks an input.txt that was just read. The clock that stamps files may
// be finer than the one that we can read, and so a little ahead of it.
func takenNow(c taskdir.Content) inputMark {
	at := fileTime()
	if ahead := c.Stat.Mtime.Sub(at); ahead > 0 && ahead < time.Second {
		at = c.Stat.Mtime
	}
	return inputMark{markOf(c.Stat, c.SHA256), at}
}

// Memo is all that a session keeps in memory while it waits, and what a journal's
// last record says of it.
type Memo struct {
	Session  int            `json:"session"`
	Round    int            `json:"round"`
	Phase    State          `json:"phase"`
	Dir      taskdir.FileID `json:"dir"`
	Input    inputMark      `json:"input"`
	Seq      uint64         `json:"seq"`
	Deadline time.Time      `json:"deadline,omitzero"`
	// From is the offset at which a full reading may begin.
	From int64 `json:"from"`
	// Late are the files of the session's first round, from which those that come too
	// late for it differ. It is nil where none does, as they are yet to be read or never
	// are, and in journals of earlier programs.
	Late *lateMarks `json:"late,omitempty"`

	// Adopted marks a session that another program ran, and Damaged one whose journal
	// cannot be read, with the reason: there is nothing to load.
	Adopted bool   `json:"-"`
	Damaged string `json:"-"`

	// floor is until when a reply is waited for at least.
	floor time.Time
}

// Due is when a session that is not live has to be started again even if there is
// nothing to look at; zero for never.
func (m *Memo) Due() time.Time {
	if m == nil || m.Phase != Awaiting {
		return time.Time{}
	}
	return laterOf(m.Deadline, m.floor)
}

func encode(r *record) (json.RawMessage, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode journal record: %w", err)
	}
	return b, nil
}
