package taskdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/fault"
)

// Pending is a file on its way to being whole, or to being dropped. It is used
// with the Dir that it came from, by the same goroutine.
type Pending struct {
	// Since is when the file was first found not to be whole; zero if it never was.
	Since time.Time

	name    string // of the protocol
	file    string // as it is called now
	seq     uint64
	inPlace bool

	from   int64  // bytes that were read as an earlier message
	prefix string // their hash

	tries  int       // in a row that were not whole
	seen   Stat      // at the last try
	rested time.Time // since when it has been like this
}

// Name returns the name that the supervisor gave the file.
func (p *Pending) Name() string { return p.name }

// Seq returns the number that the file was taken under; 0 for one in place.
func (p *Pending) Seq() uint64 { return p.seq }

// Addition says whether the message is what was added to an earlier one.
func (p *Pending) Addition() bool { return p.from > 0 }

// Taken describes the file as a look would.
func (p *Pending) Taken() TakenFile {
	return TakenFile{Seq: p.seq, Name: p.name, File: p.file, Stat: p.seen}
}

// Content is the text of a whole file.
type Content struct {
	Text     string
	Encoding string // what the bytes were taken for: UTF8, GB18030 ...
	Bytes    int64  // of the message, before decoding
	SHA256   string // of these bytes, in hex
	Stat     Stat   // of the whole file

	whole string // hash of the whole file where the message is only its rest
	born  int64  // see Fingerprint
}

// Fingerprint identifies one state of a file: what the journal keeps of it.
type Fingerprint struct {
	Ino    uint64 `json:"ino"`
	Size   int64  `json:"size"`
	Mtime  int64  `json:"mtime"` // nanoseconds since 1970
	SHA256 string `json:"sha256"`
	// Born is when the file was made, in nanoseconds since 1970; 0 where the file system
	// does not say. It tells the file from a later one that has got its inode.
	Born int64 `json:"born,omitempty"`
}

// Fingerprint returns the fingerprint of the whole file, also where the message
// is only what was added to it.
func (c Content) Fingerprint() Fingerprint {
	hash := c.SHA256
	if c.whole != "" {
		hash = c.whole
	}
	return Fingerprint{Ino: c.Stat.Ino, Size: c.Stat.Size, Mtime: c.Stat.Mtime.UnixNano(), SHA256: hash, Born: c.born}
}

// SameFile says whether both are of one file, in whatever state, and whether that is
// certain: where no time of birth is known, the file may be another with its inode.
func (f Fingerprint) SameFile(o Fingerprint) (same, certain bool) {
	if f.Born == 0 || o.Born == 0 {
		return f.Ino == o.Ino, false
	}
	return f.Ino == o.Ino && f.Born == o.Born, true
}

// SameState says whether both are of one state of one file.
func (f Fingerprint) SameState(o Fingerprint) bool {
	same, _ := f.SameFile(o)
	return same && f.Size == o.Size && f.Mtime == o.Mtime && f.SHA256 == o.SHA256
}

// Matches says whether a file with this Stat is, as far as can be told without
// reading it, the one of the fingerprint.
func (f Fingerprint) Matches(s Stat) bool {
	return f.Ino == s.Ino && f.Size == s.Size && f.Mtime == s.Mtime.UnixNano()
}

// Take renames a message to a name under which nobody writes to it any more, but
// for those who have it open. seq must be unused in this directory, also by
// files of Sight.Taken; fs.ErrExist says that it is not. fs.ErrNotExist says that
// the file is gone, ErrEmpty that it is no message yet, a *RefusedError that it
// is not a regular file of its own.
func (d *Dir) Take(name string, seq uint64) (*Pending, error) {
	if !taken(name) {
		return nil, pathError("take", d.join(name), fs.ErrInvalid)
	}
	in, err := d.h.lstat(name)
	if err != nil {
		return nil, pathError("take", d.join(name), err)
	}
	if why := in.why(); why != "" {
		return nil, d.refused("take", name, why)
	}
	if in.Size == 0 && name != StopFile {
		return nil, fmt.Errorf("take %s: %w", d.join(name), ErrEmpty)
	}
	return d.claim(name, seq, in)
}

