package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
)

func cores() string { return fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.Version()) }

// with runs use with a daemon and a model of its own, and ends both.
func (b *bench) with(ctx context.Context, name string, script llmtest.Script, opts []llmtest.Option, overrides []string,
	use func(*daemon) error) (err error) {
	dir, err := b.place(name)
	if err != nil {
		return err
	}
	if err := raiseFiles(); err != nil {
		return err
	}
	m, err := startModel(script, opts...)
	if err != nil {
		return err
	}
	defer m.server.Close()
	d, err := startDaemon(ctx, b.binary, dir, m, overrides...)
	if d != nil && d.process != nil {
		defer func() { err = errors.Join(err, d.stop()) }()
	}
	if err != nil {
		return err
	}
	return use(d)
}

// around measures the floor before and after the daemon, since a busy machine is
// not busy evenly.
func around(floor, daemon func() (sample, error)) (floored, got figure, err error) {
	before, err := floor()
	if err != nil {
		return floored, got, fmt.Errorf("measure floor: %w", err)
	}
	s, err := daemon()
	if err != nil {
		return floored, got, err
	}
	after, err := floor()
	if err != nil {
		return floored, got, fmt.Errorf("measure floor: %w", err)
	}
	return times(append(before, after...)), times(s), nil
}

// latencies are the times from a file to the model.
func (b *bench) latencies(ctx context.Context) error {
	var input, answered figure
	if b.ga != nil {
		b.say("measuring: GenericAgent, %d tasks and %d replies", genericSessions, genericReplies)
		var err error
		if input, answered, err = b.ga.latencies(ctx); err != nil {
			return err
		}
	}
	return b.with(ctx, "latencies", done, []llmtest.Option{llmtest.Forget()}, nil, func(d *daemon) (err error) {
		if b.wants("input") {
			b.say("measuring: %d new tasks", b.n)
			r := row{what: "input.txt closed -> model asked", goal: "2.5 ms, 8 ms", unit: milliseconds, generic: input}
			r.floor, r.daemon, err = around(
				func() (sample, error) { return b.floor.latency(ctx, b.n/2, firstInput) },
				func() (sample, error) { return d.inputs(ctx, b.n) })
			if err != nil {
				return err
			}
			b.rows = append(b.rows, r)
		}
		if b.wants("reply") {
			b.say("preparing: %d waiting sessions of %d bytes", b.waiting, b.bytes)
			if err := d.waiters(ctx, b.waiting, b.bytes); err != nil {
				return err
			}
			b.say("measuring: %d replies", b.n)
			r := row{what: fmt.Sprintf("reply.txt closed -> model asked, %s waiting sessions of %s", grouped(int64(b.waiting)), bytesOf(float64(b.bytes))),
				goal: "2 ms, 5 ms", unit: milliseconds, generic: answered}
			r.floor, r.daemon, err = around(
				func() (sample, error) { return b.floor.latency(ctx, b.n/2, reply(b.bytes)) },
				func() (sample, error) { return d.replies(ctx, b.n, b.waiting, map[int]int{}) })
			if err != nil {
				return err
			}
			b.rows = append(b.rows, r)
		}
		return nil
	})
}

// burstOfTasks is how long many tasks at once take, with a model that takes its
// time.
func (b *bench) burstOfTasks(ctx context.Context) error {
	n := fmt.Sprint(b.burst)
	overrides := []string{"GASUPERVISOR_MAX_RUNNING=" + n, "GASUPERVISOR_LLM_0_MAX_CONCURRENT=" + n}
	return b.with(ctx, "burst", late, []llmtest.Option{llmtest.Forget()}, overrides, func(d *daemon) error {
		b.say("measuring: %d tasks at once", b.burst)
		const times = 3
		var floored, got sample
		for round := range times {
			took, err := b.floor.burst(ctx, b.burst)
			if err != nil {
				return fmt.Errorf("measure floor: %w", err)
			}
			floored = append(floored, took)
			begun := time.Now()
			task := func(i int) string { return fmt.Sprintf("burst %d %d", round, i) }
			for i := range b.burst {
				if err := d.begin(task(i), "Do it."); err != nil {
					return err
				}
			}
			for i := range b.burst {
				if err := d.over(ctx, task(i), 0); err != nil {
					return err
				}
			}
			got = append(got, time.Since(begun))
		}
		r := row{
			what: fmt.Sprintf("%d tasks at once, model answers in %s", b.burst, lateBy), goal: "0.35 s", unit: seconds,
			floor: value(floored.at(.5).Seconds()), daemon: value(got.at(.5).Seconds()),
		}
		if b.ga != nil {
			b.say("measuring: GenericAgent, %d tasks at once", b.burst)
			var err error
			if r.generic, err = b.ga.burst(ctx, b.burst); err != nil {
				return err
			}
		}
		b.rows = append(b.rows, r)
		return nil
	})
}

