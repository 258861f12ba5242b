package taskdir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/gasupervisor/gasupervisor/internal/fault"
)

// Output is the file of one round, open for appending. What is given to it is
// kept until Flush, so that a streamed answer does not cost a write per token;
// the caller flushes at its own pace. One goroutine at a time may use it.
type Output struct {
	f    appender
	path string
	v    visible
	buf  []byte // ready to be written
	size int64
	lost int64
	// ended is set once the ending is in buf or written; nothing may follow it.
	ended bool
}

// appender is what an Output needs of its file; tests let it fail.
type appender interface {
	io.Writer
	Sync() error
	Close() error
}

// DiscardOutput removes the output of a round if nothing was shown in it.
func (d *Dir) DiscardOutput(round int) error {
	name := OutputName(round)
	in, err := d.h.lstat(name)
	if err == nil && in.kind == regular && in.Size == 0 {
		err = d.h.remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pathError("discard", d.join(name), err)
	}
	return nil
}

// CreateOutput makes the output of a round, empty. Whatever has its name already
// is put aside.
func (d *Dir) CreateOutput(round int) (*Output, error) {
	name := OutputName(round)
	f, err := d.create(name)
	if err != nil {
		return nil, err
	}
	fault.Point("output.created")
	return &Output{f: f, path: d.join(name)}, nil
}

// ReopenOutput goes on with the output of a round that was cut short. size is
// what is known to have been shown, in bytes; nothing is taken back where the
// file is longer, and Lost tells where it is shorter. fs.ErrNotExist says that
// it is gone, ErrFinished that it ends in the marker, *RefusedError that
// something else has its name: CreateOutput helps with the first and the last.
func (d *Dir) ReopenOutput(round int, size int64) (*Output, error) {
	name := OutputName(round)
	f, in, err := d.open(name, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	tail, err := readTail(f, in.Size)
	if err == nil && len(tail) > 0 && tail[len(tail)-1] == 0 {
		// An output never holds zeros: these stand for text that a power failure took.
		if in.Size, err = cutZeros(f, in.Size); err == nil {
			tail, err = readTail(f, in.Size)
		}
	}
	if err == nil && EndsInMarker(tail) {
		err = ErrFinished
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("go on with %s: %w", d.join(name), err)
	}
	o := &Output{f: f, path: d.join(name), size: in.Size, lost: max(0, size-in.Size)}
	if len(tail) > 0 && tail[len(tail)-1] != '\n' {
		o.buf = append(o.buf, '\n')
	}
	return o, nil
}

// Path returns the absolute path under which the output was opened.
func (o *Output) Path() string { return o.path }

// Text adds text of the model or a tool, in pieces as they come.
func (o *Output) Text(s string) {
	if !o.ended {
		o.buf = o.v.text(o.buf, s)
	}
}

// Line adds a line of the daemon's own, on a line of its own. Text that it
// quotes is treated like any other.
func (o *Output) Line(s string) {
	if o.ended {
		return
	}
	o.buf = o.v.settle(o.buf)
	if o.v.midLine {
		o.buf = o.v.put(o.buf, '\n')
	}
	o.buf = o.v.settle(o.v.text(o.buf, s))
	o.buf = o.v.put(o.buf, '\n')
}

// Part begins a line of the daemon's own, which Text goes on with.
func (o *Output) Part(s string) {
	if o.ended {
		return
	}
	o.buf = o.v.settle(o.buf)
	if o.v.midLine {
		o.buf = o.v.put(o.buf, '\n')
	}
	o.buf = o.v.text(o.buf, s)
}

// Dirty says whether Flush would write something.
func (o *Output) Dirty() bool { return len(o.buf) > 0 }

// Size returns the bytes that are in the file.
func (o *Output) Size() int64 { return o.size }

// Lost returns how many bytes that had been shown a reopened file lacks.
func (o *Output) Lost() int64 { return o.lost }

// Flush writes what has been added, but for an end that may become the beginning
// of a marker. After an error, what could not be written is kept and tried again.
func (o *Output) Flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	err := fault.Error("output.write")
	var n int
	if err == nil {
		n, err = o.f.Write(o.buf)
	}
	n = min(max(n, 0), len(o.buf))
	o.size += int64(n)
	if err == nil && n < len(o.buf) {
		err = io.ErrShortWrite
	}
	o.buf = o.buf[:copy(o.buf, o.buf[n:])]
	if err != nil {
		return fmt.Errorf("write %s: %w", o.path, err)
	}
	fault.Point("output.written")
	return nil
}

// End writes what is left, and once that is durable the marker: from then on the
// round is over for all who watch. It returns once the marker is durable too. After
// an error it may be called again.
func (o *Output) End() error {
	if !o.ended {
		o.buf = o.v.release(o.buf)
		if err := o.flushSync(); err != nil {
			return err
		}
		o.buf = append(o.buf, ending...)
		o.ended = true
	}
	return o.flushSync()
}

func (o *Output) flushSync() error {
	if err := o.Flush(); err != nil {
		return err
	}
	if err := o.f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", o.path, err)
	}
	fault.Point("output.synced")
	return nil
}

// Close writes what is left and gives the file back. Without End before, the
// round can be gone on with later.
func (o *Output) Close() error {
	if !o.ended {
		o.buf = o.v.release(o.buf)
	}
	err := o.Flush()
	if cerr := o.f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close %s: %w", o.path, cerr)
	}
	return err
}

// tailSize is enough to recognise the ending.
const tailSize = 64

func readTail(f io.ReaderAt, size int64) ([]byte, error) {
	buf := make([]byte, min(size, tailSize))
	n, err := f.ReadAt(buf, size-int64(len(buf)))
	if err == io.EOF {
		err = nil
	}
	return buf[:n], err
}

// cutZeros cuts the zeros off that a file ends in, and returns its new size.
func cutZeros(f *os.File, size int64) (int64, error) {
	for size > 0 {
		buf := make([]byte, min(size, 4<<10))
		if _, err := f.ReadAt(buf, size-int64(len(buf))); err != nil {
			return 0, err
		}
		text := bytes.TrimRight(buf, "\x00")
		size -= int64(len(buf) - len(text))
		if len(text) > 0 {
			break
		}
	}
	return size, f.Truncate(size)
}
