package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// scaleSoak is a long day: tasks at a steady rate, each with a life of its own
// (replies, interventions, stops, forks), and supervisors that check every answer
// and remove what is over. Nothing may grow, and nothing may be lost.
func (b *bench) scaleSoak(ctx context.Context) error {
	if !canLookInside {
		return errNeedsLinux
	}
	s := &soak{did: map[string]int{}, seen: map[string]bool{}}
	overrides := []string{"GASUPERVISOR_REPLY_TIMEOUT=20s", "GASUPERVISOR_MAX_RUNNING=64", "GASUPERVISOR_LLM_0_MAX_CONCURRENT=64"}
	return b.with(ctx, "soak", s.answer, []llmtest.Option{llmtest.Forget()}, overrides, func(d *daemon) error {
		b.say("measuring: %s of %d tasks a minute", b.soak, b.perMinute)
		s.d = d
		if err := os.WriteFile(filepath.Join(d.temp, "note.txt"), []byte(lines(50)), 0o644); err != nil {
			return err
		}
		err := s.run(ctx, b)
		s.lives.Wait()
		if err != nil {
			return err
		}
		return s.report(ctx, b)
	})
}

// soak is the state of a soak.
type soak struct {
	d     *daemon
	lives sync.WaitGroup

	mu      sync.Mutex
	did     map[string]int  // how often each thing was done
	seen    map[string]bool // the numbers that the model was shown
	lost    []error
	samples []inside
	took    sample // from a file to the end of its answer
}

// number is how a message is known again.
var number = regexp.MustCompile(`number<[^>]*>`)

// answer reads a file and then answers with the newest number. It takes its time
// where it was asked to.
func (s *soak) answer(r *llmtest.Request) llmtest.Reply {
	numbers := number.FindAllString(r.LastUser(), -1)
	s.mu.Lock()
	for _, n := range numbers {
		s.seen[n] = true
	}
	s.mu.Unlock()
	if len(r.Results()) == 0 {
		return llmtest.Text("I read first. ").Call("read_file", `{"path":"note.txt"}`)
	}
	newest := "nothing"
	if len(numbers) > 0 {
		newest = numbers[len(numbers)-1]
	}
	done := llmtest.Done("answer to " + newest)
	if strings.Contains(r.LastUser(), "slowly") {
		return done.Text(strings.Repeat("I think about it. ", 40)).Every(100 * time.Millisecond)
	}
	return done.Text("I know. ").After(50 * time.Millisecond)
}

// run starts tasks at their rate and takes samples, until the time is over.
func (s *soak) run(ctx context.Context, b *bench) error {
	ends := time.After(b.soak)
	start := time.NewTicker(time.Minute / time.Duration(b.perMinute))
	defer start.Stop()
	look := time.NewTicker(max(time.Second, b.soak/200))
	defer look.Stop()
	said := time.Now()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ends:
			return nil
		case err := <-s.d.ended:
			s.d.ended <- err
			return fmt.Errorf("the daemon ended: %w", err)
		case <-start.C:
			n++
			s.lives.Go(func() { s.live(ctx, fmt.Sprintf("soak %d", n)) })
		case <-look.C:
			i, err := s.d.inside()
			if err != nil {
				return err
			}
			s.mu.Lock()
			s.samples = append(s.samples, i)
			if time.Since(said) > time.Minute {
				said = time.Now()
				b.say("  %s tasks so far; %s", grouped(int64(n)), i)
			}
			s.mu.Unlock()
		}
	}
}

// live is what happens to one task.
func (s *soak) live(ctx context.Context, task string) {
	err := s.task(ctx, task)
	if err != nil && ctx.Err() == nil {
		s.mu.Lock()
		s.lost = append(s.lost, fmt.Errorf("task %s: %w", task, err))
		s.mu.Unlock()
	}
}

