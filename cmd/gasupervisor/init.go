package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor"
)

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Make a commented config.toml, agents/ and temp/ here",
		Long: `Writes config.toml, with every setting explained, and agents/ with a few agents to
use and to learn from, and makes temp/, in the current directory or in DIR. What
exists is left as it is; where a config.toml is, that is an error.`,
		Args: wants(0, 1, "at most one directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return a.init(dir)
		},
	}
}

func (a *app) init(dir string) error {
	temp := filepath.Join(dir, "temp")
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return fmt.Errorf("make temp directory: %w", err)
	}
	path := filepath.Join(dir, "config.toml")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return &exitError{code: exitFailed, err: fmt.Errorf("%s exists; it is left as it is", path), hint: "see: gasupervisor check"}
	case err != nil:
		return fmt.Errorf("write configuration: %w", err)
	}
	_, err = f.WriteString(gasupervisor.DefaultConfig)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write configuration: %w", err), os.Remove(path))
	}
	wrote := []string{show(path)}
	agents := filepath.Join(dir, "agents")
	switch made, err := writeAgents(agents); {
	case err != nil:
		return err
	case made:
		wrote = append(wrote, show(agents)+string(filepath.Separator))
	}
	a.ui.printf("wrote %s and %s%c\n", strings.Join(wrote, ", "), show(temp), filepath.Separator)
	a.ui.notef(`
next:
  export OPENAI_API_KEY=...        (or, for a local server, OPENAI_BASE_URL and OPENAI_MODEL)
  gasupervisor check               is everything set up?
  gasupervisor run                 start the daemon
  gasupervisor task hello --input "Say hello" --follow`)
	return nil
}

// writeAgents writes the agents that ship, unless the directory is there.
func writeAgents(dir string) (made bool, err error) {
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("make agents directory: %w", err)
	}
	shipped, err := fs.Sub(gasupervisor.Agents, "agents")
	if err == nil {
		err = os.CopyFS(dir, shipped)
	}
	if err != nil {
		return false, fmt.Errorf("write agents: %w", err)
	}
	return true, nil
}
