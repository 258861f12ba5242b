package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
	"github.com/gasupervisor/gasupervisor/internal/config"
	"github.com/gasupervisor/gasupervisor/internal/tool/builtin"
	"github.com/gasupervisor/gasupervisor/internal/tool/skill"
)

// toolNames are the names of all tools, in the order in which models see them.
func toolNames() []string {
	names := builtin.Names()
	at := slices.Index(names, builtin.ExecuteCommand) + 1
	return slices.Insert(names, at, skill.Name)
}

// readOnlyTools are those of agents whose files name none.
func readOnlyTools() []string { return append(builtin.ReadOnlyNames(), skill.Name) }

// beside is a directory that belongs to the configuration file; "" without one.
func beside(l *config.Loaded, path string) string {
	if l.File == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(l.File), filepath.FromSlash(path))
}

// agentDirs are the directories of agent files, in the order in which they count.
func agentDirs(l *config.Loaded) []agentdef.Dir {
	var dirs []agentdef.Dir
	claude := beside(l, ".claude/agents")
	if own := l.Config.AgentsDir; own != "" && own != claude {
		dirs = append(dirs, agentdef.Dir{Path: own})
	}
	if claude != "" {
		dirs = append(dirs, agentdef.Dir{Path: claude, SessionTools: true})
	}
	return dirs
}

// skillDirs are the directories of skills, in the order in which they count.
func skillDirs(l *config.Loaded) []string {
	var dirs []string
	for _, dir := range []string{l.Config.SkillsDir, beside(l, ".agents/skills")} {
		if dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// agentSources say where agents come from and what the names in their files mean.
func agentSources(l *config.Loaded, skills func() *skill.Snapshot) agentdef.Sources {
	c := &l.Config
	return agentdef.Sources{
		General: general(c),
		Dirs:    agentDirs(l),
		Options: agentdef.Options{
			Tools: toolNames(), ReadOnly: readOnlyTools(),
			ModelAlias: c.Agent.ModelAlias, LLMs: c.LLMNames(),
			HasSkill: func(name string) bool { _, ok := skills().Find(name); return ok },
		},
	}
}

// library is the agents and skills of a daemon.
type library struct {
	agents *agentdef.Library
	skills *skill.Library
	// record is the file that says which agents were read last.
	record string
	log    *slog.Logger
}

// newLibrary reads agents and skills. What is wrong with them is logged, here and
// when they change.
func newLibrary(l *config.Loaded, log *slog.Logger) (*library, error) {
	b := &library{record: recordPath(&l.Config), log: log}
	b.skills = skill.NewLibrary(skillDirs(l), b.logSkills)
	b.logSkills(b.skills.Snapshot())
	var err error
	b.agents, err = agentdef.NewLibrary(agentSources(l, b.skills.Snapshot), func(before, now *agentdef.Snapshot) {
		b.logAgents(before, now)
		if before != nil {
			b.writeRecord(now)
		}
	})
	return b, err
}

func recordPath(c *config.Config) string { return filepath.Join(c.StateDir, "agents.json") }

// writeRecord notes which agents are in force, for reload to compare with. Without
// it nothing but that is lost.
func (b *library) writeRecord(s *agentdef.Snapshot) {
	data, err := json.MarshalIndent(s.Record(), "", "  ")
	if err == nil {
		err = atomicfile.Write(b.record, append(data, '\n'), 0o600)
	}
	if err != nil {
		b.log.Warn("the record of agents cannot be written, so that reload knows less", "err", err)
	}
}

// readRecord reads which agents a daemon had in force last; fs.ErrNotExist says
// that none did.
func readRecord(c *config.Config) (agentdef.Record, error) {
	var r agentdef.Record
	data, err := os.ReadFile(recordPath(c))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", recordPath(c), err)
	}
	return r, nil
}

// logAgents tells the operator what was read, or what has changed.
func (b *library) logAgents(before, now *agentdef.Snapshot) {
	fresh := func(string) bool { return true }
	if before != nil {
		changed := map[string]bool{}
		for _, c := range agentdef.Diff(before.Record(), now.Record()) {
			if c.Kind == "broken" {
				b.log.Warn("agent file not loaded", "problem", c.Problem)
				continue
			}
			b.log.Info("agent "+c.Kind, "agent", c.Agent, "file", c.Path)
			changed[c.Agent] = true
		}
		fresh = func(name string) bool { return changed[name] }
	} else {
		for _, f := range now.Broken {
			b.log.Warn("agent file not loaded", "problem", f.Error())
		}
		b.log.Info("agents read", "agents", len(now.Agents), "not_loaded", len(now.Broken))
	}
	said := map[string]bool{}
	for _, a := range now.Agents {
		if !fresh(a.Name) {
			continue
		}
		for _, w := range a.Warnings {
			if w.Once != "" {
				if !said[w.Once] {
					said[w.Once] = true
					b.log.Warn("agent files: "+w.Text, "first", a.Source)
				}
				continue
			}
			b.log.Warn("agent file", "agent", a.Name, "file", a.Source, "warning", w.String())
		}
	}
}

// logSkills tells the operator which skills were read.
func (b *library) logSkills(s *skill.Snapshot) {
	for _, f := range s.Broken {
		b.log.Warn("skill not loaded", "problem", f.Error())
	}
	for _, k := range s.Skills {
		for _, w := range k.Warnings {
			b.log.Warn("skill", "skill", k.Name, "file", k.Path(), "warning", w)
		}
	}
	if len(s.Skills)+len(s.Broken) > 0 {
		b.log.Info("skills read", "skills", len(s.Skills), "not_loaded", len(s.Broken))
	}
}

// missing reports whether an error says only that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