// task is one task from its input to its removal. Of a hundred, ten are stopped,
// ten are steered, thirty get replies, ten are forked, and the others have one round.
func (s *soak) task(ctx context.Context, task string) error {
	kind := rand.IntN(100)
	slowly := ""
	if kind < 20 {
		slowly = ", slowly"
	}
	t := &talk{soak: s, task: task}
	first := t.message()
	begun := time.Now()
	if err := s.d.begin(task, first+slowly); err != nil {
		return err
	}
	s.count("tasks")
	var err error
	switch {
	case kind < 10:
		err = t.stopped(ctx)
	case kind < 20:
		err = t.steered(ctx, first)
	default:
		err = s.answered(ctx, task, 0, first, begun)
	}
	if err != nil {
		return err
	}
	switch {
	case kind >= 20 && kind < 50:
		for range 1 + rand.IntN(3) {
			if err := t.reply(ctx); err != nil {
				return err
			}
		}
	case kind >= 50 && kind < 60:
		if err := s.fork(ctx, task, task+" fork"); err != nil {
			return err
		}
	}
	return s.end(ctx, task, kind%2 == 0)
}

// talk is what is said to one task after its input.
type talk struct {
	*soak
	task     string
	messages int // so far; each has its own number
	replies  int
}

func (t *talk) message() string {
	t.messages++
	return fmt.Sprintf("number<%s %d>", t.task, t.messages)
}

// reply writes a reply and wants its answer in the next round's output.
func (t *talk) reply(ctx context.Context) error {
	text := t.message()
	begun := time.Now()
	if err := t.d.put(t.task, taskdir.ReplyFile, text); err != nil {
		return err
	}
	t.replies++
	if err := t.answered(ctx, t.task, t.replies, text, begun); err != nil {
		return err
	}
	t.count("replies")
	return nil
}

// stopped stops the first round while its model streams, and replies to it.
func (t *talk) stopped(ctx context.Context) error {
	if err := t.until(ctx, "the model streams", func() bool { return t.holds(t.task, 0, "I think") }); err != nil {
		return err
	}
	if err := t.d.put(t.task, taskdir.StopFile, ""); err != nil {
		return err
	}
	t.count("stops")
	if err := t.until(ctx, "the stopped round is over", func() bool { return ends(t.output(t.task, 0)) }); err != nil {
		return err
	}
	return t.reply(ctx)
}

// steered intervenes in the first round and wants the intervention answered.
func (t *talk) steered(ctx context.Context, first string) error {
	if err := t.until(ctx, "the model is asked", func() bool { return t.wasShown(first) }); err != nil {
		return err
	}
	steer := t.message()
	if err := t.d.put(t.task, taskdir.InterveneFile, steer); err != nil {
		return err
	}
	t.count("interventions")
	if err := t.until(ctx, "the intervention is shown to the model", func() bool { return t.wasShown(steer) }); err != nil {
		return err
	}
	// It joined the round, or came after it and made the next.
	return t.until(ctx, "the intervention is answered", func() bool {
		return t.answers(0, steer) || t.answers(1, steer)
	})
}

// answers reports whether a round is over and answers a message.
func (t *talk) answers(round int, message string) bool {
	return t.holds(t.task, round, "answer to "+message) && ends(t.output(t.task, round))
}

// fork continues a task's conversation in another task.
func (s *soak) fork(ctx context.Context, task, fork string) error {
	if err := os.Mkdir(filepath.Join(s.d.temp, fork), 0o755); err != nil {
		return err
	}
	if err := s.d.put(fork, taskdir.ContextFile, fmt.Sprintf(`{"fork_from":%q}`, task)); err != nil {
		return err
	}
	text := fmt.Sprintf("number<%s>", fork)
	begun := time.Now()
	if err := s.d.put(fork, taskdir.InputFile, text); err != nil {
		return err
	}
	s.count("forks")
	if err := s.answered(ctx, fork, 0, text, begun); err != nil {
		return err
	}
	return s.end(ctx, fork, true)
}

