package agent

import (
	"maps"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/loop"
)

// ledger is what a round's messages say about how it goes: it is made by adding
// them one after the other, as they are recorded or, after a restart, as they were.
// So nothing that decides over the round can be lost with the process.
type ledger struct {
	// changes tells tools that change something.
	changes func(name string) bool

	// stretch counts the answers without a call since the last call, refusal or
	// message of the supervisor; text is the first text among them.
	stretch int
	text    string
	// continues is true where the next answer goes on with a text that was cut.
	continues bool

	// refused counts by their tags the reasons against completion that were given.
	refused map[string]int
	// done is true from an accepted completion to the next answer or intervention;
	// result is what it handed over.
	done   bool
	result string
	// failed are the calls of the newest answer that failed, as "name: why".
	failed []string

	loop loop.Detector
	// reads are the newest results of reads that were no notices, by the call's key.
	reads map[string]string
	// calls are the newest answer's, results their answers by id.
	calls   []llm.ToolCall
	results map[string]string
}

func (l *ledger) add(msgs ...llm.Message) {
	for _, m := range msgs {
		switch m.Role {
		case llm.Assistant:
			l.answer(m)
		case llm.ToolRole:
			l.toolResult(m)
		case llm.User:
			l.user(m.Content)
		}
	}
}

func (l *ledger) answer(m llm.Message) {
	l.done, l.failed = false, nil
	l.calls, l.results = m.ToolCalls, map[string]string{}
	if len(m.ToolCalls) > 0 {
		l.newStretch()
		return
	}
	l.stretch++
	text := m.Content
	if text == emptyAnswer || text == cutCallAnswer {
		text = ""
	}
	if l.text == "" || l.continues {
		l.text += text
	}
	l.continues = false
}

func (l *ledger) newStretch() { l.stretch, l.text, l.continues = 0, "", false }

func (l *ledger) toolResult(m llm.Message) {
	for _, c := range l.calls {
		if c.ID != m.ToolCallID {
			continue
		}
		l.results[c.ID] = m.Content
		switch {
		case c.Name == completionTool:
			l.refusal(m.Content)
			if m.Content == accepted {
				l.done = true
				l.result, _ = completionResult(c)
			}
		case isFailed(m.Content):
			l.failed = append(l.failed, c.Name+": "+firstLine(strings.TrimPrefix(m.Content, failedMark)))
		}
	}
	if len(l.results) == len(l.calls) && len(l.calls) > 0 {
		l.loop.Add(l.entry(l.calls, l.results))
		l.calls = nil
	}
}

func (l *ledger) user(text string) {
	switch {
	case strings.HasPrefix(text, interventionMark):
		l.newStretch()
		l.done = false
		l.loop = loop.Detector{} // what it repeats from here on, it may have been told to
	case strings.HasPrefix(text, daemonMark+refusalMark):
		l.newStretch()
		l.refusal(strings.TrimPrefix(text, daemonMark))
	case strings.HasPrefix(text, daemonMark+shortenedMark):
		if _, said, ok := strings.Cut(text, saidMark); ok {
			l.refused = nil // it lists all that was said by then
			l.tags(said)
		}
	case strings.HasPrefix(text, daemonMark+nudgeCutText):
		l.continues = l.text != ""
	}
}

// refusal notes which reasons a refusal gave.
func (l *ledger) refusal(text string) {
	if text, ok := strings.CutPrefix(text, refusalMark); ok {
		l.tags(text)
	}
}

// tags counts the reasons that text lists.
func (l *ledger) tags(text string) {
	if l.refused == nil {
		l.refused = map[string]int{}
	}
	for line := range strings.Lines(text) {
		if tag, ok := strings.CutPrefix(line, "- ("); ok {
			tag, _, _ = strings.Cut(tag, ")")
			l.refused[tag]++
		}
	}
}

// said lists the reasons that were given, as tags reads them.
func (l *ledger) said() string {
	var b strings.Builder
	for _, tag := range slices.Sorted(maps.Keys(l.refused)) {
		b.WriteString(strings.Repeat("\n- ("+tag+")", l.refused[tag]))
	}
	return b.String()
}

// entry is a turn as the loop detection sees it.
func (l *ledger) entry(calls []llm.ToolCall, results map[string]string) loop.Turn {
	e := loop.Turn{Calls: len(calls)}
	h := loop.NewHash()
	for _, c := range calls {
		result := results[c.ID]
		if c.Name == readTool {
			result = l.sameRead(callKey(c), result)
		}
		h.Add(c.Name, c.Arguments, result)
		if l.changes != nil && l.changes(c.Name) && !isFailed(result) {
			e.Changed = true
		}
	}
	e.Sum = h.Sum()
	return e
}

// sameRead returns for a notice that a read brought nothing new what the read before
// it brought: it counts as the same again.
func (l *ledger) sameRead(key, result string) string {
	if result == unchanged {
		if real, ok := l.reads[key]; ok {
			return real
		}
		return result
	}
	if l.reads == nil {
		l.reads = map[string]string{}
	}
	l.reads[key] = result
	return result
}

// failedMark begins the result of a call that failed, for the model and for ledger.
const failedMark = "Error: "

func isFailed(result string) bool { return strings.HasPrefix(result, failedMark) }
