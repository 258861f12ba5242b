package houserules

// A package of this module, and the packages of it that it may import. Imports
// go downward only: a row names none that stands above it. The command may
// import all.
type row struct {
	pkg string
	may []string
	// tests are further ones for its test files.
	tests []string
	why   string
}

const command = "cmd/gasupervisor"

// waiting is for the tests of all packages.
const waiting = "internal/waittest"

func layers() []row {
	return []row{
		{pkg: "internal/supervisor", may: []string{"session", "watcher", "internal/agentdef", "internal/round"},
			tests: []string{"internal/taskdir", "internal/round", "internal/llm", "internal/journal"},
			why:   "it moves sessions about, and knows neither files nor models"},
		{pkg: "session", may: []string{"internal/round", "internal/taskdir", "internal/journal", "internal/history", "internal/llm", "internal/jsonscan", "internal/fault", "plan"},
			why: "a round is run by whoever is given as session.Runner, here or one day on another machine"},
		{pkg: "internal/retention", may: []string{"internal/taskdir", "internal/journal", "internal/atomicfile", "internal/lock"},
			why: "it packs directories that no session uses any more"},
		{pkg: "internal/agent", may: []string{"internal/round", "internal/llm", "internal/tool", "internal/agentdef", "internal/history", "internal/budget", "internal/redact", "internal/loop", "internal/schema", "plan"},
			tests: []string{"internal/llm/llmtest", "internal/llm/openai", "internal/llm/pool", "internal/llm/texttools"},
			why:   "the turn loop gets its input as values and its tools as a set, and touches no task directory"},
		{pkg: "internal/tool/skill", may: []string{"internal/tool", "internal/llm", "internal/frontmatter", "internal/filecache", "internal/catalogue"},
			why: "skills are files of the operator's, which agents read by name"},
		{pkg: "internal/tool/builtin", may: []string{"internal/tool", "internal/llm", "internal/sandbox", "internal/sandbox/command", "internal/outline", "internal/redact", "plan"},
			why: "tools do what the policy lets them, and know nothing of who calls. Who cuts a text has to know the keys: half of one is not found later"},
		{pkg: "internal/llm/texttools", may: []string{"internal/llm"}, tests: []string{"internal/llm/llmtest", "internal/llm/openai"},
			why: "an llm.Client that wraps another, whichever it is"},
		{pkg: "internal/llm/pool", may: []string{"internal/llm"}, tests: []string{"internal/llm/llmtest", "internal/llm/openai"},
			why: "an llm.Client that wraps others, whichever they are"},
		{pkg: "internal/llm/openai", may: []string{"internal/llm"}, tests: []string{"internal/llm/llmtest"},
			why: "one way to speak to a model; nothing may depend on its being this one"},
		{pkg: "internal/llm/llmtest", may: []string{"internal/llm"},
			why: "a server that judges clients shares nothing with them but the vocabulary"},
		{pkg: "internal/history", may: []string{"internal/llm"}, tests: []string{"internal/llm/llmtest"},
			why: "conversations are messages, wherever these come from"},
		{pkg: "internal/usage", may: []string{"internal/budget", "internal/llm", "internal/atomicfile"}, why: "it keeps account of what others spend, and stops nobody"},
		{pkg: "internal/budget", may: []string{"internal/llm"}, why: "a limit on amounts, whoever spends them"},
		{pkg: "internal/tool", may: []string{"internal/llm", "internal/redact"},
			why: "what a tool is, for those who have tools and those who call them. Who cuts a text has to know the keys: half of one is not found later"},
		{pkg: "internal/taskdir", may: []string{"internal/round", "internal/atomicfile", "internal/fault"}, why: "it knows the protocol's files and not what they lead to"},
		{pkg: "internal/journal", may: []string{"internal/atomicfile", "internal/fault"}, why: "a log of records, whatever they say"},
		{pkg: "internal/round", may: []string{"internal/llm", "internal/spelling"}, why: "vocabulary, for all who run, record or show a round"},
		{pkg: "internal/sandbox/confine", may: []string{"internal/sandbox", "internal/sandbox/command"},
			why: "it carries out what a policy says, and decides nothing"},
		{pkg: "internal/sandbox/command", may: []string{"internal/sandbox/command/goshell"}, why: "it runs what it is told to, as a process group that it can end"},
		{pkg: "internal/sandbox/command/goshell", why: leaf},
		{pkg: "internal/config", may: []string{"internal/spelling", "internal/sandbox/netproxy"}, tests: []string{""},
			why: "everyone else is given values; only the command reads the configuration. netproxy says what a host:port pattern is"},
		{pkg: "internal/llm", may: []string{"internal/jsonscan"}, why: "the vocabulary of conversations, for all who have them"},
		{pkg: "internal/jsonscan", why: leaf},
		{pkg: "internal/sandbox", why: leaf},
		{pkg: "internal/agentdef", may: []string{"internal/frontmatter", "internal/filecache", "internal/spelling", "internal/catalogue", "internal/sandbox/netproxy"},
			why: "what an agent is, for those who run agents and those who list them. netproxy says what a host:port pattern is"},
		{pkg: "internal/sandbox/netproxy", why: leaf},
		{pkg: "internal/frontmatter", why: leaf},
		{pkg: "internal/filecache", why: leaf},
		{pkg: "internal/catalogue", why: leaf},
		{pkg: "internal/outline", why: leaf},
		{pkg: "internal/redact", why: leaf},
		{pkg: "internal/loop", why: leaf},
		{pkg: "internal/spelling", why: leaf},
		{pkg: "internal/schema", why: leaf},
		{pkg: "internal/atomicfile", may: []string{"internal/fault"}, why: "files are replaced the same way everywhere"},
		{pkg: "internal/fault", why: leaf},
		{pkg: "internal/lock", why: leaf},
		{pkg: "internal/service", why: leaf},
		{pkg: "internal/houserules", why: leaf},
		{pkg: waiting, why: leaf},
		{pkg: "internal/attack", tests: []string{"internal/llm/llmtest", "internal/taskdir"},
			why: "it attacks the program as an agent could, and knows no more of its inside"},
		{pkg: "internal/bench", may: []string{"internal/llm/llmtest", "internal/taskdir", "internal/journal"},
			why: "it measures the program by its front door, as its users do"},
		{pkg: "internal/torture", may: []string{"internal/llm/llmtest", "internal/llm", "internal/taskdir", "internal/journal", "internal/history", "session"},
			why: "it takes the program down by its front door, and reads in the journals what is left"},
		{pkg: "internal/e2e", tests: []string{"internal/taskdir", "internal/lock", "internal/history", "internal/llm", "internal/llm/llmtest"},
			why: "it knows the program by its front door, and what stands in the files that it reads there"},
		{pkg: "plan", why: leaf},
		{pkg: "watcher", why: "it turns file events into looks, and knows neither models nor the protocol's names"},
		{pkg: "", why: "it holds config.toml and the agents that ship, for the command"},
	}
}

