package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/fault"
)

// Archive moves what an earlier session has written - outputs, status, events,
// result, history.json and the plan - to old/<n>/, in one go. input.txt,
// context.json, _history.json and messages stay: they are for the next session.
// Outputs that are open go on at their new place. It returns the number that it
// used: n, or the next free one where old/<n> belongs to another session. Where
// there is nothing to move it makes no directory and returns n.
//
// Called again, as after a crash in the middle, it finishes the work.
func (d *Dir) Archive(n int) (int, error) {
	names, err := d.archivable()
	if err != nil || len(names) == 0 {
		return n, err
	}
	old, err := d.dirInside(d.h, OldDir, d.path)
	if err != nil {
		return n, err
	}
	defer old.close()
	oldPath := filepath.Join(d.path, OldDir)
	for ; ; n++ {
		dst, err := d.dirInside(old, strconv.Itoa(n), oldPath)
		if err != nil {
			return n, err
		}
		if other, err := clash(dst, names); err != nil || other {
			dst.close()
			if err != nil {
				return n, pathError("archive", filepath.Join(oldPath, strconv.Itoa(n)), err)
			}
			continue
		}
		err = d.moveAll(names, dst)
		dst.close()
		return n, err
	}
}

// archivable lists what Archive moves, outputs first: they are what a reader
// could take for new ones.
func (d *Dir) archivable() ([]string, error) {
	var outputs, others []string
	err := d.root.each(d.h, func(_ view, name []byte, _ kind) {
		if _, ok := parseOutput(name); ok {
			outputs = append(outputs, string(name))
			return
		}
		switch string(name) {
		case StatusFile, EventsFile, ResultFile, HistoryFile, PlanFile:
			others = append(others, string(name))
		}
	})
	if err != nil {
		return nil, pathError("archive", d.path, err)
	}
	slices.Sort(outputs)
	slices.Sort(others)
	return append(outputs, others...), nil
}

// clash says whether a directory of the archive holds an output that is to be
// moved there: then it is another session's. Other files were written anew since
// the outputs moved, by the same session.
func clash(dst handle, names []string) (bool, error) {
	for _, name := range names {
		if _, ok := parseOutput(name); !ok {
			continue
		}
		if _, err := dst.lstat(name); err == nil {
			return true, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

func (d *Dir) moveAll(names []string, dst handle) error {
	for _, name := range names {
		_, output := parseOutput(name)
		if err := d.h.move(name, dst, !output); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pathError("archive", d.join(name), err)
		}
		fault.Point("archive.moved")
	}
	return errors.Join(dst.sync(), d.h.sync())
}

// dirInside opens a directory, and makes it where it is not there. A link or a
// file of that name is put aside.
func (d *Dir) dirInside(h handle, name, parent string) (handle, error) {
	path := filepath.Join(parent, name)
	for try := 0; ; try++ {
		sub, err := h.sub(name, path)
		if err == nil {
			return sub, nil
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = h.mkdir(name, 0o755)
			fault.Point("archive.made")
			if errors.Is(err, fs.ErrExist) {
				err = nil
			}
		case isNotDir(err) || isLink(err):
			err = h.rename(name, strayPrefix+strconv.FormatInt(time.Now().UnixNano(), 36)+"-"+name)
		}
		if err != nil || try == 10 {
			return handle{}, pathError("archive", path, err)
		}
	}
}

// NextOld returns the lowest number above all directories in old/, 1 where there
// are none.
func (d *Dir) NextOld() (int, error) {
	old, err := d.h.sub(OldDir, d.join(OldDir))
	if errors.Is(err, fs.ErrNotExist) || err != nil && (isNotDir(err) || isLink(err)) {
		return 1, nil
	}
	if err != nil {
		return 0, pathError("list", d.join(OldDir), err)
	}
	defer old.close()
	numbers, err := d.numbers(old)
	if err != nil {
		return 0, err
	}
	next := 1
	for _, n := range numbers {
		next = max(next, n+1)
	}
	return next, nil
}

// numbers lists the numbers in old/, which is open.
func (d *Dir) numbers(old handle) (numbers []int, err error) {
	err = d.root.each(old, func(_ view, name []byte, _ kind) {
		if n, err := strconv.Atoi(string(name)); err == nil {
			numbers = append(numbers, n)
		}
	})
	if err != nil {
		return nil, pathError("list", d.join(OldDir), err)
	}
	return numbers, nil
}

// OwedOld returns the numbers of the directories in old/ with an output that has no
// marker, the lowest first. Sessions get their markers in their order, so it looks
// from the newest back, and no further than one that has all.
func (d *Dir) OwedOld() (owed []int, err error) {
	old, err := d.h.sub(OldDir, d.join(OldDir))
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), isNotDir(err), isLink(err):
		return nil, nil
	default:
		return nil, pathError("list", d.join(OldDir), err)
	}
	defer old.close()
	numbers, err := d.numbers(old)
	if err != nil {
		return nil, err
	}
	slices.Sort(numbers)
	for _, n := range slices.Backward(numbers) {
		outputs, unfinished, err := d.oldOutputs(old, n)
		if err != nil {
			return nil, err
		}
		if unfinished > 0 {
			owed = append(owed, n)
		} else if outputs > 0 {
			break
		}
	}
	slices.Reverse(owed)
	return owed, nil
}

