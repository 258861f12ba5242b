package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/gasupervisor/gasupervisor/internal/sandbox/command/goshell"
)

// Run runs c and blocks until it is over, all of it is dead and its output is
// read. When ctx ends it kills the command at once. An error means that it was
// not started. It may be called by many goroutines at once.
//
// The shell text is interpreted by goshell. The programs that it starts are put
// into a job object, which takes their children in and kills them all.
func Run(ctx context.Context, c Command) (Outcome, error) {
	if err := checkDir(c.Dir); err != nil {
		return Outcome{}, fmt.Errorf("start command: %w", err)
	}
	job, err := newJob(c.Limits)
	if err != nil {
		return Outcome{}, fmt.Errorf("start command: create job object: %w", err)
	}
	defer windows.CloseHandle(job)
	out, in, err := os.Pipe()
	if err != nil {
		return Outcome{}, fmt.Errorf("start command: %w", err)
	}
	defer out.Close()
	kept := newCapture(c.OutputCap)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.CopyBuffer(struct{ io.Writer }{kept}, struct{ io.Reader }{out}, make([]byte, 32<<10))
	}()

	runCtx, cancel := ctx, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		runCtx, cancel = context.WithTimeout(ctx, c.Timeout)
	}
	defer cancel()
	begun := time.Now()
	exit, err := goshell.Run(runCtx, goshell.Script{
		Text: c.Line, Dir: c.Dir, Env: c.Env, Out: in,
		Started: func(p *os.Process) error { return assign(job, p.Pid) },
	})
	o := Outcome{Exit: exit, Took: time.Since(begun)}
	switch {
	case ctx.Err() != nil:
		o.End, err = Cancelled, nil
	case runCtx.Err() != nil:
		o.End, err = TimedOut, nil
	}
	windows.TerminateJobObject(job, 1)
	in.Close()
	timer := time.NewTimer(drainPatience)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
		out.Close()
		<-drained
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("start command: %w", err)
	}
	o.Output = kept.output()
	return o, nil
}

// newJob makes a job object whose processes die with its last handle, and so
// with the daemon. Beyond its memory programs get none; beyond its processes
// none is started.
func newJob(l Limits) (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if l.Memory > 0 {
		info.BasicLimitInformation.LimitFlags |= windows.JOB_OBJECT_LIMIT_JOB_MEMORY
		info.JobMemoryLimit = uintptr(l.Memory)
	}
	if l.Processes > 0 {
		info.BasicLimitInformation.LimitFlags |= windows.JOB_OBJECT_LIMIT_ACTIVE_PROCESS
		info.BasicLimitInformation.ActiveProcessLimit = uint32(l.Processes)
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

func assign(job windows.Handle, pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	return windows.AssignProcessToJobObject(job, h)
}
