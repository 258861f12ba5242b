//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// nap is a shell's `sleep` of five minutes that no other process has.
func nap(t *testing.T) string {
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	seconds := fmt.Sprintf("300.%09d", rand.IntN(1_000_000_000))
	t.Cleanup(func() {
		for _, pid := range processes(t, seconds) {
			if !t.Failed() {
				t.Errorf("process %d of a command lives on after the test", pid)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return "sleep " + seconds
}

// processes are the ids of those with text in their command line.
func processes(t *testing.T, text string) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		if !bytes.Contains(bytes.ReplaceAll(line, []byte{0}, []byte{' '}), []byte(text)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive reports whether a process runs. One that has ended and that nobody has
// asked about does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	i := bytes.LastIndexByte(stat, ')')
	return i < 0 || !bytes.HasPrefix(stat[i:], []byte(") Z"))
}