// TakeRefused takes what stands in place of a message and is no file, so that Read
// answers *RefusedError and SetAside puts it out of the way. fs.ErrInvalid says that
// it is a file by now, with whatever names: one may be about to lose the others.
func (d *Dir) TakeRefused(name string, seq uint64) (*Pending, error) {
	if !taken(name) {
		return nil, pathError("take", d.join(name), fs.ErrInvalid)
	}
	in, err := d.h.lstat(name)
	if err == nil && in.kind == regular {
		err = fs.ErrInvalid
	}
	if err != nil {
		return nil, pathError("take", d.join(name), err)
	}
	return d.claim(name, seq, in)
}

// claim renames a message, or what is in its place.
func (d *Dir) claim(name string, seq uint64, in info) (*Pending, error) {
	file := takenName(seq, name)
	if err := d.h.rename(name, file); err != nil {
		if isBusy(err) {
			return nil, ErrNotWhole{Path: d.join(name), RetryAfter: 50 * time.Millisecond}
		}
		return nil, pathError("take", d.join(name), err)
	}
	fault.Point("message.claimed")
	return &Pending{name: name, file: file, seq: seq, seen: in.Stat}, nil
}

// Resume continues with a message that was taken before the daemon started.
func (d *Dir) Resume(t TakenFile) *Pending {
	return &Pending{name: t.Name, file: t.File, seq: t.Seq, seen: t.Stat}
}

// InPlace is for input.txt, context.json and _history.json, which are read by the
// same rule but neither renamed nor dropped.
func (d *Dir) InPlace(name string) *Pending {
	return &Pending{name: name, file: name, inPlace: true}
}

// Read returns the text of the file once it is whole. Until then it answers
// ErrNotWhole, which says when to call it again; now is the time of the call.
//
// fs.ErrNotExist says that the file is gone, *RefusedError and *TooLargeError
// that it will not be read as it is: see SetAside. With ErrEmpty, for a file
// without text, the Content is still good for its fingerprint.
func (d *Dir) Read(p *Pending, now time.Time) (Content, error) {
	data, in, err := d.readWhole(p, now)
	if err != nil {
		return Content{}, err
	}
	c := Content{Bytes: in.Size, SHA256: hash(data), Stat: in.Stat, born: in.born}
	if p.from > 0 && p.from <= in.Size && hash(data[:p.from]) == p.prefix {
		rest := data[p.from:]
		c.whole, c.SHA256, c.Bytes = c.SHA256, hash(rest), int64(len(rest))
		c.Text, c.Encoding = decodeRest(data[:p.from], rest)
	} else {
		c.Text, c.Encoding = Decode(data)
	}
	if c.Text == "" && p.name != StopFile {
		return c, fmt.Errorf("read %s: %w", d.join(p.file), ErrEmpty)
	}
	return c, nil
}

// readWhole reads the file if nobody writes to it, neither before nor after.
func (d *Dir) readWhole(p *Pending, now time.Time) ([]byte, info, error) {
	f, before, err := d.open(p.file, os.O_RDONLY)
	if err != nil {
		if isBusy(err) {
			return nil, info{}, d.notWhole(p, now, p.backoff())
		}
		return nil, info{}, err
	}
	defer f.Close()
	// No text of a _stop is used, so its writer is not waited for.
	wait := p.name != StopFile
	if wait {
		if retry := d.unsettled(p, f, before.Stat, now); retry > 0 {
			return nil, info{}, d.notWhole(p, now, retry)
		}
		if limit := limitOf(p.name); before.Size > limit {
			return nil, info{}, &TooLargeError{Path: d.join(p.file), Limit: limit, Stat: before.Stat}
		}
	}
	data, err := readBounded(f, before.Stat, limitOf(p.name))
	var tooLarge *TooLargeError
	switch {
	case errors.As(err, &tooLarge) && !wait:
		return nil, before, nil
	case errors.As(err, &tooLarge):
		return nil, info{}, err
	case err != nil:
		return nil, info{}, pathError("read", d.join(p.file), err)
	}
	after, err := statFile(f)
	if err != nil {
		return nil, info{}, pathError("read", d.join(p.file), err)
	}
	if wait {
		changed := !after.same(before.Stat) || int64(len(data)) != after.Size
		if !changed && !d.root.noLeases {
			changed, _ = writers(f)
		}
		if changed {
			return nil, info{}, d.notWhole(p, now, p.backoff())
		}
	}
	after.Size, after.born = int64(len(data)), bornAt(f)
	p.seen, p.tries = after.Stat, 0
	fault.Point("message.read")
	return data, after, nil
}

