package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helperName is what the helper's argument 0 is.
const helperName = "gasupervisor-sandbox"

// controlFD is the helper's end of the socket to the daemon.
const controlFD = 3

// linger is how long what the shell left running may go on, since a process
// substitution ends a moment after it.
const linger = 50 * time.Millisecond

// init is the helper's main, in every program that imports this package. The helper
// starts with each command, and package initialisation goes by dependencies and then
// by path: what only the daemon needs (5 ms of compiling in jsonschema alone) comes
// later, and never for the helper.
func init() {
	if len(os.Args) == 1 && os.Args[0] == helperName {
		os.Exit(runHelper())
	}
}

// runHelper returns, with the code to exit with, when its command is over, after
// which the process has to end at once.
func runHelper() int {
	h := &helper{control: os.NewFile(controlFD, "control")}
	code, err := h.run()
	var step *StepError
	if errors.As(err, &step) {
		h.tell(told{Step: step.Step, Error: step.Err.Error()})
		return 125
	}
	return code
}

// helper is the process that stays with one command.
type helper struct {
	control *os.File
	spec    *spec
	watch   watch

	mu sync.Mutex // for telling
}

func (h *helper) tell(t told) {
	h.mu.Lock()
	defer h.mu.Unlock()
	json.NewEncoder(h.control).Encode(t)
}

// steps runs one after the other until one fails.
type step struct {
	name string
	do   func() error
}

func runSteps(steps []step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return &StepError{s.name, err}
		}
	}
	return nil
}

func (h *helper) run() (int, error) {
	// Whatever signal comes, from inside or not: SIGKILL is the only one that ends
	// it. They are caught and not ignored, since the shell would inherit that.
	signal.Notify(make(chan os.Signal, 1))
	unix.CloseOnExec(controlFD)
	offerToDie()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 0, &StepError{"hide the helper", err}
	}
	var err error
	if h.spec, err = readSpec(h.control); err != nil {
		return 0, &StepError{"read the policy", err}
	}
	s := h.spec
	var listener int
	err = runSteps([]step{
		{"build the root", func() error {
			if s.Level != Full {
				return nil
			}
			return buildRoot(s)
		}},
		{"take in orphans", func() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }},
		{"raise the loopback interface", func() error {
			if s.Level != Full || s.Network == NetworkAll {
				return nil
			}
			return loopbackUp()
		}},
		{"listen for the proxy", func() (err error) {
			if s.Network == NetworkProxy {
				listener, err = listenLoopback()
			}
			return err
		}},
		{"set limits", func() error { return setLimits(s) }},
	})
	if err != nil {
		return 0, err
	}
	shell := h.confinedThread()
	if err := <-shell.confined; err != nil {
		return 0, err
	}
	if s.Level == Full {
		// Before the command can look at it.
		if err := dropAllThreads(); err != nil {
			return 0, &StepError{"drop the helper's capabilities", err}
		}
	}
	close(shell.start)
	if err := <-shell.started; err != nil {
		return 0, err
	}
	if err := h.ready(listener); err != nil {
		return 0, &StepError{"report", err}
	}
	if s.Probe {
		return 0, nil
	}
	return h.stay(shell)
}

// ready says so, and hands the listener over, which only the daemon uses.
func (h *helper) ready(listener int) error {
	line, err := json.Marshal(told{Ready: true, Landlock: landlockABI()})
	if err != nil {
		return err
	}
	var rights []byte
	if listener != 0 {
		rights = unix.UnixRights(listener)
		defer unix.Close(listener)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return unix.Sendmsg(controlFD, append(line, '\n'), rights, nil, 0)
}

// shell is the shell and the thread that started it.
type shell struct {
	confined chan error    // gets the result of confining the thread
	start    chan struct{} // closed when the shell is to start
	started  chan error    // gets the result of that
	pid      int
	ended    chan unix.WaitStatus // gets the shell's end, and is closed when nothing is left
}

// confinedThread confines a thread and starts the shell from it. The thread is not
// used for anything else afterwards but to wait for processes.
func (h *helper) confinedThread() *shell {
	sh := &shell{
		confined: make(chan error, 1), start: make(chan struct{}), started: make(chan error, 1),
		ended: make(chan unix.WaitStatus, 1),
	}
	s := h.spec
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := runSteps([]step{
			{"drop capabilities", func() error { return dropCapabilities(s.Level == Full) }},
			{"Landlock", func() error { return restrictPaths(s) }},
			{"close files", func() error { return unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }},
			{"seccomp", func() error { return filterSyscalls(s) }},
		})
		sh.confined <- err
		if err != nil {
			return
		}
		<-sh.start
		if s.Probe {
			sh.started <- nil
			return
		}
		sh.pid, err = syscall.ForkExec(s.Shell, append([]string{s.Shell}, s.Args...), &syscall.ProcAttr{
			Dir: s.Dir, Env: s.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			sh.started <- &StepError{fmt.Sprintf("start %s in %s", s.Shell, s.Dir), err}
			return
		}
		sh.started <- nil
		sh.reap()
	}()
	return sh
}

// reap waits for all processes, whose parent the helper becomes when theirs ends,
// until there is none. It says when the shell ended.
func (sh *shell) reap() {
	defer close(sh.ended)
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return // ECHILD: all are gone
		case pid == sh.pid:
			sh.ended <- ws
		}
	}
}

// stay watches over the command until it is over or the daemon no longer wants it.
func (h *helper) stay(sh *shell) (int, error) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		io.Copy(io.Discard, h.control)
	}()
	h.watch.init(h.spec)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case ws := <-sh.ended:
			return h.end(sh, ws, gone), nil
		case <-gone:
			h.killAll()
			return 128 + int(unix.SIGKILL), nil
		case <-tick.C:
			if limit := h.watch.passed(); limit != "" {
				h.tell(told{Ended: true, Limit: limit})
				h.killAll()
				return 128 + int(unix.SIGKILL), nil
			}
		}
	}
}

// end lets what is about to end do so, kills the rest, and returns the shell's
// exit code.
func (h *helper) end(sh *shell, ws unix.WaitStatus, gone chan struct{}) int {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-sh.ended:
	case <-timer.C:
	case <-gone:
	}
	left := h.watch.count()
	h.killAll()
	h.tell(told{Ended: true, Left: left})
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// killAll kills every process of the command. In a namespace of its own they all
// die with the helper anyway; this is so that they are dead before it says so.
func (h *helper) killAll() {
	if h.spec.Level == Full {
		// -1 is every process that the helper can see but itself.
		unix.Kill(-1, unix.SIGKILL)
		return
	}
	killDescendants(3 * time.Second)
}

// offerToDie lets the kernel choose a command before the daemon, or anything else,
// when the machine runs out of memory. Where it does not let itself be told, that
// is no reason to refuse the command.
func offerToDie() {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	unix.Write(fd, []byte("500"))
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// proxyPort is where programs find the proxy, on the loopback interface of their
// own network.
const proxyPort = 3128

func listenLoopback() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: proxyPort, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("port %d: %w", proxyPort, err)
	}
	return fd, nil
}
