package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// daemon is the real program with a scripted model.
type daemon struct {
	temp  string
	model *llmtest.Server
	cmd   *exec.Cmd
	ended chan error

	mu sync.Mutex
	// awaited gets the arrival of the request whose newest message holds a text.
	awaited map[string]chan<- time.Time
}

func startDaemon(ctx context.Context, binary, dir string) (*daemon, error) {
	d := &daemon{temp: filepath.Join(dir, "temp"), awaited: map[string]chan<- time.Time{}, ended: make(chan error, 1)}
	var err error
	// The checks of conversations cost the server time, not the daemon.
	if d.model, err = llmtest.Start(d.answer, llmtest.Forget(), llmtest.Lenient()); err != nil {
		return nil, err
	}
	config := fmt.Sprintf("temp_dir = \"temp\"\nstate_dir = \"state\"\nreply_timeout = \"2h\"\n[[llm]]\nname = \"scripted\"\nbase_url = %q\n"+
		"api_key_env = \"\"\nmodel = \"test\"\ncontext_window = 200000\n[log]\nlevel = \"warn\"\n", d.model.URL)
	path := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "daemon.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(binary, "run", "--config", path)
	d.cmd.Stderr = log
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { d.ended <- d.cmd.Wait() }()
	// It is there when the directory is.
	return d, d.until(ctx, func() bool { _, err := os.Stat(d.temp); return err == nil })
}

// stop ends the daemon and the model.
func (d *daemon) stop() error {
	defer d.model.Close()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case err := <-d.ended:
		return err
	case <-time.After(time.Minute):
		return errors.Join(errors.New("the daemon does not end"), d.cmd.Process.Kill(), <-d.ended)
	}
}

// until waits until a thing is so, or the daemon or ctx ends.
func (d *daemon) until(ctx context.Context, so func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("the daemon ended: %w", err)
		}
	}
	return nil
}

// answer completes every round at once.
func (d *daemon) answer(r *llmtest.Request) llmtest.Reply {
	newest := r.LastUser()
	d.mu.Lock()
	defer d.mu.Unlock()
	for text, ch := range d.awaited {
		if strings.Contains(newest, text) {
			delete(d.awaited, text)
			ch <- r.At
		}
	}
	return llmtest.Done("done")
}

// write writes a file of a task as `>` does, and returns how long it takes from
// its closing until the model is asked about it.
func (d *daemon) write(ctx context.Context, task, file, text string) (time.Duration, error) {
	arrived := make(chan time.Time, 1)
	d.mu.Lock()
	d.awaited[text] = arrived
	d.mu.Unlock()
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

// settled waits until a task waits for a reply, and nothing of its round is left
// to be written.
func (d *daemon) settled(ctx context.Context, task string, round int) error {
	path := filepath.Join(d.temp, task, taskdir.OutputName(round))
	return d.until(ctx, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.HasSuffix(string(text), taskdir.Marker+"\n")
	})
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
		if err := d.settled(ctx, task, 0); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// wait brings n sessions to where they wait, each with a conversation of so many
// bytes.
func (d *daemon) wait(ctx context.Context, n, bytes int) error {
	for i := range n {
		task := waitingName(i)
		if err := os.Mkdir(filepath.Join(d.temp, task), 0o755); err != nil {
			return err
		}
		text := strings.Repeat("A line of some length in a conversation that has gone on.\n", bytes/59+1)
		if err := os.WriteFile(filepath.Join(d.temp, task, taskdir.InputFile), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for i := range n {
		if err := d.settled(ctx, waitingName(i), 0); err != nil {
			return err
		}
	}
	return nil
}

func waitingName(i int) string { return fmt.Sprintf("waiting %d", i) }

// replies measures n replies to sessions that wait, chosen at random, one after
// the other.
func (d *daemon) replies(ctx context.Context, n, waiting int) (sample, error) {
	rounds := map[int]int{}
	var s sample
	for i := range n {
		which := rand.IntN(waiting)
		rounds[which]++
		took, err := d.write(ctx, waitingName(which), taskdir.ReplyFile, fmt.Sprintf("reply-%d.", i))
		if err != nil {
			return nil, err
		}
		s = append(s, took)
		if err := d.settled(ctx, waitingName(which), rounds[which]); err != nil {
			return nil, err
		}
	}
	return s, nil
}
