package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// What ends waiting for a task before it is over.
var (
	errDetached = errors.New("detached")
	errNoDaemon = errors.New("no daemon")
	errTimeout  = errors.New("timed out")
)

// daemonGrace is how long a daemon may be away while somebody waits: it may be
// restarting.
const daemonGrace = 10 * time.Second

// watching returns a context that ends with Ctrl-C, after timeout (0 is never), or
// when the daemon has been away for too long; its cause says which. The caller
// calls stop when it is done.
func watching(ctx context.Context, tempDir string, timeout time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var expired <-chan time.Time
		if timeout > 0 {
			t := time.NewTimer(timeout)
			defer t.Stop()
			expired = t.C
		}
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		seen := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				cancel(errDetached)
			case <-expired:
				cancel(errTimeout)
			case <-tick.C:
				// Where the lock cannot be asked, waiting is better than giving up.
				if held, err := lock.Probe(tempDir); held || err != nil {
					seen = time.Now()
				} else if time.Since(seen) > daemonGrace {
					cancel(errNoDaemon)
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		signal.Stop(signals)
		<-done
	}
}

// watchError turns the cause of an ended wait into an exit.
func watchError(err error, tempDir string, timeout time.Duration) error {
	switch {
	case errors.Is(err, errDetached):
		return &exitError{code: exitDetached, err: errors.New("detached; the work goes on"), hint: "look again: gasupervisor ls, gasupervisor follow NAME"}
	case errors.Is(err, errTimeout):
		return &exitError{code: exitStopped, err: fmt.Errorf("not over after %s; the work goes on", timeout)}
	case errors.Is(err, errNoDaemon):
		return noDaemon(tempDir)
	}
	return err
}

// pollInterval is how often files are looked at by those who wait, without a
// watch, of which a system has few.
const pollInterval = 50 * time.Millisecond

// settled blocks until nothing is being done in a task and its round `round`, -1
// for any, is over. It returns what it saw last, also beside the context's cause.
func settled(ctx context.Context, tempDir, name string, round int) (view, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		v, err := lookAt(tempDir, name)
		if err != nil {
			return v, err
		}
		if v.Settled && (round < 0 || v.Status == nil || v.Status.Round >= round) {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// target is the round that a command has just asked for.
type target struct {
	tempDir string
	name    string
	round   int
}

// waitAndReport waits for a round and writes its result. follow shows the output
// as it grows instead.
func (a *app) waitAndReport(ctx context.Context, t target, follow, asJSON bool) error {
	if !a.daemonRuns(t.tempDir) {
		return noDaemon(t.tempDir)
	}
	ctx, stop := watching(ctx, t.tempDir, 0)
	defer stop()
	if follow {
		if err := taskdir.Follow(ctx, t.tempDir, t.name, t.round, a.ui.text()); err != nil {
			return watchError(noTask(err, t.tempDir, t.name), t.tempDir, 0)
		}
	}
	v, err := settled(ctx, t.tempDir, t.name, t.round)
	if err != nil {
		return watchError(noTask(err, t.tempDir, t.name), t.tempDir, 0)
	}
	if follow {
		a.ui.notef("%s: %s", show(t.name), show(v.summary(time.Now())))
		return exitWith(codeOfView(v))
	}
	return a.report(v, asJSON)
}

// report writes a task's result: the text alone on standard output, what else
// there is to say beside it.
func (a *app) report(v view, asJSON bool) error {
	code := codeOfView(v)
	if asJSON {
		if err := a.ui.printJSON(outcomeOf(v)); err != nil {
			return err
		}
		return exitWith(code)
	}
	st := v.Status
	if st == nil {
		return exitWith(code)
	}
	if st.Result != "" {
		if err := writeLine(a.ui.text(), string(st.Result)); err != nil {
			return err
		}
	}
	for _, w := range st.OpenPoints {
		a.ui.warnf("left open: %s", show(w))
	}
	for _, f := range st.MissingOutputs {
		a.ui.warnf("missing output file: %s", show(f))
	}
	switch {
	case st.Error != nil:
		return &exitError{code: code, err: fmt.Errorf("%s: %s: %s", v.Name, st.Reason, st.Error.Message),
			hint: "what it did: gasupervisor follow " + quoteName(v.Name)}
	case code != exitDone:
		return &exitError{code: code, err: fmt.Errorf("%s: %s", v.Name, v.summary(time.Now())),
			hint: "what it did: gasupervisor follow " + quoteName(v.Name)}
	}
	return nil
}

// outcome is what programs get of a round that is over.
type outcome struct {
	Task        string  `json:"task"`
	State       string  `json:"state"`
	Reason      *string `json:"reason"`
	Round       *int    `json:"round"`
	Result      *string `json:"result"`
	CompletedBy *string `json:"completed_by"`
	Error       any     `json:"error"`
	ExitCode    int     `json:"exit_code"`
}

func outcomeOf(v view) outcome {
	o := outcome{Task: v.Name, State: v.State, ExitCode: codeOfView(v)}
	if st := v.Status; st != nil {
		o.Round = &st.Round
		o.Reason, o.Result, o.CompletedBy = orNull(st.Reason), orNull(st.Result), orNull(st.CompletedBy)
		if st.Error != nil {
			o.Error = st.Error
		}
	}
	return o
}

func orNull(t taskdir.Text) *string {
	if t == "" {
		return nil
	}
	s := string(t)
	return &s
}

// codeOfView is codeOf for a task that may have no status.
func codeOfView(v view) int {
	if v.Status == nil {
		if v.State == stateElsewhere {
			return exitDone
		}
		return exitFailed
	}
	return codeOf(v.Status)
}

// writeLine writes a text that ends with its line.
func writeLine(w io.Writer, s string) error {
	if len(s) == 0 || s[len(s)-1] != '\n' {
		s += "\n"
	}
	_, err := io.WriteString(w, s)
	return err
}
