package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/tool/skill"
)

// settingsFlags are the settings of a context.json that commands which start tasks
// take as flags.
type settingsFlags struct {
	agent, llm, workDir string
	// tools is nil where the flag is not given; without names it leaves none.
	tools []string
}

// addSettingsFlags gives a command the flags. does is what the agent does, as in "does it".
func (a *app) addSettingsFlags(cmd *cobra.Command, f *settingsFlags, does string) {
	cmd.Flags().StringVar(&f.agent, "agent", "", "`AGENT` that "+does)
	cmd.Flags().StringVar(&f.llm, "llm", "", "name or number `N` of the LLM")
	cmd.Flags().StringVar(&f.workDir, "work-dir", "", "`DIR` to work in, within roots of [sandbox] (default: temp_dir)")
	cmd.Flags().StringSliceVar(&f.tools, "tools", nil, "the only tools that it may use, `NAMES` with commas (default: the agent's)")
	for flag, complete := range map[string]cobra.CompletionFunc{
		"agent": func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return a.completeAgents(cmd, nil, prefix)
		},
		"llm":   a.completeLLMs,
		"tools": cobra.FixedCompletions(toolNames(), cobra.ShellCompDirectiveNoFileComp),
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flag is not there, or has one
		}
	}
	if err := cmd.MarkFlagDirname("work-dir"); err != nil {
		panic(err)
	}
}

// completeLLMs completes the names of configured LLMs.
func (a *app) completeLLMs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	l, err := a.load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return l.Config.LLMNames(), cobra.ShellCompDirectiveNoFileComp
}

// checkAgent says what is wrong with an agent that a task is to have, "" for none of
// its own. What this user may not read, the daemon may: then nothing is wrong.
func checkAgent(l *config.Loaded, name string) error {
	if name == "" {
		return nil
	}
	agents := agentSources(l, func() *skill.Snapshot { return skill.Load(skillDirs(l)) }).Load()
	for _, b := range agents.Broken {
		if errors.Is(b, fs.ErrPermission) {
			return nil
		}
	}
	if _, err := agents.Lookup(name); err != nil {
		return &exitError{code: exitUsage, err: fmt.Errorf("--agent: %w", err), hint: "see: gasupervisor agents"}
	}
	return nil
}

// given reports whether there is any.
func (f *settingsFlags) given() bool { return len(f.values()) > 0 }

// check says what is wrong with them before anything is written, and makes the
// working directory one that does not depend on where the command was given.
func (f *settingsFlags) check(c *config.Config) error {
	if _, err := c.LLM(f.llm); err != nil {
		return &exitError{code: exitUsage, err: fmt.Errorf("--llm: %w", err)}
	}
	known := toolNames()
	for _, name := range f.tools {
		if !slices.Contains(known, name) {
			return usagef("--tools: there is no tool %q; want some of %s", name, strings.Join(known, ", "))
		}
	}
	if f.workDir == "" {
		return nil
	}
	dir, err := filepath.Abs(f.workDir)
	if err != nil {
		return usagef("--work-dir: %w", err)
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return usagef("--work-dir: %s is no directory that exists", dir)
	}
	f.workDir = dir
	return nil
}

// values are those given, as addSettings takes them.
func (f *settingsFlags) values() map[string]any {
	v := map[string]any{}
	for key, text := range map[string]string{"agent": f.agent, "llm": f.llm, "work_dir": f.workDir} {
		if text != "" {
			v[key] = text
		}
	}
	if f.tools != nil {
		v["tools"] = f.tools
	}
	return v
}

// addSettings puts values into a task's context.json and leaves what else stands
// there. Keys whose value is zero are not touched.
func addSettings(tempDir, name string, values map[string]any) error {
	var settings map[string]json.RawMessage
	text, err := taskdir.ReadMessage(tempDir, name, taskdir.ContextFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read settings: %w", err)
	default:
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			path := filepath.Join(taskdir.TaskPath(tempDir, name), taskdir.ContextFile)
			return usagef("%s is no JSON object (%w); correct or remove it, then settings can be added", path, err)
		}
	}
	if settings == nil { // no file, or "null"
		settings = map[string]json.RawMessage{}
	}
	changed := false
	for key, v := range values {
		if v == nil || reflect.ValueOf(v).IsZero() {
			continue
		}
		if settings[key], err = json.Marshal(v); err != nil {
			return fmt.Errorf("write settings: %w", err)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return writeSettings(tempDir, name, settings)
}

func writeSettings(tempDir, name string, settings map[string]json.RawMessage) error {
	data, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return taskdir.WriteContext(tempDir, name, append(data, '\n'))
}

// copySettings gives a fork the context.json of the task it comes from, where there
// is one; but for fork_from, since a fork has its conversation from there already.
func copySettings(tempDir, from, to string) error {
	data, err := taskdir.ReadFile(tempDir, from, taskdir.ContextFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy settings: %w", err)
	}
	text, _ := taskdir.Decode(data)
	var settings map[string]json.RawMessage
	// What is no object is copied as well: the fork says what is wrong with it.
	if json.Unmarshal([]byte(text), &settings) == nil && settings["fork_from"] != nil {
		delete(settings, "fork_from")
		return writeSettings(tempDir, to, settings)
	}
	if err := taskdir.WriteContext(tempDir, to, data); err != nil {
		return fmt.Errorf("copy settings: %w", err)
	}
	return nil
}
