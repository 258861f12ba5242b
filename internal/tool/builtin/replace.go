package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// maxReplaceFile bounds the files that are changed in memory.
const maxReplaceFile = 16 << 20

func (e Env) replaceInFile() tool.Tool {
	return &builtin{
		name: ReplaceInFile,
		parameters: `"path":{"type":"string"},` +
			`"old":{"type":"string"},` +
			`"new":{"type":"string","description":"empty to delete"}`,
		required: []string{"path", "old", "new"},
		aliases: map[string][]string{
			"path": pathAliases, "old": {"old_content", "old_string", "old_str"}, "new": {"new_content", "new_string", "new_str"},
		},
		changes: true,
		run: func(_ context.Context, a *args) tool.Result {
			return e.replace(a.text("path"), a.text("old"), a.text("new"))
		},
	}
}

func (e Env) replace(path, old, repl string) tool.Result {
	shown := e.Files.Show(e.Files.Resolve(path))
	switch {
	case old == "":
		return tool.Failure("old is empty; to write a whole file use %s", WriteToFile)
	case old == repl:
		return tool.Failure("old and new are the same, so nothing would change")
	}
	data, err := e.Files.ReadFile(path, maxReplaceFile)
	if errors.Is(err, sandbox.ErrTooBig) {
		return tool.Failure("%s is over %d MB; change it with a command", shown, maxReplaceFile>>20)
	}
	if err != nil {
		return e.fileFailure(path, err)
	}
	cs := sniff(data, true)
	if cs == notText {
		return tool.Failure("%s is a binary file", shown)
	}
	content, err := editable(string(data), cs)
	if err != nil {
		return tool.Failure("%s is %s and cannot be changed safely: %v", shown, cs, err)
	}
	old, repl = lineEndsOf(content, old, repl)
	switch n := strings.Count(content, old); {
	case n == 0:
		return tool.Failure("old does not stand in %s%s", shown, nearMiss(content, old, e.Keys))
	case n > 1:
		return tool.Failure("old stands in %s %d times (lines %s); add lines around it until it stands there once",
			shown, n, join(occurrences(content, old)))
	}
	at := strings.Index(content, old)
	line := 1 + strings.Count(content[:at], "\n")
	content = content[:at] + repl + content[at+len(old):]
	kept := ""
	if coding := cs.coding(); coding != nil {
		if content, err = coding.NewEncoder().String(content); err != nil {
			return tool.Failure("new holds characters that %s, the encoding of %s, does not have", cs, shown)
		}
		kept = fmt.Sprintf(" (kept as %s)", cs)
	}
	if _, err := e.Files.WriteFile(path, []byte(content), newFilePerm); err != nil {
		return e.fileFailure(path, err)
	}
	what := fmt.Sprintf("replaced %s by %s at line %d", plural(countLines(old), "line"), plural(countLines(repl), "line"), line)
	return tool.Result{Text: what + " of " + shown + kept, Summary: what}
}

// editable is a file's content as text that comes out as it was where nothing is
// changed. UTF-8, broken or not, is left as it is: it is changed byte by byte.
func editable(content string, cs charset) (string, error) {
	coding := cs.coding()
	if coding == nil {
		return content, nil
	}
	text, err := coding.NewDecoder().String(content)
	if err != nil {
		return "", err
	}
	back, err := coding.NewEncoder().String(text)
	if err == nil && back != content {
		err = errors.New("it would not come out as it was")
	}
	return text, err
}

// lineEndsOf gives old and repl the line ends of the file, which are not the model's.
func lineEndsOf(content, old, repl string) (string, string) {
	ends := strings.Count(content, "\r\n")
	switch {
	case ends == 0:
	case !strings.Contains(content, old):
		return crlf(old), crlf(repl)
	case ends == strings.Count(content, "\n"):
		return old, crlf(repl)
	}
	return old, repl
}

func crlf(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// occurrences returns the line numbers at which old begins, the first ten.
func occurrences(content, old string) (lines []int) {
	line, from := 1, 0
	for len(lines) < 10 {
		i := strings.Index(content[from:], old)
		if i < 0 {
			break
		}
		line += strings.Count(content[from:from+i], "\n")
		lines = append(lines, line)
		line += strings.Count(old, "\n")
		from += i + len(old)
	}
	return lines
}

func join(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

// nearMiss looks for what the model may have meant: the same lines with other
// white space, or the place where the first or the last line of old stands.
func nearMiss(content, old string, keys *redact.Replacer) string {
	short := func(s string) string { return clip(keys.String(strings.ReplaceAll(s, "\r", "")), 2000) }
	trimAll := func(lines []string) []string {
		out := make([]string, len(lines))
		for i, l := range lines {
			out[i] = strings.Join(strings.Fields(l), " ")
		}
		return out
	}
	lines := strings.Split(content, "\n")
	have, want := trimAll(lines), trimAll(strings.Split(strings.Trim(old, "\r\n"), "\n"))
	if len(want) == 0 || strings.Join(want, "") == "" {
		return ""
	}
	var at []int
	for i := 0; i+len(want) <= len(have) && len(at) < 10; i++ {
		if slices.Equal(have[i:i+len(want)], want) {
			at = append(at, i)
		}
	}
	switch {
	case len(at) == 1:
		text := strings.Join(lines[at[0]:at[0]+len(want)], "\n")
		return fmt.Sprintf(", but with other white space at line %d, as follows:\n%s", at[0]+1, short(text))
	case len(at) > 1:
		return fmt.Sprintf(", but with other white space at lines %s", join(plus1(at)))
	}
	first, last := slices.IndexFunc(want, nonEmpty), lastIndexFunc(want, nonEmpty)
	for _, i := range []int{first, last} {
		var near []int
		for n, l := range have {
			if l == want[i] && len(near) < 5 {
				near = append(near, n)
			}
		}
		if len(near) == 1 && len(want) > 1 {
			// The lines around it show where the two part.
			lo := max(0, near[0]-i)
			hi := min(len(lines), lo+len(want))
			return fmt.Sprintf("; line %d is the same as line %d of old, others differ. Lines %d-%d are:\n%s", near[0]+1, i+1, lo+1, hi,
				short(strings.Join(lines[lo:hi], "\n")))
		}
	}
	return "; read the file again, it may have changed"
}

func nonEmpty(s string) bool { return s != "" }

func lastIndexFunc(s []string, f func(string) bool) int {
	for i := len(s) - 1; i >= 0; i-- {
		if f(s[i]) {
			return i
		}
	}
	return -1
}

func plus1(n []int) []int {
	out := make([]int, len(n))
	for i := range n {
		out[i] = n[i] + 1
	}
	return out
}
