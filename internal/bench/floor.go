package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// floor does what no daemon can do without: the message that was taken goes to
// the disk before it is acted on, and the model is asked.
type floor struct {
	dir     string
	server  *http.Server
	served  chan struct{}
	url     string
	arrived chan time.Time
	n       int
}

func newFloor(dir string) (*floor, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &floor{
		dir: filepath.Join(dir, "floor"), url: "http://" + ln.Addr().String(),
		served: make(chan struct{}), arrived: make(chan time.Time, 1),
	}
	f.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := time.Now()
		_, _ = io.Copy(io.Discard, r.Body)
		f.arrived <- at
	}), ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(f.served)
		_ = f.server.Serve(ln)
	}()
	return f, nil
}

func (f *floor) close() {
	f.server.Close()
	<-f.served
}

// work is what one measurement of the floor does: a commit of so many bytes to a
// new journal or one that is there, and a request.
type work struct {
	newJournal      bool
	commit, request int
}

// What stands in every request: the system prompt and the tools' descriptions.
const head = 10_000

// firstInput is a session's first round: a new journal with what the session
// begins with and its input.
var firstInput = work{newJournal: true, commit: head + 500, request: head + 500}

// reply is a further round of a conversation of so many bytes.
func reply(conversation int) work {
	return work{commit: 600, request: head + conversation}
}

func (f *floor) measure(ctx context.Context, n int, w work) (sample, error) {
	old := filepath.Join(f.dir, "journal")
	if err := os.MkdirAll(old, 0o755); err != nil {
		return nil, err
	}
	var s sample
	for range n {
		f.n++
		path := filepath.Join(old, "session.jsonl")
		begun := time.Now()
		if w.newJournal {
			dir := filepath.Join(f.dir, fmt.Sprint(f.n))
			if err := os.Mkdir(dir, 0o755); err != nil {
				return nil, err
			}
			path = filepath.Join(dir, "session.jsonl")
		}
		if err := f.commit(path, w); err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(make([]byte, w.request)))
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		at := <-f.arrived
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		s = append(s, at.Sub(begun))
	}
	return s, nil
}

// commit appends to a journal and syncs, and where the journal is new also what
// leads to it.
func (f *floor) commit(path string, w work) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(bytes.Repeat([]byte{'x'}, w.commit)); err != nil {
		return err
	}
	if err := datasync(file); err != nil {
		return err
	}
	if w.newJournal {
		return errors.Join(syncDir(filepath.Dir(path)), syncDir(f.dir))
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
