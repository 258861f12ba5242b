package taskdir

import (
	"strconv"
	"strings"
)

// The names of the protocol.
const (
	InputFile     = "input.txt"
	ReplyFile     = "reply.txt"
	StopFile      = "_stop"
	KeyInfoFile   = "_keyinfo"
	InterveneFile = "_intervene"
	ForkFile      = "_history.json"
	ContextFile   = "context.json"
	PlanFile      = "subagent_plan.md"
	StatusFile    = "status.json"
	EventsFile    = "events.jsonl"
	ResultFile    = "result.json"
	HistoryFile   = "history.json"
	OldDir        = "old"
)

const (
	takenPrefix   = ".taken-"
	refusedPrefix = ".refused-"
	strayPrefix   = ".stray-"
)

// Marker is the line that ends an output.
const Marker = "[ROUND END]"

// ending is what stands at the end of an output exactly when its round is over.
const ending = "\n\n" + Marker + "\n"

// Sizes up to which files are read, in bytes. They are far above what a model
// can use, and small enough to hold in memory.
const (
	MaxMessage = 16 << 20 // input.txt and all messages
	MaxContext = 16 << 20
	MaxHistory = 64 << 20
	MaxKeyInfo = 64 << 10 // it is said again and again
	MaxPlan    = 1 << 20
)

// Counts says whether an event on a file of this name is worth a look at the
// task. The daemon's own files, temporary and hidden ones are not.
func Counts(name string) bool {
	switch name {
	case InputFile, ReplyFile, StopFile, KeyInfoFile, InterveneFile, ForkFile, ContextFile:
		return true
	}
	return false
}

// Rests says whether a file of a name that counts may lie there with nothing to be
// done about it: those that are read in place. A message lies there until it is taken.
func Rests(name string) bool {
	switch name {
	case InputFile, ForkFile, ContextFile:
		return true
	}
	return false
}

// IsProtocol says whether the name belongs to the protocol in a task directory,
// whoever writes it; the plan, which the agent writes, does not. Tools that
// write files on an agent's behalf leave these names alone.
func IsProtocol(name string) bool {
	switch name {
	case StatusFile, EventsFile, ResultFile, HistoryFile, OldDir:
		return true
	}
	if _, ok := parseOutput(name); ok {
		return true
	}
	if strings.HasPrefix(name, takenPrefix) || strings.HasPrefix(name, refusedPrefix) || strings.HasPrefix(name, strayPrefix) {
		return true
	}
	return Counts(name)
}

// taken says whether files of this name are messages, consumed when read.
func taken(name string) bool {
	switch name {
	case ReplyFile, StopFile, KeyInfoFile, InterveneFile:
		return true
	}
	return false
}

func limitOf(name string) int64 {
	switch name {
	case ForkFile, HistoryFile:
		return MaxHistory
	case ContextFile:
		return MaxContext
	case KeyInfoFile:
		return MaxKeyInfo
	}
	return MaxMessage
}

// OutputName returns the name of the output of a round; rounds count from 0.
func OutputName(round int) string {
	if round == 0 {
		return "output.txt"
	}
	return "output" + strconv.Itoa(round) + ".txt"
}

// parseOutput is the inverse of OutputName.
func parseOutput[T string | []byte](name T) (round int, ok bool) {
	const prefix, suffix = "output", ".txt"
	if len(name) < len(prefix)+len(suffix) || string(name[:len(prefix)]) != prefix || string(name[len(name)-len(suffix):]) != suffix {
		return 0, false
	}
	digits := name[len(prefix) : len(name)-len(suffix)]
	if len(digits) == 0 {
		return 0, true
	}
	if len(digits) > 9 || digits[0] == '0' {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		round = round*10 + int(digits[i]-'0')
	}
	return round, true
}

func takenName(seq uint64, name string) string {
	return takenPrefix + strconv.FormatUint(seq, 10) + "-" + name
}

// parseTaken is the inverse of takenName; it knows the names of messages only.
func parseTaken(file string) (seq uint64, name string, ok bool) {
	rest, ok := strings.CutPrefix(file, takenPrefix)
	if !ok {
		return 0, "", false
	}
	digits, name, ok := strings.Cut(rest, "-")
	if !ok || !taken(name) {
		return 0, "", false
	}
	seq, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || takenName(seq, name) != file {
		return 0, "", false
	}
	return seq, name, true
}

// ignored says whether a directory entry of this name is no task.
func ignored(name string) bool { return name == "" || name[0] == '.' }

// CheckName says with a *NameError why a name that a person gave cannot be the
// name of a task. Spaces, line breaks and any Unicode are fine.
func CheckName(name string) error { return checkName(name, windowsNames) }

func checkName(name string, windows bool) error {
	fail := func(why string) error { return &NameError{Name: name, Why: why} }
	switch {
	case name == "":
		return fail("it is empty")
	case strings.ContainsRune(name, '/'):
		return fail(`it contains "/"; a task is a directory right below the temp directory`)
	case strings.ContainsRune(name, 0):
		return fail("it contains a NUL character")
	case name == "..":
		return fail("it leads out of the temp directory")
	case name[0] == '.':
		return fail(`names that begin with "." are ignored`)
	case len(name) > 255:
		return fail("it is longer than 255 bytes")
	}
	if !windows {
		return nil
	}
	if i := strings.IndexAny(name, `<>:"|?*\`); i >= 0 {
		return fail("Windows does not allow " + strconv.Quote(name[i:i+1]))
	}
	for _, r := range name {
		if r < ' ' {
			return fail("Windows does not allow control characters")
		}
	}
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return fail("Windows does not allow a dot or a space at the end")
	}
	base, _, _ := strings.Cut(name, ".")
	switch base = strings.ToUpper(strings.TrimRight(base, " ")); base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return fail("Windows reserves it for a device")
	}
	if rest, ok := strings.CutPrefix(base, "COM"); ok && devicePort(rest) {
		return fail("Windows reserves it for a device")
	}
	if rest, ok := strings.CutPrefix(base, "LPT"); ok && devicePort(rest) {
		return fail("Windows reserves it for a device")
	}
	return nil
}

func devicePort(s string) bool {
	switch s {
	case "¹", "²", "³":
		return true
	}
	return len(s) == 1 && s[0] >= '0' && s[0] <= '9'
}
