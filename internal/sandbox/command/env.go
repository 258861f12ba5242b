package command

import (
	"runtime"
	"slices"
	"strings"
)

// allowed are the variables that commands get from the daemon's environment.
// Everything else, keys above all, stays with the daemon.
var allowed = []string{"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"}

// allowedWindows are those without which programs on Windows do not start.
var allowedWindows = []string{
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "USERNAME",
	"HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)",
	"COMMONPROGRAMFILES", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "OS",
}

// fixed makes programs behave as they should where nobody sits in front: no
// colours, no pager, no question that waits for an answer.
var fixed = []string{
	"TERM=dumb", "NO_COLOR=1", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "DEBIAN_FRONTEND=noninteractive",
}

// Environ returns the environment for commands: from environ, the daemon's own,
// the few variables that programs need; from extra "NAME=value" as it stands and
// "NAME" as it is in environ. A name in deny, such as that of an API key, is never
// passed on from environ. It is pure.
func Environ(environ, extra, deny []string) []string {
	names := slices.Clone(allowed)
	if runtime.GOOS == "windows" {
		names = append(names, allowedWindows...)
	}
	set := map[string]string{}
	for _, kv := range fixed {
		name, value, _ := strings.Cut(kv, "=")
		set[name] = value
	}
	for _, kv := range extra {
		if name, value, ok := strings.Cut(kv, "="); !ok {
			names = append(names, kv)
		} else if name != "" {
			set[name] = value
		}
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if name == "" || holds(deny, name) || !holds(names, name) && !strings.HasPrefix(name, "LC_") {
			continue
		}
		if !slices.ContainsFunc(extra, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			set[name] = value
		}
	}
	env := make([]string, 0, len(set))
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// holds reports whether names has name; Windows does not tell cases apart.
func holds(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return n == name || runtime.GOOS == "windows" && strings.EqualFold(n, name)
	})
}
