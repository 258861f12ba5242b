package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/frontmatter"
	"github.com/gasupervisor/gasupervisor/internal/tool/skill"
)

func (a *app) agentsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "agents [COMMAND]",
		Short: "Agents that tasks can choose, and what is wrong with their files",
		Long: `Agents are Markdown files in agents_dir and in .claude/agents beside config.toml:
a YAML block with name, description, tools, model and so on, and below it the
system prompt. A task chooses one with "agent" in context.json or with
"task --agent". Files for Claude Code are read as they are.`,
		Example: `  gasupervisor agents
  gasupervisor agents show explorer
  gasupervisor agents check agents/mine.md
  gasupervisor task audit --agent explorer --input "Where are passwords hashed?"`,
		Args: noSubcommand,
		RunE: func(cmd *cobra.Command, args []string) error { return a.agentsList(asJSON) },
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(
		a.reloadCommand(),
		&cobra.Command{
			Use:   "list",
			Short: "List the agents with the tools that they really have",
			Args:  wants(0, 0, "no arguments"),
			RunE:  func(cmd *cobra.Command, args []string) error { return a.agentsList(asJSON) },
		},
		&cobra.Command{
			Use:               "show NAME",
			Short:             "Show what an agent is, prompt and all",
			Args:              wants(1, 1, "the name of one agent"),
			ValidArgsFunction: a.completeAgents,
			RunE:              func(cmd *cobra.Command, args []string) error { return a.agentsShow(args[0], asJSON) },
		},
		&cobra.Command{
			Use:   "check [FILE...]",
			Short: "Check agent files, or all that are there",
			Long: `Reads agent files as the daemon would and says what is wrong with them. Without
arguments it reads all agents and skills. Exit code 1: some file is not loaded.`,
			RunE: func(cmd *cobra.Command, args []string) error { return a.agentsCheck(args, asJSON) },
		},
	)
	return cmd
}

// loadAgents reads agents and skills as the daemon would.
func (a *app) loadAgents() (*config.Loaded, *agentdef.Snapshot, *skill.Snapshot, error) {
	l, err := a.load()
	if err != nil {
		return nil, nil, nil, err
	}
	skills := skill.Load(skillDirs(l))
	agents := agentSources(l, func() *skill.Snapshot { return skills }).Load()
	return l, agents, skills, nil
}

// agentView is an agent as it is listed.
type agentView struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Description string   `json:"description"`
	LLM         string   `json:"llm,omitempty"`
	Model       string   `json:"model,omitempty"`
	MaxTurns    int      `json:"max_turns"`
	Timeout     string   `json:"timeout,omitempty"`
	Completion  string   `json:"completion"`
	Tools       []string `json:"tools"`
	// SessionTools says that Tools are all that a task may have, whatever these are.
	SessionTools bool     `json:"session_tools"`
	Skills       []string `json:"skills"`
	Network      []string `json:"network,omitempty"`
	Source       string   `json:"source,omitempty"`
	Warnings     []remark `json:"warnings"`
	Prompt       string   `json:"prompt,omitempty"`
}

// remark is a warning or a problem, with its line where that is known.
type remark struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

func (r remark) String() string {
	s := r.Text
	if r.Line > 0 {
		s = fmt.Sprintf("line %d: %s", r.Line, s)
	}
	if r.File != "" {
		s = r.File + ": " + s
	}
	return s
}

func viewAgent(d agentdef.Definition, warnings []agentdef.Warning) agentView {
	v := agentView{
		Name: d.Name, Kind: string(d.Kind), Description: d.Description, LLM: d.LLM, Model: d.Model, MaxTurns: d.Turns(),
		Completion: string(d.Completion), Tools: d.Effective(toolNames()), SessionTools: d.Tools == nil,
		Skills: append([]string{}, d.Skills...), Network: d.Network, Source: d.Source, Warnings: []remark{}, Prompt: d.Prompt,
	}
	if v.Completion == "" {
		v.Completion = string(agentdef.CompletionTool)
	}
	if d.Timeout > 0 {
		v.Timeout = d.Timeout.String()
	}
	for _, w := range warnings {
		v.Warnings = append(v.Warnings, remark{Line: w.Line, Text: w.Text})
	}
	return v
}

