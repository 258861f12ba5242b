package lock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the process that holds a lock.
func TestMain(m *testing.M) {
	if path := os.Getenv("LOCK_TEST_HOLD"); path != "" {
		l, err := Acquire(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		// Until the test closes our standard input, or kills us.
		os.Stdin.Read(make([]byte, 1))
		l.Release()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// holder starts a process that holds the lock, and returns it.
func holder(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "LOCK_TEST_HOLD="+path)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	buf := make([]byte, 5)
	if _, err := out.Read(buf); err != nil || !strings.HasPrefix(string(buf), "held") {
		t.Fatalf("the holder says %q, %v", buf, err)
	}
	return cmd
}

func TestAnotherProcess(t *testing.T) {
	for name, path := range map[string]string{"directory": t.TempDir(), "file": filepath.Join(t.TempDir(), "lock")} {
		t.Run(name, func(t *testing.T) {
			if held, err := Probe(path); held || err != nil {
				t.Fatalf("free lock: %v, %v", held, err)
			}
			cmd := holder(t, path)
			if held, err := Probe(path); !held || err != nil {
				t.Fatalf("held lock: %v, %v", held, err)
			}
			_, err := Acquire(path)
			var h *HeldError
			if !errors.As(err, &h) || !errors.Is(err, ErrHeld) || h.Path != path {
				t.Fatalf("got %v", err)
			}
			if runtime.GOOS == "linux" && h.Who != "" && h.Who != fmt.Sprintf("process %d", cmd.Process.Pid) {
				t.Errorf("held by %q, want process %d", h.Who, cmd.Process.Pid)
			}

			// A killed holder leaves nothing that blocks.
			cmd.Process.Kill()
			cmd.Wait()
			l, err := Acquire(path)
			if err != nil {
				t.Fatal(err)
			}
			if held, _ := Probe(path); !held {
				t.Error("our own lock is not seen")
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			if err := l.Release(); err != nil {
				t.Errorf("second release: %v", err)
			}
			if held, _ := Probe(path); held {
				t.Error("held after release")
			}
		})
	}
}

// A command that the owner starts must not inherit the lock: it may outlive it.
func TestChildrenDoNotInherit(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	dir := t.TempDir()
	l, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	// Not Release, which unlocks for all who share the handle.
	if err := l.f.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := Probe(dir); held || err != nil {
		t.Errorf("held by a child: %v, %v", held, err)
	}
}

// Those who only ask must never keep the owner from starting.
func TestProbesDoNotBlock(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	done := make(chan struct{})
	for range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					Probe(dir)
				}
			}
		}()
	}
	for range 20 {
		l, err := Acquire(dir)
		if err != nil {
			t.Error(err)
			break
		}
		l.Release()
	}
	close(stop)
	<-done
	<-done
}

func TestMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "such")
	if held, err := Probe(path); held || err != nil {
		t.Errorf("got %v, %v", held, err)
	}
	if l, err := Acquire(path); err == nil {
		l.Release()
		t.Error("locked what cannot exist")
	}
}

func TestHolder(t *testing.T) {
	dir := t.TempDir()
	h := Holder{PID: 7, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: "v1", TempDir: "/t", Config: "/c"}
	if _, err := ReadHolder(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, HolderFile), h.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadHolder(dir)
	if err != nil || got != h {
		t.Errorf("got %v, %v", got, err)
	}
	// Whoever is named there, the lock decides.
	if held, err := Probe(dir); held || err != nil {
		t.Errorf("a file made a lock: %v, %v", held, err)
	}
}
