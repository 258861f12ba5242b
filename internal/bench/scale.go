package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// The scale runs: what becomes of the figures where there is much of everything.

var errNeedsLinux = errors.New("the scale runs need Linux")

// scaleWaiting is thousands of sessions that wait.
func (b *bench) scaleWaiting(ctx context.Context) error {
	if !canLookInside {
		return errNeedsLinux
	}
	return b.with(ctx, "waiting", done, []llmtest.Option{llmtest.Forget()}, nil, func(d *daemon) error {
		w, err := b.waitingDaemon(ctx, d)
		if err != nil {
			return err
		}
		n := grouped(int64(b.sessions))
		b.report(fmt.Sprintf("waiting: %s sessions begun, each with a round", n), seconds, value(w.took.Seconds()))
		share, err := b.idleShare(ctx, d)
		if err != nil {
			return err
		}
		b.report(fmt.Sprintf("waiting: idle CPU with them, over %s", b.idle), percent, value(share))
		mem, err := w.memory(ctx, b, d)
		if err != nil {
			return err
		}
		b.report("waiting: memory per session", bytesOf, mem)
		rounds := map[int]int{}
		s, err := d.replies(ctx, b.n, b.sessions, rounds)
		if err != nil {
			return err
		}
		b.report("waiting: reply.txt closed -> model asked, among them (median, p99)", milliseconds, times(s))
		again, floored, err := b.restart(ctx, d)
		if err != nil {
			return err
		}
		b.report("waiting: kill -9, then all watched again", seconds, figure{known: true, value: again.Seconds(), note: fmt.Sprintf("floor %.2f s", floored.Seconds())})
		begun := time.Now()
		used, err := d.settled(ctx)
		if err != nil {
			return err
		}
		b.report("waiting: ... and all looked at", seconds, figure{known: true, value: again.Seconds() + time.Since(begun).Seconds() - quiet.Seconds(),
			note: fmt.Sprintf("%.2f s of CPU", used.Seconds())})
		if s, err = d.replies(ctx, b.n, b.sessions, rounds); err != nil {
			return err
		}
		b.report("waiting: reply.txt closed -> model asked, after the restart (median, p99)", milliseconds, times(s))
		now, err := resident(d.pid())
		if err != nil {
			return err
		}
		b.report("waiting: memory after the restart", bytesOf, value(float64(now)))
		return nil
	})
}

// quiet is for how long a process has to use no time to count as idle.
const quiet = 300 * time.Millisecond

// settled waits until the daemon has nothing more to do, and returns the
// processor time that it has used until then.
func (d *daemon) settled(ctx context.Context) (used time.Duration, err error) {
	since := time.Now()
	err = d.until(ctx, 10*time.Millisecond, func() bool {
		now, cerr := cpu(d.pid())
		if cerr != nil {
			err = cerr
			return true
		}
		// A tick or two are the runtime's own.
		if now-used > 10*time.Millisecond {
			used, since = now, time.Now()
		}
		return time.Since(since) > quiet
	})
	return used, err
}

// Each model of scaleRounds says so many pieces of text, so far apart.
const (
	roundPieces = 50
	pieceEvery  = 200 * time.Millisecond
)

// scaleRounds is many rounds at once, whose models stream; and again, in a daemon that
// has had as many.
func (b *bench) scaleRounds(ctx context.Context) error {
	if !canLookInside {
		return errNeedsLinux
	}
	words := ""
	for len(words) < roundPieces*24 {
		words += "Some words of an answer. "
	}
	stream := func(*llmtest.Request) llmtest.Reply {
		return llmtest.Text(words[:roundPieces*24]).Call("attempt_completion", `{"result":"done"}`).Every(pieceEvery)
	}
	n := fmt.Sprint(b.rounds)
	overrides := []string{"GASUPERVISOR_MAX_RUNNING=" + n, "GASUPERVISOR_LLM_0_MAX_CONCURRENT=" + n, "GASUPERVISOR_REPLY_TIMEOUT=1s"}
	return b.with(ctx, "rounds", stream, []llmtest.Option{llmtest.Forget()}, overrides, func(d *daemon) error {
		before, err := d.inside()
		if err != nil {
			return err
		}
		for _, pass := range []string{"first", "second"} {
			if err := b.roundsAtOnce(ctx, d, pass); err != nil {
				return err
			}
		}
		b.report("rounds: before", nil, text("%s", before))
		// The sessions end by themselves after a second, and idle connections later.
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
		after, err := d.inside()
		if err != nil {
			return err
		}
		b.report("rounds: 5 s after, when the sessions have ended", nil, text("%s", after))
		return nil
	})
}

