//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// patience bounds every wait. It is far more than anything here takes: a machine
// that is busy with something else fails no test.
const patience = 60 * time.Second

// binary is the program under test; TestMain builds it.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	root, err := filepath.Abs("../..")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "gasupervisor-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "gasupervisor")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./cmd/gasupervisor")...)
	build.Dir, build.Stdout, build.Stderr = root, os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		return 1
	}
	return m.Run()
}

// seeSources opens the directories of the program's sources. go test keeps results
// while what a test opened stays the same, and would not know of these.
var seeSources = sync.OnceValue(func() error {
	return filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		return err
	})
})

// daemon is a running daemon with a place and a model of its own.
type daemon struct {
	t *testing.T
	// dir holds config.toml, temp/, state/ and the log.
	dir   string
	model *llmtest.Server
	env   []string

	cmd *exec.Cmd
	// ended gets the daemon's end once; nil while none runs.
	ended chan error
}

// newPlace makes a place without starting anything. overrides are variables that
// override keys of config.toml, as in "GASUPERVISOR_AGENT_RETRIES=1".
func newPlace(t *testing.T, script llmtest.Script, overrides ...string) *daemon {
	return newPlaceWith(t, llmtest.NewServer(t, script), overrides...)
}

func newPlaceWith(t *testing.T, model *llmtest.Server, overrides ...string) *daemon {
	t.Helper()
	if err := seeSources(); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, model: model}
	d.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + os.TempDir(),
		"GORACE=halt_on_error=1 atexit_sleep_ms=0", "GASUPERVISOR_CONFIG=" + filepath.Join(dir, "config.toml"),
	}, overrides...)
	d.write("config.toml", fmt.Sprintf(`temp_dir = "temp"
state_dir = "state"
[[llm]]
name = "scripted"
base_url = %q
api_key_env = ""
model = "test"
context_window = 200000
[log]
level = "debug"
`, d.model.URL))
	return d
}

// start makes a place and starts the daemon in it.
func start(t *testing.T, script llmtest.Script, overrides ...string) *daemon {
	t.Helper()
	d := newPlace(t, script, overrides...)
	d.start()
	return d
}

// start starts the daemon, again after it has ended, and waits until it says so.
func (d *daemon) start() {
	d.t.Helper()
	before := strings.Count(d.log(), "gasupervisor starts")
	d.launch("run")
	d.until("the daemon starts", func() bool {
		return strings.Count(d.log(), "gasupervisor starts") > before || !d.runs()
	})
	if !d.runs() {
		err := <-d.ended
		d.ended = nil
		d.t.Fatalf("the daemon ended at once: %v", err)
	}
}

// launch starts the daemon with these arguments in "/": nothing may depend on its
// working directory.
func (d *daemon) launch(args ...string) {
	d.t.Helper()
	log, err := os.OpenFile(d.path("daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", d.env, log, log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	first := d.cmd == nil
	ended := make(chan error, 1)
	d.cmd, d.ended = cmd, ended
	go func() { ended <- cmd.Wait() }()
	if first {
		d.t.Cleanup(d.finish)
	}
}

func (d *daemon) runs() bool { return d.ended != nil && len(d.ended) == 0 }

// stop ends the daemon as a service manager does and wants it to end well.
func (d *daemon) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatalf("end the daemon: %v", err)
	}
	select {
	case err := <-d.ended:
		if err != nil {
			d.t.Errorf("the daemon ended with: %v", err)
		}
	case <-time.After(patience):
		d.t.Error("the daemon does not end")
		d.cmd.Process.Kill()
		<-d.ended
	}
	d.ended = nil
}

// kill ends the daemon as the kernel does when memory runs out.
func (d *daemon) kill() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatalf("kill the daemon: %v", err)
	}
	<-d.ended
	d.ended = nil
}

// finish ends the daemon with the test, and shows its log where something is wrong.
func (d *daemon) finish() {
	if d.runs() {
		d.stop()
	}
	log := d.log()
	for _, bad := range []string{"DATA RACE", "panic", "goroutine ", "cannot happen"} {
		if strings.Contains(log, bad) {
			d.t.Errorf("the log speaks of %q", bad)
		}
	}
	if d.t.Failed() {
		if len(log) > 12_000 {
			log = "..." + log[len(log)-12_000:]
		}
		d.t.Logf("log of the daemon:\n%s", log)
		for _, r := range d.model.Refusals() {
			d.t.Logf("the model refused %s", r)
		}
	}
}

