package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gasupervisor": main})
}

// TestScripts runs the real program on files. The daemon in them is a lock and a
// few files written at the right moment.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
			return os.MkdirAll(home, 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"daemon":  cmdDaemon,
			"answer":  cmdAnswer,
			"models":  cmdModels,
			"code":    cmdCode,
			"await":   cmdAwait,
			"scripts": cmdScripts,
		},
		RequireUniqueNames: true,
	})
}

// daemon DIR holds the lock on a temp directory until the script ends.
func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	l, err := lock.Acquire(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Defer(func() { l.Release() })
}

// answer DIR NAME ROUND REASON RESULT answers as a daemon does, once input.txt
// (round 0) or reply.txt is there.
func cmdAnswer(ts *testscript.TestScript, neg bool, args []string) {
	dir, name, result := filepath.Join(ts.MkAbs(args[0]), args[1]), args[1], args[4]
	var n int
	_, err := fmt.Sscan(args[2], &n)
	ts.Check(err)
	want := taskdir.InputFile
	if n > 0 {
		want = taskdir.ReplyFile
	}
	done := make(chan error, 1)
	go func() { done <- answer(dir, name, want, n, round.Reason(args[3]), result) }()
	ts.Defer(func() {
		if err := <-done; err != nil {
			ts.Logf("answer: %v", err)
		}
	})
}

func answer(dir, name, want string, n int, reason round.Reason, result string) error {
	if !waittest.Poll(func() bool { _, err := os.Stat(filepath.Join(dir, want)); return err == nil }) {
		return fmt.Errorf("no %s came", want)
	}
	if n > 0 {
		if err := os.Remove(filepath.Join(dir, want)); err != nil {
			return err
		}
	}
	root, err := taskdir.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	st := taskdir.NewStatus(name)
	st.Session, st.Round, st.State = 1, n, taskdir.Running
	st.UpdatedAt = taskdir.Time{Time: time.Now().Add(time.Hour)}
	if err := d.WriteStatus(st, false); err != nil {
		return err
	}
	out, err := d.CreateOutput(n)
	if err != nil {
		return err
	}
	out.Line("Turn 1 ...")
	out.Text("working on it\n" + result + "\n")
	st.State, st.Reason = taskdir.AwaitingReply, taskdir.Text(reason)
	if reason == round.Completed {
		st.Result, st.CompletedBy = taskdir.Text(result), "tool"
	} else {
		st.Error = &round.Failure{Kind: string(reason), Message: result}
	}
	if err := d.WriteStatus(st, true); err != nil {
		return err
	}
	return errors.Join(out.End(), out.Close())
}

// models STATUS [ID...] serves a list of models and sets MODELS_URL.
func cmdModels(ts *testscript.TestScript, neg bool, args []string) {
	var status int
	_, err := fmt.Sscan(args[0], &status)
	ts.Check(err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") == "Bearer bad" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		w.WriteHeader(status)
		var ids []string
		for _, id := range args[1:] {
			ids = append(ids, fmt.Sprintf(`{"id": %q}`, id))
		}
		fmt.Fprintf(w, `{"data": [%s]}`, strings.Join(ids, ","))
	}))
	ts.Defer(srv.Close)
	ts.Setenv("MODELS_URL", srv.URL+"/v1")
}

// code N COMMAND... runs a command and wants its exit code.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// await FILE waits until a file is there, with `! await` until it is not.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if !waittest.Poll(func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return errors.Is(err, fs.ErrNotExist) == neg }) {
		ts.Fatalf("%s: waited in vain", args[0])
	}
}

// scripts sets SCRIPTS to the directory of that name.
func cmdScripts(ts *testscript.TestScript, neg bool, args []string) {
	dir, err := filepath.Abs("../../scripts")
	ts.Check(err)
	ts.Setenv("SCRIPTS", dir)
}
