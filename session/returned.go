package session

import (
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// A power failure may take back that a file was renamed, deleted or written to, and
// leave the journal's record that it was acted on. What is here recognises such a file
// by what was read from it.

// cameBack recognises a message that was taken before, where a power failure has
// brought its file back otherwise than it was read: without its last bytes, which
// had not reached the disk, or with what was added since, which is returned as rest.
// Only a file that was there at the first look can be such a one: a later one that
// is like it is a repetition.
func (s *Session) cameBack(p *pending, c taskdir.Content) (known bool, rest *taskdir.Pending) {
	fp := c.Fingerprint()
	if !s.early[fp.Ino] || p.p.Addition() {
		return false, nil
	}
	states := s.statesRead(fp)
	for _, r := range slices.Backward(states) {
		if fp.Size <= r.fp.Size {
			// Of a write that was lost, the time may have been kept.
			if _, certain := r.fp.SameFile(fp); (certain || r.covers(fp)) && earlierState(r.text, c.Text) {
				return true, nil
			}
		} else if rest := s.afterwards(p, c, r); rest != nil {
			return false, rest
		}
	}
	return false, s.tornAndAdded(p, c, states)
}

// tornAndAdded returns what was added to a file that had lost a part of what was read
// from it, nil if it is no such file. How long it was in between nobody knows: what it
// has in common with what was read counts up to the end of a line.
func (s *Session) tornAndAdded(p *pending, c taskdir.Content, states []stateRead) *taskdir.Pending {
	if int64(len(c.Text)) != c.Stat.Size {
		return nil // Its bytes are not those of the text.
	}
	lines := 0
	for _, r := range states {
		if _, certain := r.fp.SameFile(c.Fingerprint()); certain {
			lines = max(lines, strings.LastIndexByte(c.Text[:common(r.text, c.Text)], '\n')+1)
		}
	}
	dir, err := s.openDir()
	if lines == 0 || err != nil {
		return nil
	}
	rest, err := dir.After(p.p, int64(lines))
	if err != nil {
		return nil
	}
	return rest
}

// stateRead is a state in which a file was read.
type stateRead struct {
	fp taskdir.Fingerprint
	// text is that of the whole file, as far as the journals tell.
	text string
	// latest is the highest time that the file was read with.
	latest int64
}

// covers says that the file was not written to after it was last read.
func (r stateRead) covers(fp taskdir.Fingerprint) bool { return fp.Mtime <= r.latest }

// statesRead are the states in which the file with this fingerprint was read, the
// first one first.
func (s *Session) statesRead(fp taskdir.Fingerprint) (all []stateRead) {
	latest := int64(0)
	for _, f := range s.st.fingerprints() {
		if same, _ := f.SameFile(fp); !same {
			continue
		}
		text, from := s.place().wasRead(f)
		if n := len(all); n > 0 && 0 < from && from <= int64(len(all[n-1].text)) {
			text = all[n-1].text[:from] + text // What was added to a message is one of its own.
		}
		all = append(all, stateRead{fp: f, text: text})
		latest = max(latest, f.Mtime)
	}
	for i := range all {
		all[i].latest = latest
	}
	return all
}

// afterwards returns what was added to the file since that reading, nil if it does
// not begin with what was read.
func (s *Session) afterwards(p *pending, c taskdir.Content, r stateRead) *taskdir.Pending {
	dir, err := s.openDir()
	if err != nil {
		return nil
	}
	var rest *taskdir.Pending
	if n := len(r.text); int64(n) == r.fp.Size && len(c.Text) > n {
		if !earlierState(r.text, c.Text[:n]) {
			return nil
		}
		rest, err = dir.After(p.p, r.fp.Size)
	} else {
		rest, err = dir.Grown(p.p, r.fp)
	}
	if err != nil || rest == nil || !rest.Addition() {
		return nil
	}
	return rest
}

// earlierState reports whether text is how a file with the text whole may look after
// a power failure: cut short, or with zeros for what had not reached the disk.
func earlierState(whole, text string) bool {
	kept := strings.TrimRight(text, "\x00\uFFFD")
	return text != "" && common(whole, kept) == len(kept)
}

// common returns how far text goes along with whole, where zeros may stand for anything.
func common(whole, text string) int {
	most := min(len(whole), len(text))
	for i := range most {
		if text[i] != 0 && text[i] != whole[i] {
			return i
		}
	}
	return most
}
