package skill

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/catalogue"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// Name is the tool's name.
const Name = "use_skill"

//go:embed use_skill.md
var description string

// Tool returns use_skill for the skills of s, whose results have at most resultCap
// bytes (0: tool.DefaultCap).
func Tool(s *Snapshot, resultCap int) tool.Tool {
	if resultCap <= 0 {
		resultCap = tool.DefaultCap
	}
	return useSkill{s, resultCap}
}

type useSkill struct {
	skills *Snapshot
	cap    int
}

// Spec implements tool.Tool. It says nothing of which skills there are, so that the
// tools of a session are the same when skills come and go.
func (u useSkill) Spec() llm.ToolSpec {
	return llm.ToolSpec{
		Name:        Name,
		Description: strings.TrimSpace(description),
		Parameters: llm.RawJSON(`{"type":"object","properties":{"skill_name":{"type":"string","description":"the name of a skill, as it is listed"}},` +
			`"required":["skill_name"],"additionalProperties":false}`),
	}
}

// Run implements tool.Tool.
func (u useSkill) Run(ctx context.Context, call tool.Call) tool.Result {
	var args struct {
		SkillName string `json:"skill_name"`
		// Other names under which models send it.
		Name  string `json:"name"`
		Skill string `json:"skill"`
	}
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return tool.Failure("%s: skill_name must be a text", Name)
	}
	name := strings.TrimSpace(args.SkillName)
	for _, other := range []string{args.Name, args.Skill} {
		if name == "" {
			name = strings.TrimSpace(other)
		}
	}
	if name == "" {
		return tool.Failure("%s: the argument \"skill_name\" is missing; %s", Name, u.there())
	}
	k, ok := u.skills.Find(name)
	if !ok {
		return tool.Failure("there is no skill %q; %s", catalogue.Line(name, maxName), u.there())
	}
	text, err := k.Text(u.cap)
	if err != nil {
		return tool.Failure("%v", err)
	}
	return tool.Result{Text: text, Summary: "skill " + k.Name}
}

// there says which skills there are.
func (u useSkill) there() string {
	names := u.skills.Names()
	if len(names) == 0 {
		return "there are no skills here"
	}
	return "the skills are: " + catalogue.Line(strings.Join(names, ", "), 2000)
}

const catalogueHead = "# Skills\nInstructions for kinds of work. When one fits what you are about to do, read it with " + Name + " first."

// Catalogue tells a model which skills there are; "" where there are none. It is the
// same text for the same skills.
func Catalogue(s *Snapshot) string {
	entries := make([]catalogue.Entry, len(s.Skills))
	for i, k := range s.Skills {
		entries[i] = catalogue.Entry{Name: k.Name, Description: k.Description}
	}
	return catalogue.Text(catalogueHead, entries)
}

// Preload returns the text of the named skills, for agents that have them from the
// start, each with at most limit bytes, and the names that there are no skills of.
func (s *Snapshot) Preload(names []string, limit int) (text string, missing []string) {
	var parts []string
	for _, n := range names {
		k, ok := s.Find(n)
		if !ok {
			missing = append(missing, n)
			continue
		}
		t, err := k.Text(limit)
		if err != nil {
			missing = append(missing, n)
			continue
		}
		parts = append(parts, "# "+t)
	}
	return strings.Join(parts, "\n\n"), missing
}
