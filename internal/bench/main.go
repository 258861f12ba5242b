// Command bench measures what the daemon adds between a file and the model: it
// starts the real program with a scripted model over real HTTP, writes files as a
// shell does, and takes the time until the model is asked.
//
// Beside each figure stands the floor, measured in the same run and on the same
// disk: the system calls that cannot be done without (what is acknowledged has to
// be on the disk) and one HTTP request, with nothing around them. The ratio of
// the two says more than either: machines differ, and disks differ more.
//
// It prints a table and judges nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the sizes of what is measured.
type options struct {
	dir     string
	n       int
	waiting int
	bytes   int
	keep    bool
}

func run() (err error) {
	var o options
	flag.StringVar(&o.dir, "dir", "", "`directory` to work in, which says which disk is measured (default: the temporary one)")
	flag.IntVar(&o.n, "n", 300, "how often each thing is measured")
	flag.IntVar(&o.waiting, "waiting", 1000, "how many sessions wait while replies are measured")
	flag.IntVar(&o.bytes, "bytes", 20_000, "size of a waiting session's conversation")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory, with the daemon's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	dir, err := os.MkdirTemp(o.dir, "gasupervisor-bench-")
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(os.Stderr, "directory:", dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	binary := filepath.Join(dir, "gasupervisor")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/gasupervisor/gasupervisor/cmd/gasupervisor")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the program: %w", err)
	}
	d, err := startDaemon(ctx, binary, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	var rows []row
	measure := func(what, goal string, floor, daemon func(context.Context) (sample, error)) error {
		fmt.Fprintf(os.Stderr, "measuring: %s\n", what)
		// The floor before and after, since a busy machine is not busy evenly.
		before, err := floor(ctx)
		if err != nil {
			return fmt.Errorf("measure floor of %s: %w", what, err)
		}
		got, err := daemon(ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", what, err)
		}
		after, err := floor(ctx)
		if err != nil {
			return fmt.Errorf("measure floor of %s: %w", what, err)
		}
		rows = append(rows, row{what, goal, append(before, after...), got})
		return nil
	}
	f, err := newFloor(dir)
	if err != nil {
		return err
	}
	defer f.close()
	err = measure("input.txt closed -> model asked", "2.5 ms, 8 ms",
		func(ctx context.Context) (sample, error) { return f.measure(ctx, o.n/2, firstInput) },
		func(ctx context.Context) (sample, error) { return d.inputs(ctx, o.n) })
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "preparing: %d waiting sessions of %d bytes\n", o.waiting, o.bytes)
	if err := d.wait(ctx, o.waiting, o.bytes); err != nil {
		return err
	}
	err = measure(fmt.Sprintf("reply.txt closed -> model asked, %d waiting", o.waiting), "2 ms, 5 ms",
		func(ctx context.Context) (sample, error) { return f.measure(ctx, o.n/2, reply(o.bytes)) },
		func(ctx context.Context) (sample, error) { return d.replies(ctx, o.n, o.waiting) })
	if err != nil {
		return err
	}
	return print(rows)
}

// sample is a number of times measured.
type sample []time.Duration

// at is the time below which a part of the sample lies.
func (s sample) at(part float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// row is a line of the table.
type row struct {
	what, goal    string
	floor, daemon sample
}

func print(rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join([]string{"", "floor", "p99", "daemon", "p99", "ratio", "p99", "to reach (median, p99)"}, "\t"))
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%s\n", r.what,
			ms(r.floor.at(.5)), ms(r.floor.at(.99)), ms(r.daemon.at(.5)), ms(r.daemon.at(.99)),
			ratio(r.daemon.at(.5), r.floor.at(.5)), ratio(r.daemon.at(.99), r.floor.at(.99)), r.goal)
	}
	return w.Flush()
}

func ms(t time.Duration) string { return fmt.Sprintf("%.2f ms", float64(t.Microseconds())/1000) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }
