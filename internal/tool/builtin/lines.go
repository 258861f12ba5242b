package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/text/transform"
)

// text reads a file line by line as valid UTF-8, in memory that does not grow
// with the file.
type text struct {
	// Charset is how the bytes are read; notText for a file that is no text.
	Charset charset
	r       *bufio.Reader
	line    []byte
}

// openText looks at the beginning of f and gets ready to read it.
func openText(f *os.File) (*text, error) {
	size := sniffSize
	if fi, err := f.Stat(); err == nil {
		// A little more than there is, so that the end is seen.
		size = int(min(sniffSize, max(fi.Size(), 0)+4096))
	}
	raw := bufio.NewReaderSize(f, size)
	head, err := raw.Peek(size)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	t := &text{Charset: sniff(head, err != nil), r: raw}
	if t.Charset == utf8BOM {
		raw.Discard(3)
	}
	if e := t.Charset.coding(); e != nil {
		t.r = bufio.NewReaderSize(transform.NewReader(raw, e.NewDecoder()), 64<<10)
	}
	return t, nil
}

// next returns the next line without its end, at most most bytes of it, and how
// many bytes were left out. The error is io.EOF after the last line. The line is
// valid until the next call.
func (t *text) next(most int) (line []byte, cut int, err error) {
	t.line = t.line[:0]
	some := false
	for {
		part, err := t.r.ReadSlice('\n')
		some = some || len(part) > 0
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		room := min(most-len(t.line), len(part))
		t.line = append(t.line, part[:room]...)
		cut += len(part) - room
		switch {
		case ended, errors.Is(err, io.EOF) && some:
			if cut == 0 {
				t.line = bytes.TrimSuffix(t.line, []byte("\r"))
			}
			if !utf8.Valid(t.line) {
				t.line = bytes.ToValidUTF8(t.line, []byte("�"))
			}
			return t.line, cut, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, err
		}
	}
}

// skip passes over the next line; it is next without the line.
func (t *text) skip() error {
	some := false
	for {
		part, err := t.r.ReadSlice('\n')
		some = some || len(part) > 0
		switch {
		case err == nil, errors.Is(err, io.EOF) && some:
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
