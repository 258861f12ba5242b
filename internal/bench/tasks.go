package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// What supervisors do: files, written as a shell writes them.

// begin makes a task.
func (d *daemon) begin(task, text string) error {
	if err := os.Mkdir(filepath.Join(d.temp, task), 0o755); err != nil {
		return err
	}
	return d.put(task, taskdir.InputFile, text)
}

func (d *daemon) put(task, file, text string) error {
	return os.WriteFile(filepath.Join(d.temp, task, file), []byte(text), 0o644)
}

// write writes a file of a task as `>` does, and returns how long it takes from
// its closing until the model is asked about it.
func (d *daemon) write(ctx context.Context, task, file, text string) (time.Duration, error) {
	arrived := d.model.await(text)
	f, err := os.Create(filepath.Join(d.temp, task, file))
	if err != nil {
		return 0, err
	}
	if _, err := f.WriteString(text + "\n"); err != nil {
		return 0, errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	closed := time.Now()
	select {
	case at := <-arrived:
		return at.Sub(closed), nil
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("the model was not asked about %s of task %s", file, task)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// over waits until a round is over.
func (d *daemon) over(ctx context.Context, task string, round int) error {
	path := filepath.Join(d.temp, task, taskdir.OutputName(round))
	return d.until(ctx, time.Millisecond, func() bool { return ends(path) })
}

// ends reports whether an output ends in the marker.
func ends(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	tail := make([]byte, min(info.Size(), 64))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return false
	}
	return taskdir.EndsInMarker(tail)
}

// inputs measures n new tasks, one after the other.
func (d *daemon) inputs(ctx context.Context, n int) (sample, error) {
	var s sample
	for i := range n {
		task := fmt.Sprintf("input %d", i)
		if err := os.Mkdir(filepath.Join(d.temp, task), 0o755); err != nil {
			return nil, err
		}
		took, err := d.write(ctx, task, taskdir.InputFile, fmt.Sprintf("input-%d.", i))
		if err != nil {
			return nil, err
		}
		s = append(s, took)
		if err := d.over(ctx, task, 0); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// waiters brings n sessions to where they wait, each with a conversation of so
// many bytes.
func (d *daemon) waiters(ctx context.Context, n, bytes int) error {
	text := strings.Repeat("A line of some length in a conversation that has gone on.\n", bytes/58+1)
	for i := range n {
		if err := d.begin(waiter(i), text); err != nil {
			return err
		}
	}
	for i := range n {
		if err := d.over(ctx, waiter(i), 0); err != nil {
			return err
		}
	}
	return nil
}

func waiter(i int) string { return fmt.Sprintf("waiting %d", i) }

// replies measures n replies to sessions that wait, chosen at random, one after
// the other. rounds counts those of each session and is kept up to date.
func (d *daemon) replies(ctx context.Context, n, waiting int, rounds map[int]int) (sample, error) {
	var s sample
	for i := range n {
		which := rand.IntN(waiting)
		rounds[which]++
		text := fmt.Sprintf("reply-%d-of-%d.", rounds[which], which)
		took, err := d.write(ctx, waiter(which), taskdir.ReplyFile, text)
		if err != nil {
			return nil, fmt.Errorf("reply %d: %w", i, err)
		}
		s = append(s, took)
		if err := d.over(ctx, waiter(which), rounds[which]); err != nil {
			return nil, err
		}
	}
	return s, nil
}