// views are all agents, the general one first.
func views(s *agentdef.Snapshot) []agentView {
	var list []agentView
	if d, err := s.Lookup(""); err == nil && d.Source == "" {
		list = append(list, viewAgent(d, nil))
	}
	for _, a := range s.Agents {
		list = append(list, viewAgent(a.Definition, a.Warnings))
	}
	return list
}

// model is which model the agent works with, in a word or two.
func (v agentView) model() string {
	switch {
	case v.LLM != "" && v.Model != "" && v.Model != agentdef.Inherit:
		return v.LLM + ": " + v.Model
	case v.LLM != "":
		return v.LLM
	case v.Model != "" && v.Model != agentdef.Inherit:
		return v.Model
	}
	return "the session's"
}

// tools are the effective ones, for people. The one for completion goes without
// saying.
func (v agentView) tools() string {
	names := slices.DeleteFunc(slices.Clone(v.Tools), func(n string) bool { return n == "attempt_completion" })
	switch {
	case len(names) == 0:
		return "none"
	case len(names) == len(toolNames())-1:
		return "all"
	}
	return strings.Join(names, ", ")
}

func brokenRemarks(s *agentdef.Snapshot, skills *skill.Snapshot) []remark {
	list := []remark{}
	for _, b := range s.Broken {
		text := b.Problem
		if b.Hint != "" {
			text += "; " + b.Hint
		}
		list = append(list, remark{b.Path, b.Line, text})
	}
	for _, b := range skills.Broken {
		list = append(list, remark{File: b.Path, Text: b.Err.Error()})
	}
	return list
}

func (a *app) agentsList(asJSON bool) error {
	l, agents, skills, err := a.loadAgents()
	if err != nil {
		return err
	}
	list, broken := views(agents), brokenRemarks(agents, skills)
	if asJSON {
		for i := range list {
			list[i].Prompt = ""
		}
		return a.ui.printJSON(struct {
			Agents []agentView `json:"agents"`
			Skills []string    `json:"skills"`
			Broken []remark    `json:"not_loaded"`
		}{list, skills.Names(), broken})
	}
	rows := make([][]string, len(list))
	for i, v := range list {
		from := "built in"
		if v.Source != "" {
			from = relative(l.Dir, v.Source)
		}
		rows[i] = []string{v.Name, v.model(), fmt.Sprint(v.MaxTurns), from, v.tools()}
	}
	a.ui.table([]string{"NAME", "MODEL", "TURNS", "FROM", "TOOLS"}, rows)
	if len(skills.Skills) > 0 {
		a.ui.notef("skills: %s", show(strings.Join(skills.Names(), ", ")))
	}
	said := map[string]bool{}
	for _, ag := range agents.Agents {
		for _, w := range ag.Warnings {
			if w.Once != "" {
				if !said[w.Once] {
					said[w.Once] = true
					a.ui.warnf("%s", show(w.Text))
				}
				continue
			}
			a.ui.warnf("%s", show(remark{relative(l.Dir, ag.Source), w.Line, w.Text}.String()))
		}
	}
	for _, b := range broken {
		b.File = relative(l.Dir, b.File)
		a.ui.notef("not loaded: %s", show(b.String()))
	}
	return nil
}

