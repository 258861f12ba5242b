package agentdef

import "github.com/gasupervisor/gasupervisor/internal/catalogue"

const catalogueHead = "# Agents that you can start\n" +
	"The task tool's subagent_type takes one of these names. Such an agent sees nothing of your conversation, so its prompt has to say all that it needs."

// Catalogue tells a model which agents the task tool can start by name; "" where
// there are none. It is the same text for the same agents.
func Catalogue(agents []Definition) string {
	var entries []catalogue.Entry
	for _, a := range agents {
		if a.Kind == KindCustom {
			entries = append(entries, catalogue.Entry{Name: a.Name, Description: a.Description})
		}
	}
	return catalogue.Text(catalogueHead, entries)
}

// Definitions are all agents of files, by name.
func (s *Snapshot) Definitions() []Definition {
	defs := make([]Definition, len(s.Agents))
	for i, a := range s.Agents {
		defs[i] = a.Definition
	}
	return defs
}
