package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// pickup writes thousands of messages as fast as their writers can, half of them
// by ">" and half by ">>", against a daemon that takes them.
func (e *episode) pickup(ctx context.Context) error {
	tasks := e.tasks
	d, err := e.start(nil)
	if err != nil {
		return err
	}
	defer d.kill()
	var writers sync.WaitGroup
	for i := range tasks {
		name := fmt.Sprintf("t%d", i)
		w := &driver{e: e, name: name, dir: filepath.Join(e.temp, name), dice: rand.New(rand.NewPCG(e.seed, uint64(100+i)))}
		writers.Go(func() {
			err := w.begin(ctx)
			if err == nil {
				err = w.flood(ctx, e.cfg.Messages/tasks, i%2 == 0)
			}
			if err == nil {
				err = w.finish(ctx)
			}
			if err != nil && ctx.Err() == nil {
				e.book.violated(err.Error() + w.describe())
			}
		})
	}
	close(e.calmed)
	writers.Wait()
	e.end(d)
	return ctx.Err()
}

// flood writes n messages, each as soon as it may be written.
func (d *driver) flood(ctx context.Context, n int, truncating bool) error {
	for i := range n {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !truncating {
			file := taskdir.ReplyFile
			if i%4 == 3 {
				file = taskdir.InterveneFile
			}
			if _, err := d.sendAs(file, ">>"); err != nil {
				return err
			}
			time.Sleep(time.Duration(d.dice.IntN(4)) * time.Millisecond)
			continue
		}
		// A second ">" would overwrite what is not taken yet: that is the writer's affair.
		path := filepath.Join(d.dir, taskdir.ReplyFile)
		deadline := time.Now().Add(d.e.patience)
		for !missing(path) {
			if time.Now().After(deadline) {
				return fmt.Errorf("task %s: %s is not taken: %w", d.name, path, errSettle)
			}
			time.Sleep(time.Millisecond)
		}
		if _, err := d.sendAs(taskdir.ReplyFile, ">"); err != nil {
			return err
		}
	}
	return nil
}
