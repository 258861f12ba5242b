package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/kardianos/service"
)

// Program runs a function the way service managers want it: Start returns at
// once, however long the function takes to be ready, and Stop is bounded, however
// long it takes to end. It is a kardianos/service Interface.
//
// Start is called once; the other methods may be called from any goroutine.
type Program struct {
	run     func(context.Context) error
	timeout time.Duration

	start  sync.Once
	cancel context.CancelFunc
	ctx    context.Context
	done   chan struct{}
	// err is the function's, valid once done is closed.
	err error
}

// NewProgram prepares to run a function; it starts nothing. stopTimeout is the
// longest time that Stop waits.
func NewProgram(ctx context.Context, run func(context.Context) error, stopTimeout time.Duration) *Program {
	ctx, cancel := context.WithCancel(ctx)
	return &Program{run: run, timeout: stopTimeout, ctx: ctx, cancel: cancel, done: make(chan struct{})}
}

// StopError says that the function did not end in time. It may still be running:
// the process should exit.
type StopError struct{ After time.Duration }

func (e *StopError) Error() string {
	return fmt.Sprintf("stop: still busy after %s, not waiting any longer; what was being done goes on from the journal at the next start", e.After)
}

// Start starts the function and returns.
func (p *Program) Start(service.Service) error {
	err := errors.New("start: started already")
	p.start.Do(func() {
		err = nil
		go func() {
			defer close(p.done)
			p.err = p.run(p.ctx)
		}()
	})
	return err
}

// Stop cancels the function's context and waits for its end. It returns the
// function's error, nil where that only says that it was cancelled, or a
// *StopError.
func (p *Program) Stop(service.Service) error { return p.stop(nil) }

// stop is Stop that skip, too, ends the waiting of.
func (p *Program) stop(skip <-chan os.Signal) error {
	begun := time.Now()
	p.cancel()
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-timer.C:
			return &StopError{After: p.timeout}
		case <-skip:
			return &StopError{After: time.Since(begun).Round(time.Millisecond)}
		}
	}
	if errors.Is(p.err, context.Canceled) {
		return nil
	}
	return p.err
}

// Done is closed when the function has returned.
func (p *Program) Done() <-chan struct{} { return p.done }

// Run runs the function until it returns, ctx ends, or the user or the service
// manager stops it by Ctrl-C, SIGTERM, a closed terminal (SIGHUP, unless that is
// ignored) or Windows' own way; a second signal skips the wait for its end. It
// returns what Stop returns.
func Run(ctx context.Context, run func(context.Context) error, stopTimeout time.Duration) error {
	p := NewProgram(ctx, run, stopTimeout)
	defer p.cancel()
	if runtime.GOOS == "windows" && !service.Interactive() {
		return p.runOnWindows()
	}
	signals := make(chan os.Signal, 2)
	stopping := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		// The terminal was closed: a stop like any other, and not a crash. nohup has it
		// ignored, and listening would undo that.
		stopping = append(stopping, syscall.SIGHUP)
	}
	signal.Notify(signals, stopping...)
	defer signal.Stop(signals)
	if err := p.Start(nil); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	case <-signals:
	}
	return p.stop(signals)
}

// runOnWindows answers the service manager, which starts and stops us by calls.
func (p *Program) runOnWindows() error {
	svc, err := service.New(p, &service.Config{Name: Name})
	if err != nil {
		return fmt.Errorf("run as a service: %w", err)
	}
	watching := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-p.done:
			// It ended by itself: the service manager has to hear of it, and will
			// call Stop, which returns the error.
			if p.ctx.Err() == nil {
				svc.Stop()
			}
		case <-ended:
		}
	}()
	err = svc.Run()
	close(ended)
	<-watching
	return err
}
