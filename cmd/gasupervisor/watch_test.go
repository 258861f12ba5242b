package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestExitCodes(t *testing.T) {
	failure := func(kind string) *round.Failure { return &round.Failure{Kind: kind, Message: "m"} }
	for _, tt := range []struct {
		reason round.Reason
		err    *round.Failure
		by     taskdir.Text
		want   int
	}{
		{round.Completed, nil, "tool", exitDone},
		{round.Failed, failure("auth"), "", exitFailed},
		{round.Failed, failure("timeout"), "", exitStopped},
		{round.Interrupted, nil, "", exitFailed},
		{round.Stopped, nil, "", exitStopped},
		{round.Replaced, nil, "", exitStopped},
		{round.MaxTurns, failure("max_turns"), "", exitPartial},
		{round.Budget, failure("budget"), "", exitPartial},
		{round.Loop, failure("loop"), "", exitPartial},
		// The session timed out; what its last round was is to be told.
		{round.ReplyTimeout, nil, "tool", exitDone},
		{round.ReplyTimeout, failure("auth"), "", exitFailed},
		{round.ReplyTimeout, failure("loop"), "", exitPartial},
		{round.ReplyTimeout, nil, "", exitStopped},
	} {
		st := &taskdir.Status{Reason: taskdir.Text(tt.reason), Error: tt.err, CompletedBy: tt.by}
		if got := codeOf(st); got != tt.want {
			t.Errorf("%s %v %q: %d, want %d", tt.reason, tt.err, tt.by, got, tt.want)
		}
	}
	for _, tt := range [][3]int{{0, 4, 4}, {4, 3, 3}, {3, 1, 1}, {1, 0, 1}, {0, 0, 0}} {
		if got := worse(tt[0], tt[1]); got != tt[2] {
			t.Errorf("worse(%d, %d) = %d", tt[0], tt[1], got)
		}
	}
}

// firstWrite tells of the first write to it.
type firstWrite struct {
	strings.Builder
	once chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.Len() == 0 {
		close(w.once)
	}
	return w.Builder.Write(p)
}

// Ctrl-C ends what watches, with a code of its own, and writes nothing to the task.
func TestDetach(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals to send")
	}
	dir := t.TempDir()
	tempDir := filepath.Join(dir, "temp")
	if err := os.Mkdir(tempDir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := lock.Acquire(tempDir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if err := taskdir.WriteInput(tempDir, "audit", "x"); err != nil {
		t.Fatal(err)
	}
	output := taskdir.OutputPath(tempDir, "audit", 0)
	if err := os.WriteFile(output, []byte("Turn 1 ...\nmore"), 0o644); err != nil {
		t.Fatal(err)
	}
	configPath := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(configPath, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	out := &firstWrite{once: make(chan struct{})}
	var errOut strings.Builder
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{"--config", configPath, "follow", "audit"}, strings.NewReader(""), out, &errOut)
	}()
	// What it shows it shows only once it listens.
	<-out.once
	if err := self.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != exitDetached {
		t.Errorf("exit code %d: %s", got, errOut.String())
	}
	if !strings.Contains(errOut.String(), "detached; the work goes on") || !strings.HasPrefix(out.String(), "Turn 1 ...\n") {
		t.Errorf("out %q, err %q", out.String(), errOut.String())
	}
	names, err := os.ReadDir(filepath.Join(tempDir, "audit"))
	if err != nil || len(names) != 2 {
		t.Errorf("files are %v, %v", names, err)
	}
}

func TestWatchingTimesOut(t *testing.T) {
	ctx, stop := watching(t.Context(), t.TempDir(), 10*time.Millisecond)
	defer stop()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, errTimeout) {
		t.Errorf("cause is %v", err)
	}
}

func TestPending(t *testing.T) {
	updated := time.Unix(1000, 0)
	at := func(seconds int64) *taskdir.Stat { return &taskdir.Stat{Mtime: time.Unix(1000+seconds, 0)} }
	for name, tt := range map[string]struct {
		sight taskdir.Sight
		want  bool
	}{
		"nothing":               {taskdir.Sight{}, false},
		"the input it took":     {taskdir.Sight{Input: at(-1)}, false},
		"a newer input":         {taskdir.Sight{Input: at(1)}, true},
		"a reply":               {taskdir.Sight{Reply: at(-1)}, true},
		"an intervention":       {taskdir.Sight{Intervene: at(-1)}, true},
		"key info asks nothing": {taskdir.Sight{KeyInfo: at(1)}, false},
		"a reply taken now":     {taskdir.Sight{Taken: []taskdir.TakenFile{{Name: taskdir.ReplyFile, Stat: *at(1)}}}, true},
		"a reply answered":      {taskdir.Sight{Taken: []taskdir.TakenFile{{Name: taskdir.ReplyFile, Stat: *at(-1)}}}, false},
		"a stop taken":          {taskdir.Sight{Taken: []taskdir.TakenFile{{Name: taskdir.StopFile, Stat: *at(1)}}}, false},
	} {
		v := view{sight: tt.sight}
		if got := v.pending(updated); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A command that should read a terminal's standard input would look like a hang.
func TestNoTextFromATerminal(t *testing.T) {
	a := &app{ui: &ui{in: neverRead{t}, out: io.Discard, err: io.Discard, inTTY: true}}
	_, err := a.textOrStdin(nil, "--input T")
	var e *exitError
	if !errors.As(err, &e) || e.code != exitUsage {
		t.Errorf("got %v", err)
	}
}

type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("standard input was read")
	return 0, io.EOF
}

func TestQuoteName(t *testing.T) {
	for in, want := range map[string]string{"a-b.1": "a-b.1", "审计": "审计", "a b": "'a b'", "it's": `'it'\''s'`, "-x": "'-x'", "a;b": "'a;b'", "": "''"} {
		if got := quoteName(in); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}