// lines is a file for turns that read: each another part of it.
func lines(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%04d  a line of the file that is read\n", i+1)
	}
	return text.String()
}

// readers is a model that reads n parts of a file, each in a turn, and is done.
func readers(n int) llmtest.Script {
	return func(r *llmtest.Request) llmtest.Reply {
		turn := r.Turn()
		switch {
		case turn > n:
			return finish(r)
		case offers(r, "file_read"): // GenericAgent's
			return llmtest.Text("I read on.").Call("file_read", fmt.Sprintf(`{"path":"long.txt","start":%d,"count":10}`, turn))
		}
		return llmtest.Text("I read on.").Call("read_file", fmt.Sprintf(`{"path":"long.txt","start_line":%d,"line_count":10}`, turn))
	}
}

// turnGrows is what a turn of readers adds to the conversation, in bytes.
const turnGrows = 800

// timePerTurn is what lies between an answer and the next request.
func (b *bench) timePerTurn(ctx context.Context) error {
	overrides := []string{fmt.Sprint("GASUPERVISOR_AGENT_MAX_TURNS=", b.turns+10)}
	return b.with(ctx, "turn", readers(b.turns), []llmtest.Option{llmtest.Forget()}, overrides, func(d *daemon) error {
		b.say("measuring: %d turns", b.turns)
		r := row{what: "daemon time per turn, durable journal included", goal: "1 ms", unit: milliseconds}
		var err error
		r.floor, r.daemon, err = around(
			func() (sample, error) { return b.floor.turns(ctx, b.turns/2, head, turnGrows) },
			func() (sample, error) { return d.turnTimes(ctx, b.turns) })
		if err == nil && b.ga != nil {
			b.say("measuring: GenericAgent, %d turns", b.turns/4)
			r.generic, err = b.ga.turns(ctx, b.turns/4)
		}
		if err == nil {
			b.rows = append(b.rows, r)
		}
		return err
	})
}

// turnTimes has a task of n turns worked on and returns the time that each took.
func (d *daemon) turnTimes(ctx context.Context, n int) (sample, error) {
	if err := os.WriteFile(filepath.Join(d.temp, "long.txt"), []byte(lines(n+20)), 0o644); err != nil {
		return nil, err
	}
	d.model.measure()
	if err := d.begin("turns", "Read the file."); err != nil {
		return nil, err
	}
	if err := d.over(ctx, "turns", 0); err != nil {
		return nil, err
	}
	got := d.model.taken()
	if len(got) < n {
		return nil, fmt.Errorf("%d turns were taken, want %d", len(got), n)
	}
	return got, nil
}

// prefixTurns and prefixFile are the task of charactersSent: turns that each read
// another file, of so many bytes.
const prefixTurns, prefixFile = 20, 2 << 10

const prefixInput = "Read the files file-1.txt to file-20.txt, one after the other."

func prefixName(i int) string { return fmt.Sprintf("file-%d.txt", i+1) }

// prefixScript is the model of that task.
func prefixScript(r *llmtest.Request) llmtest.Reply {
	turn := r.Turn()
	if turn > prefixTurns {
		return finish(r)
	}
	tool := "read_file"
	if offers(r, "file_read") {
		tool = "file_read"
	}
	return llmtest.Call(tool, fmt.Sprintf(`{"path":%q}`, prefixName(turn-1)))
}

