package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

func TestRun(t *testing.T) {
	w := newWorld(t, Config{})
	for _, c := range []struct {
		name, line string
		exit       int
		out        string
	}{
		{"output", "echo hi", 0, "hi\n"},
		{"both streams in order", "echo a; echo b >&2; echo c", 0, "a\nb\nc\n"},
		{"exit code", "echo x; exit 7", 7, "x\n"},
		{"signal of its own", "kill -9 $$", 137, ""},
		{"process substitution", "cat <(echo in)", 0, "in\n"},
		{"ends a moment after the shell", "echo late > >(cat)", 0, "late\n"},
		{"no terminal", "(read x </dev/tty) 2>/dev/null || echo none", 0, "none\n"},
		{"standard input is empty", "cat; echo end", 0, "end\n"},
		{"home", "echo $HOME; touch ~/x && ls ~", 0, "/agent/home\nx\n"},
		{"temporary", "echo $TMPDIR; mktemp >/dev/null && echo ok", 0, "/tmp\nok\n"},
		{"directory", "pwd", 0, w.work + "\n"},
		{"no arguments or environment tell the policy", "tr '\\0' ' ' </proc/1/cmdline; cat /proc/1/environ 2>/dev/null | wc -c", 0, helperName + " 0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, out := w.run(c.line)
			if o.End != command.Exited || o.Exit != c.exit || out != c.out {
				t.Errorf("%+v, output %q", o, out)
			}
		})
	}
}

// Whatever cannot be done the command is not run, and the error says which step it was.
func TestFailClosed(t *testing.T) {
	w := newWorld(t, Config{})
	marker := filepath.Join(w.work, "ran")
	for _, c := range []struct {
		name   string
		damage func(*spec)
		says   string
	}{
		{"a path that is not there", func(s *spec) { s.Mounts = append(s.Mounts, Mount{Path: "/no/such", How: Read, Dir: true}) }, "mount what is granted: read /no/such"},
		{"a link on the way", func(s *spec) {
			os.Symlink(w.work, filepath.Join(w.dir, "link"))
			s.Mounts = append(s.Mounts, Mount{Path: filepath.Join(w.dir, "link"), How: Write, Dir: true})
		}, "mount what is granted: write"},
		{"a link above", func(s *spec) {
			s.Mounts = append(s.Mounts, Mount{Path: filepath.Join(w.dir, "link", "sub"), How: Write, Dir: true})
		}, "mount what is granted: write"},
		{"a file that became a directory", func(s *spec) { s.Mounts = append(s.Mounts, Mount{Path: w.work, How: Read}) }, "a directory became a file"},
		{"a directory that is none", func(s *spec) { s.Dir = "/nowhere" }, "start /usr/bin/bash in /nowhere"},
		{"a shell that is none", func(s *spec) { s.Shell = "/usr/bin/no-shell" }, "start /usr/bin/no-shell"},
		{"no policy", nil, "before it started the command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			confine := w.sandbox.Confine(w.job)
			_, err := command.Run(t.Context(), command.Command{Line: "touch " + marker, Dir: w.work, Env: []string{"PATH=/usr/bin"}, Confine: func(cmd *exec.Cmd) (*command.Confinement, error) {
				k, err := confine(cmd)
				if err != nil {
					return nil, err
				}
				started := k.Started
				k.Started = func(err error) error {
					if c.damage == nil {
						// As if the daemon had died before it said anything.
						cmd.Process.Kill()
					}
					return started(err)
				}
				return k, nil
			}})
			if c.damage == nil {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if err := os.Remove(marker); err != nil {
				t.Fatalf("the unbroken one did not run: %v", err)
			}
			if c.damage != nil {
				err = w.broken(c.damage, "touch "+marker)
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %q", err, c.says)
				}
			}
			if _, err := os.Lstat(marker); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

// spec is what a helper is told, for a line.
func (w *world) spec(line string) *spec {
	w.t.Helper()
	l, err := w.sandbox.Layout(w.job, Extras{})
	if err != nil {
		w.t.Fatal(err)
	}
	return &spec{Level: Full, Mounts: l.Mounts, Network: NetworkOff, Shell: "/usr/bin/bash", Args: []string{"-c", line}, Dir: w.work, Files: accounts(nil),
		Env: []string{"PATH=/usr/bin"}, Links: []link{{"/lib64", "usr/lib64"}, {"/lib", "usr/lib"}}}
}

// broken runs a line with a spec that was changed.
func (w *world) broken(change func(*spec), line string) error {
	w.t.Helper()
	sp := w.spec(line)
	change(sp)
	t, err := newTalk(sp, Config{}, Reach{})
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := &exec.Cmd{}
	t.equip(cmd, Full, Config{Program: helperProgram})
	if err := t.started(cmd.Start()); err != nil {
		return err
	}
	cmd.Wait()
	return t.ended().Err
}

// The system's own helper that is no helper: nothing runs.
func TestHelperMissing(t *testing.T) {
	s := New(Config{Program: "/usr/bin/true"})
	st := s.Status()
	if st.Level == Full || st.Why == "" {
		t.Errorf("got %+v", st)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{Memory: 128 << 20, Processes: 30, FileSize: 1 << 20, OpenFiles: 100}})
	for _, c := range []struct{ name, line, limit, out string }{
		{"processes", "for i in $(seq 100); do sleep 30 & done; wait", "more than 30 processes", ""},
		{"memory", "x=$(head -c 300000000 /dev/zero | tr '\\0' x); sleep 30", "more than 128.0 MB", ""},
		{"a file", "head -c 2000000 /dev/zero > f; stat -c %s f", "", "1048576\n"},
		{"open files", "ulimit -n", "", "100\n"},
		{"shared memory", "df --output=size -B1 /dev/shm | tail -1; cat /proc/sys/kernel/shmall", "", "33554432\n8192\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, out := w.run(c.line)
			if c.limit != "" && (o.End != command.Limited || !strings.Contains(o.Limit, c.limit)) || !strings.HasSuffix(out, c.out) {
				t.Errorf("got %+v, %q", o, out)
			}
		})
	}
}

func TestDiskLimit(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{Disk: 20 << 20}})
	o, out := w.run("for i in $(seq 200); do head -c 3000000 /dev/zero > f$i; done; echo all")
	if o.End != command.Limited || !strings.Contains(o.Limit, "free space") || strings.Contains(out, "all") {
		t.Errorf("got %+v, %q", o, out)
	}
}

