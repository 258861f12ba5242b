package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/lock"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// app is what the subcommands share.
type app struct {
	ui *ui
	// configPath is the global flag.
	configPath string
}

// The groups of subcommands in the help.
const (
	groupTasks  = "tasks"
	groupSteer  = "steer"
	groupDaemon = "daemon"
)

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gasupervisor",
		Short: "LLM agents that work on tasks in directories",
		Long: `gasupervisor runs LLM agents on tasks. A task is a directory with an input.txt;
the agent's work grows in output.txt there, and a reply.txt goes on with it.
Whoever can write a file can start, steer, stop and continue an agent. The
subcommands do it for you; a shell does it as well:

  mkdir temp/audit && echo "List the TODOs under src" > temp/audit/input.txt`,
		Example: `  gasupervisor init                                  a config.toml and temp/ here
  gasupervisor run                                   the daemon, in the foreground
  gasupervisor task audit --input "List the TODOs under src" --follow
  gasupervisor reply audit "Only those older than a year" --wait
  gasupervisor ls                                    all tasks
  gasupervisor check                                 is everything set up?`,
		Args:          noSubcommand,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, args []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,

		Version: thisBuild().String(),
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetIn(a.ui.in)
	root.SetOut(a.ui.out)
	root.SetErr(a.ui.err)
	root.PersistentFlags().StringVar(&a.configPath, "config", "", "configuration `FILE` (default: $GASUPERVISOR_CONFIG, ./config.toml, ...)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{code: exitUsage, err: err, hint: "see: " + cmd.CommandPath() + " --help"}
	})
	root.AddGroup(&cobra.Group{ID: groupTasks, Title: "Tasks:"}, &cobra.Group{ID: groupSteer, Title: "While they work:"},
		&cobra.Group{ID: groupDaemon, Title: "The daemon:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupTasks, a.taskCommand(), a.lsCommand(), a.showCommand(), a.resultCommand(), a.waitCommand(), a.rmCommand(),
		a.forkCommand(), a.funcCommand(), a.mapCommand())
	add(groupSteer, a.followCommand(), a.replyCommand(), a.interveneCommand(), a.keyinfoCommand(), a.stopCommand())
	add(groupDaemon, a.runCommand(), a.demoCommand(), a.initCommand(), a.checkCommand(), a.agentsCommand(), a.reloadCommand(), a.pruneCommand(), a.usageCommand(),
		a.serviceCommand(), a.versionCommand())
	root.AddCommand(a.attendCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root {
		// Without a function of its own it would print its help for any word, as if done.
		c.Args, c.RunE = noSubcommand, func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	root.SetHelpCommandGroupID("")
	return root
}

// noSubcommand names what may have been meant by an unknown subcommand.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see: " + cmd.CommandPath() + " --help"
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "did you mean: " + cmd.CommandPath() + " " + strings.Join(similar, ", "+cmd.CommandPath()+" ") + "?"
	}
	return &exitError{code: exitUsage, err: fmt.Errorf("there is no subcommand %q", args[0]), hint: hint}
}

// wants makes a check of the number of arguments with a message that says which.
func wants(low, high int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || high >= 0 && len(args) > high {
			return &exitError{code: exitUsage, err: fmt.Errorf("%s wants %s", cmd.Name(), what), hint: "see: " + cmd.CommandPath() + " --help"}
		}
		return nil
	}
}

// exclusive refuses flags that contradict each other.
func exclusive(cmd *cobra.Command, groups ...[2]string) error {
	for _, g := range groups {
		if cmd.Flags().Changed(g[0]) && cmd.Flags().Changed(g[1]) {
			return usagef("--%s and --%s exclude each other", g[0], g[1])
		}
	}
	return nil
}

// load reads the configuration, without keys.
func (a *app) load() (*config.Loaded, error) { return a.loadWith(config.Options{}) }

func (a *app) loadWith(opts config.Options) (*config.Loaded, error) {
	opts.Path = a.configPath
	l, err := config.Load(opts)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return l, nil
}

// tempDir is where the tasks are.
func (a *app) tempDir() (string, error) {
	l, err := a.load()
	if err != nil {
		return "", err
	}
	return l.Config.TempDir, nil
}

// noDaemon is the error of commands that need somebody to work.
func noDaemon(tempDir string) error {
	return &exitError{code: exitNoDaemon, err: fmt.Errorf("no daemon is running for %s", show(tempDir)),
		hint: "start one: gasupervisor run   (or, as a service: gasupervisor service start)"}
}

// daemonRuns asks the lock, which the daemon holds. Where it cannot be asked a
// daemon is taken for granted: waiting is better than giving up.
func (a *app) daemonRuns(tempDir string) bool {
	held, err := lock.Probe(tempDir)
	if err != nil {
		a.ui.warnf("%v", err)
		return true
	}
	return held
}

// completeNames completes names of tasks.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	tempDir, err := a.tempDir()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := taskdir.List(tempDir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return !strings.HasPrefix(n, prefix) || slices.Contains(args, n) || strings.ContainsAny(n, "\n\t")
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeOneName completes the first argument.
func (a *app) completeOneName(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeNames(cmd, args, prefix)
}
