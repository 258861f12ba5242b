// Package journal is the append-only log in which a session keeps the truth, and
// its replay.
//
// A journal is a file of lines, each one record:
//
//	<length> <CRC-32C> <JSON>\n
//
// Length is the number of bytes of the JSON text in decimal, the checksum is the
// JSON text's in eight lower-case hex digits, and the text holds no line break.
// So a person can read it, and no line that was cut, overwritten or zeroed
// passes for a record.
//
// A commit appends its records by one write and makes them durable by one sync;
// when it returns they stand, and not before. What a crash can leave behind is
// therefore the part of a commit that nobody was told of, at the end of the
// file: the torn tail. Open keeps it aside for those who want to know and cuts
// it off before anything is appended, or else the next record would share a line
// with it. A bad line before a valid one cannot come from there. It is damage:
// reading stops with a DamageError, and the file stays as it is.
//
// After a short write or a failed sync nobody knows what is on the disk beyond
// the last synced length, and the kernel may have dropped what it could not
// write while still showing it to readers. Commit then opens the file anew, cuts
// it to that length and writes again. Where that fails too the caller is told,
// and the next commit begins with the cut, so that no record is lost that was
// acknowledged and none stands twice.
//
// A journal has one writer, a goroutine of a process that keeps others away by
// its own lock.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
	"github.com/gasupervisor/gasupervisor/internal/fault"
)

// Conversations are nobody else's business.
const (
	dirPerm  = 0o700
	filePerm = 0o600
)

// keepBuffer is the size up to which a journal keeps its write buffer from one
// commit to the next: enough for most commits, little for those who wait.
const keepBuffer = 4 << 10

// Journal is the append side of a journal. It is used by one goroutine. A failed
// commit leaves it usable.
type Journal struct {
	path string
	open func(path string) (File, error)

	// f is nil after a failure, until recover has cut the file.
	f      File
	size   int64 // the last synced length
	closed bool
	buf    []byte
	// unsynced are directories whose new entries become durable with the first commit.
	unsynced []string
}

// File is what a journal needs of the file that it appends to; tests inject
// faults here.
type File interface {
	io.WriterAt
	// Sync returns once the content and the length of the file are durable.
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	Close() error
}

// Option changes how a journal is opened.
type Option func(*Journal)

// WithOpener makes a journal use open for its appending handle, at Create, at Open
// and again after a failure. The file exists then.
func WithOpener(open func(path string) (File, error)) Option {
	return func(j *Journal) { j.open = open }
}

// Create makes a new journal at path, and the directories above it. It is an
// fs.ErrExist where there is a file already. The file and the directories are
// durable when the first Commit returns: one sync then covers most of it. A crash
// before that may leave an empty file, which Open accepts.
func Create(path string, opts ...Option) (*Journal, error) {
	j := newJournal(path, opts)
	if err := j.create(); err != nil {
		return nil, fmt.Errorf("create journal %s: %w", path, err)
	}
	return j, nil
}

func newJournal(path string, opts []Option) *Journal {
	j := &Journal{path: path, open: openFile}
	for _, o := range opts {
		o(j)
	}
	return j
}

func (j *Journal) create() error {
	dir := filepath.Dir(j.path)
	j.unsynced = []string{dir}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		j.unsynced = append(j.unsynced, filepath.Dir(d))
	}
	if err := os.MkdirAll(dir, dirPerm); err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	fault.Point("journal.created")
	if j.f, err = j.open(j.path); err != nil {
		_ = os.Remove(j.path) // or the next try would find it in its way
	}
	return err
}