// relative shortens a path for people.
func relative(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

func (a *app) agentsShow(name string, asJSON bool) error {
	_, agents, _, err := a.loadAgents()
	if err != nil {
		return err
	}
	d, err := agents.Lookup(name)
	if err != nil {
		return &exitError{code: exitFailed, err: err, hint: "see: gasupervisor agents"}
	}
	var warnings []agentdef.Warning
	if i := slices.IndexFunc(agents.Agents, func(a agentdef.Agent) bool { return a.Name == d.Name }); i >= 0 {
		warnings = agents.Agents[i].Warnings
	}
	v := viewAgent(d, warnings)
	if asJSON {
		return a.ui.printJSON(v)
	}
	line := func(key, value string) {
		if value != "" {
			a.ui.printf("%s  %s\n", pad(key, 11), show(value))
		}
	}
	line("name", v.Name)
	line("description", v.Description)
	line("kind", v.Kind)
	line("file", v.Source)
	line("model", v.model())
	line("turns", fmt.Sprint(v.MaxTurns))
	line("timeout", v.Timeout)
	line("completion", v.Completion)
	line("tools", v.tools())
	line("skills", strings.Join(v.Skills, ", "))
	line("network", strings.Join(v.Network, ", "))
	for _, w := range v.Warnings {
		line("warning", w.String())
	}
	fmt.Fprintf(a.ui.text(), "\n%s", v.Prompt)
	if !strings.HasSuffix(v.Prompt, "\n") {
		a.ui.printf("\n")
	}
	return nil
}

// checkedFile is what check says of one file.
type checkedFile struct {
	File     string     `json:"file"`
	Loads    bool       `json:"loads"`
	Agent    *agentView `json:"agent,omitempty"`
	Problem  *remark    `json:"problem,omitempty"`
	Warnings []remark   `json:"warnings"`
}

func (a *app) agentsCheck(files []string, asJSON bool) error {
	l, agents, skills, err := a.loadAgents()
	if err != nil {
		return err
	}
	checked := []checkedFile{}
	if len(files) == 0 {
		for _, ag := range agents.Agents {
			v := viewAgent(ag.Definition, ag.Warnings)
			checked = append(checked, checkedFile{File: ag.Source, Loads: true, Agent: &v, Warnings: v.Warnings})
		}
		for _, b := range brokenRemarks(agents, skills) {
			checked = append(checked, checkedFile{File: b.File, Problem: &remark{Line: b.Line, Text: b.Text}, Warnings: []remark{}})
		}
		for _, k := range skills.Skills {
			f := checkedFile{File: k.Path(), Loads: true, Warnings: []remark{}}
			for _, w := range k.Warnings {
				f.Warnings = append(f.Warnings, remark{Text: w})
			}
			checked = append(checked, f)
		}
	}
	opts := agentSources(l, func() *skill.Snapshot { return skills }).Options
	for _, path := range files {
		checked = append(checked, checkAgentFile(path, opts))
	}
	bad := 0
	for _, f := range checked {
		if !f.Loads {
			bad++
		}
	}
	if asJSON {
		if err := a.ui.printJSON(struct {
			Files []checkedFile `json:"files"`
		}{checked}); err != nil {
			return err
		}
	} else {
		for _, f := range checked {
			a.printChecked(l, f)
		}
		if len(checked) == 0 {
			a.ui.notef("no agent files in %s", show(l.Config.AgentsDir))
		}
	}
	if bad > 0 {
		return exitWith(exitFailed)
	}
	return nil
}

// checkAgentFile reads one file as its place would have it read.
func checkAgentFile(path string, opts agentdef.Options) checkedFile {
	f := checkedFile{File: path, Warnings: []remark{}}
	if abs, err := filepath.Abs(path); err == nil {
		opts.SessionTools = strings.HasSuffix(filepath.ToSlash(filepath.Dir(abs)), "/.claude/agents")
	}
	data, err := frontmatter.ReadFile(path)
	if err != nil {
		f.Problem = &remark{Text: err.Error()}
		return f
	}
	d, warnings, err := agentdef.ParseFile(path, data, opts)
	v := viewAgent(d, warnings)
	f.Warnings = v.Warnings
	if err != nil {
		f.Problem = &remark{Text: err.Error()}
		if e, ok := err.(*agentdef.FileError); ok {
			f.Problem = &remark{Line: e.Line, Text: e.Problem}
			if e.Hint != "" {
				f.Problem.Text += "; " + e.Hint
			}
		}
		return f
	}
	v.Prompt = ""
	f.Loads, f.Agent = true, &v
	return f
}

func (a *app) printChecked(l *config.Loaded, f checkedFile) {
	level, colour := "ok", green
	switch {
	case !f.Loads:
		level, colour = "not loaded", red
	case len(f.Warnings) > 0:
		level, colour = "warning", yellow
	}
	text := ""
	switch {
	case f.Problem != nil:
		text = f.Problem.String()
	case f.Agent != nil:
		text = fmt.Sprintf("agent %s; tools: %s", f.Agent.Name, f.Agent.tools())
	default:
		text = "skill"
	}
	a.ui.printf("%s  %s: %s\n", a.ui.paint(colour, pad(level, 10)), show(relative(l.Dir, f.File)), show(text))
	for _, w := range f.Warnings {
		a.ui.printf("%s  - %s\n", pad("", 10), show(w.String()))
	}
}

// completeAgents completes names of agents.
func (a *app) completeAgents(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	_, agents, _, err := a.loadAgents()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := slices.DeleteFunc(agents.Registry.Names(), func(n string) bool { return !strings.HasPrefix(n, prefix) || strings.ContainsAny(n, "\n\t") })
	return names, cobra.ShellCompDirectiveNoFileComp
}
