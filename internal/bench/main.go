// Command bench measures the program by its front door: it starts the real
// daemon with a scripted model over real HTTP, writes files as a shell does, and
// takes times, memory and characters.
//
// Beside each figure stands the floor, measured in the same run and on the same
// disk by a few lines of this program: the system calls that cannot be done
// without (what is acknowledged has to be on the disk) and the HTTP request, with
// nothing around them. The ratio of the two says more than either: machines
// differ, and disks differ more.
//
// With -genericagent the same is done to a checkout of GenericAgent, where it can
// do it. With -scale it runs what takes longer: thousands of sessions, rounds and
// turns, and a soak.
//
// It prints a table and judges nothing, ends by itself, and leaves nothing but
// what -keep asks for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	dir          string
	binary       string
	keep         bool
	scale        bool
	genericAgent string
	python       string

	n        int
	waiting  int
	bytes    int
	sessions int
	burst    int
	turns    int
	idle     time.Duration

	rounds    int
	ended     int
	cold      bool
	longTurns int
	soak      time.Duration
	perMinute int
}

// bench is one run of the program.
type bench struct {
	options
	floor *floor
	ga    *generic // nil unless asked for
	say   func(format string, args ...any)
	only  []string
	rows  []row
}

// section measures one or several rows, which share their preparation.
type section struct {
	rows []string
	run  func(*bench, context.Context) error
}

// sections are what is measured, in the order of the table.
func sections(scale bool) []section {
	if scale {
		return []section{
			{[]string{"waiting"}, (*bench).scaleWaiting},
			{[]string{"rounds"}, (*bench).scaleRounds},
			{[]string{"ended"}, (*bench).scaleEnded},
			{[]string{"turns"}, (*bench).scaleTurns},
			{[]string{"soak"}, (*bench).scaleSoak},
		}
	}
	return []section{
		{[]string{"input", "reply"}, (*bench).latencies},
		{[]string{"burst"}, (*bench).burstOfTasks},
		{[]string{"turn"}, (*bench).timePerTurn},
		{[]string{"prefix"}, (*bench).charactersSent},
		{[]string{"memory", "idle", "restart"}, (*bench).manyWaiting},
	}
}

func names(scale bool) (all []string) {
	for _, s := range sections(scale) {
		all = append(all, s.rows...)
	}
	return all
}

// run is the program but for the exit itself.
func run(args []string, out, errOut io.Writer) (err error) {
	if len(args) > 0 && args[0] == floorCommand {
		return floorProcess(args[1:], out)
	}
	b := &bench{say: func(format string, args ...any) { fmt.Fprintf(errOut, format+"\n", args...) }}
	if err := b.parse(args, errOut); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp(b.dir, "gasupervisor-bench-")
	if err != nil {
		return err
	}
	if b.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	if b.keep {
		b.say("directory: %s", b.dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	if err := b.build(ctx, errOut); err != nil {
		return err
	}
	if b.floor, err = newFloor(b.dir); err != nil {
		return err
	}
	defer b.floor.close()
	if b.genericAgent != "" {
		if b.ga, err = newGeneric(b.genericAgent, b.python, b.dir); err != nil {
			return err
		}
	}
	begun, before := time.Now(), loadAverage()
	for _, s := range sections(b.scale) {
		if !slices.ContainsFunc(s.rows, b.wants) {
			continue
		}
		if err := s.run(b, ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			// What was measured until then is still worth reading.
			return errors.Join(fmt.Errorf("measure %s: %w", strings.Join(s.rows, ", "), err), b.print(out))
		}
	}
	b.say("done in %s", time.Since(begun).Round(time.Second))
	fmt.Fprintf(out, "%s; load %s before, %s after\n\n", machine(b.dir), before, loadAverage())
	return b.print(out)
}

func (b *bench) parse(args []string, errOut io.Writer) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.Usage = func() {
		fmt.Fprintf(errOut, "usage: scripts/bench [flags] [row...]\n\nrows: %s\nwith -scale: %s\n\nflags:\n",
			strings.Join(names(false), " "), strings.Join(names(true), " "))
		f.PrintDefaults()
	}
	f.StringVar(&b.dir, "dir", "", "`directory` to work in, which says which disk is measured (default: the temporary one)")
	f.StringVar(&b.binary, "binary", "", "`program` to measure (default: built from here)")
	f.BoolVar(&b.keep, "keep", false, "keep the directory, with the daemon's logs")
	f.BoolVar(&b.scale, "scale", false, "the scale runs instead of the table")
	f.StringVar(&b.genericAgent, "genericagent", "", "a checkout of GenericAgent (`directory`), measured side by side; it is copied")
	f.StringVar(&b.python, "python", "python3", "the `program` that runs GenericAgent; it needs requests and bs4")

	f.IntVar(&b.n, "n", 300, "input, reply: how often each is measured")
	f.IntVar(&b.waiting, "waiting", 1000, "reply: how many sessions wait")
	f.IntVar(&b.bytes, "bytes", 20_000, "reply: size of a waiting session's conversation")
	f.IntVar(&b.burst, "burst", 100, "burst: how many tasks at once")
	f.IntVar(&b.turns, "turns", 300, "turn: how many turns")
	f.IntVar(&b.sessions, "sessions", 10_000, "memory, idle, restart, waiting: how many sessions wait")
	f.DurationVar(&b.idle, "idle", time.Minute, "idle, waiting: how long the daemon is watched doing nothing")

	f.IntVar(&b.rounds, "rounds", 1000, "rounds: how many at once")
	f.IntVar(&b.ended, "ended", 100_000, "ended: how many tasks")
	f.BoolVar(&b.cold, "cold", false, "ended: also with the system's caches dropped, which takes root and slows everything else down for a while")
	f.IntVar(&b.longTurns, "long", 2000, "turns: how many in one session")
	f.DurationVar(&b.soak, "soak", 30*time.Minute, "soak: how long")
	f.IntVar(&b.perMinute, "rate", 200, "soak: tasks a minute")
	if err := f.Parse(args); err != nil {
		return err
	}
	b.only = f.Args()
	for _, name := range b.only {
		if !slices.Contains(names(b.scale), name) {
			return fmt.Errorf("there is no row %q; there are: %s", name, strings.Join(names(b.scale), ", "))
		}
	}
	return nil
}

// wants reports whether a row was asked for.
func (b *bench) wants(name string) bool { return len(b.only) == 0 || slices.Contains(b.only, name) }

func (b *bench) build(ctx context.Context, errOut io.Writer) (err error) {
	if b.binary != "" {
		b.binary, err = filepath.Abs(b.binary)
		return err
	}
	b.binary = filepath.Join(b.dir, "gasupervisor")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "github.com/gasupervisor/gasupervisor/cmd/gasupervisor")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the program: %w", err)
	}
	return nil
}

// place makes a directory for a daemon.
func (b *bench) place(name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	return dir, os.Mkdir(dir, 0o755)
}
