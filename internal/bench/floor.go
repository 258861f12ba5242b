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
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// floor does what no daemon can do without: what was taken goes to the disk
// before it is acted on, and the model is asked.
type floor struct {
	dir    string
	server *http.Server
	client *http.Client
	served chan struct{}
	url    string
	n      int

	mu       sync.Mutex
	arrived  time.Time
	answered time.Time
	// gaps are the times between an answer and the next request.
	gaps sample
}

// latePath is where the floor's model answers after lateBy.
const latePath, lateBy = "/late", 200 * time.Millisecond

func newFloor(dir string) (*floor, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &floor{
		dir: filepath.Join(dir, "floor"), url: "http://" + ln.Addr().String(), served: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}},
	}
	f.server = &http.Server{Handler: http.HandlerFunc(f.serve), ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(f.served)
		_ = f.server.Serve(ln)
	}()
	return f, os.Mkdir(f.dir, 0o755)
}

func (f *floor) close() {
	f.client.CloseIdleConnections()
	f.server.Close()
	<-f.served
}

func (f *floor) serve(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path == latePath {
		time.Sleep(lateBy)
	}
	f.mu.Lock()
	f.arrived = at
	if !f.answered.IsZero() {
		f.gaps = append(f.gaps, at.Sub(f.answered))
	}
	f.mu.Unlock()
	_, _ = io.WriteString(w, "answer")
	_ = http.NewResponseController(w).Flush()
	f.mu.Lock()
	f.answered = time.Now()
	f.mu.Unlock()
}

// ask makes a request of so many bytes and returns when it arrived.
func (f *floor) ask(ctx context.Context, path string, size int) (time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, bytes.NewReader(make([]byte, size)))
	if err != nil {
		return time.Time{}, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return time.Time{}, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return time.Time{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.arrived, nil
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
func reply(conversation int) work { return work{commit: 600, request: head + conversation} }

// latency is how long the work takes, from its beginning until the request
// arrives.
func (f *floor) latency(ctx context.Context, n int, w work) (sample, error) {
	var s sample
	for range n {
		begun := time.Now()
		j, err := f.journal(w.newJournal)
		if err != nil {
			return nil, err
		}
		err = errors.Join(j.commit(w.commit), j.Close())
		if err == nil && w.newJournal {
			err = errors.Join(syncDir(filepath.Dir(j.Name())), syncDir(f.dir))
		}
		if err != nil {
			return nil, err
		}
		at, err := f.ask(ctx, "/", w.request)
		if err != nil {
			return nil, err
		}
		s = append(s, at.Sub(begun))
	}
	return s, nil
}

// journal is a file that is appended to and synced.
type floorJournal struct{ *os.File }

// journal opens a journal, in a directory of its own if it is a new one.
func (f *floor) journal(fresh bool) (floorJournal, error) {
	dir := filepath.Join(f.dir, "0")
	if fresh {
		f.mu.Lock()
		f.n++
		dir = filepath.Join(f.dir, fmt.Sprint(f.n))
		f.mu.Unlock()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return floorJournal{}, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "session.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	return floorJournal{file}, err
}

func (j floorJournal) commit(size int) error {
	if _, err := j.Write(bytes.Repeat([]byte{'x'}, size)); err != nil {
		return err
	}
	return datasync(j.File)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// burst is n rounds at once: each commits its input, asks a model that takes its
// time, commits the answer and writes the output.
func (f *floor) burst(ctx context.Context, n int) (time.Duration, error) {
	errs := make(chan error, n)
	begun := time.Now()
	for range n {
		go func() { errs <- f.round(ctx) }()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return time.Since(begun), errors.Join(all...)
}

func (f *floor) round(ctx context.Context) error {
	j, err := f.journal(true)
	if err != nil {
		return err
	}
	defer j.Close()
	if err := j.commit(firstInput.commit); err != nil {
		return err
	}
	if err := errors.Join(syncDir(filepath.Dir(j.Name())), syncDir(f.dir)); err != nil {
		return err
	}
	if _, err := f.ask(ctx, latePath, firstInput.request); err != nil {
		return err
	}
	if err := j.commit(500); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(filepath.Dir(j.Name()), taskdir.OutputName(0)))
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := out.WriteString("answer\n\n" + taskdir.Marker + "\n"); err != nil {
		return err
	}
	return out.Sync()
}

// turns is what lies between an answer and the next request: the answer's commit
// and that of the results. size is that of the first request, grows what each turn
// adds to it.
func (f *floor) turns(ctx context.Context, n, size, grows int) (sample, error) {
	j, err := f.journal(true)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	f.mu.Lock()
	f.gaps, f.answered = nil, time.Time{}
	f.mu.Unlock()
	for i := range n {
		if _, err := f.ask(ctx, "/", size+i*grows); err != nil {
			return nil, err
		}
		if err := errors.Join(j.commit(400), j.commit(grows)); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gaps, nil
}

// characters is what turns send at the least that each read another file: a
// prompt, the calls and the files.
func (f *floor) characters(turns, file int) (sent, prefix int) {
	const prompt, input = 4 << 10, 100
	call := len(`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1_0","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"file-1.txt\"}"}}]},` +
		`{"role":"tool","tool_call_id":"call_1_0","content":""},`)
	var c characters
	conversation := strings.Repeat("p", prompt) + strings.Repeat("i", input)
	for range turns {
		c.add(conversation)
		conversation += strings.Repeat("c", call) + strings.Repeat("f", file)
	}
	return c.sent, c.prefix
}

// characters counts what is sent, and how much of it is what was sent before.
type characters struct {
	sent, prefix int
	before       string
	// broken counts requests that do not begin with all of the one before.
	broken int
	// earlier is what the requests before should have been the beginning of.
	earlier int
}

func (c *characters) add(request string) {
	n := 0
	for n < len(request) && n < len(c.before) && request[n] == c.before[n] {
		n++
	}
	if n < len(c.before) {
		c.broken++
	}
	c.earlier += len([]rune(c.before))
	c.sent += len([]rune(request))
	c.prefix += len([]rune(request[:n]))
	c.before = request
}

// weighed counts the unchanged beginnings at a tenth, as caches of prompts do.
func (c *characters) weighed() float64 {
	return float64(c.sent-c.prefix) + float64(c.prefix)/10
}
