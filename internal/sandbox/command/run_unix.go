//go:build unix

package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// linger is how long what holds the output open may go on printing after the
	// shell has ended: a process substitution ends a moment after it.
	linger = 50 * time.Millisecond
	// killPatience is how long processes may take to die of SIGKILL.
	killPatience = 3 * time.Second
)

// Run runs c and blocks until it is over, all of it is dead and its output is
// read. When ctx ends it kills the command at once. An error means that it was
// not started. It may be called by many goroutines at once.
func Run(ctx context.Context, c Command) (Outcome, error) {
	cmd, mark, err := shellCommand(c)
	if err != nil {
		return Outcome{}, fmt.Errorf("start command: %w", err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		return Outcome{}, fmt.Errorf("start command: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	confined, err := confine(c, cmd)
	if err != nil {
		in.Close()
		return Outcome{}, fmt.Errorf("confine command: %w", err)
	}

	begun := time.Now()
	p := launch(cmd)
	err = <-p.started
	in.Close()
	if refused := confined.Started(err); err != nil {
		return Outcome{}, fmt.Errorf("start command: %w", refused)
	} else if refused != nil {
		p.kill()
		confined.Ended()
		return Outcome{}, fmt.Errorf("confine command: %w", refused)
	}
	began := startOf(cmd.Process.Pid)
	kept := newCapture(c.OutputCap)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.CopyBuffer(struct{ io.Writer }{kept}, struct{ io.Reader }{out}, make([]byte, 32<<10))
	}()

	o := Outcome{End: p.watch(ctx, c.Timeout, drained)}
	o.Took = time.Since(begun)
	if confined.Whole {
		cmd.Process.Kill()
	} else {
		o.Left, o.Survivors = killAll(cmd.Process.Pid, began, mark)
	}
	o.Exit = p.bury()
	if !await(context.Background(), drained, drainPatience) {
		// Someone who could not be killed holds the output open.
		out.SetReadDeadline(time.Now())
		<-drained
	}
	o.Output = kept.output()
	err = o.add(confined.Ended())
	return o, err
}

// shellCommand is the shell that runs c, and the variable in its environment by which
// what it starts is recognised.
func shellCommand(c Command) (cmd *exec.Cmd, mark string, err error) {
	shell, err := findShell()
	if err != nil {
		return nil, "", err
	}
	if err := checkDir(c.Dir); err != nil {
		return nil, "", err
	}
	mark = Mark + "=" + rand.Text()
	cmd = exec.Command(shell, "-c", c.Line)
	cmd.Dir = c.Dir
	cmd.Env = append(c.Env[:len(c.Env):len(c.Env)], mark)
	cmd.SysProcAttr = leader()
	return cmd, mark, nil
}

// confine has the command confined, if it is to be.
func confine(c Command, cmd *exec.Cmd) (*Confinement, error) {
	if c.Confine == nil {
		return &Confinement{Started: func(err error) error { return err }, Ended: func() Report { return Report{} }}, nil
	}
	return c.Confine(cmd)
}

// add adds what the confinement tells of a command that is over.
func (o *Outcome) add(r Report) error {
	o.Left += r.Left
	switch {
	case o.End != Exited:
	case r.Err != nil:
		*o = Outcome{}
		return fmt.Errorf("confine command: %w", r.Err)
	case r.Limit != "":
		o.End, o.Limit = Limited, r.Limit
	}
	return nil
}

// process is a started shell and the goroutine that waits for it.
type process struct {
	cmd     *exec.Cmd
	started chan error    // gets the result of starting it
	exited  chan struct{} // closed when the shell is dead, but not yet reaped where the system allows that
	release chan struct{} // closed by the owner once the process id is no longer needed
	reaped  chan struct{} // closed at the end
}

// launch starts cmd on a goroutine of its own. It keeps its thread, because the
// kernel kills the shell with the thread that started it, which is how the shell
// goes down with a daemon that is killed.
func launch(cmd *exec.Cmd) *process {
	p := &process{cmd, make(chan error, 1), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(p.reaped)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.started <- err
		if err != nil {
			return
		}
		if !awaitExit(cmd.Process.Pid) {
			cmd.Wait()
		}
		close(p.exited)
		<-p.release
		if cmd.ProcessState == nil {
			cmd.Wait()
		}
	}()
	return p
}

// watch waits until the shell is dead and its output read, or for the end of its time.
func (p *process) watch(ctx context.Context, timeout time.Duration, drained <-chan struct{}) End {
	var timeUp <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		timeUp = t.C
	}
	select {
	case <-p.exited:
		await(ctx, drained, linger)
		return Exited
	case <-timeUp:
		return TimedOut
	case <-ctx.Done():
		return Cancelled
	}
}

// bury reaps a shell that was killed, or has ended, and returns its exit code.
func (p *process) bury() int {
	dead := await(context.Background(), p.exited, killPatience)
	close(p.release)
	if !dead {
		// Stuck in the kernel: it is reaped whenever it comes back.
		return 128 + int(syscall.SIGKILL)
	}
	<-p.reaped
	return exitCode(p.cmd.ProcessState)
}

// kill ends a process that has not got to run anything yet.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.exited
	close(p.release)
	<-p.reaped
}

// await waits for ch to be closed and reports whether it was, before ctx ended
// or d was over.
func await(ctx context.Context, ch <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ch:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func findShell() (string, error) {
	for _, name := range []string{"bash", "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoShell
}

func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// killAll kills every process of the call that leader leads, began being when that
// was started, and returns how many were running beside it and how many did not die. The leader must not
// have been reaped, where the system allows that, so that its id means no other
// process.
func killAll(leader int, began uint64, mark string) (left, survivors int) {
	seen := map[int]bool{}
	deadline := time.Now().Add(killPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		found := members(leader, began, mark)
		// The group first: that is one call, which a fork cannot outrun.
		syscall.Kill(-leader, syscall.SIGKILL)
		alive := 0
		for _, p := range found {
			if p.pid != leader && !seen[p.pid] {
				seen[p.pid] = true
				left++
			}
			if err := kill(p); errors.Is(err, syscall.EPERM) {
				survivors++
				continue
			}
			alive++
		}
		if alive == 0 {
			return left, survivors
		}
		if time.Now().After(deadline) {
			return left, survivors + alive
		}
		survivors = 0
		time.Sleep(pause)
	}
}

// proc is a process as the system lists it.
type proc struct {
	pid, parent, group, session int
	zombie                      bool
	start                       uint64 // in a unit and from a time of the system's own
}

// members returns the living processes of the call: those in the leader's session
// or group, those with the mark in their environment, and the children of all of
// these. What is older than the leader is none of it.
func members(leader int, began uint64, mark string) []proc {
	var candidates []proc
	for _, p := range processes() {
		if p.start >= began && p.pid != os.Getpid() && p.pid > 1 {
			candidates = append(candidates, p)
		}
	}
	in := map[int]bool{leader: true}
	for grown := true; grown; {
		grown = false
		for _, p := range candidates {
			if !in[p.pid] && (p.session == leader || p.group == leader || in[p.parent]) {
				in[p.pid], grown = true, true
			}
		}
		if grown {
			continue
		}
		// The costly look last, at those that nothing else gave away.
		for _, p := range candidates {
			if !in[p.pid] && !p.zombie && marked(p.pid, mark) {
				in[p.pid], grown = true, true
			}
		}
	}
	var out []proc
	for _, p := range candidates {
		if in[p.pid] && !p.zombie {
			out = append(out, p)
		}
	}
	return out
}
