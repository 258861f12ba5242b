package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// traffic is what a round sends to the model.
type traffic struct {
	sent, unchanged int // characters, and those that the request before began with
	head            int // of the first request without its messages
	least           float64
}

// charged counts the characters that a prompt cache holds at a tenth.
func (t traffic) charged() int { return t.sent - t.unchanged + t.unchanged/10 }

// readTwenty runs a round of twenty turns, each of which reads another file of 2 KB,
// and one more that completes it, in a daemon with the shipped defaults.
func readTwenty(t testing.TB) traffic {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	line := "Each line of this file says what number %03d has to say about it.\n"
	for i := range 20 {
		var b strings.Builder
		for n := 0; b.Len()+len(line) < 2048; n++ {
			fmt.Fprintf(&b, line, i*100+n)
		}
		write(t, filepath.Join(dir, "temp", "files", fmt.Sprintf("part%02d.txt", i)), b.String())
	}
	srv := llmtest.NewServer(t, func(r *llmtest.Request) llmtest.Reply {
		if n := r.Turn(); n <= 20 {
			return llmtest.Call("read_file", fmt.Sprintf(`{"path":"files/part%02d.txt"}`, n-1))
		}
		return llmtest.Done("Read all twenty.")
	})
	d := startDaemon(t, dir, srv, "")
	d.task("reading", "Read files/part00.txt to files/part19.txt, one after the other, and say when you are through.", "")
	d.wait("reading")
	reqs := srv.Requests()
	if len(reqs) != 21 || len(srv.Refusals()) > 0 {
		t.Fatalf("%d requests, refused: %v", len(reqs), srv.Refusals())
	}
	sum := traffic{least: 1, head: len(reqs[0].Body) - len(reqs[0].Fields["messages"])}
	for i, r := range reqs[:20] {
		sum.sent += len(r.Body)
		if i == 0 {
			continue
		}
		before := reqs[i-1].Body
		same := 0
		for same < len(before) && before[same] == r.Body[same] {
			same++
		}
		sum.unchanged += same
		sum.least = min(sum.least, float64(same)/float64(len(before)))
	}
	return sum
}

// testDaemon is a daemon in this process.
type testDaemon struct {
	t      testing.TB
	config *config.Config
}

// makeEngine makes the engine of a daemon in dir, whose config.toml has this text.
func makeEngine(t testing.TB, dir, text string) *engine {
	t.Helper()
	file := filepath.Join(dir, "config.toml")
	write(t, file, text)
	l, err := config.Load(config.Options{Path: file, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(l, l.Config.StateDir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// startDaemon starts a daemon in dir, whose model is srv. extra is more of the
// config.toml, from within its [[llm]] on.
func startDaemon(t testing.TB, dir string, srv *llmtest.Server, extra string) *testDaemon {
	t.Helper()
	e := makeEngine(t, dir, fmt.Sprintf("[[llm]]\nname = \"scripted\"\nbase_url = %q\napi_key_env = \"\"\nmodel = \"scripted\"\ncontext_window = 128000\n%s", srv.URL, extra))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &testDaemon{t, e.config}
}

func (d *testDaemon) dir(task string) string { return filepath.Join(d.config.TempDir, task) }

// task writes a task's files as a shell does.
func (d *testDaemon) task(name, input, settings string) {
	if settings != "" {
		write(d.t, filepath.Join(d.dir(name), taskdir.ContextFile), settings)
	}
	write(d.t, filepath.Join(d.dir(name), taskdir.InputFile), input)
}

// wait returns the status once the first round is over.
func (d *testDaemon) wait(task string) *taskdir.Status {
	d.t.Helper()
	var st *taskdir.Status
	waittest.Until(d.t, fmt.Sprintf("task %s ends", task), func() (over bool) {
		var err error
		st, err = taskdir.ReadStatus(d.dir(task))
		return err == nil && st.Reason != ""
	})
	return st
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What a long round sends stays cheap where the provider caches prompts.
func TestTraffic(t *testing.T) {
	got := readTwenty(t)
	t.Logf("%d characters sent, %d of them as before: %d with a cache at a tenth; head %d; at least %.2f %% of each request",
		got.sent, got.unchanged, got.charged(), got.head, 100*got.least)
	if got.charged() >= 115_000 || got.least <= 0.99 {
		t.Errorf("%d characters, want less than 115,000; %.2f %% unchanged, want more than 99", got.charged(), 100*got.least)
	}
}

// BenchmarkTraffic prints the figure.
func BenchmarkTraffic(b *testing.B) {
	var got traffic
	for b.Loop() {
		got = readTwenty(b)
	}
	b.ReportMetric(float64(got.charged()), "chars/round")
	b.ReportMetric(100*got.least, "%unchanged")
	b.ReportMetric(float64(got.sent), "chars-sent/round")
}
