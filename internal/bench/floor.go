package main

import (
	"bytes"
	"context"
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

// work is what one measurement of the floor does: commits of so many bytes each,
// to a new journal or one that is there, and a request.
type work struct {
	newJournal bool
	commits    []int
	request    int
}

// firstInput is a session's first round: a journal that is made, the input in it,
// and the first message before it is sent; with the tools' descriptions the
// request has about 12 KB.
var firstInput = work{newJournal: true, commits: []int{600, 6000}, request: 12_000}

// reply is a further round of a conversation of so many bytes.
func reply(conversation int) work {
	return work{commits: []int{500, 500}, request: 12_000 + conversation}
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
	for i, size := range w.commits {
		if _, err := file.Write(bytes.Repeat([]byte{'x'}, size)); err != nil {
			return err
		}
		if err := datasync(file); err != nil {
			return err
		}
		if i > 0 || !w.newJournal {
			continue
		}
		for _, dir := range []string{filepath.Dir(path), f.dir} {
			if err := syncDir(dir); err != nil {
				return err
			}
		}
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
