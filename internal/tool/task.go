package tool

// Delegation is what an agent asks for when it sends out subagents.
type Delegation struct {
	// Description is a few words for those who watch.
	Description string
	// Prompts has one entry for each subagent.
	Prompts []string
	// Agent is the name of a custom agent; "" for a general one.
	Agent string
	// Fork gives the subagents the conversation so far.
	Fork bool
	// Mode is All, Any or FirstError.
	Mode string
}

// The modes of a Delegation: wait for all, for the first that completes, or for
// all unless one fails.
const (
	All        = "all"
	Any        = "any"
	FirstError = "first_error"
)
