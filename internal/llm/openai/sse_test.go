package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

type sseResult struct {
	events []string
	done   bool
	err    error
	failed string
}

var errEvent = errors.New("error event")

func readEvents(src io.Reader) sseResult {
	var res sseResult
	r := newEventReader(src, func() {}, func(data []byte) error { res.failed = string(data); return errEvent })
	b, err := io.ReadAll(r)
	res.err, res.done = err, r.done
	for line := range strings.SplitSeq(string(b), "\n") {
		if line != "" {
			res.events = append(res.events, strings.TrimPrefix(line, "data: "))
		}
	}
	return res
}

func TestEventReader(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
		done     bool
		err      error
		failed   string
	}{
		{name: "plain", in: "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n", want: []string{`{"a":1}`, `{"b":2}`, "[DONE]"}, done: true},
		{name: "CRLF", in: "data: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n", want: []string{`{"a":1}`, "[DONE]"}, done: true},
		{name: "CR", in: "data: {\"a\":1}\r\rdata: {\"b\":2}\r\r", want: []string{`{"a":1}`, `{"b":2}`}},
		{name: "no space", in: "data:{\"a\":1}\n\ndata:[DONE]\n\n", want: []string{`{"a":1}`, "[DONE]"}, done: true},
		{name: "mark", in: "\xef\xbb\xbfdata: {\"a\":1}\n\n", want: []string{`{"a":1}`}},
		{name: "comments", in: strings.Repeat(": PROCESSING\n\n", 400) + "data: {\"a\":1}\n\n", want: []string{`{"a":1}`}},
		{name: "other fields", in: "id: 1\nevent: chunk\nretry: 5\ndata: {\"a\":1}\n\n", want: []string{`{"a":1}`}},
		{name: "several lines", in: "data: {\"a\":\ndata: 1}\n\n", want: []string{`{"a": 1}`}},
		{name: "no blank lines", in: "data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]\n", want: []string{`{"a":1}`, `{"b":2}`, "[DONE]"}, done: true},
		{name: "no last line end", in: "data: {\"a\":1}\n\ndata: {\"b\":2}", want: []string{`{"a":1}`, `{"b":2}`}},
		{name: "cut in an event", in: "data: {\"a\":1}\n\ndata: {\"b\":", want: []string{`{"a":1}`}},
		{name: "after the end", in: "data: [DONE]\n\ndata: {\"a\":1}\n\n", want: []string{"[DONE]"}, done: true},
		{name: "error event", in: "data: {\"a\":1}\n\nevent: error\ndata: {\"message\":\"m\"}\n\n", want: []string{`{"a":1}`}, err: errEvent, failed: `{"message":"m"}`},
		{name: "null error", in: "data: {\"error\":null,\"a\":1}\n\n", want: []string{`{ "error":null,"a":1}`}},
		{name: "bare error", in: "data: {\"a\":1}\n\n{\"error\":\"m\"}\n", want: []string{`{"a":1}`, `{ "error":"m"}`}},
		{name: "whole object", in: " \n{\"choices\":\n[]}\n", want: []string{`{"choices": []}`}},
		{name: "object lines", in: "{\"a\":1}\n{\"b\":2}\n", want: []string{`{"a":1}`, `{"b":2}`}},
		{name: "page", in: "<html>busy</html>", err: errEvent, failed: "<html>busy</html>"},
		{name: "empty data", in: "data:\n\ndata: {\"a\":1}\n\n", want: []string{`{"a":1}`}},
		{name: "empty", in: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, src := range []io.Reader{strings.NewReader(tc.in), iotest.OneByteReader(strings.NewReader(tc.in))} {
				got := readEvents(src)
				if !slices.Equal(got.events, tc.want) || got.done != tc.done || !errors.Is(got.err, tc.err) || got.failed != tc.failed {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
	if got := readEvents(strings.NewReader("data: junk\n\n")); got.err == nil || len(got.events) != 0 {
		t.Errorf("junk: %+v", got)
	}
	if got := readEvents(io.MultiReader(strings.NewReader("data: {\"a\":1}\n\n"), iotest.ErrReader(io.ErrUnexpectedEOF))); got.err != io.ErrUnexpectedEOF || len(got.events) != 1 {
		t.Errorf("broken: %+v", got)
	}
}

// endless is a line that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestEventReaderIsBounded(t *testing.T) {
	for _, head := range []string{"data: ", ": ", "{"} {
		if got := readEvents(io.MultiReader(strings.NewReader(head), endless{})); !errors.Is(got.err, errEventTooLong) {
			t.Errorf("%q without end: %v", head, got.err)
		}
	}
}

func FuzzEventReader(f *testing.F) {
	for _, s := range []string{
		"data: {\"a\":1}\n\ndata: [DONE]\n\n", "\xef\xbb\xbf: c\r\ndata:{\"a\":\r\ndata: 1}\r\n\r\n",
		"event: error\ndata: {}\n\n", "{\"a\":1}\n{\"error\":{}}", "data: {\"error\":{\"x\":\"\\n\"}}\rdata: 1\r\r", "<html>", "data\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := readEvents(bytes.NewReader(in))
		pieces := readEvents(iotest.OneByteReader(bytes.NewReader(in)))
		if !slices.Equal(whole.events, pieces.events) || whole.done != pieces.done || (whole.err == nil) != (pieces.err == nil) {
			t.Errorf("whole %+v\npieces %+v", whole, pieces)
		}
		for _, e := range whole.events {
			if e != "[DONE]" && !json.Valid([]byte(e)) {
				t.Errorf("not JSON on one line: %q", e)
			}
			if strings.HasPrefix(e, `{"error":`) {
				t.Errorf("go-openai would take it for an error: %q", e)
			}
		}
	})
}
