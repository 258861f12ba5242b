package session

import (
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// Receipt tells a supervisor what became of a file that it wrote.
type Receipt struct {
	Seq uint64 `json:"seq,omitempty"`
	// Taken is the number in the name of the taken file.
	Taken    uint64    `json:"taken,omitempty"`
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

// What becomes of a file, as receipts say it.
const (
	outcomeTaken      = "taken"
	outcomeApplied    = "applied"
	outcomeRemembered = "joined the working memory"
	outcomeStopped    = "stopped the round"
	outcomeEnded      = "ended the session"
	outcomeOver       = "without effect: the session had ended"
	outcomeStale      = "without effect: older than the end of the last round"
	outcomeCompleted  = "without effect: the round was over by itself"
	outcomeReplaced   = "without effect: a new input.txt took the session's place"
	outcomeLate       = "too late for this session: counts from the next input.txt"
	outcomeRead       = "read"
	// outcomeRefused begins what is said of a file that nothing can be done about.
	outcomeRefused = "refused: "
	outcomeBlank   = "holds nothing but white space"
)

// maxReceipts is how many receipts a session keeps.
const maxReceipts = taskdir.MaxMessages

func (s *state) addReceipt(r Receipt) {
	if r.Seq == 0 {
		// A file that is read in place may be read again, when a round starts over.
		s.Receipts = slices.DeleteFunc(s.Receipts, func(o Receipt) bool {
			return o.Seq == 0 && o.File == r.File && o.SHA256 == r.SHA256
		})
	}
	s.Receipts = append(s.Receipts, r)
	if n := len(s.Receipts) - maxReceipts; n > 0 {
		s.Receipts = slices.Delete(s.Receipts, 0, n)
	}
}

// receipt returns the receipt of a message, nil where it is forgotten.
func (s *state) receipt(seq uint64) *Receipt {
	for i := range s.Receipts {
		if seq != 0 && s.Receipts[i].Seq == seq {
			return &s.Receipts[i]
		}
	}
	return nil
}

// settle notes what became of the message with this number.
func (s *state) settle(seq uint64, outcome string) {
	if r := s.receipt(seq); r != nil {
		r.Outcome = outcome
	}
}

// settleStops notes what became of the _stops that had not done their work.
func (s *state) settleStops(outcome string) {
	s.Stop = false
	for i := range s.Receipts {
		if r := &s.Receipts[i]; r.File == taskdir.StopFile && r.Outcome == outcomeTaken {
			r.Outcome = outcome
		}
	}
}

// knows reports whether a message with this fingerprint was acted on before.
func (s *state) knows(fp taskdir.Fingerprint) bool {
	return slices.ContainsFunc(s.fingerprints(), fp.SameState)
}

// read returns the fingerprint that a taken file had when it was last read; ok is
// false for one that the journal does not know.
func (s *state) read(t taskdir.TakenFile) (fp taskdir.Fingerprint, ok bool) {
	for _, p := range s.Past {
		if p.Taken == t.Seq && p.File == t.Name {
			fp, ok = p.Fingerprint, true
		}
	}
	for _, r := range s.Receipts {
		if r.Taken == t.Seq && r.File == t.Name && r.Fingerprint != (taskdir.Fingerprint{}) {
			fp, ok = r.Fingerprint, true
		}
	}
	return fp, ok
}

// past are the messages that the session after this one has to recognise.
func (s *state) past() []pastMessage {
	all := slices.Clone(s.Past)
	for _, r := range s.Receipts {
		if r.Taken != 0 && r.Fingerprint != (taskdir.Fingerprint{}) {
			all = append(all, pastMessage{Taken: r.Taken, File: r.File, Fingerprint: r.Fingerprint})
		}
	}
	return all[max(0, len(all)-maxReceipts):]
}

// fingerprints are those of all messages that are recognised.
func (s *state) fingerprints() []taskdir.Fingerprint {
	var all []taskdir.Fingerprint
	for _, p := range s.past() {
		all = append(all, p.Fingerprint)
	}
	return all
}
