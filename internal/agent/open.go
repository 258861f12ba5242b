package agent

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/agentdef"
	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/plan"
)

// planName is the plan's file in the task directory, as models are told of it.
const planName = "subagent_plan.md"

// checkpointTool is the tool by which agents write their part of the working memory.
const checkpointTool = "update_working_checkpoint"

// open brings the round to where the next request can be made: it records the first
// message, or takes up a round that was cut short.
func (s *state) open(ctx context.Context) *round.Outcome {
	if s.in.Prepared == nil {
		if out := s.emit(ctx, round.HeadPrepared{Prepared: s.head}); out != nil {
			return out
		}
	}
	s.rememberFinishedPlan()
	from := len(s.in.Conversation)
	if s.in.Resumed != nil {
		from = roundStart(s.in.Conversation, s.in.Message, s.in.Resumed.Turn)
	}
	if from < len(s.in.Conversation) {
		return s.resume(ctx, from)
	}
	s.converse(s.in.Conversation)
	if out := s.appendMessages(ctx, nil, userMessage(s.firstMessage())); out != nil {
		return out
	}
	return s.checkInputs()
}

// converse takes up the conversation as it was recorded.
func (s *state) converse(msgs []llm.Message) {
	s.conv = history.New(msgs)
	s.repeats.rebuild(s.conv.Messages())
	s.findReading()
	s.answeredBy = s.in.LastLLM
}

// checkInputs fails the session before its first request where a file is missing
// that it was told to read. The message is recorded by then, so that a reply can go
// on once the file is there.
func (s *state) checkInputs() *round.Outcome {
	if s.in.Spent.Requests > 0 || s.tools.Exists == nil {
		return nil
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(s.in.Settings.InputFiles)) {
		path := s.in.Settings.InputFiles[name]
		if _, ok := s.tools.Exists(path); !ok {
			missing = append(missing, fmt.Sprintf("%q: %s", name, path))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fail("context", "context.json, key \"input_files\": there is no file at %s; put it there and write reply.txt, or correct the path and write input.txt again",
		strings.Join(missing, "; "))
}

// firstMessage is the message that begins the round: the supervisor's text as it
// is, and after it what the model has to know and has not been told.
func (s *state) firstMessage() string {
	parts := []string{supervisorMark + s.in.Message}
	if s.in.Prepared == nil || !told(s.in.Conversation, s.taskLine()) {
		parts = append(parts, s.facts())
	}
	if text := unseen(s.in.KeyInfo, s.in.Conversation); text != "" {
		parts = append(parts, daemonMark+"Key info, to be kept in mind:\n"+text)
	}
	if p := s.readPlan(); len(p.Steps) > 0 {
		if hint := s.planResumed(p); hint != "" {
			parts = append(parts, daemonMark+hint)
		}
	}
	return s.cfg.Redact.String(strings.Join(parts, "\n\n"))
}

func (s *state) taskLine() string { return "Task directory: " + s.in.Dir }

// facts tells a session where it is and what it was given.
func (s *state) facts() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\n"+format, args...) }
	files := func(title string, files map[string]string) {
		if len(files) == 0 {
			return
		}
		line("%s", title)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			line("- %s: %s", name, files[name])
		}
	}
	list := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		line("%s", title)
		for _, item := range items {
			line("- %s", item)
		}
	}
	set := s.in.Settings
	b.WriteString(daemonMark + "Facts about this task:")
	line("%s", s.taskLine())
	if s.tools.WorkDir != "" {
		line("Working directory: %s", s.tools.WorkDir)
	}
	line("Your plan, if you make one: %s", filepath.Join(s.in.Dir, planName))
	if set.Task != "" {
		line("Task: %s", set.Task)
	}
	files("Input files:", set.InputFiles)
	if set.Child {
		line("You are a subagent: whoever reads your result is the agent that sent you out.")
	} else {
		files("Output files, to be written by you:", set.OutputFiles)
	}
	list("Depends on:", set.Dependencies)
	list("Also given:", set.AsText)
	if s.schema != nil {
		line("Your result must be JSON that satisfies this JSON Schema, without any text around it:\n%s", set.OutputSchema)
	}
	if s.tools.Facts != "" {
		line("%s", strings.TrimSpace(s.tools.Facts))
	}
	if s.tools.Instructions != "" && s.def.Kind == agentdef.KindGeneral {
		line("\nAGENTS.md of the working directory, the project's own rules for its files:\n%s", strings.TrimSpace(s.tools.Instructions))
	}
	return b.String()
}

// told reports whether a user message has that line.
func told(msgs []llm.Message, line string) bool {
	return slices.ContainsFunc(msgs, func(m llm.Message) bool { return m.Role == llm.User && hasLine(m.Content, line) })
}

// hasLine reports whether a line of text is just that.
func hasLine(text, line string) bool {
	for {
		before, after, found := strings.Cut(text, line)
		if !found {
			return false
		}
		if (before == "" || strings.HasSuffix(before, "\n")) && (after == "" || after[0] == '\n') {
			return true
		}
		// The rest of this line is not it; the next one may be.
		if _, text, found = strings.Cut(after, "\n"); !found {
			return false
		}
	}
}

// unseen returns the lines of the working memory that the model was not told and has
// not noted itself: what came while the session waited, or went in a compaction. That
// the same words stand in some file that it read makes them no key info.
func unseen(keyInfo string, msgs []llm.Message) string {
	var lines []string
	for line := range strings.Lines(keyInfo) {
		line = strings.TrimRight(line, "\n")
		bare := strings.TrimPrefix(line, agentdef.FromSupervisor+" ")
		if strings.TrimSpace(bare) != "" && !told(msgs, bare) && !told(msgs, line) && !noted(msgs, bare) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// noted reports whether a call of the checkpoint tool has that line. One that is
// written with other escapes is not found, and said once more.
func noted(msgs []llm.Message, line string) bool {
	escaped := string(llm.AppendString(nil, line))
	escaped = escaped[1 : len(escaped)-1]
	for _, m := range msgs {
		for _, c := range m.ToolCalls {
			if c.Name == checkpointTool && strings.Contains(c.Arguments, escaped) {
				return true
			}
		}
	}
	return false
}

// roundStart returns the index of the message with which the round began, or
// len(msgs) where it is not recorded. answers is how many the round has recorded; a
// rewriting may have dropped some.
func roundStart(msgs []llm.Message, message string, answers int) int {
	first := supervisorMark + message
	start, seen := len(msgs), 0
	for i := len(msgs) - 1; i >= 0; i-- {
		switch {
		case msgs[i].Role == llm.Assistant:
			if seen++; seen > answers {
				return start
			}
		case msgs[i].Role == llm.User && strings.HasPrefix(msgs[i].Content, first):
			// Only a round's first message begins so, and this is the newest.
			return i
		}
		if answers > 0 {
			start = i
		}
	}
	return start
}

// readPlan reads the plan as it is now. A plan that cannot be read is none: it is
// the agent's own file, and no reason to end its round.
func (s *state) readPlan() plan.Plan {
	if s.in.ReadPlan == nil {
		return plan.Plan{}
	}
	text, err := s.in.ReadPlan()
	if err != nil || text == s.past {
		return plan.Plan{}
	}
	return plan.Parse(text)
}

// rememberFinishedPlan notes a plan that an earlier round finished, so that what was
// left out in it is not held against this one.
func (s *state) rememberFinishedPlan() {
	if s.in.Resumed != nil || s.in.ReadPlan == nil {
		return
	}
	if text, err := s.in.ReadPlan(); err == nil && plan.Parse(text).Finished() {
		s.past = text
	}
}
