package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// try runs line and checks that nothing of it lives on: every process of a
// command carries an id of the test in its environment or its arguments.
func try(t *testing.T, ctx context.Context, c Command) Outcome {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	id := "TRY_ID=" + strconv.FormatInt(time.Now().UnixNano(), 36)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), id}, c.Env...)
	o, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if alive := carrying(t, id); len(alive) > 0 {
		t.Errorf("%s: still alive: %v", c.Line, alive)
	}
	if o.Survivors != 0 {
		t.Errorf("%s: %d survivors", c.Line, o.Survivors)
	}
	return o
}

// carrying lists the living processes with id in environment or arguments. It
// does not use the code under test.
func carrying(t *testing.T, id string) (alive []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		env, _ := os.ReadFile(d + "/environ")
		args, _ := os.ReadFile(d + "/cmdline")
		stat, _ := os.ReadFile(d + "/stat")
		if !bytes.Contains(append(env, args...), []byte(id)) || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		alive = append(alive, fmt.Sprintf("%s %q", d, args))
	}
	return alive
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, line string
		exit       int
		out        string
	}{
		{"output", "echo hi", 0, "hi\n"},
		{"both streams in order", "echo a; echo b >&2; echo c", 0, "a\nb\nc\n"},
		{"exit code", "echo x; exit 7", 7, "x\n"},
		{"signal of its own", "kill -9 $$", 137, ""},
		{"not found", "no-such-program-at-all 2>/dev/null", 127, ""},
		{"reads its input", "cat; read x; echo end", 0, "end\n"},
		{"asks on the terminal", "(read -p password: x </dev/tty) 2>/dev/null || echo no terminal", 0, "no terminal\n"},
		{"pipeline", "seq 1 100000 | tail -1", 0, "100000\n"},
		{"process substitution", "cat <(echo in)", 0, "in\n"},
		{"big write", "head -c 20000 /dev/zero | tr '\\0' x | wc -c | tr -d ' '", 0, "20000\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := try(t, t.Context(), Command{Line: c.line, Timeout: time.Minute})
			if o.End != Exited || o.Exit != c.exit || string(o.Output.Head) != c.out || o.Output.Cut != 0 {
				t.Errorf("got %+v, output %q", o, o.Output.Head)
			}
		})
	}
}