// charactersSent is what a conversation costs that grows.
func (b *bench) charactersSent(ctx context.Context) error {
	return b.with(ctx, "prefix", prefixScript, nil, nil, func(d *daemon) error {
		b.say("measuring: what is sent in %d turns", prefixTurns)
		for i := range prefixTurns {
			if err := os.WriteFile(filepath.Join(d.temp, prefixName(i)), []byte(fileOf(i, prefixFile)), 0o644); err != nil {
				return err
			}
		}
		if err := d.begin("prefix", prefixInput); err != nil {
			return err
		}
		if err := d.over(ctx, "prefix", 0); err != nil {
			return err
		}
		c, err := counted(d.model.server.Requests())
		if err != nil {
			return err
		}
		var least characters
		least.sent, least.prefix = b.floor.characters(prefixTurns, prefixFile)
		r := row{
			what: fmt.Sprintf("%d turns, each reads another %s file: characters sent, cached prefix at a tenth", prefixTurns, bytesOf(prefixFile)),
			goal: "115,000, prefix over 99 %", unit: count,
			floor: value(least.weighed()), daemon: c.figure(),
		}
		if b.ga != nil {
			b.say("measuring: GenericAgent, what is sent in %d turns", prefixTurns)
			if r.generic, err = b.ga.characters(ctx); err != nil {
				return err
			}
		}
		b.rows = append(b.rows, r)
		return nil
	})
}

func (c *characters) figure() figure {
	f := value(c.weighed())
	f.note = fmt.Sprintf("%s sent, %.1f %% of each earlier request unchanged", grouped(int64(c.sent)), 100*float64(c.prefix)/float64(max(1, c.earlier)))
	return f
}

// fileOf is a file that no other is like.
func fileOf(i, size int) string {
	text := ""
	for n := 0; len(text) < size; n++ {
		text += fmt.Sprintf("file %d, line %d: something that the agent reads\n", i, n)
	}
	return text[:size]
}

// counted counts the characters of the requests of one conversation, as a model
// reads them: tools first, then the messages.
func counted(requests []*llmtest.Request) (*characters, error) {
	c := &characters{}
	for i, r := range requests {
		if i == prefixTurns {
			break
		}
		tools, err := plain(r.Fields["tools"])
		if err != nil {
			return nil, err
		}
		messages, err := plain(r.Fields["messages"])
		if err != nil {
			return nil, err
		}
		// Without the bracket that ends the list: what follows goes on from there.
		c.add(tools + strings.TrimSuffix(messages, "]"))
	}
	if len(requests) < prefixTurns {
		return nil, fmt.Errorf("%d requests, want %d", len(requests), prefixTurns)
	}
	return c, nil
}

// plain is JSON in one form, whoever wrote it: with characters instead of escapes.
func plain(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", err
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSpace(b.String()), err
}

// manyWaiting is what sessions cost that wait.
func (b *bench) manyWaiting(ctx context.Context) error {
	if !canLookInside {
		b.say("memory, idle and restart can be measured on Linux only")
		return nil
	}
	return b.with(ctx, "waiting", done, []llmtest.Option{llmtest.Forget()}, nil, func(d *daemon) error {
		w, err := b.waitingDaemon(ctx, d)
		if err != nil {
			return err
		}
		var genericMemory, genericShare, genericRestart figure
		if b.ga != nil && (b.wants("idle") || b.wants("memory")) {
			b.say("measuring: GenericAgent, %d waiting sessions", genericSessions)
			if genericMemory, genericShare, err = b.ga.waiting(ctx, 20*time.Second); err != nil {
				return err
			}
			genericRestart.note = "lost"
		}
		n := grouped(int64(b.sessions))
		if b.wants("idle") {
			share, err := b.idleShare(ctx, d)
			if err != nil {
				return err
			}
			b.rows = append(b.rows, row{
				what: fmt.Sprintf("idle CPU with %s waiting sessions, over %s", n, b.idle), goal: "0.5 % of a core", unit: percent,
				daemon: value(share), floor: value(0), generic: genericShare,
			})
		}
		if b.wants("memory") {
			mem, err := w.memory(ctx, b, d)
			if err != nil {
				return err
			}
			b.rows = append(b.rows, row{
				what: fmt.Sprintf("memory per waiting session, at %s", n), goal: "12 KB", unit: bytesOf,
				daemon: mem, floor: w.floorMemory, generic: genericMemory,
			})
		}
		if b.wants("restart") {
			again, floored, err := b.restart(ctx, d)
			if err != nil {
				return err
			}
			b.rows = append(b.rows, row{
				what: fmt.Sprintf("kill -9, then all of %s waiting sessions watched again", n), goal: "1 s", unit: seconds,
				daemon: value(again.Seconds()), floor: value(floored.Seconds()), generic: genericRestart,
			})
		}
		return nil
	})
}

