package service

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kardianos/service"
)

var update = flag.Bool("update", false, "write the golden files")

func TestUnit(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a unit's paths are absolute elsewhere")
	}
	for name, c := range map[string]Config{
		"user": {User: true, Executable: "/home/ann/go/bin/gasupervisor", ConfigFile: "/home/ann/.config/gasupervisor/config.toml",
			WorkingDir: "/home/ann", EnvFile: "/home/ann/.config/gasupervisor/env", Path: "/home/ann/go/bin:/usr/bin", StopTimeout: 20 * time.Second},
		"system": {Executable: "/usr/local/bin/gasupervisor", ConfigFile: "/etc/gasupervisor/config.toml", WorkingDir: "/var/lib/gasupervisor",
			RunAs: "gasupervisor", EnvFile: "/etc/gasupervisor/env", StopTimeout: time.Minute},
		"odd": {User: true, Name: "ga", Executable: "/opt/my tools/100%/$HOME/ga", ConfigFile: "/srv/a b/$c.toml", WorkingDir: "/srv/50% done", StopTimeout: 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Unit(c)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".service")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestUnitRefusals(t *testing.T) {
	for name, c := range map[string]Config{
		"relative":       {Executable: "gasupervisor"},
		"quotes":         {Executable: `/opt/"x"/y`},
		"line end":       {Executable: "/bin/x", WorkingDir: "/a\nExecStartPre=/bin/evil"},
		"user with user": {Executable: "/bin/x", User: true, RunAs: "root"},
	} {
		if got, err := Unit(c); err == nil {
			t.Errorf("%s: got\n%s", name, got)
		}
	}
}

var _ service.Interface = (*Program)(nil)

// A start that takes long, as the reconciliation of many tasks does, is no reason
// for a service manager to wait.
func TestStartReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ready := false
		p := NewProgram(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Hour) // it does not look at ctx before it is ready
			ready = true
			return ctx.Err()
		}, 2*time.Hour)
		if err := p.Start(nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("start took %s", took)
		}
		if err := p.Start(nil); err == nil {
			t.Error("started twice")
		}
		if err := p.Stop(nil); err != nil {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(begun); took != time.Hour || !ready {
			t.Errorf("stop did not wait for the end: %s", took)
		}
	})
}

func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewProgram(t.Context(), func(context.Context) error { <-release; return nil }, 20*time.Second)
		if err := p.Start(nil); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err := p.Stop(nil)
		var stuck *StopError
		if !errors.As(err, &stuck) || stuck.After != 20*time.Second || time.Since(begun) != 20*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
		close(release)
		<-p.Done()
		if err := p.Stop(nil); err != nil {
			t.Errorf("stop after the end: %v", err)
		}
	})
}

func TestSecondSignalSkipsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewProgram(t.Context(), func(context.Context) error { <-release; return nil }, time.Hour)
		if err := p.Start(nil); err != nil {
			t.Fatal(err)
		}
		signals := make(chan os.Signal, 1)
		go func() {
			time.Sleep(3 * time.Second)
			signals <- os.Interrupt
		}()
		var stuck *StopError
		if err := p.stop(signals); !errors.As(err, &stuck) || stuck.After != 3*time.Second {
			t.Errorf("got %v", err)
		}
		close(release)
		<-p.Done()
	})
}

func TestOwnError(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct{ run, want error }{{nil, nil}, {broken, broken}, {context.Canceled, nil}} {
		p := NewProgram(t.Context(), func(context.Context) error { return tt.run }, time.Minute)
		if err := p.Start(nil); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if err := p.Stop(nil); err != tt.want {
			t.Errorf("got %v, want %v", err, tt.want)
		}
	}
}

func TestRunEndsWithItsFunctionOrContext(t *testing.T) {
	broken := errors.New("broken")
	if err := Run(t.Context(), func(context.Context) error { return broken }, time.Minute); err != broken {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Run(ctx, func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }, time.Minute)
	if err != nil {
		t.Errorf("got %v", err)
	}
}

func TestSignalStops(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals to send")
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// A terminal that is closed sends the hangup.
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		err = Run(t.Context(), func(ctx context.Context) error {
			// Run listens before it starts us.
			if err := self.Signal(s); err != nil {
				return err
			}
			<-ctx.Done()
			return errors.Join(ctx.Err())
		}, time.Minute)
		if err != nil {
			t.Errorf("%v: got %v", s, err)
		}
	}
}

// Who started it with nohup wants it to go on.
func TestIgnoredHangupStaysIgnored(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals to send")
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	err = Run(t.Context(), func(ctx context.Context) error {
		if err := self.Signal(syscall.SIGHUP); err != nil {
			return err
		}
		if !signal.Ignored(syscall.SIGHUP) || ctx.Err() != nil {
			return errors.New("the hangup is listened for")
		}
		return over
	}, time.Minute)
	if err != over {
		t.Errorf("got %v", err)
	}
}

func TestManagerSaysWhereNoneIs(t *testing.T) {
	if runtime.GOOS != "linux" || service.Platform() == "linux-systemd" {
		t.Skip("this system has a service manager")
	}
	_, err := NewManager(Config{Executable: "/bin/x"})
	var none *NoManagerError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "gasupervisor run") {
		t.Errorf("got %v", err)
	}
}
