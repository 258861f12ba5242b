package sandbox

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mounted is a mount as mountinfo has it: which part of which file system is seen
// where.
type mounted struct{ device, root, at string }

// parseMounts reads /proc/self/mountinfo (proc_pid_mountinfo(5)).
func parseMounts(text string) []mounted {
	var list []mounted
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 5 {
			list = append(list, mounted{f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return list
}

// unescape undoes the kernel's escapes, three octal digits after a backslash.
func unescape(s string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, `\`)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		if n, err := strconv.ParseUint(rest[:min(3, len(rest))], 8, 8); err == nil && len(rest) >= 3 {
			b.WriteByte(byte(n))
			s = rest[3:]
			continue
		}
		b.WriteByte('\\')
		s = rest
	}
}

// aliases returns the other paths at which mounts show what lies at path, or in it.
func aliases(mounts []mounted, path string) []string {
	here := mounted{}
	for _, m := range mounts {
		if under(path, m.at) && len(m.at) >= len(here.at) {
			here = m
		}
	}
	if here.at == "" {
		return nil
	}
	inside := moved(here.root, here.at, path)
	var out []string
	for _, m := range mounts {
		if m.device != here.device {
			continue
		}
		switch {
		case under(inside, m.root):
			out = append(out, moved(m.at, m.root, inside))
		case under(m.root, inside):
			out = append(out, m.at)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(a string) bool { return under(a, path) })
}

// moved returns path, which lies in from, as it lies in to.
func moved(to, from, path string) string {
	return filepath.Join(to, strings.TrimPrefix(path, strings.TrimSuffix(from, "/")))
}

// withAliases returns paths, and after them the other ones that mean the same because
// a directory is mounted twice.
func withAliases(paths []string) []string {
	mounts := mountsHere()
	out := slices.Clone(paths)
	for _, p := range paths {
		out = append(out, aliases(mounts, p)...)
	}
	return out
}
