package taskdir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
)

// Sight is what one look at a task found. Names that are not there are nil.
type Sight struct {
	Input, Context, History         *Stat // left in place
	Stop, KeyInfo, Intervene, Reply *Stat // messages; an empty one is none yet, but for Stop
	Taken                           []TakenFile
	Outputs                         int   // rounds with an output, counted to the highest; 0 none
	LastOutput                      *Stat // of the highest round
	HasStatus                       bool
	Temps                           bool      // files that are being written, or whose writer has died: see Sweep
	Refused                         []Refusal // what has a name that counts and is not opened
}

// TakenFile is a message that was renamed and not dropped yet.
type TakenFile struct {
	Seq  uint64
	Name string // the name it was written under
	File string // the name it has now
	Stat Stat
}

// Refusal says why a file that is there is not opened.
type Refusal struct {
	Name string
	Why  string
	// Stat tells one such thing from the next of that name.
	Stat Stat
	// Names says that it is a file with several names, which may lose the others.
	Names bool
}

// The names that a look examines. Their order is that of the fields of Sight.
const (
	seenInput = iota
	seenContext
	seenHistory
	seenStop
	seenKeyInfo
	seenIntervene
	seenReply
	seenNames
)

func seenIndex(name []byte) int {
	switch string(name) {
	case InputFile:
		return seenInput
	case ContextFile:
		return seenContext
	case ForkFile:
		return seenHistory
	case StopFile:
		return seenStop
	case KeyInfoFile:
		return seenKeyInfo
	case InterveneFile:
		return seenIntervene
	case ReplyFile:
		return seenReply
	}
	return -1
}

var seenFiles = [seenNames]string{InputFile, ContextFile, ForkFile, StopFile, KeyInfoFile, InterveneFile, ReplyFile}

// Look lists the directory once and describes the files that count. It reads no
// file, writes nothing, and takes some microseconds on a local disk. ErrGone says
// that the directory is no longer the task's; what it still holds is of no interest.
func (d *Dir) Look() (Sight, error) {
	switch same, err := d.h.isAt(d.root.h, d.name, d.id); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !same:
		return Sight{}, fmt.Errorf("look at %s: %w", d.path, ErrGone)
	case err != nil:
		return Sight{}, pathError("look at", d.path, err)
	}
	var (
		s       Sight
		present [seenNames]bool
		last    = -1
	)
	err := d.root.each(d.h, func(_ view, name []byte, k kind) {
		if i := seenIndex(name); i >= 0 {
			present[i] = true
			return
		}
		switch name[0] {
		case 'o':
			if round, ok := parseOutput(name); ok && (k == regular || k == unknown) {
				last = max(last, round)
			}
		case 's':
			if string(name) == StatusFile && (k == regular || k == unknown) {
				s.HasStatus = true
			}
		case '.':
			if len(name) <= len(takenPrefix) || string(name[:len(takenPrefix)]) != takenPrefix {
				s.Temps = s.Temps || atomicfile.IsTemp(string(name))
				return
			}
			if seq, of, ok := parseTaken(string(name)); ok {
				s.Taken = append(s.Taken, TakenFile{Seq: seq, Name: of, File: string(name)})
			}
		}
	})
	if err != nil {
		return Sight{}, pathError("look at", d.path, err)
	}
	if err := d.h.with(func(v view) error { return s.examine(v, present, last) }); err != nil {
		return Sight{}, pathError("look at", d.path, err)
	}
	return s, nil
}

// examine describes the files that the listing found.
func (s *Sight) examine(v view, present [seenNames]bool, last int) error {
	count := 1
	for _, p := range present {
		if p {
			count++
		}
	}
	// One allocation; the fields point into it, so it must not grow.
	stats := make([]Stat, 0, count)
	fields := [seenNames]**Stat{&s.Input, &s.Context, &s.History, &s.Stop, &s.KeyInfo, &s.Intervene, &s.Reply}
	for i, name := range seenFiles {
		if !present[i] {
			continue
		}
		in, err := v.lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if why := in.why(); why != "" {
			s.Refused = append(s.Refused, Refusal{Name: name, Why: why, Stat: in.Stat, Names: in.kind == regular})
			continue
		}
		stats = append(stats, in.Stat)
		*fields[i] = &stats[len(stats)-1]
	}
	if last >= 0 {
		s.Outputs = last + 1
		in, err := v.lstat(OutputName(last))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && in.why() == "" {
			stats = append(stats, in.Stat)
			s.LastOutput = &stats[len(stats)-1]
		}
	}
	kept := s.Taken[:0]
	for _, t := range s.Taken {
		in, err := v.lstat(t.File)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if why := in.why(); why != "" {
			s.Refused = append(s.Refused, Refusal{Name: t.File, Why: why, Stat: in.Stat, Names: in.kind == regular})
			continue
		}
		t.Stat = in.Stat
		kept = append(kept, t)
	}
	s.Taken = kept
	slices.SortFunc(s.Taken, func(a, b TakenFile) int { return cmp.Compare(a.Seq, b.Seq) })
	return nil
}