// waiting is a daemon with many sessions that wait, and what it was before.
type waiting struct {
	before      int64 // resident, with one session
	took        time.Duration
	floorMemory figure
}

func (b *bench) waitingDaemon(ctx context.Context, d *daemon) (w waiting, err error) {
	// A first round brings in what every round needs.
	if err := d.begin("first", "Do it."); err != nil {
		return w, err
	}
	if err := d.over(ctx, "first", 0); err != nil {
		return w, err
	}
	if w.before, err = resident(d.pid()); err != nil {
		return w, err
	}
	b.say("preparing: %s waiting sessions", grouped(int64(b.sessions)))
	begun := time.Now()
	if err := d.waiters(ctx, b.sessions, 0); err != nil {
		return w, err
	}
	w.took = time.Since(begun)
	return w, nil
}

// idleShare is the part of one core that the daemon uses while nothing happens.
func (b *bench) idleShare(ctx context.Context, d *daemon) (float64, error) {
	// What the rounds before have left to do is over in a moment. The look at all
	// tasks comes once a minute, spread over some seconds; the first after a start
	// finds them all new.
	left := 3 * time.Second
	if b.idle >= time.Minute {
		const spread = 12 * time.Second
		left = max(left, time.Minute-time.Since(d.started)%time.Minute+spread)
		b.say("waiting %s, until the minute's look is over", left.Round(time.Second))
	}
	if err := pause(ctx, left); err != nil {
		return 0, err
	}
	b.say("measuring: %s of nothing", b.idle)
	begun := time.Now()
	before, err := cpu(d.pid())
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, b.idle); err != nil {
		return 0, err
	}
	after, err := cpu(d.pid())
	return 100 * (after - before).Seconds() / time.Since(begun).Seconds(), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// memory is what the daemon has grown by for each session, and the same of the
// floor.
func (w *waiting) memory(ctx context.Context, b *bench, d *daemon) (figure, error) {
	b.say("measuring: memory")
	floored, stop, err := waitingFloor(d.temp, 1)
	if err != nil {
		return figure{}, err
	}
	few, err := resident(floored.pid())
	if err = errors.Join(err, stop()); err != nil {
		return figure{}, err
	}
	if floored, stop, err = waitingFloor(d.temp, b.sessions); err != nil {
		return figure{}, err
	}
	many, err := resident(floored.pid())
	if err = errors.Join(err, stop()); err != nil {
		return figure{}, err
	}
	w.floorMemory = value(float64(many-few) / float64(b.sessions))
	now, err := resident(d.pid())
	if err != nil {
		return figure{}, err
	}
	f := value(float64(now-w.before) / float64(b.sessions))
	h, err := d.heap()
	f.note = fmt.Sprintf("%s in all, %s of it before; %s of heap and %s of stacks in use", bytesOf(float64(now)), bytesOf(float64(w.before)),
		bytesOf(float64(h.inUse)), bytesOf(float64(h.stacks)))
	return f, err
}

// restart kills the daemon and measures until all of its tasks are watched again.
func (b *bench) restart(ctx context.Context, d *daemon) (took, floored time.Duration, err error) {
	b.say("measuring: kill -9 and start")
	begun := time.Now()
	_, stop, err := waitingFloor(d.temp, b.sessions)
	if err != nil {
		return 0, 0, err
	}
	floored = time.Since(begun)
	if err := stop(); err != nil {
		return 0, 0, err
	}
	if err := d.kill(); err != nil {
		return 0, 0, err
	}
	begun = time.Now()
	if err := d.launch(); err != nil {
		return 0, 0, err
	}
	err = d.watching(ctx, b.sessions)
	return time.Since(begun), floored, err
}
