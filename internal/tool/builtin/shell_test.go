//go:build unix

package builtin

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
)

func TestExecuteCommand(t *testing.T) {
	w := newWorld(t, nil)
	w.write("work/a.txt", "hello\n")
	r := w.must(ExecuteCommand, m{"command": "cat a.txt; pwd"}, "exit code 0, ", "hello\n"+w.path("work"))
	if !strings.HasPrefix(r.Summary, "exit 0, 2 lines, 0.") {
		t.Errorf("summary %q", r.Summary)
	}
	r = w.mustFail(ExecuteCommand, m{"command": "echo no >&2; exit 3"}, "exit code 3, ", "\nno\n")
	if !strings.HasPrefix(r.Summary, "exit 3, 1 line, ") {
		t.Errorf("summary %q", r.Summary)
	}
	w.must(ExecuteCommand, m{"cmd": "true"}, "no output")
	w.must(ExecuteCommand, m{"command": "cat; echo end"}, "end")
	w.must(ExecuteCommand, m{"command": "printf '\\326\\320\\316\\304\\n'"}, "中文")
	w.must(ExecuteCommand, m{"command": `printf '10%%\r50%%\r100%%\r\n\033[31mred\033[0m\r\n'`}, "\n100%\nred\n")
	w.must(ExecuteCommand, m{"command": "sh -c 'sleep 300 & echo hi'"}, "that it left running ended with it\nhi\n")
	w.must(ExecuteCommand, m{"command": "echo it is $((1+1))"}, "it is 2")
	w.mustFail(ExecuteCommand, m{"command": "  "}, "empty")
	w.mustFail(ExecuteCommand, m{"command": "echo begun; sleep 300", "timeout_seconds": "1"}, "killed: the time limit of 1 s", "timeout_seconds can be up to 600", "\nbegun\n")
	w.mustFail(ExecuteCommand, m{"command": "x", "timeout_seconds": 0}, "at least 1")
	w.mustFail(ExecuteCommand, m{"command": "read -p 'Password: ' x </dev/tty || exit 9"}, "exit code 9")

	r = w.must(ExecuteCommand, m{"command": "for i in $(seq 5000); do echo 日本 $i; done"}, "日本 1\n", "日本 5000\n", "bytes left out here")
	if len(r.Text) > w.env.ResultCap || !utf8.ValidString(r.Text) || strings.Contains(r.Text, "�") {
		t.Errorf("%d bytes, %q", len(r.Text), r.Text)
	}
	if !strings.Contains(r.Summary, "5000 lines") {
		t.Errorf("summary %q", r.Summary)
	}
}

func TestExecuteCommandEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	w := newWorld(t, func(e *Env) { e.Command.Env = command.Environ(os.Environ(), nil, nil) })
	if r := w.must(ExecuteCommand, m{"command": "env"}, "PATH=", "TERM=dumb"); strings.Contains(r.Text, "sk-") {
		t.Errorf("the key is in: %s", r.Text)
	}
}

func TestExecuteCommandLimits(t *testing.T) {
	w := newWorld(t, func(e *Env) { e.Command.MaxTimeout, e.Command.DefaultTimeout = time.Second, 500*time.Millisecond })
	w.mustFail(ExecuteCommand, m{"command": "sleep 300", "timeout_seconds": 100000}, "limit of 1 s")
	w.mustFail(ExecuteCommand, m{"command": "sleep 300"}, "limit of 1 s")
	w = newWorld(t, func(e *Env) { e.WorkDir = "/no/such/directory" })
	w.mustFail(ExecuteCommand, m{"command": "true"}, "/no/such/directory")
}

// A fast and a slow call at once: the slow one is stopped and both are answered.
func TestParallelCalls(t *testing.T) {
	w := newWorld(t, nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		w.has(w.callCtx(ctx, ExecuteCommand, m{"command": "echo begun; touch begun; sleep 300"}), true, "killed after", "stopped by hand", "begun")
	})
	wg.Go(func() {
		w.has(w.callCtx(ctx, ExecuteCommand, m{"command": "while [ ! -e begun ]; do sleep 0.01; done; echo fast"}), false, "fast")
		cancel(errors.New("stopped by hand"))
	})
	wg.Wait()
}
