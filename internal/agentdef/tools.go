package agentdef

import (
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/frontmatter"
)

// counterpart returns the canonical name of a tool that another program calls by
// another name; "" with ok where that program has such a tool and there is none
// here. The programs are Claude Code, GenericAgent and Cline. Names are compared in
// frontmatter.Normal's form.
func counterpart(name string) (canonical string, ok bool) {
	switch frontmatter.Normal(name) {
	case "read", "fileread":
		return "read_file", true
	case "write", "filewrite":
		return "write_to_file", true
	case "edit", "multiedit", "filepatch":
		return "replace_in_file", true
	case "bash", "coderun":
		return "execute_command", true
	case "grep":
		return "search_files", true
	case "glob", "ls":
		return "list_files", true
	case "task", "agent":
		return "task", true
	case "skill":
		return "use_skill", true
	case "todowrite":
		return "update_plan", true

	case "webfetch", "websearch", "notebookedit", "notebookread", "todoread", "bashoutput", "killshell", "killbash",
		"exitplanmode", "enterplanmode", "enterworktree", "exitworktree", "askuserquestion", "slashcommand", "toolsearch", "lsp", "monitor",
		"listmcpresources", "readmcpresource", "listmcpresourcestool", "readmcpresourcetool",
		"taskcreate", "taskget", "tasklist", "taskupdate", "taskoutput", "taskstop", "sendmessage", "teamcreate", "teamdelete",
		"webscan", "webexecutejs", "askuser", "startlongtermupdate",
		"browseraction", "usemcptool", "accessmcpresource", "askfollowupquestion", "planmoderespond":
		return "", true
	}
	// Tools of MCP servers.
	return "", strings.HasPrefix(name, "mcp__")
}

// canonicalTool is counterpart for the names in all as well, however they are
// written.
func canonicalTool(name string, all []string) (canonical string, ok bool) {
	for _, n := range all {
		if frontmatter.Normal(n) == frontmatter.Normal(name) {
			return n, true
		}
	}
	canonical, ok = counterpart(name)
	if canonical != "" && !slices.Contains(all, canonical) {
		// A tool that this daemon was built without.
		return "", ok
	}
	return canonical, ok
}

// toolName is one name of a tools list, or a pattern: a name with conditions in
// parentheses, which cannot be kept here.
type toolName struct {
	name    string
	pattern string // the whole of it; "" for a plain name
}

// splitTools takes a list apart. The comma string, the flow list and the block list
// are one here, since a list's items are joined again: so a comma in the
// parentheses of a pattern never makes a name of what follows it, in any form. What
// follows a parenthesis that is not closed belongs to the pattern.
func splitTools(items []string) []toolName {
	var list []toolName
	text := strings.Join(items, ",")
	depth, from := 0, 0
	add := func(part string) {
		part = strings.TrimSpace(part)
		if part == "" {
			return
		}
		t := toolName{name: part}
		if at := strings.IndexAny(part, "()"); at >= 0 {
			t = toolName{name: strings.TrimSpace(part[:at]), pattern: part}
		}
		list = append(list, t)
	}
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth = max(depth-1, 0)
		case ',', '\n':
			if depth == 0 {
				add(text[from:i])
				from = i + 1
			}
		}
	}
	add(text[from:])
	return list
}

// Effective returns the tools that an agent may call where a task may have all:
// its own without those taken away, in the order of all.
func (d Definition) Effective(all []string) []string {
	names := []string{}
	for _, n := range all {
		if d.May(n) || n == completionTool {
			names = append(names, n)
		}
	}
	return names
}

// completionTool is always granted.
const completionTool = "attempt_completion"