// Whatever a command leaves running is killed with it, and does not hold it up.
func TestRunLeavesNothing(t *testing.T) {
	for name, line := range map[string]string{
		"background":          "sleep 300 & echo hi",
		"shell in a shell":    "sh -c 'sleep 300 & echo hi'",
		"setsid":              "setsid sleep 300 & echo hi",
		"setsid, forking":     "setsid -f sleep 300; echo hi",
		"double fork":         "(setsid sh -c 'sleep 300 & sleep 300 &' &) ; echo hi",
		"nohup":               "nohup sleep 300 >/dev/null 2>&1 & echo hi",
		"ignores signals":     "trap '' TERM HUP INT; sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' & echo hi",
		"closed streams":      "setsid -f sleep 300 <&- >&- 2>&-; echo hi",
		"own groups":          "set -m; sleep 300 & sleep 300 & echo hi",
		"environment wiped":   "env -i sleep 301.$TRY_NUM & echo hi",
		"stopped":             "sleep 300 & kill -STOP $!; echo hi",
		"a tree of processes": "for i in 1 2 3; do (for j in 1 2 3; do setsid -f sleep 300; done); done; echo hi",
	} {
		t.Run(name, func(t *testing.T) {
			num := strconv.FormatInt(time.Now().UnixNano(), 10)
			began := time.Now()
			o := try(t, t.Context(), Command{Line: line, Env: []string{"TRY_NUM=" + num}})
			if o.End != Exited || o.Exit != 0 || string(o.Output.Head) != "hi\n" || o.Left == 0 {
				t.Errorf("got %+v, output %q", o, o.Output.Head)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
			if alive := carrying(t, "301."+num); len(alive) > 0 {
				t.Errorf("still alive: %v", alive)
			}
		})
	}
}

// whenThere calls do once a file appears, so that the command is known to run.
func whenThere(t *testing.T, path string, do func()) {
	t.Helper()
	there := waittest.Poll(func() bool { _, err := os.Stat(path); return err == nil })
	do()
	if !there {
		t.Errorf("%s never appeared", path)
	}
}

// What ends a moment after the shell has its output read. On a busy machine the
// moment may be over too soon, but not every time.
func TestRunLingers(t *testing.T) {
	waittest.Until(t, "late output is read", func() bool {
		o := try(t, t.Context(), Command{Line: "echo late > >(sleep 0.01; cat)", Timeout: time.Minute})
		return o.End == Exited && o.Exit == 0 && string(o.Output.Head) == "late\n" && o.Output.Cut == 0
	})
}

func TestRunCancelled(t *testing.T) {
	for _, line := range []string{
		"echo begun; touch there; sleep 300",
		"echo begun; setsid sh -c 'touch there; sleep 300'; :",
		"echo begun; trap '' TERM; (sleep 300 &); touch there; while :; do sleep 300; done",
		"echo begun; touch there; exec yes > /dev/null",
	} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		var at time.Time
		var wg sync.WaitGroup
		wg.Go(func() {
			whenThere(t, dir+"/there", func() { at = time.Now(); cancel() })
		})
		o := try(t, ctx, Command{Line: line, Dir: dir})
		wg.Wait()
		if o.End != Cancelled || string(o.Output.Head) != "begun\n" {
			t.Errorf("%s: got %+v, %q", line, o, o.Output.Head)
		}
		t.Logf("%s: over %v after the cancel", line, time.Since(at))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := try(t, ctx, Command{Line: "sleep 300"}); o.End != Cancelled {
		t.Errorf("ended context: got %+v", o)
	}
}

func TestRunTimedOut(t *testing.T) {
	o := try(t, t.Context(), Command{Line: "echo begun; (setsid sleep 300 &); sleep 300", Timeout: 300 * time.Millisecond})
	if o.End != TimedOut || string(o.Output.Head) != "begun\n" {
		t.Errorf("got %+v, %q", o, o.Output.Head)
	}
}

func TestRunMuchOutput(t *testing.T) {
	o := try(t, t.Context(), Command{Line: "echo head; yes | head -c 100000000; echo tail", OutputCap: 1000})
	if o.End != Exited || o.Output.Bytes != 100000010 || len(o.Output.Head)+len(o.Output.Tail) != 1000 {
		t.Errorf("got %d bytes, kept %d and %d", o.Output.Bytes, len(o.Output.Head), len(o.Output.Tail))
	}
	if !bytes.HasPrefix(o.Output.Head, []byte("head\ny\n")) || !bytes.HasSuffix(o.Output.Tail, []byte("y\ntail\n")) {
		t.Errorf("kept %q and %q", o.Output.Head, o.Output.Tail)
	}
}

// Calls at the same time do not kill each other's processes.
func TestRunTogether(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	wg.Go(func() {
		// Its background job, out of its session, has to outlive the others' ends.
		o := try(t, t.Context(), Command{Dir: dir, Line: `
			setsid -f sh -c 'while [ ! -e go ]; do sleep 0.01; done; touch done'
			touch ready
			while [ ! -e done ]; do sleep 0.01; done
			echo all`, Timeout: time.Minute})
		if string(o.Output.Head) != "all\n" {
			t.Errorf("got %+v, %q", o, o.Output.Head)
		}
	})
	whenThere(t, dir+"/ready", func() {})
	for range 5 {
		wg.Go(func() { try(t, t.Context(), Command{Line: "sleep 300 & setsid -f sleep 300"}) })
	}
	try(t, t.Context(), Command{Line: "sleep 300 & echo hi"})
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestRunConfine(t *testing.T) {
	calls := ""
	held := func(started error, report Report) func(*exec.Cmd) (*Confinement, error) {
		return func(cmd *exec.Cmd) (*Confinement, error) {
			cmd.Args = append([]string{"env", "WITHIN=helper", cmd.Path}, cmd.Args[1:]...)
			cmd.Path = "/usr/bin/env"
			return &Confinement{
				Started: func(err error) error { calls += "started "; return errors.Join(err, started) },
				Ended:   func() Report { calls += "ended "; return report },
			}, nil
		}
	}
	o := try(t, t.Context(), Command{Line: "echo $WITHIN", Confine: held(nil, Report{Left: 2})})
	if string(o.Output.Head) != "helper\n" || o.Left != 2 || calls != "started ended " {
		t.Errorf("got %+v, %q, %s", o, o.Output.Head, calls)
	}
	calls = ""
	o = try(t, t.Context(), Command{Line: "echo $WITHIN", Confine: held(nil, Report{Limit: "memory"})})
	if o.End != Limited || o.Limit != "memory" {
		t.Errorf("got %+v", o)
	}
	for _, c := range []struct {
		confine func(*exec.Cmd) (*Confinement, error)
		calls   string
	}{
		{held(nil, Report{Err: os.ErrPermission}), "started ended "},
		{held(os.ErrPermission, Report{}), "started ended "},
		{func(*exec.Cmd) (*Confinement, error) { return nil, os.ErrPermission }, ""},
	} {
		calls = ""
		_, err := Run(t.Context(), Command{Line: "echo hi", Dir: "/", Confine: c.confine})
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "confine command") || calls != c.calls {
			t.Errorf("got %v, %s", err, calls)
		}
	}
}

func TestRunNotStarted(t *testing.T) {
	if o, err := Run(t.Context(), Command{Line: "echo hi", Dir: "/no/such/directory"}); err == nil || !strings.Contains(err.Error(), "/no/such/directory") {
		t.Errorf("got %+v, %v", o, err)
	}
	t.Setenv("PATH", "/nonexistent")
	if _, err := Run(t.Context(), Command{Line: "echo hi", Dir: "/"}); err == nil || !strings.Contains(err.Error(), "bash") {
		t.Errorf("got %v", err)
	}
}

// The shell dies with the daemon, even where that is killed without notice.
func TestRunDaemonKilled(t *testing.T) {
	if dir := os.Getenv("RUN_AND_WAIT"); dir != "" {
		Run(t.Context(), Command{Line: "echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 300", Dir: dir})
		return
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(exe, "-test.run", "^TestRunDaemonKilled$")
	daemon.Env = append(os.Environ(), "RUN_AND_WAIT="+dir)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	whenThere(t, dir+"/pid", func() {
		daemon.Process.Kill()
		daemon.Wait()
	})
	pid, err := os.ReadFile(dir + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, fmt.Sprintf("process %s is dead", pid), func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

func TestParseStat(t *testing.T) {
	line := "42 (a (b) c) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1 2 3\n"
	p, ok := parseStat(42, []byte(line))
	if want := (proc{pid: 42, parent: 7, group: 42, session: 41, start: 99}); !ok || p != want {
		t.Errorf("got %+v, %v", p, ok)
	}
	if p, ok := parseStat(42, []byte(strings.Replace(line, " S ", " Z ", 1))); !ok || !p.zombie {
		t.Errorf("got %+v, %v", p, ok)
	}
	if p, ok := parseStat(os.Getpid(), []byte("")); ok {
		t.Errorf("got %+v", p)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a (b) c) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1 2 3\n"))
	f.Add([]byte("1 () "))
	f.Fuzz(func(t *testing.T, line []byte) {
		if p, ok := parseStat(5, line); ok && p.pid != 5 {
			t.Errorf("got %+v", p)
		}
	})
}

func BenchmarkRun(b *testing.B) {
	env := []string{"PATH=" + os.Getenv("PATH")}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(context.Background(), Command{Line: ":", Dir: "/", Env: env}); err != nil {
			b.Fatal(err)
		}
	}
}
