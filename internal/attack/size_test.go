//go:build linux

package attack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// peak is the most memory that the daemon has had, in megabytes.
func (p *place) peak() int {
	p.t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.daemon.Process.Pid) + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return kb >> 10
}

// unseen reports control characters and escapes that reached a text that people and
// terminals read.
func unseen(text string) string {
	for _, bad := range []string{"\x1b", "\x07", "\x08", "\r", "\u009b", "\u202e"} {
		if strings.Contains(text, bad) {
			return fmt.Sprintf("it holds %q", bad)
		}
	}
	return ""
}

// What is too big, too deep or oddly named stops neither the daemon nor others.
func TestHostileSizes(t *testing.T) {
	if os.Getenv(asUser) != "" && *table == "" {
		t.Skip("it takes long and is the same as root, and for the table")
	}
	p := newPlace(t, "sizes", "")
	const bound = 600 // MB, of a daemon that was sent a few hundred
	fine := func(p *place) string {
		if got := p.peak(); got > bound {
			return fmt.Sprintf("the daemon had %d MB", got)
		}
		p.begin(nil, command("echo fine"))
		results, _ := p.finish("t" + strconv.Itoa(p.n))
		if !strings.Contains(strings.Join(results, ""), "fine") {
			return "another task does not get on"
		}
		return unseen(p.logText())
	}
	try(t, p, []attack{
		{name: "100,000 files, and names with newlines and escapes", tools: []tool{
			command("mkdir many && cd many && seq 100000 | xargs touch && printf 'x' > \"$(printf 'a\\033[2J\\nb\\r\\007')\" && ls | wc -l"),
			{"list_files", map[string]any{"path": "many"}}, {"list_files", map[string]any{"path": ".", "recursive": true}}, {"search_files", map[string]any{"path": ".", "regex": "x"}},
		}, wants: `10000[01]`, expected: "lists are cut, escapes made visible", check: fine},
		{name: "a line of 200 MB", tools: []tool{
			command("head -c 200000000 /dev/zero | tr '\\0' x > line; ls -l line"),
			{"read_file", map[string]any{"path": "line"}}, {"search_files", map[string]any{"path": ".", "regex": "xxx"}}, command("cat line"),
		}, wants: `200000000`, expected: "cut", check: fine},
		{name: "escapes in a command's output and in names", tools: []tool{
			command("printf '\\033]0;title\\007\\033[2J\\r hidden'; touch \"$(printf 'n\\033[31m')\"; ls"), {"read_file", map[string]any{"path": "n\x1b[31m\nx"}},
		}, wants: `exit code 0`, expected: "made visible in output and log", check: fine},
	})
	for name, file := range map[string]struct {
		path string
		text func() string
	}{
		"an input.txt of 64 MB":        {"input.txt", func() string { return strings.Repeat("x", 64<<20) }},
		"a context.json of 32 MB":      {"context.json", func() string { return `{"task": "` + strings.Repeat("x", 32<<20) + `"}` }},
		"a context.json 100,000 deep":  {"context.json", func() string { return strings.Repeat(`{"a":`, 100000) + "1" + strings.Repeat("}", 100000) }},
		"a _history.json 100,000 deep": {"_history.json", func() string { return strings.Repeat("[", 100000) + strings.Repeat("]", 100000) }},
		"a _history.json of 64 MB": {"_history.json", func() string {
			return "[" + strings.Repeat(`{"role":"user","content":"x"},`, 2<<20) + `{"role":"user","content":"x"}]`
		}},
	} {
		t.Run(name, func(t *testing.T) {
			outer := p.t
			p.t = t
			defer func() { p.t = outer }()
			p.n++
			task := "t" + strconv.Itoa(p.n)
			p.write("gas/temp/"+task+"/"+file.path, file.text())
			if file.path != "input.txt" {
				p.write("gas/temp/"+task+"/input.txt", "CALLS[]")
			}
			var output string
			p.until("the round is over, or never begins", func() bool {
				// An input that is too big starts nothing, which the log says.
				if file.path == "input.txt" && strings.Contains(p.logText(), "are more than the limit of") {
					return true
				}
				b, err := os.ReadFile(p.task(task, taskdir.OutputName(0)))
				output = string(b)
				return err == nil && strings.Contains(output, taskdir.Marker)
			})
			if len(output) > 1<<20 {
				t.Errorf("the output has %d bytes", len(output))
			}
			judge(t, p, attack{name: name, expected: "refused or cut, and others get on", wants: "^", check: fine}, []string{output[:min(len(output), 300)]})
		})
	}
}
