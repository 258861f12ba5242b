package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/service"
)

type serviceFlags struct {
	user, system bool
	name         string
	runAs        string
	envFile      string
	print        bool
	asJSON       bool
}

func (a *app) serviceCommand() *cobra.Command {
	var f serviceFlags
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Install and control the daemon as a service",
		Long: `Makes the daemon start with the system, or with its user's login: a systemd unit on
Linux, a launchd job on macOS, a service on Windows. It is restarted whatever ends it.

Without --user or --system it is the current user's own service, and the system's for
root. Its environment comes from a file of NAME=value lines (--env-file), where keys
belong; the shell's variables do not reach it.`,
		Example: `  gasupervisor service install --print      what would be installed
  gasupervisor service install && gasupervisor service start
  gasupervisor service status`,
		Args: noSubcommand,
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().BoolVar(&f.user, "user", false, "the current user's own service")
	cmd.PersistentFlags().BoolVar(&f.system, "system", false, "the system's service")
	cmd.PersistentFlags().StringVar(&f.name, "name", service.Name, "`NAME` of the service")
	cmd.SuggestionsMinimumDistance = 2
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		return exclusive(cmd, [2]string{"user", "system"})
	}

	install := &cobra.Command{
		Use: "install", Short: "Install the service; it starts with the next boot or login",
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.serviceInstall(f) },
	}
	install.Flags().BoolVar(&f.print, "print", false, "print the systemd unit instead of installing it")
	install.Flags().StringVar(&f.envFile, "env-file", "", "`FILE` with the service's environment (default: env in the configuration directory of user or system)")
	install.Flags().StringVar(&f.runAs, "as", "", "`USER` that the system's service runs as (default: root)")
	cmd.AddCommand(install)

	for _, s := range []struct {
		name, short, done string
		do                func(*service.Manager) error
	}{
		{"uninstall", "Stop the service and remove it", "uninstalled", (*service.Manager).Uninstall},
		{"start", "Start the service", "started", (*service.Manager).Start},
		{"stop", "Stop the service; rounds in progress go on at its next start", "stopped", (*service.Manager).Stop},
		{"restart", "Stop the service and start it", "restarted", (*service.Manager).Restart},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: s.name, Short: s.short, Args: wants(0, 0, "no arguments"),
			RunE: func(cmd *cobra.Command, args []string) error {
				m, err := a.serviceManager(f)
				if err != nil {
					return err
				}
				if err := s.do(m); err != nil {
					return err
				}
				a.ui.notef("%s: %s", f.name, s.done)
				return nil
			},
		})
	}

	status := &cobra.Command{
		Use: "status", Short: "Say whether the service is installed and running",
		Long: "Exit code 0: it runs. 5: it does not.",
		Args: wants(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.serviceStatus(f) },
	}
	status.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.AddCommand(status)
	return cmd
}

// forUser decides whose service is meant.
func (f serviceFlags) forUser() bool {
	if f.user || f.system {
		return f.user
	}
	return runtime.GOOS != "windows" && os.Geteuid() != 0
}

// definition is the service's, from the configuration in force.
func (a *app) definition(f serviceFlags) (service.Config, error) {
	l, err := a.load()
	if err != nil {
		return service.Config{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return service.Config{}, fmt.Errorf("define service: %w", err)
	}
	c := service.Config{
		Name: f.name, User: f.forUser(), RunAs: f.runAs, Executable: exe, ConfigFile: l.File, WorkingDir: l.Dir,
		Path: os.Getenv("PATH"), StopTimeout: l.Config.StopTimeout,
	}
	if runtime.GOOS == "linux" || f.envFile != "" {
		if c.EnvFile, err = envFile(f); err != nil {
			return c, err
		}
	}
	return c, nil
}

// envFile is where the service's environment is: never in the directory of a
// project's configuration, which agents may read.
func envFile(f serviceFlags) (string, error) {
	switch {
	case f.envFile != "":
		return filepath.Abs(f.envFile)
	case f.forUser():
		return userEnvFile()
	}
	return systemEnvFile, nil
}

// systemEnvFile is the environment of the system's service.
const systemEnvFile = "/etc/gasupervisor/env"

// userEnvFile is that of the user's own.
func userEnvFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("define service: %w", err)
	}
	return filepath.Join(dir, "gasupervisor", "env"), nil
}

func (a *app) serviceManager(f serviceFlags) (*service.Manager, error) {
	c, err := a.definition(f)
	if err != nil {
		return nil, err
	}
	m, err := service.NewManager(c)
	var none *service.NoManagerError
	if errors.As(err, &none) {
		return nil, &exitError{code: exitFailed, err: err}
	}
	return m, err
}

func (a *app) serviceInstall(f serviceFlags) error {
	c, err := a.definition(f)
	if err != nil {
		return err
	}
	if f.print {
		unit, err := service.Unit(c)
		if err != nil {
			return err
		}
		a.ui.printf("%s", unit)
		return nil
	}
	if strings.Contains(filepath.ToSlash(c.Executable), "/go-build") {
		return &exitError{code: exitFailed, err: fmt.Errorf("%s is a temporary build that will be gone tomorrow", c.Executable),
			hint: "go install ./cmd/gasupervisor, then install the service with that program"}
	}
	m, err := a.serviceManager(f)
	if err != nil {
		return err
	}
	if err := m.Install(); err != nil {
		return err
	}
	a.ui.printf("installed %s for %s\n", f.name, map[bool]string{true: "the current user", false: "the system"}[c.User])
	if c.ConfigFile == "" {
		a.ui.warnf("there is no configuration file; the service runs with defaults in %s", show(c.WorkingDir))
	}
	if !c.User && c.RunAs == "" && runtime.GOOS != "windows" {
		a.ui.warnf("it runs as root, and so do the commands of its agents; --as USER names another user")
	}
	flag := map[bool]string{true: " --user", false: " --system"}[c.User]
	a.ui.notef("start it:  gasupervisor service start%s", flag)
	if c.EnvFile != "" {
		a.ui.notef("keys:      %s, lines such as OPENAI_API_KEY=... (chmod 600)", show(c.EnvFile))
	}
	if runtime.GOOS == "linux" {
		a.ui.notef("its log:   journalctl%s -u %s -f", strings.TrimSuffix(flag, " --system"), f.name)
		if c.User {
			a.ui.notef("to have it run while you are not logged in:  loginctl enable-linger")
		}
	}
	return nil
}

func (a *app) serviceStatus(f serviceFlags) error {
	m, err := a.serviceManager(f)
	if err != nil {
		return err
	}
	state, err := m.Status()
	if err != nil {
		return err
	}
	if f.asJSON {
		if err := a.ui.printJSON(map[string]any{"name": f.name, "state": state, "user": f.forUser()}); err != nil {
			return err
		}
	} else {
		a.ui.printf("%s: %s\n", f.name, state)
	}
	if state != service.Running {
		return exitWith(exitNoDaemon)
	}
	return nil
}
