package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/tool/builtin"
)

// script plays the model. It makes its answers of what the tools returned, so
// that the report holds what really stands in the files.
func (d *demo) script() llmtest.Script {
	return func(r *llmtest.Request) llmtest.Reply {
		reply := d.answer(r)
		if d.paced {
			reply = reply.After(200 * time.Millisecond).Pieces(8).Every(20 * time.Millisecond)
		}
		return reply
	}
}

func (d *demo) answer(r *llmtest.Request) llmtest.Reply {
	notes, names := demoReading(r.Messages)
	points := demoPoints(notes)
	switch {
	case strings.Contains(r.LastUser(), demoReply):
		busiest := slices.MaxFunc(slices.Sorted(maps.Keys(points)), func(a, b string) int { return len(points[a]) - len(points[b]) })
		return llmtest.Done(fmt.Sprintf("%s, with %d points: %s.", busiest, len(points[busiest]), strings.Join(points[busiest], ", ")))
	case len(names) == 0:
		return demoCall(llmtest.Text("I look at what is there."), builtin.ListFiles, "path", demoTask+"/notes")
	case len(notes) == 0:
		// The supervisor steers it now, while it works.
		reply := llmtest.Text(fmt.Sprintf("%d files. I read them all.", len(names))).When(d.steered)
		for _, name := range names {
			reply = demoCall(reply, builtin.ReadFile, "path", path.Join(demoTask, "notes", name))
		}
		return reply
	case !strings.Contains(r.Last().Content, demoReport):
		return demoCall(llmtest.Text("Grouped by name, then."), builtin.WriteToFile,
			"path", demoTask+"/"+demoReport, "content", demoReportText(points))
	}
	n := 0
	for _, of := range points {
		n += len(of)
	}
	return llmtest.Done(fmt.Sprintf("%d open points of %d people are in %s, grouped by name.", n, len(points), demoReport))
}

func demoCall(reply llmtest.Reply, tool string, pairs ...string) llmtest.Reply {
	// In the order given, as models write them.
	args := make([]string, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		value, _ := json.Marshal(pairs[i+1]) // strings always marshal
		args = append(args, fmt.Sprintf("%q:%s", pairs[i], value))
	}
	return reply.Call(tool, "{"+strings.Join(args, ",")+"}")
}

// demoReading is what the tools have returned: the names of the notes, and the
// lines of those that were read.
func demoReading(msgs []llm.Message) (lines, names []string) {
	tools := map[string]string{}
	for _, m := range msgs {
		for _, c := range m.ToolCalls {
			tools[c.ID] = c.Name
		}
		if m.Role != llm.ToolRole {
			continue
		}
		// The first line of a result says what it is.
		_, body, _ := strings.Cut(m.Content, "\n")
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			switch {
			case tools[m.ToolCallID] == builtin.ListFiles && strings.HasSuffix(line, ".txt"):
				names = append(names, line)
			case tools[m.ToolCallID] == builtin.ReadFile:
				lines = append(lines, line)
			}
		}
	}
	return lines, names
}

// demoPoints are the open points by name.
func demoPoints(lines []string) map[string][]string {
	points := map[string][]string{}
	for _, line := range lines {
		who, what, found := strings.Cut(line, ": ")
		if what, open := strings.CutSuffix(what, " (open)"); found && open {
			points[who] = append(points[who], what)
		}
	}
	return points
}

func demoReportText(points map[string][]string) string {
	var b strings.Builder
	b.WriteString("# Open points\n")
	for _, who := range slices.Sorted(maps.Keys(points)) {
		fmt.Fprintf(&b, "%s\n", who)
		for _, what := range points[who] {
			fmt.Fprintf(&b, "- %s\n", what)
		}
	}
	return b.String()
}
