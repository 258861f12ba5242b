package confine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
)

// helperProgram is built once, by TestMain.
var helperProgram string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "confine")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	helperProgram = filepath.Join(dir, "helper")
	build := exec.Command("go", "build", "-o", helperProgram, "./testdata/helper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the helper: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// world is a place for commands to run in.
type world struct {
	t       testing.TB
	dir     string // holds all of it
	work    string
	job     Job
	sandbox *Sandbox
}

func newWorld(t testing.TB, c Config) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, work: filepath.Join(dir, "work")}
	p := Private{Home: filepath.Join(dir, "home"), Tmp: filepath.Join(dir, "tmp"), Cache: filepath.Join(dir, "cache")}
	for _, d := range []string{w.work, p.Home, p.Tmp, p.Cache, filepath.Join(dir, "state")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Program = cmp.Or(c.Program, helperProgram)
	w.sandbox = New(c)
	w.job = Job{Private: p}
	w.grant(sandbox.Ceiling{}, sandbox.Ask{Writes: true})
	if st := w.sandbox.Status(); st.Level != Full {
		t.Skipf("commands cannot be confined fully here: %s", st)
	}
	return w
}

// grant sets the policy; the task's directory is the working directory.
func (w *world) grant(c sandbox.Ceiling, a sandbox.Ask) {
	w.t.Helper()
	c.TempDir, c.System = w.dir, sandbox.SystemReads(os.Getenv("PATH"))
	c.Hidden = append(c.Hidden, filepath.Join(w.dir, "state"))
	a.TaskDir = w.work
	p, err := sandbox.Build(c.Resolve(), a.Resolve())
	if err != nil {
		w.t.Fatal(err)
	}
	w.job.Policy = p
	w.job.Links = map[string]string{"/bin": "usr/bin", "/lib": "usr/lib", "/lib64": "usr/lib64", "/sbin": "usr/sbin"}
}

// run runs a line and returns how it came out and what it printed.
func (w *world) run(line string) (command.Outcome, string) {
	w.t.Helper()
	o, err := w.try(context.Background(), line)
	if err != nil {
		w.t.Fatal(err)
	}
	return o, string(o.Output.Head) + string(o.Output.Tail)
}

func (w *world) try(ctx context.Context, line string) (command.Outcome, error) {
	return command.Run(ctx, command.Command{
		Line: line, Dir: w.job.Policy.WorkDir, Env: []string{"PATH=" + os.Getenv("PATH")}, Timeout: time.Minute,
		Confine: w.sandbox.Confine(w.job),
	})
}

// plain runs a line without confinement.
func (w *world) plain(line string) command.Outcome {
	w.t.Helper()
	o, err := command.Run(context.Background(), command.Command{Line: line, Dir: w.work, Env: []string{"PATH=" + os.Getenv("PATH")}})
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}
