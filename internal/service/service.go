// Package service makes a func(context.Context) error a service of the operating
// system: systemd on Linux, launchd on macOS, the service manager on Windows.
//
// Program is the running side: it starts the function without waiting for it,
// and stops it with a bound. Manager is the installing side. On Linux the unit
// file is this package's own (Unit), since what a general library writes gives a
// per-user service a target that no user manager has, and restarts after two
// minutes.
package service

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kardianos/service"
)

// Name is the service's name where Config has none.
const Name = "gasupervisor"

// Description is what service managers show.
const Description = "LLM agents that work on tasks in directories"

// Config describes an installation. Paths are absolute.
type Config struct {
	// Name defaults to Name.
	Name string
	// User installs for the current user instead of the whole system.
	User bool
	// RunAs is the user that a system-wide service runs as; "" is root, or
	// the system account.
	RunAs string
	// Executable is the program, run as `Executable run --config ConfigFile`.
	Executable string
	// ConfigFile may be empty; the program then searches from WorkingDir.
	ConfigFile string
	WorkingDir string
	// EnvFile holds NAME=value lines for the service's environment, such as keys.
	// It need not exist. systemd only.
	EnvFile string
	// Path is the PATH that commands of agents will have; "" is the system's.
	Path string
	// StopTimeout is how long the program takes to stop; the service manager gives
	// it some more before it kills it.
	StopTimeout time.Duration
}

// stopMargin is what a service manager grants beyond the program's own bound.
const stopMargin = 10 * time.Second

// arguments are what the program is started with.
func (c Config) arguments() []string {
	args := []string{"run"}
	if c.ConfigFile != "" {
		args = append(args, "--config", c.ConfigFile)
	}
	return args
}

func (c Config) name() string {
	if c.Name == "" {
		return Name
	}
	return c.Name
}

// check refuses what no definition can express.
func (c Config) check() error {
	if !filepath.IsAbs(c.Executable) {
		return fmt.Errorf("define service: the program's path %q is not absolute", c.Executable)
	}
	if runtime.GOOS != "windows" && strings.ContainsAny(c.Executable, "\"'\\") {
		return fmt.Errorf("define service: systemd runs no program whose path holds quotes or backslashes, as in %s", c.Executable)
	}
	for _, s := range []string{c.name(), c.RunAs, c.Executable, c.ConfigFile, c.WorkingDir, c.EnvFile, c.Path} {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("define service: %q holds control characters", s)
		}
	}
	if c.User && c.RunAs != "" {
		return errors.New("define service: a service of the current user runs as that user")
	}
	return nil
}

// State is what a service manager says of the service.
type State string

// The states.
const (
	Running      State = "running"
	Stopped      State = "stopped"
	NotInstalled State = "not installed"
)

// Manager installs and controls the service. Its methods run the operating
// system's own tools and block until these are done.
type Manager struct {
	config Config
	svc    service.Service
}

// NoManagerError says that this system has no service manager that is known here.
type NoManagerError struct{ Platform string }

func (e *NoManagerError) Error() string {
	return fmt.Sprintf("no systemd here (this system has %q): start `gasupervisor run` from what starts programs on this machine; `service install --print` shows a unit to go by", e.Platform)
}

// NewManager prepares an installation; it changes nothing.
func NewManager(c Config) (*Manager, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if p := service.Platform(); runtime.GOOS == "linux" && p != "linux-systemd" {
		return nil, &NoManagerError{Platform: p}
	}
	if c.User && runtime.GOOS == "windows" {
		return nil, errors.New("define service: Windows has no services of single users; leave out --user")
	}
	if c.EnvFile != "" && runtime.GOOS != "linux" {
		return nil, errors.New("define service: an environment file works with systemd only; name the key's file in the configuration (api_key_file) instead")
	}
	options := service.KeyValue{
		"UserService":            c.User,
		"RunAtLoad":              true,
		"KeepAlive":              true,
		"OnFailure":              "restart",
		"OnFailureDelayDuration": "1s",
	}
	if runtime.GOOS == "linux" {
		unit, err := Unit(c)
		if err != nil {
			return nil, err
		}
		if strings.Contains(unit, "{{") {
			return nil, fmt.Errorf("define service: a path holds %q, which cannot be installed", "{{")
		}
		options["SystemdScript"] = unit
	}
	config := &service.Config{
		Name:             c.name(),
		DisplayName:      c.name(),
		Description:      Description,
		UserName:         c.RunAs,
		Executable:       c.Executable,
		Arguments:        c.arguments(),
		WorkingDirectory: c.WorkingDir,
		Option:           options,
	}
	if c.Path != "" {
		config.EnvVars = map[string]string{"PATH": c.Path}
	}
	svc, err := service.New(nil, config)
	if err != nil {
		return nil, fmt.Errorf("define service: %w", err)
	}
	return &Manager{config: c, svc: svc}, nil
}

// Install writes the definition and makes the service start with the system, or
// with its user's first login. It does not start it.
func (m *Manager) Install() error { return m.do("install", m.svc.Install) }

// Uninstall stops the service and removes its definition.
func (m *Manager) Uninstall() error {
	if state, err := m.Status(); err == nil && state == Running {
		if err := m.Stop(); err != nil {
			return err
		}
	}
	return m.do("uninstall", m.svc.Uninstall)
}

// Start starts the installed service.
func (m *Manager) Start() error { return m.do("start", m.svc.Start) }

// Stop stops the service and waits until it has.
func (m *Manager) Stop() error { return m.do("stop", m.svc.Stop) }

// Restart stops the service and starts it.
func (m *Manager) Restart() error { return m.do("restart", m.svc.Restart) }

func (m *Manager) do(verb string, f func() error) error {
	if err := f(); err != nil {
		return fmt.Errorf("%s service %s: %w%s", verb, m.config.name(), err, m.hint())
	}
	return nil
}

// hint is what usually helps where a service manager refuses.
func (m *Manager) hint() string {
	switch {
	case runtime.GOOS == "linux" && m.config.User:
		return " (is a user manager running? log in directly, or try: systemctl --user status)"
	case runtime.GOOS == "linux" || runtime.GOOS == "darwin":
		return " (this needs root; --user installs for the current user)"
	}
	return " (this needs an administrator's prompt)"
}

// Status asks the service manager.
func (m *Manager) Status() (State, error) {
	status, err := m.svc.Status()
	switch {
	case errors.Is(err, service.ErrNotInstalled):
		return NotInstalled, nil
	case err != nil:
		return "", fmt.Errorf("ask for service %s: %w", m.config.name(), err)
	case status == service.StatusRunning:
		return Running, nil
	}
	return Stopped, nil
}