const leaf = "a leaf, on which others can stand without standing on each other"

// apart are packages of which the first must not reach the second, over however
// many others: what the table above must not come to allow.
func apart() [][3]string {
	return [][3]string{
		{"session", "internal/agent", "only the command joins agents to sessions; between them is session.Runner"},
		{"internal/agent", "session", "only the command joins agents to sessions; between them is session.Runner"},
		{"internal/agent", "internal/taskdir", "an agent must be able to run where there is no task directory"},
		{"internal/agent", "internal/sandbox", "what an agent may do is decided by whoever makes its tools"},
		{"session", "internal/llm/openai", "a session waits for rounds, and never for a model"},
		{"watcher", "internal/llm", "events are hints to look at a task, for whatever reason somebody looks"},
		{"plan", "internal/round", "reading a plan is of use without the rest"},
	}
}

// outside says who may import modules of others; all others get what they need
// from those. Standard library and golang.org/x/sys are free.
func outside() []use {
	return []use{
		{"github.com/fsnotify/fsnotify", []string{"watcher"}, "one place turns events into looks, and polls where there are none"},
		{"github.com/sashabaranov/go-openai", []string{"internal/llm/openai"}, "its types end there, so that another client can stand beside it"},
		{"github.com/kardianos/service", []string{"internal/service"}, "the daemon is a func(context.Context) error, and a service only there"},
		{"github.com/BurntSushi/toml", []string{"internal/config"}, "only config reads config.toml"},
		{"github.com/goccy/go-yaml", []string{"internal/frontmatter"}, "only the heads of agent files and skills are YAML"},
		{"github.com/santhosh-tekuri/jsonschema/v6", []string{"internal/schema"}, "only the form of a result is described in it"},
		{"mvdan.cc/sh/v3", []string{"internal/sandbox/command/goshell"}, "one package stands in for a shell where there is none"},
		{"github.com/spf13/cobra", []string{command}, "only the command has a command line"},
		{"golang.org/x/term", []string{command}, "only the command has a terminal"},
		{"golang.org/x/text", []string{"internal/taskdir", "internal/tool/builtin", command}, "text is decoded where it comes in, and UTF-8 everywhere else"},
		{"github.com/google/go-cmp", nil, "it is for tests"},
		{"github.com/rogpeppe/go-internal", nil, "it is for tests"},
	}
}