// Open opens the journal at path for appending. A torn tail is copied to a file
// beside it (Report.Aside) and cut off. Only the tail is read: damage further up
// is found by those who read it. An empty file is a journal without records.
func Open(path string, opts ...Option) (*Journal, Report, error) {
	j := newJournal(path, opts)
	report, err := j.openExisting()
	if err != nil {
		return nil, report, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, report, nil
}

func (j *Journal) openExisting() (Report, error) {
	report, err := ReadBack(j.path, func(int64, json.RawMessage) (bool, error) { return false, nil })
	if err != nil {
		return report, err
	}
	if report.Torn > 0 {
		if report.Aside, err = setAside(j.path, report.Size); err != nil {
			return report, fmt.Errorf("keep torn tail aside: %w", err)
		}
		fault.Point("journal.torn_kept")
	}
	j.size = report.Size
	if report.Torn > 0 {
		return report, j.recover()
	}
	j.f, err = j.open(j.path)
	return report, err
}

// Commit appends the records by one write and returns once they are durable. off
// is the offset of the first record, from which Read can start. A record is a JSON
// value that must not be empty; one with line breaks is stored without them.
//
// It blocks for the disk. A failure is tried once more; after an error none of
// the records count, and the caller may commit again. Only if the process dies
// before that may some of them be found in the file, the first ones first.
func (j *Journal) Commit(records ...json.RawMessage) (off int64, err error) {
	if err := j.commit(records); err != nil {
		return 0, fmt.Errorf("commit to journal %s: %w", j.path, err)
	}
	off = j.size
	j.size += int64(len(j.buf))
	if cap(j.buf) > keepBuffer {
		j.buf = nil
	}
	return off, nil
}

func (j *Journal) commit(records []json.RawMessage) error {
	if j.closed {
		return fs.ErrClosed
	}
	j.buf = j.buf[:0]
	for i, r := range records {
		var err error
		if j.buf, err = appendLine(j.buf, r); err != nil {
			return fmt.Errorf("record %d of %d: %w", i+1, len(records), err)
		}
	}
	if len(j.buf) == 0 {
		return nil
	}
	first := j.write()
	if first == nil {
		return nil
	}
	j.drop()
	second := j.write()
	if second == nil {
		return nil
	}
	j.drop()
	// The cut need not wait for the next commit: what nobody was told of is better
	// gone now. Where it fails it is tried again then.
	_ = j.recover()
	if first.Error() == second.Error() {
		return second
	}
	return fmt.Errorf("%w; and again: %w", first, second)
}

// write is one attempt: after it has failed, the handle is not to be trusted.
func (j *Journal) write() error {
	if j.f == nil {
		if err := j.recover(); err != nil {
			return fmt.Errorf("recover: %w", err)
		}
	}
	if err := fault.Error("journal.write"); err != nil {
		return err
	}
	n, err := j.f.WriteAt(j.buf, j.size)
	if err == nil && n < len(j.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return err
	}
	fault.Point("journal.written")
	if err := fault.Error("journal.sync"); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	fault.Point("journal.synced")
	for _, d := range j.unsynced {
		if err := atomicfile.SyncDir(d); err != nil {
			return err
		}
	}
	j.unsynced = nil
	return nil
}

func (j *Journal) drop() {
	if j.f != nil {
		_ = j.f.Close() // it has failed already
		j.f = nil
	}
}

// recover opens the file anew and cuts it to the last synced length.
func (j *Journal) recover() error {
	f, err := j.open(j.path)
	if err != nil {
		return err
	}
	if err := cut(f, j.size); err != nil {
		_ = f.Close()
		return err
	}
	j.f = f
	return nil
}

func cut(f File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Truncate would fill a shorter file up with zeros.
	if info.Size() < size {
		return fmt.Errorf("the file has %d bytes where %d were durable: it was changed from outside", info.Size(), size)
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	fault.Point("journal.cut")
	return f.Sync()
}

// Size returns the length of what is durable, in bytes.
func (j *Journal) Size() int64 { return j.size }

// Path returns the path of the journal's file.
func (j *Journal) Path() string { return j.path }

// Close gives the file back. Everything that was committed is durable already.
func (j *Journal) Close() error {
	if j.closed {
		return nil
	}
	j.closed = true
	if j.f == nil {
		return nil
	}
	if err := j.f.Close(); err != nil {
		return fmt.Errorf("close journal %s: %w", j.path, err)
	}
	return nil
}

// setAside copies what follows offset from to the first free name and syncs it,
// so that the cut loses nothing.
func setAside(path string, from int64) (string, error) {
	src, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer src.Close()
	if _, err := src.Seek(from, io.SeekStart); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		aside := path + ".torn-" + strconv.Itoa(n)
		dst, err := os.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = io.Copy(dst, src)
		if err == nil {
			err = dst.Sync()
		}
		if cerr := dst.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = atomicfile.SyncDir(filepath.Dir(aside))
		}
		if err != nil {
			_ = os.Remove(aside) // half a copy helps nobody; the original still stands
			return "", err
		}
		return aside, nil
	}
}

func openFile(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, filePerm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// osFile is a file with the cheapest sync that keeps content and length.
type osFile struct{ *os.File }

func (f osFile) Sync() error { return datasync(f.File) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errNoRecord = errors.New("empty")

func appendLine(b []byte, rec json.RawMessage) ([]byte, error) {
	if bytes.IndexByte(rec, '\n') >= 0 {
		var c bytes.Buffer
		if err := json.Compact(&c, rec); err != nil {
			return b, err
		}
		rec = c.Bytes()
	}
	if len(rec) == 0 {
		return b, errNoRecord
	}
	b = strconv.AppendInt(b, int64(len(rec)), 10)
	b = append(b, ' ')
	b = appendHex8(b, crc32.Checksum(rec, castagnoli))
	b = append(b, ' ')
	b = append(b, rec...)
	return append(b, '\n'), nil
}

func appendHex8(b []byte, v uint32) []byte {
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[v>>shift&15])
	}
	return b
}

// parseLine returns the record of a line, or nil and what is wrong with it. line
// includes its line break where it has one.
func parseLine(line []byte) (rec []byte, bad string) {
	body, ok := bytes.CutSuffix(line, []byte("\n"))
	if !ok {
		return nil, "the line is not complete"
	}
	length, rest, ok := bytes.Cut(body, []byte(" "))
	if !ok || len(rest) < 9 || rest[8] != ' ' {
		return nil, "the line does not begin with a length and a checksum"
	}
	rec = rest[9:]
	var digits [20]byte
	if len(rec) == 0 || !bytes.Equal(length, strconv.AppendInt(digits[:0], int64(len(rec)), 10)) {
		return nil, "the length does not match"
	}
	var sum [8]byte
	if !bytes.Equal(rest[:8], appendHex8(sum[:0], crc32.Checksum(rec, castagnoli))) {
		return nil, "the checksum does not match"
	}
	return rec, ""
}