// oldOutputs counts the outputs in old/<n>/, and those of them without a marker.
func (d *Dir) oldOutputs(old handle, n int) (outputs, unfinished int, err error) {
	a, err := d.oldDir(old, n)
	if a == nil || err != nil {
		return 0, 0, err
	}
	defer a.Close()
	rounds, err := a.rounds()
	for _, round := range rounds {
		finished, ferr := a.Finished(round)
		err = errors.Join(err, ferr)
		if !finished {
			unfinished++
		}
	}
	return len(rounds), unfinished, err
}

// oldDir opens old/<n>/ for the same operations as in a task's directory; nil where
// there is none.
func (d *Dir) oldDir(old handle, n int) (*Dir, error) {
	name := strconv.Itoa(n)
	path := filepath.Join(d.path, OldDir, name)
	h, err := old.sub(name, path)
	switch {
	case err == nil:
		return &Dir{root: d.root, name: name, path: path, h: h}, nil
	case errors.Is(err, fs.ErrNotExist), isNotDir(err), isLink(err):
		return nil, nil
	}
	return nil, pathError("open", path, err)
}

// MarkArchived ends the outputs in old/<n>/ that have no marker, as those of a
// session that was cut short before its files moved. Outputs that are open must
// have been ended before.
func (d *Dir) MarkArchived(n int) error {
	old, err := d.h.sub(OldDir, d.join(OldDir))
	if errors.Is(err, fs.ErrNotExist) || err != nil && (isNotDir(err) || isLink(err)) {
		return nil
	}
	if err != nil {
		return pathError("mark", d.join(OldDir), err)
	}
	defer old.close()
	a, err := d.oldDir(old, n)
	if a == nil || err != nil {
		return err
	}
	defer a.Close()
	rounds, err := a.rounds()
	if err != nil {
		return err
	}
	for _, round := range rounds {
		o, err := a.ReopenOutput(round, 0)
		var refused *RefusedError
		if errors.Is(err, ErrFinished) || errors.As(err, &refused) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(o.End(), o.Close()); err != nil {
			return err
		}
		fault.Point("archive.marked")
	}
	return nil
}

// rounds lists the rounds that have an output, in order.
func (d *Dir) rounds() ([]int, error) {
	var rounds []int
	err := d.root.each(d.h, func(_ view, name []byte, _ kind) {
		if round, ok := parseOutput(name); ok {
			rounds = append(rounds, round)
		}
	})
	if err != nil {
		return nil, pathError("list", d.path, err)
	}
	slices.Sort(rounds)
	return rounds, nil
}

// Finished says whether the output of a round ends in the marker. It does not
// where there is none, or where something else has its name.
func (d *Dir) Finished(round int) (bool, error) {
	f, in, err := d.open(OutputName(round), os.O_RDONLY)
	var refused *RefusedError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &refused) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	tail, err := readTail(f, in.Size)
	if err != nil {
		return false, pathError("read", f.Name(), err)
	}
	return EndsInMarker(tail), nil
}

// FinishedByOther says of a directory that has no journal whether its task was
// done by someone else: the output written last ends in the marker and is not
// older than input.txt.
func (d *Dir) FinishedByOther(s Sight) (bool, error) {
	rounds, err := d.rounds()
	if err != nil {
		return false, err
	}
	newest := -1
	var written time.Time
	for _, round := range rounds {
		in, err := d.h.lstat(OutputName(round))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, pathError("look at", d.join(OutputName(round)), err)
		}
		// Of two written at the same time the later round counts.
		if in.why() == "" && (newest < 0 || !in.Mtime.Before(written)) {
			newest, written = round, in.Mtime
		}
	}
	if newest < 0 || s.Input != nil && written.Before(s.Input.Mtime) {
		return false, nil
	}
	done, err := d.Finished(newest)
	if err != nil {
		return false, fmt.Errorf("look for an earlier result: %w", err)
	}
	return done, nil
}