func (d *daemon) log() string {
	b, err := os.ReadFile(d.path("daemon.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.t.Fatal(err)
	}
	return string(b)
}

// path is a path in the place.
func (d *daemon) path(elem ...string) string {
	return filepath.Join(append([]string{d.dir}, elem...)...)
}

// task is the path of a task's file; without a file that of its directory.
func (d *daemon) task(name string, file ...string) string {
	return d.path(append([]string{"temp", name}, file...)...)
}

// sh runs a shell script in the place, as a person there would.
func (d *daemon) sh(script string) {
	d.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = d.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("sh -c %q: %v\n%s", script, err, out)
	}
}

// write writes a file in the place as `>` does.
func (d *daemon) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// begin makes a task: mkdir, and input.txt as `>` writes it.
func (d *daemon) begin(name, input string) {
	d.t.Helper()
	if err := os.Mkdir(d.task(name), 0o755); err != nil {
		d.t.Fatal(err)
	}
	d.write("temp/"+name+"/input.txt", input)
}

func (d *daemon) read(path string) string {
	d.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// cli runs the program as a person does and returns what it printed, and its code.
func (d *daemon) cli(args ...string) (out, errOut string, code int) {
	d.t.Helper()
	return d.program(binary, args...)
}

func (d *daemon) program(name string, args ...string) (out, errOut string, code int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.dir, d.env, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatalf("run %s %q: %v", name, args, err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// until waits until a thing is so.
func (d *daemon) until(what string, so func() bool) {
	d.t.Helper()
	if !waittest.Poll(so) {
		d.t.Fatalf("waited %s for: %s", waittest.Patience, what)
	}
}

// asked waits until the model has been asked n times in all.
func (d *daemon) asked(n int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.model.Wait(ctx, n); err != nil {
		d.t.Fatal(err)
	}
}

// output waits until a round's output ends in the marker, and returns the text
// before it. There is one marker, and nothing after it.
func (d *daemon) output(task string, round int) string {
	d.t.Helper()
	return d.finished(d.task(task, taskdir.OutputName(round)))
}

func (d *daemon) finished(path string) string {
	d.t.Helper()
	var text string
	d.until(filepath.Base(path)+" ends in the marker", func() bool {
		b, err := os.ReadFile(path)
		text = string(b)
		return err == nil && strings.Contains(text, taskdir.Marker)
	})
	body, found := strings.CutSuffix(text, "\n\n"+taskdir.Marker+"\n")
	if !found || strings.Contains(body, taskdir.Marker) {
		// What follows the marker may have been written a moment later.
		d.t.Fatalf("%s does not end in one marker:\n%s", path, text)
	}
	return body
}

// status reads status.json; nil while there is none.
func (d *daemon) status(task string) *taskdir.Status {
	d.t.Helper()
	st, err := taskdir.ReadStatus(d.task(task))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return st
}

// comes waits until a task is in a state.
func (d *daemon) comes(task string, state taskdir.State) *taskdir.Status {
	d.t.Helper()
	var st *taskdir.Status
	d.until(fmt.Sprintf("task %s is %s", task, state), func() bool {
		st = d.status(task)
		return st != nil && st.State == state
	})
	return st
}

// fence runs a task to its end, after which the daemon has looked at all that was
// written before.
func (d *daemon) fence(name string) {
	d.t.Helper()
	d.begin(name, name)
	d.output(name, 0)
}

// requests are those of the task whose first message holds text.
func (d *daemon) requests(text string) []*llmtest.Request {
	var out []*llmtest.Request
	for _, r := range d.model.Requests() {
		if strings.Contains(r.FirstUser(), text) {
			out = append(out, r)
		}
	}
	return out
}

// accepted wants a model that has found nothing wrong with any request, each of
// which begins with the one before.
func (d *daemon) accepted() {
	d.t.Helper()
	for _, r := range d.model.Refusals() {
		d.t.Errorf("the model refused %s", r)
	}
	for _, of := range llmtest.ByTask(d.model.Requests()) {
		if err := llmtest.CheckPrefixes(of); err != nil {
			d.t.Error(err)
		}
	}
}

// wants fails the test where text lacks something.
func wants(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s lacks %q:\n%s", what, p, text)
		}
	}
}

func lacks(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(text, p) {
			t.Errorf("%s has %q:\n%s", what, p, text)
		}
	}
}

// call is an answer with a tool call; its arguments are pairs of key and value.
func call(tool string, pairs ...string) llmtest.Reply {
	args := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		args[pairs[i]] = pairs[i+1]
	}
	b, err := json.Marshal(args)
	if err != nil {
		panic(err) // strings always marshal
	}
	return llmtest.Call(tool, string(b))
}

func command(line string) llmtest.Reply { return call("execute_command", "command", line) }

// done answers every request at once.
func done(*llmtest.Request) llmtest.Reply { return llmtest.Done("done") }
