package confine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// What a daemon was starting when it was killed dies with it, and lets go of all that
// it had open: its locks above all, or there could be no daemon after it.
func TestDaemonKilledAsItStartsCommands(t *testing.T) {
	if lock := os.Getenv("START_UNTIL_KILLED"); lock != "" {
		startUntilKilled(t, lock)
	}
	newWorld(t, Config{}) // skips where commands cannot be confined
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(t.TempDir(), "lock")
	daemon := exec.Command(exe, "-test.run", "^TestDaemonKilledAsItStartsCommands$")
	daemon.Env = append(os.Environ(), "START_UNTIL_KILLED="+lock)
	var complaints bytes.Buffer
	daemon.Stderr = &complaints
	said, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var ran atomic.Int32
	over := make(chan struct{})
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			ran.Add(1)
		}
	}()
	for ran.Load() < 100 && !t.Failed() {
		select {
		case <-over:
			daemon.Wait()
			t.Fatalf("the daemon ended after %d commands: %s", ran.Load(), complaints.String())
		default:
		}
		if n := copies(daemon.Process.Pid, exe); n > 1 {
			t.Errorf("%d copies of the daemon are on their way to be helpers: without it they may wait for each other for ever", n)
		}
	}
	daemon.Process.Kill()
	daemon.Process.Wait()
	f := locked(t, lock)
	defer f.Close()
	waittest.Until(t, "the lock of the dead daemon is free", func() bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil })
}

// copies counts the children of a process that run its own program, at one moment.
func copies(pid int, program string) int {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var children []string
	for _, path := range threads {
		list, _ := os.ReadFile(path)
		children = append(children, strings.Fields(string(list))...)
	}
	are := func(child string) bool {
		exe, _ := os.Readlink("/proc/" + child + "/exe")
		return exe == program
	}
	// What is seen in both passes was there at once.
	children = slices.DeleteFunc(children, func(c string) bool { return !are(c) })
	children = slices.DeleteFunc(children, func(c string) bool { return !are(c) })
	return len(children)
}

func locked(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// startUntilKilled holds a lock and says a word for each command that it has run.
func startUntilKilled(t *testing.T, lock string) {
	f := locked(t, lock)
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Config{})
	for range 8 {
		go func() {
			for {
				if _, err := w.try(t.Context(), "true"); err != nil {
					panic(err)
				}
				fmt.Println("one more")
			}
		}()
	}
	select {}
}
