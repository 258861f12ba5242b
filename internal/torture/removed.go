package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/session"
)

// removedTasks is how many tasks of an episode are removed by their supervisors, again
// and again, and removedToken what all that is written to them begins with.
const (
	removedTasks = 2
	removedToken = "msg-r"
)

// remover is the supervisor of a task that it begins, removes, and begins again.
type remover struct {
	*driver
	tokens []string
}

func newRemover(e *episode, i int) *remover {
	name := fmt.Sprintf("r%d", i)
	return &remover{driver: &driver{
		e: e, name: name, dir: filepath.Join(e.temp, name), dice: rand.New(rand.NewPCG(e.seed, uint64(1000+i))),
	}}
}

// work removes the task in whatever state it is in, until all is calm; then it lets
// one session come to its end, and removes that.
func (r *remover) work(ctx context.Context) error {
	for !r.e.calm() && ctx.Err() == nil {
		if err := r.begin(); err != nil {
			return err
		}
		r.pause(ctx, 400)
		if err := r.remove(); err != nil {
			return err
		}
		if r.dice.IntN(2) == 0 {
			r.pause(ctx, 200)
		}
	}
	if err := r.begin(); err != nil {
		return err
	}
	tok := r.tokens[len(r.tokens)-1]
	if err := r.until(ctx, r.e.patience, "its last input", func() bool { return r.e.model.hasSeen(tok) && r.atRest() }); err != nil {
		return err
	}
	if err := r.remove(); err != nil {
		return err
	}
	place := filepath.Join(r.e.state, journal.Place(r.name))
	return r.until(ctx, r.e.patience, "its journal to be archived", func() bool { return missing(place) })
}

func (r *remover) begin() error {
	tok, text := r.message()
	r.tokens = append(r.tokens, tok)
	return r.powered(func() error {
		if err := os.Mkdir(r.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return writeWhole(filepath.Join(r.dir, taskdir.InputFile), text, false)
	})
}

// remove removes the directory for good. The daemon may be writing to it.
func (r *remover) remove() error {
	return r.powered(func() error {
		if err := os.RemoveAll(r.dir); err != nil {
			return err
		}
		return syncDir(r.e.temp)
	})
}

// powered does something while the power is on, and again where that fails.
func (r *remover) powered(do func() error) error {
	for try := 0; ; try++ {
		r.e.power.RLock()
		err := do()
		r.e.power.RUnlock()
		if err == nil || try == 2000 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// checkRemoved: of a task that was removed nothing is left but its archived journals,
// and no input began two sessions. It returns the sessions.
func (e *episode) checkRemoved() (all []*life) {
	for i := range removedTasks {
		r := newRemover(e, i)
		if !missing(r.dir) {
			e.book.violated(fmt.Sprintf("task %s was removed, and is there again", r.name))
		}
		paths, _ := filepath.Glob(filepath.Join(e.state, session.ArchivedName, journal.Place(r.name)+".*", "session*.jsonl"))
		began := map[string]int{}
		for _, path := range paths {
			l, err := readLife(path)
			if err != nil {
				e.book.violated(fmt.Sprintf("task %s, archived: %v", r.name, err))
				continue
			}
			all = append(all, l)
			tok := token.FindString(l.input)
			if began[tok]++; tok != "" && began[tok] > 1 {
				e.book.violated(fmt.Sprintf("task %s: %s began %d sessions", r.name, strings.TrimSpace(tok), began[tok]))
			}
		}
		e.counts.Removed += len(began)
	}
	return all
}
