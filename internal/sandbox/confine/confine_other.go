//go:build !linux && !darwin

package confine

import (
	"os"
	"os/exec"

	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
)

// Cgroups are a thing of Linux.
type Cgroups struct{}

// OwnCgroups finds none.
func OwnCgroups() (*Cgroups, string) { return nil, "this system has none" }

func (s *Sandbox) probe() Status {
	return Status{Level: None, Why: "this version cannot confine them on this system", Do: `mode = "off" in [sandbox] of config.toml lets them run with all the rights of the daemon's user`}
}

func (s *Sandbox) start(*exec.Cmd, Job, Layout, Extras) (*command.Confinement, error) {
	st := s.Status()
	return nil, &RefusalError{st.Why, st.Do}
}

func makeDirs(path string) error { return os.MkdirAll(path, 0o755) }
