package confine

import (
	"net"
	"os"
	"os/exec"

	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
)

const sandboxExec = "/usr/bin/sandbox-exec"

// Cgroups are a thing of Linux.
type Cgroups struct{}

// OwnCgroups finds none.
func OwnCgroups() (*Cgroups, string) { return nil, "this system has none" }

func (s *Sandbox) probe() Status {
	cmd := exec.Command(sandboxExec, "-p", SeatbeltProfile(Layout{Mounts: []Mount{{Path: "/usr", How: Read, Dir: true}}}, NetworkOff, 0), "/usr/bin/true")
	if err := cmd.Run(); err != nil {
		return Status{Level: None, Why: sandboxExec + ": " + err.Error(), Do: "is the daemon itself in a sandbox?"}
	}
	return Status{Level: Seatbelt}
}

// start puts sandbox-exec in front of a command that is ready to start.
func (s *Sandbox) start(cmd *exec.Cmd, j Job, l Layout, ex Extras) (*command.Confinement, error) {
	port, stop := 0, func() {}
	if j.Reach.Network == NetworkProxy && j.Reach.Serve != nil {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		stop = j.Reach.Serve(ln)
		port = ln.Addr().(*net.TCPAddr).Port
	}
	cmd.Env = j.environ(cmd.Env, Seatbelt, l, port)
	cmd.Args = append([]string{sandboxExec, "-p", SeatbeltProfile(l, j.Reach.Network, port), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = sandboxExec
	return &command.Confinement{
		Started: func(err error) error {
			if err != nil {
				stop()
			}
			return err
		},
		Ended: func() command.Report {
			stop()
			for _, p := range ex.Unwanted {
				os.Remove(p)
			}
			return command.Report{}
		},
	}, nil
}

func makeDirs(path string) error { return os.MkdirAll(path, 0o755) }