// end waits until a session has ended, for a _stop or for want of a reply, and
// removes the task.
func (s *soak) end(ctx context.Context, task string, stop bool) error {
	dir := filepath.Join(s.d.temp, task)
	if stop {
		if err := s.d.put(task, taskdir.StopFile, ""); err != nil {
			return err
		}
		s.count("ends by _stop")
	}
	if err := s.until(ctx, "the session ends", func() bool {
		st, err := taskdir.ReadStatus(dir)
		return err == nil && st.State == taskdir.Ended
	}); err != nil {
		return err
	}
	// What was taken is kept for a second.
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

func (s *soak) output(task string, round int) string {
	return filepath.Join(s.d.temp, task, taskdir.OutputName(round))
}

// answered waits until a round is over, and wants the answer to a message in it.
func (s *soak) answered(ctx context.Context, task string, round int, message string, begun time.Time) error {
	path := s.output(task, round)
	if err := s.until(ctx, fmt.Sprintf("round %d is over", round), func() bool { return ends(path) }); err != nil {
		return err
	}
	s.mu.Lock()
	s.took = append(s.took, time.Since(begun))
	s.did["rounds"]++
	s.mu.Unlock()
	if !s.holds(task, round, "answer to "+message) {
		text, _ := os.ReadFile(path)
		return fmt.Errorf("round %d does not answer %s: %q", round, message, text)
	}
	return nil
}

func (s *soak) holds(task string, round int, text string) bool {
	b, err := os.ReadFile(s.output(task, round))
	return err == nil && strings.Contains(string(b), text)
}

func (s *soak) wasShown(n string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[n]
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did[what]++
}

// until waits until a thing is so: long enough for a machine that is busy with
// something else.
func (s *soak) until(ctx context.Context, what string, so func() bool) error {
	const patience, every = 2 * time.Minute, 20 * time.Millisecond
	deadline := time.Now().Add(patience)
	for !so() {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s until %s", patience, what)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
	return nil
}

// report shows what was held in each quarter of the time, and what was lost.
func (s *soak) report(ctx context.Context, b *bench) error {
	b.report("soak", nil, text("%s", b.soak))
	for _, what := range slices.Sorted(maps.Keys(s.did)) {
		b.report("soak: "+what, count, value(float64(s.did[what])))
	}
	b.report("soak: lost", count, value(float64(len(s.lost))))
	for _, err := range s.lost[:min(len(s.lost), 10)] {
		b.report("soak: lost", nil, text("%v", err))
	}
	b.report("soak: from a file to the end of its round (median, p99)", milliseconds, times(s.took))
	for _, f := range []struct {
		what string
		unit unit
		of   func(inside) int64
	}{
		{"memory", bytesOf, func(i inside) int64 { return i.resident }},
		{"heap in use", bytesOf, func(i inside) int64 { return i.heap }},
		{"stacks", bytesOf, func(i inside) int64 { return i.stacks }},
		{"goroutines", count, func(i inside) int64 { return int64(i.goroutines) }},
		{"open files", count, func(i inside) int64 { return int64(i.files) }},
		{"watches", count, func(i inside) int64 { return int64(i.watches) }},
	} {
		var quarters []string
		for q := range 4 {
			var values []int64
			for _, i := range s.samples[len(s.samples)*q/4 : len(s.samples)*(q+1)/4] {
				values = append(values, f.of(i))
			}
			if len(values) > 0 {
				slices.Sort(values)
				quarters = append(quarters, f.unit(float64(values[len(values)/2])))
			}
		}
		b.report("soak: "+f.what+", median of each quarter", nil, text("%s", strings.Join(quarters, " | ")))
	}
	// All tasks are gone by now.
	if err := pause(ctx, 5*time.Second); err != nil {
		return err
	}
	i, err := s.d.inside()
	if err != nil {
		return err
	}
	b.report("soak: after it", nil, text("%s", i))
	if len(s.lost) > 0 {
		return errors.New("something was lost, see above")
	}
	return nil
}