// unsettled returns how long to wait before the file can be whole; 0 if it is.
func (d *Dir) unsettled(p *Pending, f *os.File, s Stat, now time.Time) time.Duration {
	if !d.root.noLeases {
		if open, known := writers(f); known {
			p.rested = time.Time{}
			if open {
				return p.backoff()
			}
			return 0
		}
	}
	if p.rested.IsZero() || !p.seen.same(s) {
		p.seen, p.rested = s, now
	}
	settle := d.settle
	if settle == 0 {
		settle = d.root.settle
	}
	return settle - now.Sub(p.rested)
}

// backoff returns 1, 2, 4 ... 50 ms, and 250 ms from then on: most writers are
// done at once, and the others are in no hurry.
func (p *Pending) backoff() time.Duration {
	const doublings = 6
	p.tries++
	switch {
	case p.tries <= doublings:
		return time.Millisecond << (p.tries - 1)
	case p.tries == doublings+1:
		return 50 * time.Millisecond
	}
	return 250 * time.Millisecond
}

func (d *Dir) notWhole(p *Pending, now time.Time, retry time.Duration) error {
	if p.Since.IsZero() {
		p.Since = now
	}
	return ErrNotWhole{Path: d.join(p.file), RetryAfter: retry, Waited: now.Sub(p.Since)}
}

// Grown says whether something was added to, or written over, a message since it
// was read with this fingerprint. If so it returns a Pending for the addition,
// which takes the place of p. It costs one system call where nothing changed.
// After reading a later message, a caller asks this for those not yet dropped:
// what one writer added here came before what it wrote there.
func (d *Dir) Grown(p *Pending, fp Fingerprint) (rest *Pending, err error) {
	rest, _, err = d.compare(p, fp)
	return rest, err
}

