//go:build unix

package goshell

import (
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func run(t *testing.T, ctx context.Context, s Script) (exit int, out string, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(r)
		text <- string(b)
	}()
	s.Out = w
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	if s.Env == nil {
		s.Env = []string{"PATH=" + os.Getenv("PATH"), "A=b"}
	}
	exit, err = Run(ctx, s)
	w.Close()
	return exit, <-text, err
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("1\n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, out string
		exit      int
	}{
		{"echo hi", "hi\n", 0},
		{"echo out; echo err >&2; exit 3", "out\nerr\n", 3},
		{"cat f | wc -l | tr -d ' '", "2\n", 0},
		{"for i in a b; do echo $i$A; done", "ab\nbb\n", 0},
		{"sh -c 'echo $A; exit 4'", "b\n", 4},
		{"cat; echo end", "end\n", 0},
		{"sh -c 'cat; echo end'", "end\n", 0},
		{"no-such-program", "\"no-such-program\": executable file not found in $PATH\n", 127},
		{"echo 'open", "1:6: reached EOF without closing quote `'`\n", 2},
		{"X=1; export X; sh -c 'echo $X'", "1\n", 0},
		{"sh -c 'kill -9 $$'", "", 137},
	} {
		exit, out, err := run(t, context.Background(), Script{Text: c.text, Dir: dir})
		if exit != c.exit || out != c.out || err != nil {
			t.Errorf("%s: got %d, %q, %v", c.text, exit, out, err)
		}
	}
}

// What runs in the background is dead when Run returns, and Run does not wait
// for its end.
func TestRunBackground(t *testing.T) {
	dir := t.TempDir()
	var pid int
	exit, out, err := run(t, context.Background(), Script{
		Text: "sleep 300 & while [ ! -e started ]; do :; done; echo hi",
		Dir:  dir,
		Started: func(p *os.Process) error {
			pid = p.Pid
			return os.WriteFile(dir+"/started", nil, 0o644)
		},
	})
	if exit != 0 || out != "hi\n" || err != nil {
		t.Errorf("got %d, %q, %v", exit, out, err)
	}
	if pid == 0 || syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d lives on", pid)
	}
}

func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var pid int
	began := time.Now()
	_, _, err := run(t, ctx, Script{Text: "sleep 300", Started: func(p *os.Process) error {
		pid = p.Pid
		cancel()
		return nil
	}})
	if err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("got %v after %v", err, time.Since(began))
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the program lives on")
	}
	if _, out, err := run(t, ctx, Script{Text: "echo hi"}); err == nil || strings.Contains(out, "hi") {
		t.Errorf("with an ended context: %q, %v", out, err)
	}
}