// The command is gone before Run returns, whatever ended it.
func TestNothingIsLeft(t *testing.T) {
	w := newWorld(t, Config{})
	id := "30" + strconv.FormatInt(time.Now().UnixNano()%1e9, 10)
	alive := func() (pids []string) {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, d := range dirs {
			if args, _ := os.ReadFile(d + "/cmdline"); strings.Contains(string(args), id) {
				pids = append(pids, d)
			}
		}
		return pids
	}
	for name, line := range map[string]string{
		"background": "sleep " + id + " & echo hi", "far away": "setsid -f env -i setsid -f sleep " + id + "; sleep 0.1; echo hi", "stopped": "sleep " + id + " & kill -STOP $!; echo hi",
	} {
		o, out := w.run(line)
		if pids := alive(); len(pids) > 0 || o.Left != 1 || out != "hi\n" {
			t.Errorf("%s: left %d, alive %v, output %q", name, o.Left, pids, out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready := filepath.Join(w.work, "ready")
	go func() {
		waittest.Poll(func() bool { return ctx.Err() != nil || exists(ready) })
		cancel()
	}()
	o, err := w.try(ctx, "setsid -f sleep "+id+"; touch ready; sleep "+id)
	if err != nil || o.End != command.Cancelled {
		t.Errorf("got %+v, %v", o, err)
	}
	if pids := alive(); len(pids) > 0 {
		t.Errorf("cancelled: alive %v", pids)
	}
}

// Many at once neither mix nor wait for each other.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, Config{})
	errs := make(chan error, 20)
	for i := range 20 {
		go func() {
			o, err := w.try(t.Context(), fmt.Sprintf("echo %d; exit %d", i, i))
			if err == nil && (o.Exit != i || string(o.Output.Head) != fmt.Sprintln(i)) {
				err = fmt.Errorf("%d: got %+v", i, o)
			}
			errs <- err
		}()
	}
	for range 20 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err != nil || len(fds) > 50 {
		t.Errorf("%d files are open, %v", len(fds), err)
	}
}

// Placeholders are made where a protected path is missing.
func TestPlaceholders(t *testing.T) {
	w := newWorld(t, Config{})
	agents := filepath.Join(w.work, "agents")
	w.grant(sandbox.Ceiling{Protected: []string{agents}}, sandbox.Ask{Writes: true})
	_, out := w.run("mkdir -p agents; echo x > agents/evil.md; mv agents a; rmdir agents; ls -A agents")
	if fi, err := os.Lstat(agents); err != nil || !fi.IsDir() || strings.Contains(out, "evil.md\n") {
		t.Errorf("got %v, %q", err, out)
	}
	if entries, err := os.ReadDir(agents); err != nil || len(entries) > 0 {
		t.Errorf("it holds %v, %v", entries, err)
	}
}

func TestAtLeast(t *testing.T) {
	for release, want := range map[string]bool{"6.14.0": true, "6.18.44-fc": true, "7.0-rc1": true, "6.13.9": false, "5.99": false, "": false, "x": false} {
		if got := atLeast(release, 6, 14); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

func TestRefusal(t *testing.T) {
	var refused *RefusalError
	s := &Sandbox{detect: func() Status { return Status{Level: None, Why: "no", Do: "something"} }}
	_, err := s.Confine(Job{})(&exec.Cmd{})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "no; something") {
		t.Errorf("got %v", err)
	}
}

// The price of confinement: a command that does nothing, by turns as it is and
// confined by the program itself, and the middle of each.
func BenchmarkConfinement(b *testing.B) {
	program := filepath.Join(b.TempDir(), "gasupervisor")
	build := exec.Command("go", "build", "-o", program, "../../../cmd/gasupervisor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	w := newWorld(b, Config{Program: program, Limits: Limits{Memory: 4 << 30, Processes: 512}})
	var plain, confined []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begun := time.Now()
		w.plain("true")
		between := time.Now()
		w.run("true")
		plain, confined = append(plain, between.Sub(begun)), append(confined, time.Since(between))
	}
	middle := func(d []time.Duration) float64 {
		slices.Sort(d)
		return d[len(d)/2].Seconds() * 1000
	}
	b.ReportMetric(middle(plain), "plain-ms")
	b.ReportMetric(middle(confined), "confined-ms")
	b.ReportMetric(middle(confined)-middle(plain), "cost-ms")
}
