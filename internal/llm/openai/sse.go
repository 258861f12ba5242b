package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of what is read from a provider.
const (
	// maxAnswer is how long an answer may be, text, reasoning and calls together: many
	// times what any model gives that has not lost its way.
	maxAnswer = 8 << 20
	maxEvent  = 2 * maxAnswer // one event of a stream, and an answer that is not streamed
	maxStream = 512 << 20     // everything of one answer, with all that stands around its pieces
)

var (
	errAnswerTooLong = errors.New("the answer is too long")
	errEventTooLong  = errors.New("an event of the stream is too long")
	errStreamTooLong = errors.New("the stream is too long")
)

// eventReader turns an event stream as providers really send it into the one
// form that go-openai's stream reader understands without loss: each event a
// single line "data: <json>".
//
// It takes line ends of any kind, a byte order mark, comments and keep-alive
// lines, "data:" with and without a space, events over several data lines,
// events that no blank line separates, bare JSON lines, and a body that is one
// JSON object instead of a stream. An event of type error is reported to
// onError and ends the stream.
type eventReader struct {
	src *bufio.Reader
	out []byte // what the next Read gives
	err error  // what follows out

	// onContent is called for each event; onError makes the error of an error event.
	onContent func()
	onError   func(data []byte) error

	begun   bool
	done    bool // [DONE] was seen
	whole   bool // the body was one JSON value
	event   string
	data    []byte
	hasData bool
	read    int64
	// stray is the beginning of the first line that is of no event stream.
	stray string
}

func newEventReader(src io.Reader, onContent func(), onError func([]byte) error) *eventReader {
	return &eventReader{src: bufio.NewReaderSize(src, 16<<10), onContent: onContent, onError: onError}
}

func (r *eventReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.out = r.out[:0]
		r.step()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// step reads one line and puts what it completes into out, or sets err.
func (r *eventReader) step() {
	if !r.begun {
		r.begun = true
		if b, _ := r.src.Peek(3); string(b) == "\xef\xbb\xbf" {
			_, _ = r.src.Discard(3)
		}
		if r.wholeBody() {
			return
		}
	}
	line, err := r.line()
	if err == nil || len(line) > 0 {
		r.take(line)
	}
	if err != nil && r.err == nil {
		if err == io.EOF {
			// A last event without the blank line that ends it counts if it is whole.
			if r.hasData && complete(r.data) {
				r.dispatch()
			}
		}
		if r.err == nil {
			r.err = err
		}
	}
}

// wholeBody reads a body that is a single JSON value or a page instead of a stream.
func (r *eventReader) wholeBody() bool {
	for n := 1; n <= 512; n++ {
		b, err := r.src.Peek(n)
		if err != nil || len(b) < n {
			return false
		}
		switch c := b[n-1]; c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{', '[', '<', '"':
			body, err := io.ReadAll(io.LimitReader(r.src, maxEvent+1))
			r.whole = true
			switch {
			case err != nil:
				r.err = err
			case len(body) > maxEvent:
				r.err = errEventTooLong
			case c == '<' || c == '"':
				r.err = r.onError(body)
			default:
				r.wholeJSON(body)
			}
			return true
		default:
			return false
		}
	}
	return false
}

// wholeJSON dispatches a body that begins like a JSON value. Lines of JSON
// objects, one per chunk, are taken for a stream.
func (r *eventReader) wholeJSON(body []byte) {
	if json.Valid(body) {
		r.data, r.hasData = append(r.data[:0], body...), true
		r.dispatch()
		if r.err == nil {
			r.err = io.EOF
		}
		return
	}
	r.whole = false
	r.src = bufio.NewReader(bytes.NewReader(body))
	r.read = 0
}

// line reads a line without its end. A line that ends in CR alone counts too.
func (r *eventReader) line() ([]byte, error) {
	var line []byte
	for {
		b, err := r.src.ReadSlice('\n')
		r.read += int64(len(b))
		if r.read > maxStream {
			return nil, errStreamTooLong
		}
		if len(line)+len(b) > maxEvent {
			return nil, errEventTooLong
		}
		if err == nil && line == nil {
			line = b
			break
		}
		line = append(line, b...)
		if err == nil {
			break
		}
		if err != bufio.ErrBufferFull {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func (r *eventReader) take(line []byte) {
	// CR alone ends a line as well; inside JSON it is always escaped.
	for {
		i := bytes.IndexByte(line, '\r')
		if i < 0 {
			break
		}
		r.takeLine(line[:i])
		if r.err != nil {
			return
		}
		line = line[i+1:]
	}
	r.takeLine(line)
}

func (r *eventReader) takeLine(line []byte) {
	if r.done || r.err != nil {
		return
	}
	if len(bytes.TrimSpace(line)) == 0 {
		r.dispatch()
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch string(bytes.TrimSpace(name)) {
	case "data":
	case "event":
		if r.hasData {
			r.dispatch()
		}
		r.event = string(value)
		return
	default:
		// Comments, ids, reconnection times; and errors that some servers write
		// into the stream without a field name.
		if line = bytes.TrimSpace(line); line[0] != '{' {
			if r.stray == "" && !streamField(line) {
				r.stray = clip(string(line), maxShown)
			}
			return
		}
		value = line
	}
	// Servers that leave out the blank line between events.
	if r.hasData && complete(r.data) {
		event := r.event
		r.dispatch()
		r.event = event
	}
	if r.hasData {
		r.data = append(r.data, '\n')
	}
	if len(r.data)+len(value) > maxEvent {
		r.err = errEventTooLong
		return
	}
	r.data = append(r.data, value...)
	r.hasData = true
	if string(r.data) == "[DONE]" {
		r.dispatch()
	}
}

// streamField reports whether a line may stand in an event stream and say nothing.
func streamField(line []byte) bool {
	name, _, found := bytes.Cut(line, []byte(":"))
	return found && (len(name) == 0 || string(name) == "id" || string(name) == "retry")
}

// complete reports whether an event's data can stand for itself.
func complete(data []byte) bool { return string(data) == "[DONE]" || json.Valid(data) }

// dispatch emits the event collected so far.
func (r *eventReader) dispatch() {
	data, event := bytes.TrimSpace(r.data), r.event
	had := r.hasData && len(data) > 0
	r.event, r.hasData = "", false
	r.data = r.data[:0]
	if !had || r.err != nil {
		return
	}
	if event == "error" {
		r.err = r.onError(data)
		return
	}
	r.onContent()
	if string(data) == "[DONE]" {
		r.done = true
		r.err = io.EOF
	} else if !json.Valid(data) {
		r.err = fmt.Errorf("an event of the stream is not JSON: %s", clip(string(data), 200))
		return
	}
	r.out = append(r.out, "data: "...)
	// go-openai takes every event that begins with {"error": for a failure, also
	// where it is null.
	if bytes.HasPrefix(data, []byte(`{"error":`)) {
		r.out = append(r.out, "{ "...)
		data = data[1:]
	}
	at := len(r.out)
	r.out = append(r.out, data...)
	for i := at; i < len(r.out); i++ {
		// Line ends outside of strings are white space to JSON, and cannot be inside.
		if r.out[i] == '\n' || r.out[i] == '\r' {
			r.out[i] = ' '
		}
	}
	r.out = append(r.out, '\n')
}
