// Package goshell runs a shell text without a shell: an interpreter inside the
// daemon, for systems on which neither bash nor sh can be counted on. The
// programs that the text names are started as processes; the rest - pipes,
// variables, loops, cd, echo - happens inside.
package goshell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// Script is what to run.
type Script struct {
	// Text is the shell text, in bash's language.
	Text string
	// Dir is the working directory, an absolute path.
	Dir string
	// Env is the whole environment.
	Env []string
	// Out gets what is printed on both streams. Programs inherit it.
	Out *os.File
	// Started, where not nil, is called with every program right after its start;
	// an error kills the program. It may be called by several goroutines at once.
	Started func(*os.Process) error
}

// holdOn is how long a program's end waits for others that hold its streams.
const holdOn = 100 * time.Millisecond

// Run runs s and returns its exit code. It blocks until the text is through or
// ctx ends; then what still runs of it, in the background too, is killed and has
// ended when Run returns. A text that cannot be parsed has the exit code 2, with
// the reason on Out, as in a shell. An error means that nothing was run, or, with
// ctx.Err(), that ctx ended.
func Run(ctx context.Context, s Script) (int, error) {
	prog, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(s.Text), "")
	if err != nil {
		fmt.Fprintln(s.Out, err)
		return 2, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var programs gate
	defer programs.close()
	defer cancel()
	runner, err := interp.New(
		interp.Dir(s.Dir),
		interp.Env(expand.ListEnviron(s.Env...)),
		interp.StdIO(nil, s.Out, s.Out),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc {
			return func(ctx context.Context, args []string) error {
				if !programs.enter() {
					return context.Canceled
				}
				defer programs.leave()
				return s.program(ctx, args)
			}
		}),
	)
	if err != nil {
		return 0, err
	}
	err = runner.Run(ctx, prog)
	var status interp.ExitStatus
	if errors.As(err, &status) {
		return int(status), nil
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(s.Out, err)
		return 1, nil
	}
	return 0, err
}

// gate counts the programs that run, of which background jobs may start more
// until it is closed.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside.Add(1)
	return true
}

func (g *gate) leave() { g.inside.Done() }

// close lets none in any more and waits until all are out.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}

// program runs one program to its end.
func (s Script) program(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	path, err := interp.LookPathDir(hc.Dir, hc.Env, args[0])
	if err != nil {
		fmt.Fprintln(hc.Stderr, err)
		return interp.ExitStatus(127)
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = args
	cmd.Dir = hc.Dir
	cmd.Env = exported(hc.Env)
	if in, ok := hc.Stdin.(*os.File); ok && in != nil {
		cmd.Stdin = in
	}
	cmd.Stdout, cmd.Stderr = hc.Stdout, hc.Stderr
	cmd.WaitDelay = holdOn
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(hc.Stderr, err)
		return interp.ExitStatus(126)
	}
	if s.Started != nil {
		if err := s.Started(cmd.Process); err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			return err
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return interp.ExitStatus(uint8(exit.ExitCode()))
	case errors.As(err, &exit):
		return interp.ExitStatus(128 + 9)
	case errors.Is(err, exec.ErrWaitDelay):
		return nil
	}
	return err
}

// exported returns the variables that programs get.
func exported(env expand.Environ) []string {
	var list []string
	for name, v := range env.Each {
		if v.Exported && v.IsSet() && v.Kind == expand.String {
			list = append(list, name+"="+v.Str)
		}
	}
	return list
}
