package taskdir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/fault"
)

// eventsVersion changes when the meaning of a field does; new fields and events
// do not change it.
const eventsVersion = 1

// Events is events.jsonl, open for appending. One goroutine at a time may use it.
type Events struct {
	f    *os.File
	path string
	buf  []byte
	torn bool // the file ends within a line
}

// Events opens events.jsonl, and makes it where it is not there. Whatever else
// has its name is put aside.
func (d *Dir) Events() (*Events, error) {
	f, in, err := d.open(EventsFile, os.O_RDWR|os.O_APPEND)
	var refused *RefusedError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &refused) {
		f, err = d.create(EventsFile)
		in = info{}
	}
	if err != nil {
		return nil, err
	}
	e := &Events{f: f, path: d.join(EventsFile)}
	tail, err := readTail(f, in.Size)
	if err != nil {
		f.Close()
		return nil, pathError("read", e.path, err)
	}
	e.torn = len(tail) > 0 && tail[len(tail)-1] != '\n'
	return e, nil
}

// Append adds one event as a line of JSON:
//
//	{"v":1,"time":"2006-01-02T15:04:05.000Z","event":"state", ...}
//
// followed by the fields of data, which is nil or marshals to an object. The line
// is one write and is not synced: the journal is the truth, this file is for
// those who watch.
func (e *Events) Append(at time.Time, event string, data any) error {
	line, err := appendEvent(e.buf[:0], at, event, data)
	if err != nil {
		return fmt.Errorf("write %s: event %s: %w", e.path, event, err)
	}
	if e.torn {
		line = append([]byte{'\n'}, line...)
	}
	e.buf = line
	if cap(e.buf) > 64<<10 {
		e.buf = nil // do not keep the memory of one large event
	}
	n, err := e.f.Write(line)
	if n > 0 {
		e.torn = n < len(line)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", e.path, err)
	}
	fault.Point("events.written")
	return nil
}

// Close gives the file back.
func (e *Events) Close() error { return e.f.Close() }

func appendEvent(dst []byte, at time.Time, event string, data any) ([]byte, error) {
	head, err := json.Marshal(struct {
		V     int    `json:"v"`
		Time  Time   `json:"time"`
		Event string `json:"event"`
	}{eventsVersion, Time{at}, event})
	if err != nil {
		return nil, err
	}
	dst = append(dst, head...)
	if data != nil {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(data); err != nil {
			return nil, err
		}
		body := bytes.TrimSpace(b.Bytes())
		switch {
		case bytes.Equal(body, []byte("null")), bytes.Equal(body, []byte("{}")):
		case body[0] != '{':
			return nil, errors.New("its data is no JSON object")
		default:
			dst = append(dst[:len(dst)-1], ',')
			dst = append(dst, body[1:]...)
		}
	}
	return append(dst, '\n'), nil
}
