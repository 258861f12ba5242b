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

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// driver is the supervisor of one task: it writes to it in every way that is
// allowed, while the daemon comes and goes.
type driver struct {
	e    *episode
	name string
	dir  string
	dice *rand.Rand
	n    int // messages written
}

// pollEvery is how often a driver looks for what it waits for.
const pollEvery = 15 * time.Millisecond

// errSettle says that a task did not come to rest.
var errSettle = errors.New("did not come to rest")

// errInTheWay says that a message which is too large stands where one was to be written.
var errInTheWay = errors.New("a message that is too large is not taken yet")

// work lives a task from its first input to its end.
func (d *driver) work(ctx context.Context) error {
	d.pause(ctx, 300)
	if err := d.begin(ctx); err != nil {
		return err
	}
	// At least a few messages; then as long as the torment goes on, up to a bound.
	const least, most = 6, 40
	for i := 0; i < most && (i < least || !d.e.calm()); i++ {
		if err := d.act(ctx); err != nil {
			return err
		}
	}
	select {
	case <-d.e.calmed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.finish(ctx)
}

// begin makes the task and its first input.
func (d *driver) begin(ctx context.Context) error {
	tok, text := d.message()
	switch d.dice.IntN(3) {
	case 0:
		// Born full: moved in with its input.
		return d.input(tok, "moved in", func() error {
			tmp := filepath.Join(d.e.temp, ".new-"+d.name)
			if err := os.Mkdir(tmp, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := writeWhole(filepath.Join(tmp, taskdir.InputFile), text, true); err != nil {
				return err
			}
			if err := os.Rename(tmp, d.dir); err != nil {
				return err
			}
			return syncDir(d.e.temp)
		})
	case 1:
		return d.input(tok, "command line", func() error { return taskdir.WriteInput(d.e.temp, d.name, text) })
	}
	return d.input(tok, ">", func() error {
		if err := os.Mkdir(d.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := syncDir(d.e.temp); err != nil {
			return err
		}
		if err := writeWhole(filepath.Join(d.dir, taskdir.InputFile), text, true); err != nil {
			return err
		}
		return syncDir(d.dir)
	})
}

func (d *driver) input(tok, how string, write func() error) error {
	return d.put(written{token: tok, task: d.name, file: taskdir.InputFile, how: how, durable: true}, write)
}

// durable decides whether a message is synced by its writer: where power fails, some
// are and some are not.
func (d *driver) durable(how string) bool {
	return !d.e.losesPower() || how == "command line" || d.dice.IntN(3) > 0
}

// put writes, while the power is on, and keeps a record.
func (d *driver) put(w written, write func() error) error {
	d.e.power.RLock()
	defer d.e.power.RUnlock()
	for try := 0; ; try++ {
		err := write()
		if err == nil {
			d.e.book.wrote(w)
			return nil
		}
		if errors.Is(err, errInTheWay) {
			return err
		}
		w.shaky = true
		// A full disk is the writer's own trouble: it tries again, as people do.
		if d.e.disks == nil || try == 2000 {
			return fmt.Errorf("write %s of %s: %w", w.file, d.name, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *driver) message() (tok, text string) {
	d.n++
	tok = fmt.Sprintf("msg-%s-%05d.", d.name, d.n)
	return tok, messageText(tok, d.dice)
}

// act is one thing that a supervisor does.
func (d *driver) act(ctx context.Context) error {
	switch p := d.dice.IntN(100); {
	case p < 35:
		tok, err := d.send(taskdir.ReplyFile)
		if err == nil && d.dice.IntN(3) > 0 {
			d.awaitSeen(ctx, tok, 2*time.Second)
			if d.dice.IntN(2) == 0 {
				d.awaitRest(ctx, 2*time.Second)
			}
		}
		return err
	case p < 60:
		_, err := d.send(taskdir.InterveneFile)
		d.pause(ctx, 60)
		return err
	case p < 72:
		_, err := d.send(taskdir.KeyInfoFile)
		d.pause(ctx, 60)
		if errors.Is(err, errInTheWay) {
			return nil
		}
		return err
	case p < 80:
		for range 2 + d.dice.IntN(4) {
			if _, err := d.sendAs(taskdir.ReplyFile, ">>"); err != nil {
				return err
			}
			d.pause(ctx, 10)
		}
		return nil
	case p < 86:
		return d.stop(ctx)
	case p < 88:
		d.stopChild()
		return nil
	case p < 93:
		return d.inputAgain(ctx)
	case p < 95:
		return d.sendTooLarge()
	}
	d.pause(ctx, 300)
	return ctx.Err()
}

func (d *driver) stop(ctx context.Context) error {
	d.e.power.RLock()
	err := os.WriteFile(filepath.Join(d.dir, taskdir.StopFile), nil, 0o644)
	d.e.power.RUnlock()
	if err != nil && d.e.disks == nil {
		return err
	}
	d.pause(ctx, 50)
	return nil
}

// stopChild stops one of the task's subagents, where there is one: perhaps it is over.
func (d *driver) stopChild() {
	d.e.power.RLock()
	defer d.e.power.RUnlock()
	if children := d.children(); len(children) > 0 {
		_ = os.WriteFile(filepath.Join(children[d.dice.IntN(len(children))], taskdir.StopFile), nil, 0o644)
	}
}

// children are the directories of the task's subagents.
func (d *driver) children() []string {
	dirs, _ := filepath.Glob(d.dir + ".*")
	return dirs
}

func (d *driver) inputAgain(ctx context.Context) error {
	tok, text := d.message()
	path := filepath.Join(d.dir, taskdir.InputFile)
	how := []string{">", "rename", "command line"}[d.dice.IntN(3)]
	w := written{token: tok, task: d.name, file: taskdir.InputFile, how: how, durable: d.durable(how)}
	err := d.put(w, func() error {
		switch how {
		case ">":
			err := writeWhole(path, text, w.durable)
			if err == nil && w.durable {
				err = syncDir(d.dir)
			}
			return err
		case "rename":
			return renameOnto(path, text, w.durable)
		}
		return taskdir.WriteInput(d.e.temp, d.name, text)
	})
	if err == nil && d.dice.IntN(2) == 0 {
		d.awaitSeen(ctx, tok, 2*time.Second)
	}
	d.pause(ctx, 100)
	return err
}

// send writes a message in one of the ways that are allowed.
func (d *driver) send(file string) (string, error) {
	ways := []string{">", ">>", ">>", "rename", "command line", "slow"}
	return d.sendAs(file, ways[d.dice.IntN(len(ways))])
}

func (d *driver) sendAs(file, how string) (string, error) {
	tok, text := d.message()
	path := filepath.Join(d.dir, file)
	durable := d.durable(how)
	w := written{token: tok, task: d.name, file: file, how: how, durable: durable}
	return tok, d.put(w, func() error {
		if info, err := os.Lstat(path); err == nil && file == taskdir.KeyInfoFile && info.Size() > taskdir.MaxKeyInfo {
			return errInTheWay
		}
		// Nobody else writes to this task, so that what is not there now cannot
		// be overwritten by ">" or a rename.
		if (how == ">" || how == "rename") && !missing(path) {
			how = ">>"
		}
		switch how {
		case ">":
			if err := writeWhole(path, text, d.e.losesPower() && durable); err != nil {
				os.Remove(path) // half a message, on a full disk
				return err
			}
		case "rename":
			if err := renameOnto(path, text, d.e.losesPower() && durable); err != nil {
				return err
			}
		case ">>", "slow":
			if err := appendTo(path, text, how == "slow", d.e.losesPower() && durable); err != nil {
				return err
			}
		default:
			switch file {
			case taskdir.ReplyFile:
				return taskdir.WriteReply(d.e.temp, d.name, text)
			case taskdir.InterveneFile:
				return taskdir.WriteIntervene(d.e.temp, d.name, text)
			}
			return taskdir.WriteKeyInfo(d.e.temp, d.name, text)
		}
		if d.e.losesPower() && durable {
			return syncDir(d.dir)
		}
		return nil
	})
}

// sendTooLarge writes a message that will be refused.
func (d *driver) sendTooLarge() error {
	path := filepath.Join(d.dir, taskdir.KeyInfoFile)
	if !missing(path) {
		return nil
	}
	tok, text := d.message()
	text += strings.Repeat("too much of it ", taskdir.MaxKeyInfo/15+1)
	w := written{token: tok, task: d.name, file: taskdir.KeyInfoFile, how: "rename", durable: d.durable("rename"), refused: true}
	return d.put(w, func() error { return renameOnto(path, text, w.durable) })
}

// finish brings the task to its end: all that was written is read, a last reply
// shows what the session remembers, and a stop ends it.
func (d *driver) finish(ctx context.Context) error {
	if err := d.settle(ctx); err != nil {
		return err
	}
	tok, err := d.sendAs(taskdir.ReplyFile, "command line")
	if err != nil {
		return err
	}
	if err := d.until(ctx, d.e.patience, "the last reply", func() bool { return d.e.model.hasSeen(tok) }); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	for try := 0; ; try++ {
		if err := d.stop(ctx); err != nil {
			return err
		}
		err := d.until(ctx, 5*time.Second, "the end", func() bool {
			s := d.status()
			return s != nil && s.State == taskdir.Ended
		})
		if err == nil {
			return d.settle(ctx)
		}
		if try == 3 || ctx.Err() != nil {
			return err
		}
	}
}

// settle waits until nothing is left to be done or taken.
func (d *driver) settle(ctx context.Context) error {
	return d.until(ctx, d.e.patience, "rest", func() bool { return d.atRest() && d.untaken() == "" && d.atWork() == "" })
}

func (d *driver) awaitRest(ctx context.Context, limit time.Duration) {
	_ = d.until(ctx, limit, "rest", d.atRest)
}

func (d *driver) awaitSeen(ctx context.Context, tok string, limit time.Duration) {
	_ = d.until(ctx, limit, tok, func() bool { return d.e.model.hasSeen(tok) })
}

// until waits for something.
func (d *driver) until(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	deadline := time.Now().Add(limit)
	for !holds() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("task %s waited %s for %s: %w", d.name, limit, what, errSettle)
		}
		time.Sleep(pollEvery)
	}
	return nil
}

func (d *driver) pause(ctx context.Context, most int) {
	t := time.NewTimer(time.Duration(d.dice.IntN(most)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (d *driver) status() *taskdir.Status {
	d.e.power.RLock()
	defer d.e.power.RUnlock()
	s, err := taskdir.ReadStatus(d.dir)
	if err != nil {
		return nil
	}
	return s
}

// atRest reports whether the task's files say that the session waits or is over.
func (d *driver) atRest() bool {
	s := d.status()
	if s == nil || s.State != taskdir.AwaitingReply && s.State != taskdir.Ended {
		return false
	}
	d.e.power.RLock()
	defer d.e.power.RUnlock()
	n, done, err := taskdir.Rounds(d.e.temp, d.name)
	return err == nil && done && n == s.Round+1
}

// atWork names a subagent of the task that is not at its end.
func (d *driver) atWork() string {
	d.e.power.RLock()
	defer d.e.power.RUnlock()
	for _, dir := range d.children() {
		if untaken(dir) != "" {
			return filepath.Base(dir)
		}
		s, err := taskdir.ReadStatus(dir)
		if err != nil || s.State != taskdir.Ended {
			return filepath.Base(dir)
		}
		if n, done, err := taskdir.Rounds(d.e.temp, filepath.Base(dir)); err != nil || !done || n != s.Round+1 {
			return filepath.Base(dir)
		}
	}
	return ""
}

// untaken names a message of the task that is still there.
func (d *driver) untaken() string {
	d.e.power.RLock()
	defer d.e.power.RUnlock()
	return untaken(d.dir)
}

func untaken(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == taskdir.ReplyFile, name == taskdir.InterveneFile, name == taskdir.KeyInfoFile:
			// An empty one is no message, and nobody's after a power failure.
			if info, err := e.Info(); err != nil || info.Size() > 0 {
				return name
			}
		case strings.HasPrefix(name, ".taken-"), name == taskdir.StopFile:
			return name
		}
	}
	return ""
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// writeWhole is what a shell's ">" does.
func writeWhole(path, text string, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return closeFile(f, err, sync)
}

// appendTo is what a shell's ">>" does, or a program that writes in three pieces.
func appendTo(path, text string, slowly, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if !slowly {
		_, err = f.WriteString(text)
		return closeFile(f, err, sync)
	}
	// The token goes last, so that a message without it was cut.
	tok, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	for _, part := range []string{"slowly, ", rest + " ", tok + "\n"} {
		if _, err = f.WriteString(part); err != nil {
			break
		}
		time.Sleep(3 * time.Millisecond)
	}
	return closeFile(f, err, sync)
}

func renameOnto(path, text string, sync bool) error {
	temp := filepath.Join(filepath.Dir(path), ".tmp-"+filepath.Base(path))
	if err := writeWhole(temp, text, sync); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	if sync {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

func closeFile(f *os.File, err error, sync bool) error {
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return closeFile(d, nil, true)
}
