package taskdir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/round"
)

// Text is a string that is null in JSON where it is empty.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return marshal(string(t))
}

// Time is a time that is null in JSON where it is zero, else RFC 3339 in UTC with
// milliseconds.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z07:00"`)), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*t = Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(data)
}

// State is the life of a session, as it stands in status.json.
type State string

// The states.
const (
	Queued        State = "queued"
	Running       State = "running"
	AwaitingReply State = "awaiting_reply"
	Ended         State = "ended"
)

// MaxMessages is how many messages status.json lists, the latest ones.
const MaxMessages = 100

// Status is status.json. Every key is always there; what is not known is null.
// Keys are only ever added.
type Status struct {
	Task           string         `json:"task"`
	Session        int            `json:"session"`
	State          State          `json:"state"`
	Reason         Text           `json:"reason"` // a round.Reason
	Round          int            `json:"round"`
	Turn           int            `json:"turn"`
	Agent          Text           `json:"agent"`
	LLM            Text           `json:"llm"`
	Model          Text           `json:"model"`
	StartedAt      Time           `json:"started_at"`
	UpdatedAt      Time           `json:"updated_at"`
	ReplyDeadline  Time           `json:"reply_deadline"`
	Output         Text           `json:"output"` // absolute path of the round's output
	Result         Text           `json:"result"`
	CompletedBy    Text           `json:"completed_by"`
	Error          *round.Failure `json:"error"`
	Warnings       []string       `json:"warnings"`
	LatestTool     Text           `json:"latest_tool"`
	Waiting        *Waiting       `json:"waiting"` // nil while the model is not waited for
	Messages       []Message      `json:"messages"`
	Usage          Usage          `json:"usage"`
	Plan           Plan           `json:"plan"`
	OpenPoints     []string       `json:"open_points"`
	MissingOutputs []string       `json:"missing_outputs"`
	Parent         Text           `json:"parent"`
	Children       []string       `json:"children"`
}

// Message is the receipt for one file that the supervisor wrote.
type Message struct {
	File     string `json:"file"`
	TakenAt  Time   `json:"taken_at"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Encoding string `json:"encoding"`
	Round    int    `json:"round"`
	Turn     int    `json:"turn"`
	Outcome  Text   `json:"outcome"`
}

// Waiting says why the model has not been asked yet, or not again.
type Waiting struct {
	Since Time   `json:"since"`
	Until Time   `json:"until"` // null where nobody knows
	Why   string `json:"why"`
}

// Usage is what a session has spent, and how full its context is.
type Usage struct {
	Requests           int64    `json:"requests"`
	ToolCalls          int64    `json:"tool_calls"`
	InputTokens        int64    `json:"input_tokens"`
	OutputTokens       int64    `json:"output_tokens"`
	CachedTokens       int64    `json:"cached_tokens"`
	CostUSD            *float64 `json:"cost_usd"`
	ContextTokens      *int     `json:"context_tokens"`
	ContextWindow      *int     `json:"context_window"`
	ContextPercent     *float64 `json:"context_percent"` // with one decimal
	UnreportedRequests int64    `json:"unreported_requests"`
}

// SetContext sets the three context fields. A number of 0 is not known.
func (u *Usage) SetContext(tokens, window int) {
	u.ContextTokens, u.ContextWindow, u.ContextPercent = nil, nil, nil
	if tokens > 0 {
		u.ContextTokens = &tokens
	}
	if window > 0 {
		u.ContextWindow = &window
	}
	if tokens > 0 && window > 0 {
		percent := math.Round(float64(tokens)/float64(window)*1000) / 10
		u.ContextPercent = &percent
	}
}

// Plan is the progress of subagent_plan.md: steps, and the text of the current one.
type Plan struct {
	Done    int  `json:"done"`
	Total   int  `json:"total"`
	Current Text `json:"current"`
}

// NewStatus returns the status of a task of which nothing is known yet.
func NewStatus(task string) *Status {
	s := &Status{Task: task, State: Queued}
	s.fill()
	return s
}

// AddMessage adds a receipt and forgets the oldest beyond MaxMessages.
func (s *Status) AddMessage(m Message) {
	s.Messages = append(s.Messages, m)
	if extra := len(s.Messages) - MaxMessages; extra > 0 {
		s.Messages = append(s.Messages[:0], s.Messages[extra:]...)
	}
}

// fill makes lists of nothing empty ones, since a reader may count on lists.
func (s *Status) fill() {
	for _, list := range []*[]string{&s.Warnings, &s.OpenPoints, &s.MissingOutputs, &s.Children} {
		if *list == nil {
			*list = []string{}
		}
	}
	if s.Messages == nil {
		s.Messages = []Message{}
	}
	if extra := len(s.Messages) - MaxMessages; extra > 0 {
		s.Messages = s.Messages[extra:]
	}
}

// maxResult bounds a result in status.json, in bytes. As JSON a character may take
// six, and whoever reads the file, ReadStatus too, reads no more than MaxMessage.
const maxResult = 1 << 20

// clipResult shortens a result, on a whole character, and says so.
func clipResult(result Text) Text {
	if len(result) <= maxResult {
		return result
	}
	n := maxResult
	for n > 0 && !utf8.RuneStart(result[n]) {
		n--
	}
	return result[:n] + Text(fmt.Sprintf("\n[... the first of %d bytes; the output has all of them]", len(result)))
}

// Encode returns the text of status.json: one key a line, one message a line. A
// result of more than a megabyte is shortened.
func (s *Status) Encode() ([]byte, error) {
	whole := *s
	whole.fill()
	whole.Result = clipResult(whole.Result)
	data, err := marshal(&whole)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", StatusFile, err)
	}
	return layOut(data), nil
}

// layOut breaks compact JSON into lines for people. Full indentation costs
// several times what encoding does, several times a turn.
func layOut(data []byte) []byte {
	out := make([]byte, 0, len(data)+len(data)/8+256)
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		if inString {
			out = append(out, c)
			switch c {
			case '\\':
				i++
				out = append(out, data[i])
			case '"':
				inString = false
			}
			continue
		}
		switch c {
		case '"':
			inString = true
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				out = append(out, '\n')
			}
		}
		out = append(out, c)
		switch {
		case depth == 1 && (c == ',' || c == '{' && i == 0):
			out = append(out, "\n  "...)
		case depth == 1 && c == ':':
			out = append(out, ' ')
		case depth == 2 && c == ',' && data[i+1] == '{':
			out = append(out, "\n    "...)
		}
	}
	return append(out, '\n')
}

// WriteStatus replaces status.json. With sync it returns once that is durable;
// without, a reader sees it at once and a power failure may take it back.
func (d *Dir) WriteStatus(s *Status, sync bool) error {
	data, err := s.Encode()
	if err != nil {
		return err
	}
	return d.replace(StatusFile, data, sync)
}

// ReadStatus reads status.json in the directory of a task. fs.ErrNotExist says
// that there is none, a *RefusedError that something else has its name.
func ReadStatus(dir string) (*Status, error) {
	path := filepath.Join(dir, StatusFile)
	h, err := openRoot(dir)
	if err != nil {
		return nil, pathError("read", path, err)
	}
	d := &Dir{path: dir, h: h}
	defer d.Close()
	f, in, err := d.open(StatusFile, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readBounded(f, in.Stat, MaxMessage)
	if err != nil {
		return nil, err
	}
	s := &Status{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	s.fill()
	return s, nil
}

// marshal is json.Marshal without escaping <, > and &, which people read here.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
