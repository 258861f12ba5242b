package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Report says what reading found.
type Report struct {
	// Size is the length of the file up to the end of its last valid line, in bytes.
	Size int64
	// Torn is the number of bytes after that: the torn tail.
	Torn int64
	// Aside is the file to which Open copied the torn tail; "" where there was none.
	Aside string
}

// DamageError reports a line that cannot be the torn tail, since a valid one
// comes after it: something other than a crash of ours has changed the file.
type DamageError struct {
	Path   string
	Offset int64 // of the line, in bytes
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("read journal %s: damaged at byte %d: %s; it is left as it is: restore it from a backup, or move it away to start anew",
		e.Path, e.Offset, e.Reason)
}

// Read hands the records from offset from on to fn, oldest first. from is 0 or an
// offset that Commit, Read or ReadBack gave. rec is valid until fn returns. An
// error of fn ends the reading and is returned as it is.
//
// A bad line without a valid one after it is the torn tail and no error. With one
// it is a DamageError, after the records before it were handed out. A missing
// file is an fs.ErrNotExist. The report is complete when err is nil.
func Read(path string, from int64, fn func(off int64, rec json.RawMessage) error) (Report, error) {
	f, size, err := openToRead(path)
	if err != nil {
		return Report{}, err
	}
	defer f.Close()
	if from > 0 {
		var b [1]byte
		if from > size {
			return Report{}, &DamageError{path, from, fmt.Sprintf("the file ends before it, at byte %d", size)}
		}
		if _, err := f.ReadAt(b[:], from-1); err != nil {
			return Report{}, fmt.Errorf("read journal %s: %w", path, err)
		}
		if b[0] != '\n' {
			return Report{}, &DamageError{path, from, "no line begins there"}
		}
	}

	// The file may grow while we read: what was not there at first is not ours.
	in := bufio.NewReaderSize(io.NewSectionReader(f, from, max(0, size-from)), 64<<10)
	var (
		off    = from // of the line being read
		end    = from // of the last valid line
		badAt  int64
		reason string
		long   []byte
	)
	for {
		var line []byte
		line, long, err = readLine(in, long[:0])
		if len(line) > 0 {
			rec, bad := parseLine(line)
			switch {
			case bad != "" && reason == "":
				badAt, reason = off, bad
			case bad == "" && reason != "":
				return Report{}, &DamageError{path, badAt, reason}
			case bad == "":
				if err := fn(off, rec); err != nil {
					return Report{}, err
				}
				end = off + int64(len(line))
			}
			off += int64(len(line))
		}
		if err == io.EOF {
			return Report{Size: end, Torn: off - end}, nil
		}
		if err != nil {
			return Report{}, fmt.Errorf("read journal %s: %w", path, err)
		}
	}
}

// readLine returns the next line with its line break, in the reader's buffer or,
// where it is longer than that, in long.
func readLine(in *bufio.Reader, long []byte) (line, buf []byte, err error) {
	line, err = in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, long, err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		long = append(long, line...)
		line, err = in.ReadSlice('\n')
	}
	long = append(long, line...)
	return long, long, err
}

func openToRead(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("read journal: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("read journal: %w", err)
	}
	return f, info.Size(), nil
}

// firstBlock is how much of a file ReadBack reads first: the last record of a
// session that waits is smaller, and thousands are read at start-up.
const firstBlock = 4 << 10

// ReadBack hands the records to fn, newest first, until fn returns false or an
// error. It reads the file from its end in blocks and no further than needed. rec
// is valid until fn returns. An error of fn is returned as it is.
//
// The report is complete before fn is first called, and returned beside an error
// of fn. A bad line that is not in the torn tail is a DamageError when it is
// reached; the records after it have been handed out by then.
func ReadBack(path string, fn func(off int64, rec json.RawMessage) (more bool, err error)) (Report, error) {
	f, size, err := openToRead(path)
	if err != nil {
		return Report{}, err
	}
	defer f.Close()
	report := Report{Torn: size}
	r := backReader{f: f, start: size, block: firstBlock}
	// reason, when set, is what is wrong with the line at badAt, the one that
	// follows the line being read.
	var (
		badAt  int64
		reason string
		seen   bool // a valid line
	)
	for {
		off, line, err := r.prev()
		if err != nil {
			if err != io.EOF {
				return report, fmt.Errorf("read journal %s: %w", path, err)
			}
			if reason != "" && seen {
				return report, &DamageError{path, badAt, reason}
			}
			return report, nil
		}
		rec, bad := parseLine(line)
		if bad != "" {
			badAt, reason = off, bad
			continue
		}
		if seen && reason != "" {
			return report, &DamageError{path, badAt, reason}
		}
		if !seen {
			report.Size = off + int64(len(line))
			report.Torn = size - report.Size
			seen, reason = true, ""
		}
		more, err := fn(off, rec)
		if err != nil || !more {
			return report, err
		}
	}
}

// backReader splits a file into lines from its end.
type backReader struct {
	f     io.ReaderAt
	start int64  // offset of buf in the file
	buf   []byte // read and not yet returned
	block int    // how much to read next
}

// prev returns the line before the one it returned last, with its line break,
// and its offset; io.EOF at the start of the file. The line is valid until the
// next call.
func (r *backReader) prev() (off int64, line []byte, err error) {
	searched := 0 // bytes at the end of buf that hold no line break but the last byte's
	for {
		if n := len(r.buf); n > 0 {
			// The last byte is this line's own line break, or the end of a torn one.
			if i := bytes.LastIndexByte(r.buf[:n-max(1, searched)], '\n'); i >= 0 || r.start == 0 {
				line = r.buf[i+1:]
				r.buf = r.buf[:i+1]
				return r.start + int64(i+1), line, nil
			}
			searched = n
		} else if r.start == 0 {
			return 0, nil, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, nil, err
		}
	}
}

// fill reads the block before buf. It at least doubles what is held of a line, so
// that one of any length is copied a bounded number of times.
func (r *backReader) fill() error {
	n := int(min(int64(max(r.block, len(r.buf))), r.start))
	b := make([]byte, n+len(r.buf))
	if _, err := r.f.ReadAt(b[:n], r.start-int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // it has been cut while we read
		}
		return err
	}
	copy(b[n:], r.buf)
	r.buf = b
	r.start -= int64(n)
	r.block = min(2*r.block, 256<<10)
	return nil
}
