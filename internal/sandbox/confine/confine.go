package confine

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
)

// Config says how commands are confined; it is the same for all tasks.
type Config struct {
	Limits Limits
	// Program is the program to run as the helper; "" is this one.
	Program string
	// Cgroups, where not nil, makes cgroups for commands.
	Cgroups *Cgroups
	// User, where not nil, is whom commands run as, for a process that is root.
	User *sandbox.User
}

// Reach is what commands reach.
type Reach struct {
	Network Network
	// Serve is called, for NetworkProxy, with the listener that a command finds as
	// its proxy, and returns what ends the service. It must not block.
	Serve func(net.Listener) (stop func())
	// NoProxy are the hosts that commands reach without the proxy: themselves.
	NoProxy []string
}

// Status is how far commands can be confined here, and what to do about it.
type Status struct {
	Level Level
	// ABI is the version of Landlock in force, on Linux; 0 is none.
	ABI int
	// Why says what keeps it from being more; "" where nothing does.
	Why string
	// Do says what a person can do about that.
	Do string
}

// String is for the log.
func (s Status) String() string {
	var text string
	switch s.Level {
	case Full:
		text = "full: namespaces, Landlock and seccomp"
		if s.ABI == 0 {
			text = "full: namespaces and seccomp (the kernel has no Landlock)"
		}
	case Landlock:
		text = "partial: Landlock and seccomp, no namespaces"
	case Seatbelt:
		text = "Seatbelt"
	default:
		text = "none: commands are refused"
	}
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}

// Sandbox confines commands. It may be used by many goroutines at once.
type Sandbox struct {
	config Config
	detect func() Status
	// starting is held while a command starts: see oneByOne.
	starting sync.Mutex
}

// New returns a sandbox. What the system can do is found out when it is first
// needed.
func New(c Config) *Sandbox {
	s := &Sandbox{config: c}
	s.detect = sync.OnceValue(s.probe)
	return s
}

// Status returns how far commands can be confined. The first call tries it out,
// which takes some milliseconds.
func (s *Sandbox) Status() Status { return s.detect() }

// Places returns the private directories as commands know them, and where they are,
// for file tools to know them likewise.
func (s *Sandbox) Places(p Private) map[string]string {
	if s.Status().Level != Full {
		return map[string]string{p.Home: p.Home, p.Tmp: p.Tmp}
	}
	return map[string]string{insideHome: p.Home, insideTmp: p.Tmp}
}

// Job is what is known of the commands of one round.
type Job struct {
	Policy  sandbox.Policy
	Private Private
	// Reach is what they reach; without a Network it is nothing.
	Reach Reach
	// Links are symbolic links by which what is granted is known, too.
	Links map[string]string
	// Env are variables that commands get, whatever else is set.
	Env map[string]string
	// Prepare, where not nil, is called before each command, and makes what is missing
	// of Private.
	Prepare func() error
	// Checkouts looks for what git obeys in what is granted. It is called once, when
	// the first command runs.
	Checkouts func() Extras
}

// RefusalError says why a command is not run at all.
type RefusalError struct {
	Why, Do string
}

func (e *RefusalError) Error() string {
	s := "commands are refused here: " + e.Why
	if e.Do != "" {
		s += "; " + e.Do
	}
	return s
}

// Confine returns what command.Command wants, for the commands of one round.
func (s *Sandbox) Confine(j Job) func(*exec.Cmd) (*command.Confinement, error) {
	extras := sync.OnceValue(func() Extras {
		if j.Checkouts == nil {
			return Extras{}
		}
		return j.Checkouts()
	})
	return func(cmd *exec.Cmd) (*command.Confinement, error) {
		status := s.Status()
		if status.Level == None {
			return nil, &RefusalError{status.Why, status.Do}
		}
		if j.Prepare != nil {
			if err := j.Prepare(); err != nil {
				return nil, err
			}
		}
		ex := extras()
		l, err := s.Layout(j, ex)
		if err != nil {
			return nil, err
		}
		for _, p := range l.Placeholders {
			if err := makeDirs(p); err != nil {
				return nil, fmt.Errorf("make %s, so that it can be protected: %w", p, err)
			}
		}
		if j.Reach.Network == "" {
			j.Reach = Reach{Network: NetworkOff}
		}
		c, err := s.start(cmd, j, l, ex)
		if err == nil {
			s.oneByOne(c)
		}
		return c, err
	}
}

// oneByOne has no other command start until this one has. On Linux a process that gets
// a user namespace is at first a copy of the daemon, with all of its files, and waits
// until its user is mapped. That the daemon was killed meanwhile it learns from a pipe
// which nobody but the daemon may hold: two copies that each have the other's would
// wait for ever, and the daemon's locks with them.
func (s *Sandbox) oneByOne(c *command.Confinement) {
	s.starting.Lock()
	started := c.Started
	c.Started = func(err error) error {
		s.starting.Unlock()
		return started(err)
	}
}

// Layout returns what commands of a round find at the level that is in force.
func (s *Sandbox) Layout(j Job, ex Extras) (Layout, error) {
	l, err := NewLayout(j.Policy, j.Private, ex, look)
	if err != nil {
		return l, err
	}
	if s.Status().Level == Full {
		return l, nil
	}
	// Without a root of its own everything is where it is.
	for i, m := range l.Mounts {
		l.Mounts[i].Path, l.Mounts[i].From = m.Source(), ""
	}
	l.Tmp = j.Private.Tmp
	if s.Status().Level == Landlock {
		for _, m := range l.Mounts {
			if m.How == Keep || m.How == Hide {
				return l, &RefusalError{
					fmt.Sprintf("%s has to be kept from them although it lies in what is granted, and without user namespaces that cannot be done", m.Path),
					s.Status().Do,
				}
			}
		}
	}
	return l, nil
}

func look(path string) Kind {
	fi, err := os.Lstat(path)
	switch {
	case err != nil:
		return Missing
	case fi.IsDir():
		return Directory
	}
	return File
}
