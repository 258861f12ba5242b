package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is a program under measurement: the daemon, a floor of its own, or an
// agent of GenericAgent.
type process struct {
	cmd   *exec.Cmd
	ended chan error
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process and wants it to end well.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		return errors.Join(errors.New("the process does not end"), p.kill())
	}
}

// kill ends the process as the kernel does when memory runs out.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	return err
}

// until waits until a thing is so, or the process or ctx ends.
func (p *process) until(ctx context.Context, every time.Duration, so func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("the process ended: %w", err)
		}
	}
	return nil
}

// daemon is the real program in a place of its own, with a scripted model.
type daemon struct {
	*process
	binary, dir, temp string
	model             *model
	env               []string
	profiles          *http.Client
	started           time.Time
	logged            int64 // how long the log was when it was last launched
}

// startDaemon starts the program in dir. overrides are variables that override
// keys of its configuration.
func startDaemon(ctx context.Context, binary, dir string, m *model, overrides ...string) (*daemon, error) {
	d := &daemon{binary: binary, dir: dir, temp: filepath.Join(dir, "temp"), model: m}
	config := fmt.Sprintf("temp_dir = \"temp\"\nstate_dir = \"state\"\nreply_timeout = \"24h\"\n[[llm]]\nname = \"scripted\"\nbase_url = %q\n"+
		"api_key_env = \"\"\nmodel = \"test\"\ncontext_window = 100000000\n[log]\nlevel = \"info\"\n", m.server.URL)
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "pprof")
	d.profiles = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	d.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GASUPERVISOR_INTERNAL_PPROF=" + socket,
	}, overrides...)
	return d, d.start(ctx)
}

// start starts the program, again after it has ended, and waits until it works.
func (d *daemon) start(ctx context.Context) error {
	if err := d.launch(); err != nil {
		return err
	}
	return d.until(ctx, time.Millisecond, func() bool {
		_, err := d.goroutines()
		return err == nil
	})
}

// launch starts the program and does not wait.
func (d *daemon) launch() error {
	log, err := os.OpenFile(filepath.Join(d.dir, "daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := os.RemoveAll(filepath.Join(d.dir, "pprof")); err != nil {
		return err
	}
	if d.logged, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd := exec.Command(d.binary, "run", "--config", filepath.Join(d.dir, "config.toml"))
	cmd.Env, cmd.Stderr = d.env, log
	d.started = time.Now()
	d.process, err = startProcess(cmd)
	return err
}

// watching waits until a daemon that was launched watches n tasks and the directory
// that they are in.
func (d *daemon) watching(ctx context.Context, n int) error {
	// Counting watches keeps the system from adding more of them: its word comes first.
	said := func() bool {
		log, err := os.ReadFile(filepath.Join(d.dir, "daemon.log"))
		return err == nil && bytes.Contains(log[min(d.logged, int64(len(log))):], []byte("tasks are watched"))
	}
	if err := d.until(ctx, time.Millisecond, said); err != nil {
		return err
	}
	got, err := watches(d.pid())
	if err == nil && got <= n {
		err = fmt.Errorf("the daemon says that its tasks are watched, and has %d watches for %d of them", got, n)
	}
	return err
}

// stop ends the daemon, and adds what its log complains of to the error.
func (d *daemon) stop() error {
	err := d.process.stop()
	log, rerr := os.ReadFile(filepath.Join(d.dir, "daemon.log"))
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	var errs []error
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=ERROR") && len(errs) < 3 {
			errs = append(errs, errors.New("the daemon's log says: "+strings.TrimSpace(line)))
		}
	}
	return errors.Join(append(errs, err)...)
}

func (d *daemon) profile(path string) (string, error) {
	resp, err := d.profiles.Get("http://daemon/debug/pprof/" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// goroutines counts those of the daemon.
func (d *daemon) goroutines() (int, error) {
	text, err := d.profile("goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	n, _, _ := strings.Cut(strings.TrimPrefix(text, "goroutine profile: total "), "\n")
	return strconv.Atoi(n)
}

// heap says what the daemon's memory is used for, in bytes. Asking collects garbage.
type heap struct{ inUse, stacks, sys int64 }

func (d *daemon) heap() (h heap, err error) {
	text, err := d.profile("heap?debug=1&gc=1")
	if err != nil {
		return h, err
	}
	for line := range strings.Lines(text) {
		name, v, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok {
			continue
		}
		v, _, _ = strings.Cut(v, " ")
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "# HeapAlloc":
			h.inUse = n
		case "# Stack":
			h.stacks = n
		case "# Sys":
			h.sys = n
		}
	}
	return h, nil
}
