package taskdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
)

// FileID tells directories apart while they exist.
type FileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// Stat is what tells one state of a file from another without reading it. Ino is
// 0 in a Sight on Windows, where only an open file has one.
type Stat struct {
	Ino   uint64
	Size  int64
	Mtime time.Time
}

// same says whether both describe the same state of the same file.
func (s Stat) same(o Stat) bool {
	return s.Ino == o.Ino && s.Size == o.Size && s.Mtime.Equal(o.Mtime)
}

// kind is what a name stands for.
type kind uint8

const (
	unknown kind = iota
	regular
	directory
	link
	pipe
	socket
	device
)

func (k kind) String() string {
	switch k {
	case regular:
		return "a regular file"
	case directory:
		return "a directory"
	case link:
		return "a symbolic link"
	case pipe:
		return "a named pipe"
	case socket:
		return "a socket"
	case device:
		return "a device"
	}
	return "of unknown kind"
}

// info is a Stat and what decides whether the file is opened at all.
type info struct {
	kind  kind
	nlink uint64
	dev   uint64
	born  int64 // see Fingerprint; only where a file was read
	Stat
}

// why says what stands against opening; "" if nothing does.
func (in info) why() string {
	switch {
	case in.kind != regular:
		return "it is " + in.kind.String()
	case in.nlink > 1:
		return "it has " + strconv.FormatUint(in.nlink, 10) + " names (hard links)"
	}
	return ""
}

const refusedHint = "put a regular file of its own there"

// Dir is the open directory of one task. It belongs to one goroutine, except
// that ReadPlan, WritePlan, the Write methods and Close may be called from any.
type Dir struct {
	root *Root
	name string
	path string
	h    handle
	id   FileID
	// settle overrides the root's where it is not 0.
	settle time.Duration
}

// Path returns the absolute path under which the directory was opened.
func (d *Dir) Path() string { return d.path }

// Name returns the task's name.
func (d *Dir) Name() string { return d.name }

// ID identifies the open directory.
func (d *Dir) ID() FileID { return d.id }

// Close gives the handle back. Outputs stay usable.
func (d *Dir) Close() error { return d.h.close() }

// SetSettle changes for this directory how long a file has to stand still to
// count as whole where its writers are not known.
func (d *Dir) SetSettle(t time.Duration) { d.settle = t }

// NewSince says whether this is another directory than the one known, so that
// the journal of its name does not speak of it. A directory that was copied or
// restored with its status.json is still the same task. The device is not
// compared, since its number may change with every boot.
func (d *Dir) NewSince(known FileID, s Sight) bool {
	return d.id.Ino != known.Ino && !s.HasStatus
}

// Sweep removes the temporary files that died writers have left; younger ones stay.
func (d *Dir) Sweep() error { return atomicfile.SweepAt(d.h.f) }

func (d *Dir) join(name string) string { return filepath.Join(d.path, name) }

func (d *Dir) refused(op, name, why string) error {
	return &RefusedError{Op: op, Path: d.join(name), Why: why, Hint: refusedHint}
}

// open opens a regular file with one name. A *RefusedError says that something
// else is there.
func (d *Dir) open(name string, flags int) (*os.File, info, error) {
	path := d.join(name)
	f, err := d.h.open(name, path, flags, 0)
	if err != nil {
		if isLink(err) || isNoFile(err) {
			if in, serr := d.h.lstat(name); serr == nil && in.why() != "" {
				return nil, info{}, d.refused("open", name, in.why())
			}
			return nil, info{}, d.refused("open", name, "it is no regular file")
		}
		return nil, info{}, pathError("open", path, err)
	}
	in, err := statFile(f)
	if err == nil && in.why() != "" {
		err = d.refused("open", name, in.why())
	}
	if err != nil {
		f.Close()
		return nil, info{}, err
	}
	return f, in, nil
}

// create makes a new file for appending. Whatever has the name is put aside.
func (d *Dir) create(name string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL
	for try := 0; ; try++ {
		f, err := d.h.open(name, d.join(name), flags, 0o644)
		if err == nil {
			return f, nil
		}
		// Bounded, in case that somebody plants faster than we clear away.
		if inTheWay := errors.Is(err, fs.ErrExist) || isLink(err) || isNoFile(err); !inTheWay || try == 10 {
			return nil, pathError("create", d.join(name), err)
		}
		if err := d.putAside(name); err != nil {
			return nil, err
		}
	}
}

// putAside renames what stands in the way of a file to be written. It may be
// somebody's, so it is neither deleted nor opened.
func (d *Dir) putAside(name string) error {
	for n := 1; ; n++ {
		err := d.h.rename(name, strayPrefix+strconv.Itoa(n)+"-"+name)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrExist) && n < 1000:
		default:
			return pathError("put aside", d.join(name), err)
		}
	}
}

// replace writes a whole file. A link at the name is replaced, a directory put aside.
func (d *Dir) replace(name string, data []byte, sync bool) error {
	err := atomicfile.WriteAt(d.h.f, name, data, 0o644, sync)
	if err == nil {
		return nil
	}
	if in, serr := d.h.lstat(name); serr != nil || in.kind != directory {
		return err
	}
	if err := d.putAside(name); err != nil {
		return err
	}
	return atomicfile.WriteAt(d.h.f, name, data, 0o644, sync)
}

// WriteHistory replaces history.json, the conversation that others can fork. It
// returns once that is durable.
func (d *Dir) WriteHistory(data []byte) error { return d.replace(HistoryFile, data, true) }

// WriteResult replaces result.json, the result as data. It returns once that is durable.
func (d *Dir) WriteResult(data []byte) error { return d.replace(ResultFile, data, true) }

// WritePlan replaces subagent_plan.md. It returns once that is durable: the plan
// is the agent's checkpoint.
func (d *Dir) WritePlan(text string) error { return d.replace(PlanFile, []byte(text), true) }

// ReadPlan returns the text of subagent_plan.md as it stands, "" where there is
// none. A *RefusedError says that it is no regular file, a *TooLargeError that it
// is longer than MaxPlan.
func (d *Dir) ReadPlan() (string, error) {
	f, in, err := d.open(PlanFile, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := readBounded(f, in.Stat, MaxPlan)
	if err != nil {
		return "", err
	}
	text, _ := Decode(data)
	return text, nil
}
