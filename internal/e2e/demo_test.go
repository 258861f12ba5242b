//go:build unix

package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
)

func TestDemoTellsOnePersonEverything(t *testing.T) {
	t.Parallel()
	d := newPlace(t, done)
	out, errOut, code := d.cli("demo")
	if code != 0 || errOut != "" {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	wants(t, "the demo", out, "$ gasupervisor run &", "_intervene", "reply.txt", "[ROUND END]", "scripted", "demo --live")
	lacks(t, "in a pipe it", out, "\x1b")
	if n := d.model.Count(); n != 0 {
		t.Errorf("it asked the configured model %d times", n)
	}
}

func TestDemoCleansUpOnCtrlC(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	cmd := exec.Command(binary, "demo")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + scratch, "GORACE=halt_on_error=1 atexit_sleep_ms=0"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "$ gasupervisor run &" {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1", err)
	}
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