// roundsAtOnce begins b.rounds tasks and waits for them.
func (b *bench) roundsAtOnce(ctx context.Context, d *daemon, pass string) error {
	b.say("measuring: %d rounds at once, %d pieces of text %s apart", b.rounds, roundPieces, pieceEvery)
	task := func(i int) string { return fmt.Sprintf("rounds %s %d", pass, i) }
	begun := time.Now()
	started, err := cpu(d.pid())
	if err != nil {
		return err
	}
	for i := range b.rounds {
		if err := d.begin(task(i), "Do it."); err != nil {
			return err
		}
	}
	written := time.Since(begun)
	var peak inside
	for i := range b.rounds {
		if err := d.over(ctx, task(i), 0); err != nil {
			return err
		}
		if i == 0 {
			// The first is over as the last ones are at their end.
			if peak, err = d.inside(); err != nil {
				return err
			}
		}
	}
	took := time.Since(begun)
	ended, err := cpu(d.pid())
	if err != nil {
		return err
	}
	used := (ended - started).Seconds()
	what := func(text string) string { return fmt.Sprintf("rounds, %s pass: %s", pass, text) }
	b.report(what(grouped(int64(b.rounds))+" at once, all over after"), seconds, figure{known: true, value: took.Seconds(),
		note: fmt.Sprintf("the model alone takes %.1f s; written within %.1f s", ((roundPieces + 3) * pieceEvery).Seconds(), written.Seconds())})
	b.report(what("CPU"), seconds, figure{known: true, value: used,
		note: fmt.Sprintf("%.2f ms a round, %.0f µs a piece of text", 1000*used/float64(b.rounds), 1e6*used/float64(b.rounds*roundPieces))})
	b.report(what("as the first ends"), nil, text("%s", peak))
	return nil
}

// inside is what a daemon holds at a moment.
type inside struct {
	resident, heap, stacks     int64
	goroutines, files, watches int
}

func (i inside) String() string {
	return fmt.Sprintf("%s resident, %s of heap, %s of stacks, %s goroutines, %s open files, %s watches", bytesOf(float64(i.resident)), bytesOf(float64(i.heap)),
		bytesOf(float64(i.stacks)), grouped(int64(i.goroutines)), grouped(int64(i.files)), grouped(int64(i.watches)))
}

func (d *daemon) inside() (i inside, err error) {
	h, err1 := d.heap()
	i.heap, i.stacks = h.inUse, h.stacks
	var err2, err3, err4, err5 error
	i.resident, err2 = resident(d.pid())
	i.goroutines, err3 = d.goroutines()
	i.files, err4 = openFiles(d.pid())
	i.watches, err5 = watches(d.pid())
	return i, errors.Join(err1, err2, err3, err4, err5)
}

// scaleTurns is a session that goes on and on.
func (b *bench) scaleTurns(ctx context.Context) error {
	overrides := []string{fmt.Sprint("GASUPERVISOR_AGENT_MAX_TURNS=", b.longTurns+10)}
	return b.with(ctx, "turns", readers(b.longTurns), []llmtest.Option{llmtest.Forget()}, overrides, func(d *daemon) error {
		b.say("measuring: one session of %d turns", b.longTurns)
		before, err := cpu(d.pid())
		if err != nil {
			return err
		}
		begun := time.Now()
		s, err := d.turnTimes(ctx, b.longTurns)
		if err != nil {
			return err
		}
		took := time.Since(begun)
		after, err := cpu(d.pid())
		if err != nil {
			return err
		}
		part := max(1, min(100, b.longTurns/4))
		for _, from := range []int{0, b.longTurns / 4, b.longTurns / 2, b.longTurns - part} {
			floored, err := b.floor.turns(ctx, part, head+from*turnGrows, turnGrows)
			if err != nil {
				return err
			}
			f := times(s[from : from+part])
			f.note = fmt.Sprintf("floor %s", milliseconds(inMs(floored.at(.5))))
			b.report(fmt.Sprintf("turns: time per turn, turns %d to %d (median, p99)", from+1, from+part), milliseconds, f)
		}
		b.report("turns: CPU per turn", milliseconds, figure{known: true, value: inMs(after-before) / float64(b.longTurns), note: fmt.Sprintf("%.1f s in all", took.Seconds())})
		var sizes []string
		for _, f := range []struct{ name, path string }{
			{"journal", "state/*/session.jsonl"},
			{"output", filepath.Join("temp/turns", taskdir.OutputName(0))},
			{"events", filepath.Join("temp/turns", taskdir.EventsFile)},
			{"status", filepath.Join("temp/turns", taskdir.StatusFile)},
		} {
			found, err := filepath.Glob(filepath.Join(d.dir, f.path))
			if err != nil {
				return err
			}
			for _, path := range found {
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				sizes = append(sizes, fmt.Sprintf("%s %s", f.name, bytesOf(float64(info.Size()))))
			}
		}
		b.report("turns: sizes at the end", nil, text("%s", strings.Join(sizes, ", ")))
		took, err = d.write(ctx, "turns", taskdir.ReplyFile, "reply-to-a-long-session.")
		if err != nil {
			return err
		}
		b.report("turns: reply.txt closed -> model asked, after them", milliseconds, value(inMs(took)))
		return d.over(ctx, "turns", 1)
	})
}