// use is something that only some places may do; nil is none but tests.
type use struct {
	what string
	who  []string
	why  string
}

// calls are functions, and methods of whatever has one of that name. Test files
// may call them all.
func calls() []use {
	renames := []string{
		"internal/atomicfile", // replaces files
		"internal/taskdir",    // taking a message, putting aside, archiving and removing are renames, of other programs' files
		"session",             // the journal of an ended session gets another name, nothing is replaced
		"internal/retention",  // a task to be packed is put out of sight first
		"internal/torture",    // it writes as all kinds of supervisors do
	}
	why := "a file that others read is replaced by internal/atomicfile alone, which syncs file and directory in the right order"
	exit := "deferred work and locks would be skipped: return an error, main turns it into an exit code"
	helper := "internal/sandbox/confine/helper_linux.go" // it is a program of its own
	return []use{
		{"os.Exit", []string{command + "/main.go", "internal/bench/main.go", "internal/torture/main.go", helper}, exit},
		{"func init", []string{helper}, "what a package needs it is given, and nothing happens before main"},
		{"log.Fatal", nil, exit}, {"log.Fatalf", nil, exit}, {"log.Fatalln", nil, exit},
		{"os.Rename", renames, why}, {".Rename", renames, why}, {".Renameat", renames, why}, {".Renameat2", renames, why},
		{".RenameatxNp", renames, why}, {".MoveFileEx", renames, why},
		{"os.WriteFile", []string{command + "/demo.go", "internal/bench", "internal/torture"}, "a reader could see half a file: use internal/atomicfile (demo, bench and torture write as a shell does)"},
	}
}

// names are texts that only some places may have as they are.
func names() []use {
	why := "only internal/taskdir knows the protocol's names: give the thing a function there"
	list := []use{
		{"_keyinfo", []string{"internal/round"}, why},         // the kinds of notes are named as their files,
		{"_intervene", []string{"internal/round"}, why},       // which is how status.json and journals name them
		{"subagent_plan.md", []string{"internal/agent"}, why}, // file tools know the plan by its name, in any working directory
	}
	for _, name := range []string{"input.txt", "reply.txt", "_stop", "_history.json", "context.json", "status.json",
		"events.jsonl", "result.json", "history.json", "output.txt", "[ROUND END]"} {
		list = append(list, use{name, nil, why})
	}
	return list
}