// After returns a Pending for what comes after the first n bytes of a message, which
// takes the place of p. It is for a caller that knows these bytes.
func (d *Dir) After(p *Pending, n int64) (*Pending, error) {
	f, in, err := d.open(p.file, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readBounded(f, in.Stat, limitOf(p.name))
	if err != nil {
		return nil, pathError("read", d.join(p.file), err)
	}
	if int64(len(data)) < n {
		return nil, ErrNotWhole{Path: d.join(p.file), RetryAfter: p.backoff()}
	}
	return &Pending{name: p.name, file: p.file, seq: p.seq, from: n, prefix: hash(data[:n])}, nil
}

// Drop deletes a message that was read with this fingerprint, is in the journal
// and acted on. It is called a second after Take or the daemon's start, or
// later, when whoever had looked up the old name has long opened the file. If
// something was added, nothing is deleted: rest takes the place of p and is read
// like any message. ErrNotWhole says that somebody is writing just now.
func (d *Dir) Drop(p *Pending, fp Fingerprint) (rest *Pending, err error) {
	if p.inPlace {
		return nil, pathError("drop", d.join(p.file), fs.ErrInvalid)
	}
	rest, gone, err := d.compare(p, fp)
	if err != nil || rest != nil || gone {
		return rest, err
	}
	if err := d.h.remove(p.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if isBusy(err) {
			return nil, ErrNotWhole{Path: d.join(p.file), RetryAfter: 250 * time.Millisecond}
		}
		return nil, pathError("drop", d.join(p.file), err)
	}
	fault.Point("message.deleted")
	return nil, nil
}

// compare looks for what was added since the fingerprint was taken.
func (d *Dir) compare(p *Pending, fp Fingerprint) (rest *Pending, gone bool, err error) {
	if p.name == StopFile {
		return nil, false, nil
	}
	f, in, err := d.openUnlessLike(p, fp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if f == nil || err != nil {
		return nil, false, err
	}
	defer f.Close()
	known := false
	if !d.root.noLeases {
		var open bool
		if open, known = writers(f); open {
			return nil, false, ErrNotWhole{Path: d.join(p.file), RetryAfter: p.backoff()}
		}
	}
	if in.Size == 0 && known {
		return nil, false, nil // emptied, and nobody is about to fill it
	}
	if in.Size <= fp.Size && in.Mtime.UnixNano() <= fp.Mtime {
		// An earlier state: what a power failure leaves of a file whose last bytes had
		// not reached the disk.
		return nil, false, nil
	}
	rest = &Pending{name: p.name, file: p.file, seq: p.seq}
	if in.Size >= fp.Size && in.Size <= limitOf(p.name) {
		data, err := readBounded(f, in.Stat, limitOf(p.name))
		if err != nil {
			return nil, false, pathError("read", d.join(p.file), err)
		}
		if int64(len(data)) < fp.Size {
			return nil, false, ErrNotWhole{Path: d.join(p.file), RetryAfter: p.backoff()}
		}
		if hash(data[:fp.Size]) == fp.SHA256 {
			if int64(len(data)) == fp.Size {
				return nil, false, nil
			}
			rest.from, rest.prefix = fp.Size, fp.SHA256
		}
	}
	return rest, false, nil
}

// openUnlessLike opens the file if it looks otherwise than its fingerprint.
func (d *Dir) openUnlessLike(p *Pending, fp Fingerprint) (*os.File, info, error) {
	in, err := d.h.lstat(p.file)
	if err != nil {
		return nil, info{}, pathError("stat", d.join(p.file), err)
	}
	// Where a look does not tell the identity, size and time have to do.
	if in.Ino == 0 {
		in.Ino = fp.Ino
	}
	if in.kind == regular && fp.Matches(in.Stat) {
		return nil, info{}, nil
	}
	return d.open(p.file, os.O_RDONLY)
}

// SetAside renames a taken message that cannot be read, so that it is not tried
// again: it is refused, not destroyed, and durable where its writer is told that it
// was kept. It returns the new name.
func (d *Dir) SetAside(p *Pending) (string, error) {
	if p.inPlace {
		return "", pathError("set aside", d.join(p.file), fs.ErrInvalid)
	}
	if err := d.Persist(p.file); err != nil {
		return "", err
	}
	name := refusedPrefix + p.file[len(takenPrefix):]
	if err := d.h.rename(p.file, name); err != nil {
		return "", pathError("set aside", d.join(p.file), err)
	}
	fault.Point("message.set_aside")
	return name, nil
}

// Persist makes a file durable that somebody else has written, with its name. What
// cannot be opened, or is no file, is left as it is.
func (d *Dir) Persist(name string) error {
	f, _, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil
	}
	err = f.Sync()
	f.Close()
	if errors.Is(err, fs.ErrPermission) {
		err = nil // Windows syncs only what is open for writing.
	}
	if err == nil {
		err = d.h.sync()
	}
	if err != nil {
		return pathError("sync", d.join(name), err)
	}
	return nil
}

// readBounded reads all of an open file of which in is the Stat, but no more
// than limit bytes; a *TooLargeError says that there are more.
func readBounded(f *os.File, in Stat, limit int64) ([]byte, error) {
	if in.Size > limit {
		return nil, &TooLargeError{Path: f.Name(), Limit: limit, Stat: in}
	}
	// One byte more than expected, to see the end without another read.
	buf := bytes.NewBuffer(make([]byte, 0, in.Size+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		in.Size = n
		return nil, &TooLargeError{Path: f.Name(), Limit: limit, Stat: in}
	}
	return buf.Bytes(), nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
