package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// binary is the daemon as it is run.
type binary struct {
	path   string
	points []string
}

func buildDaemon(ctx context.Context, c options, dir string) (binary, error) {
	b := binary{path: filepath.Join(dir, "gasupervisor")}
	args := []string{"build", "-tags", "faults", "-o", b.path}
	if c.Race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/gasupervisor")...)
	cmd.Dir = c.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build daemon: %w\n%s", err, out)
	}
	var err error
	b.points, err = faultPoints(c.Root)
	return b, err
}

var (
	pointCall   = regexp.MustCompile(`\bfault\.Point\("([^"]+)"\)`)
	sessionCall = regexp.MustCompile(`\bat\("([^"]+)"\)`)
)

// faultPoints finds the names of all points in the source, so that nobody has to
// keep a list.
func faultPoints(root string) ([]string, error) {
	var points []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range pointCall.FindAllSubmatch(src, -1) {
			points = append(points, string(m[1]))
		}
		if filepath.Base(filepath.Dir(path)) == "session" {
			// Its own tests crash there too, so that it names them through a method.
			for _, m := range sessionCall.FindAllSubmatch(src, -1) {
				points = append(points, "session."+string(m[1]))
			}
		}
		return nil
	})
	slices.Sort(points)
	return slices.Compact(points), err
}

// daemon is a running daemon process.
type daemon struct {
	cmd    *exec.Cmd
	log    *daemonLog
	exited chan struct{}
	begun  time.Time
	// outlived says, once exited is closed, that something it had started did not
	// die with it.
	outlived bool
}

// deathPatience is how long what a daemon has started may take to die with it.
const deathPatience = 10 * time.Second

// start starts the daemon with these variables beside the environment.
func start(b binary, config string, log *os.File, env ...string) (*daemon, error) {
	d := &daemon{log: &daemonLog{file: log}, exited: make(chan struct{}), begun: time.Now()}
	d.cmd = exec.Command(b.path, "run", "--config", config)
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Env = append(d.cmd.Env, "GORACE=halt_on_error=1")
	d.cmd.Stderr = d.log
	d.cmd.SysProcAttr = withParent()
	d.cmd.WaitDelay = deathPatience
	started := make(chan error, 1)
	go func() {
		// The thread stays, since the daemon dies with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(d.exited)
		err := d.cmd.Start()
		started <- err
		if err == nil {
			// Whoever has its log open is a copy of it.
			d.outlived = errors.Is(d.cmd.Wait(), exec.ErrWaitDelay)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	return d, nil
}

// kill ends the daemon as kill -9 does, and waits for its end.
func (d *daemon) kill() {
	d.cmd.Process.Kill()
	<-d.exited
}

// stop asks the daemon to end, and reports how long it took; it kills it after a while.
func (d *daemon) stop() (took time.Duration, killed bool) {
	begun := time.Now()
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
	case <-time.After(15 * time.Second):
		d.kill()
		killed = true
	}
	return time.Since(begun), killed
}

// how says how the daemon ended: by itself at a fault point (its name), killed, or
// with an exit code.
func (d *daemon) how() (point string, killed bool, code int) {
	state := d.cmd.ProcessState
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		killed = ws.Signal() == syscall.SIGKILL
		code = 128 + int(ws.Signal())
	} else {
		code = state.ExitCode()
	}
	return d.log.crashedAt(), killed, code
}

// daemonLog keeps the daemon's log, and notes what nobody should find there.
type daemonLog struct {
	file *os.File

	mu    sync.Mutex
	rest  []byte
	point string
	bad   []string
	last  string
	// quit says that somebody else on this machine ended the daemon.
	quit bool
}

const crashLine = "fault: crash at "

// Write implements io.Writer.
func (l *daemonLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			break
		}
		text := string(line)
		l.rest = append([]byte(nil), rest...)
		l.last = text
		if point, ok := strings.CutPrefix(text, crashLine); ok {
			l.point = point
		}
		l.quit = l.quit || text == "SIGQUIT: quit"
		for _, word := range []string{"panicked", "panic:", "DATA RACE", "fatal error:", "cannot happen"} {
			if strings.Contains(text, word) && len(l.bad) < 5 {
				l.bad = append(l.bad, text)
			}
		}
	}
	return l.file.Write(p)
}

func (l *daemonLog) crashedAt() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.point
}

func (l *daemonLog) wasQuit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quit
}

func (l *daemonLog) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *daemonLog) suspicious() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.bad)
}
