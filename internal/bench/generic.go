package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// generic is a copy of GenericAgent, which runs a process for each session and
// looks for replies every two seconds.
type generic struct {
	python, dir string
}

// newGeneric copies a checkout, since sessions write into it.
func newGeneric(checkout, python, dir string) (*generic, error) {
	if _, err := os.Stat(filepath.Join(checkout, "agentmain.py")); err != nil {
		return nil, fmt.Errorf("%s is no checkout of GenericAgent: %w", checkout, err)
	}
	if out, err := exec.Command(python, "-c", "import requests, bs4").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s cannot run GenericAgent, which needs the packages requests and bs4: %w\n%s", python, err, out)
	}
	g := &generic{python: python, dir: filepath.Join(dir, "genericagent")}
	return g, filepath.WalkDir(checkout, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(checkout, path)
		if err != nil {
			return err
		}
		to := filepath.Join(g.dir, rel)
		switch {
		case e.IsDir() && (e.Name() == ".git" || rel == "temp"):
			return fs.SkipDir
		case e.IsDir():
			return os.Mkdir(to, 0o755)
		case !e.Type().IsRegular() || e.Name() == "mykey.py":
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
}

// agents are running sessions.
type agents struct {
	g         *generic
	model     *model
	processes []*process
}

// with runs use with a model, and ends all sessions that it starts.
func (g *generic) with(script llmtest.Script, opts []llmtest.Option, use func(*agents) error) (err error) {
	m, err := startModel(script, opts...)
	if err != nil {
		return err
	}
	defer m.server.Close()
	keys := fmt.Sprintf("native_oai_config = {'name': 'scripted', 'apikey': 'none', 'apibase': %q, 'model': 'test', 'api_mode': 'chat_completions'}\n", m.server.URL)
	if err := os.WriteFile(filepath.Join(g.dir, "mykey.py"), []byte(keys), 0o600); err != nil {
		return err
	}
	a := &agents{g: g, model: m}
	defer func() { err = errors.Join(err, a.end()) }()
	return use(a)
}

func (a *agents) end() error {
	var errs []error
	for _, p := range a.processes {
		select {
		case <-p.ended:
		default:
			errs = append(errs, p.kill())
		}
	}
	a.processes = nil
	return errors.Join(errs...)
}

func (a *agents) path(task, file string) string { return filepath.Join(a.g.dir, "temp", task, file) }

// begin writes a task and starts its session.
func (a *agents) begin(task, text string) error {
	if err := os.MkdirAll(filepath.Dir(a.path(task, taskdir.InputFile)), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(a.path(task, taskdir.InputFile), []byte(text), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(a.g.python, "agentmain.py", "--task", task, "--nobg")
	cmd.Dir = a.g.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.g.dir, "GA_LANG=en"}
	p, err := startProcess(cmd)
	if err == nil {
		a.processes = append(a.processes, p)
	}
	return err
}

func (a *agents) over(ctx context.Context, task string, round int) error {
	path := a.path(task, taskdir.OutputName(round))
	return a.processes[0].until(ctx, time.Millisecond, func() bool { return ends(path) })
}

// begins measures n sessions, one after the other.
func (a *agents) begins(ctx context.Context, n int) (sample, error) {
	var s sample
	for i := range n {
		text := fmt.Sprintf("input-%d.", i)
		arrived := a.model.await(text)
		begun := time.Now()
		if err := a.begin(fmt.Sprintf("input%d", i), text); err != nil {
			return nil, err
		}
		took, err := since(ctx, begun, arrived)
		if err != nil {
			return nil, err
		}
		s = append(s, took)
		if err := a.over(ctx, fmt.Sprintf("input%d", i), 0); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func since(ctx context.Context, begun time.Time, arrived <-chan time.Time) (time.Duration, error) {
	select {
	case at := <-arrived:
		return at.Sub(begun), nil
	case <-time.After(time.Minute):
		return 0, errors.New("GenericAgent did not ask its model")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// replies measures n replies, each to another of the sessions that began. They are
// written at any moment of the two seconds between two looks.
func (a *agents) replies(ctx context.Context, n, sessions int) (sample, error) {
	var s sample
	for i := range n {
		task := fmt.Sprintf("input%d", i%sessions)
		if err := pause(ctx, time.Duration(i)*430*time.Millisecond%(2*time.Second)); err != nil {
			return nil, err
		}
		text := fmt.Sprintf("reply-%d.", i)
		arrived := a.model.await(text)
		if err := os.WriteFile(a.path(task, taskdir.ReplyFile), []byte(text), 0o644); err != nil {
			return nil, err
		}
		took, err := since(ctx, time.Now(), arrived)
		if err != nil {
			return nil, err
		}
		s = append(s, took)
		if err := a.over(ctx, task, i/sessions+1); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// How many sessions of GenericAgent are measured: each is a process.
const genericSessions, genericReplies = 8, 16

// latencies are the figures of new tasks and of replies.
func (g *generic) latencies(ctx context.Context) (input, reply figure, err error) {
	err = g.with(done, []llmtest.Option{llmtest.Forget()}, func(a *agents) error {
		s, err := a.begins(ctx, genericSessions)
		if err != nil {
			return err
		}
		input = times(s)
		if s, err = a.replies(ctx, genericReplies, genericSessions); err != nil {
			return err
		}
		reply = times(s)
		reply.note = fmt.Sprintf("%d waiting sessions", genericSessions)
		return nil
	})
	return input, reply, err
}

// burst is how long n tasks at once take.
func (g *generic) burst(ctx context.Context, n int) (f figure, err error) {
	err = g.with(late, []llmtest.Option{llmtest.Forget()}, func(a *agents) error {
		begun := time.Now()
		for i := range n {
			if err := a.begin(fmt.Sprintf("burst%d", i), "Do it."); err != nil {
				return err
			}
		}
		for i := range n {
			if err := a.over(ctx, fmt.Sprintf("burst%d", i), 0); err != nil {
				return err
			}
		}
		f = value(time.Since(begun).Seconds())
		return nil
	})
	return f, err
}

// turns is the time per turn; there is no journal.
func (g *generic) turns(ctx context.Context, n int) (f figure, err error) {
	err = g.with(readers(n), []llmtest.Option{llmtest.Forget()}, func(a *agents) error {
		if err := g.put("long.txt", lines(n+20)); err != nil {
			return err
		}
		a.model.measure()
		if err := a.begin("turns", "Read the file."); err != nil {
			return err
		}
		if err := a.over(ctx, "turns", 0); err != nil {
			return err
		}
		f = times(a.model.taken())
		f.note = "no journal"
		return nil
	})
	return f, err
}

// put writes a file where sessions work.
func (g *generic) put(name, text string) error {
	dir := filepath.Join(g.dir, "temp")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// characters is what a conversation costs that grows.
func (g *generic) characters(ctx context.Context) (f figure, err error) {
	err = g.with(prefixScript, nil, func(a *agents) error {
		for i := range prefixTurns {
			if err := g.put(prefixName(i), fileOf(i, prefixFile)); err != nil {
				return err
			}
		}
		if err := a.begin("prefix", prefixInput); err != nil {
			return err
		}
		if err := a.over(ctx, "prefix", 0); err != nil {
			return err
		}
		c, err := counted(a.model.server.Requests())
		if err != nil {
			return err
		}
		f = c.figure()
		return nil
	})
	return f, err
}

// waiting is what a waiting session needs: memory in bytes, and the part of a core.
func (g *generic) waiting(ctx context.Context, idle time.Duration) (memory, share figure, err error) {
	err = g.with(done, []llmtest.Option{llmtest.Forget()}, func(a *agents) error {
		for i := range genericSessions {
			if err := a.begin(fmt.Sprintf("input%d", i), "Do it."); err != nil {
				return err
			}
		}
		for i := range genericSessions {
			if err := a.over(ctx, fmt.Sprintf("input%d", i), 0); err != nil {
				return err
			}
		}
		all := func(of func(pid int) (int64, error)) (sum int64, err error) {
			for _, p := range a.processes {
				n, err := of(p.pid())
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		}
		// What the sessions have left to do is over in a moment.
		if err := pause(ctx, 3*time.Second); err != nil {
			return err
		}
		used := func(pid int) (int64, error) { t, err := cpu(pid); return int64(t), err }
		before, err := all(used)
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := pause(ctx, idle); err != nil {
			return err
		}
		after, err := all(used)
		if err != nil {
			return err
		}
		share = value(100 * float64(after-before) / float64(time.Since(begun)))
		share.note = fmt.Sprintf("%d sessions", genericSessions)
		sum, err := all(proportional)
		memory = value(float64(sum) / genericSessions)
		return err
	})
	return memory, share, err
}

// offers reports whether a request's agent has a tool.
func offers(r *llmtest.Request, tool string) bool { return slices.Contains(r.ToolNames(), tool) }

// finish completes a round, whoever asks.
func finish(r *llmtest.Request) llmtest.Reply {
	if offers(r, "attempt_completion") {
		return llmtest.Done("done")
	}
	return llmtest.Text("It is done, and there is nothing else to say.")
}
