package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/session"
)

// checkRest starts the daemon once more where all is done: nothing may be spent.
func (e *episode) checkRest(ctx context.Context) {
	if ctx.Err() != nil || len(e.book.broken) > 0 {
		return // what is not at rest was said already
	}
	before := e.model.requests()
	d, err := e.start(nil)
	if err != nil {
		e.book.violated(err.Error())
		return
	}
	select {
	case <-d.exited:
		e.book.violated("the daemon does not start any more: " + d.log.lastLine())
	case <-time.After(700 * time.Millisecond):
	case <-ctx.Done():
	}
	e.end(d)
	if n := e.model.requests() - before; n > 0 {
		e.book.violated(fmt.Sprintf("finished work was started again: %d requests after a restart", n))
	}
}

// check compares what supervisors, the model and the world know with what the
// journals and the files say.
func (e *episode) check() {
	ledger := e.readLedger()
	answers := map[string]llm.Message{} // by call id
	results := map[string]string{}      // by call id
	recorded := map[int]bool{}          // ordinals of recorded answers
	perTask := map[string][]*life{}
	for _, task := range e.allTasks() {
		ls, err := lives(e.state, task)
		if err != nil {
			e.book.violated(err.Error())
			continue
		}
		perTask[task] = ls
		for _, l := range ls {
			for _, m := range l.answers {
				if n, ok := ordinal(m.Content); ok {
					recorded[n] = true
				}
				for _, c := range m.ToolCalls {
					answers[c.ID] = m
				}
			}
			for _, m := range l.conv {
				if m.Role == llm.ToolRole {
					results[m.ToolCallID] = m.Content
				}
			}
			e.counts.Rounds += len(l.rounds)
		}
		e.checkFiles(task, ls)
		e.checkConversation(task, ls)
	}
	for _, l := range e.checkRemoved() {
		for _, m := range l.answers {
			for _, c := range m.ToolCalls {
				answers[c.ID] = m
			}
		}
	}
	e.checkChildren(perTask)
	e.checkMessages(perTask)
	e.checkTools(ledger, answers, results)
	e.checkMarkers(perTask)
	e.checkRequests(recorded)
}

func (e *episode) readLedger() map[string]int {
	count := map[string]int{}
	data, err := os.ReadFile(e.ledger)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.book.violated(err.Error())
	}
	for line := range strings.Lines(string(data)) {
		count[strings.TrimSpace(line)]++
	}
	return count
}

// ordinal finds which request a recorded answer belongs to.
func ordinal(text string) (int, bool) {
	text, ok := strings.CutPrefix(text, "Answer ")
	if !ok {
		return 0, false
	}
	digits, _, ok := strings.Cut(text, ".")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// checkChildren: every subagent was sent out once, has ended, and what it spent is on
// its parent's account.
func (e *episode) checkChildren(perTask map[string][]*life) {
	sent := map[string]string{} // by job
	for task, ls := range perTask {
		if len(ls) == 0 || ls[0].parent == "" {
			continue
		}
		e.counts.Subagents++
		tok := job.FindString(ls[0].input)
		if other, twice := sent[tok]; twice || tok == "" {
			e.book.violated(fmt.Sprintf("task %s: subagent %s was sent out for %q, and so was %q", ls[0].parent, task, tok, other))
		}
		sent[tok] = task
		if !slices.ContainsFunc(perTask[ls[0].parent], func(l *life) bool { return slices.Contains(l.children, task) }) {
			e.book.violated(fmt.Sprintf("task %s: no session of it knows of its subagent %s", ls[0].parent, task))
		}
	}
	for task, ls := range perTask {
		if len(ls) == 0 {
			continue
		}
		now := ls[len(ls)-1]
		want := now.requests
		for _, child := range now.children {
			if c := perTask[child]; len(c) > 0 {
				want += c[0].requests
			}
		}
		if s, err := taskdir.ReadStatus(filepath.Join(e.temp, task)); err == nil && s.Usage.Requests != int64(want) {
			e.book.violated(fmt.Sprintf("task %s: status.json has %d requests on its account, the journals of its session and subagents %d", task, s.Usage.Requests, want))
		}
	}
}

// checkMessages: every message once in a journal and once in a conversation.
func (e *episode) checkMessages(perTask map[string][]*life) {
	newest := map[string]int{} // order of the newest input by task
	for _, w := range e.book.messages {
		if w.file == taskdir.InputFile {
			newest[w.task] = w.order
		}
	}
	last := map[string]where{} // by task, file and writer's way, for the order
	for _, w := range e.book.messages {
		ls := perTask[w.task]
		if w.file == taskdir.InputFile {
			e.counts.Inputs++
			e.checkInput(w, ls, newest[w.task])
			continue
		}
		if w.refused {
			e.checkRefused(w)
			continue
		}
		e.counts.Messages++
		at := find(w, ls)
		name := fmt.Sprintf("task %s, %s by %s, %s", w.task, w.file, w.how, w.token)
		switch {
		case at.journalled > 1 && !w.shaky:
			e.book.violated(fmt.Sprintf("%s: taken %d times", name, at.journalled))
		case at.journalled == 0 && w.durable && !w.shaky:
			e.book.violated(name + ": never taken, and gone")
		case at.journalled == 0 && e.model.hasSeen(w.token):
			e.book.violated(name + ": the model has seen it, no journal has it")
		}
		switch {
		case at.journalled > 1:
		case at.said > 1 && !w.shaky:
			e.book.violated(fmt.Sprintf("%s: said %d times to the model (%s)", name, at.said, strings.Join(at.places, "; ")))
		case at.said == 0 && at.journalled > 0 && !at.replaced:
			e.book.violated(fmt.Sprintf("%s: taken (%s), never said to the model", name, at.outcome))
		}
		// One writer's messages of one kind keep their order.
		if at.said == 1 && at.journalled == 1 && w.file != taskdir.KeyInfoFile {
			key := w.task + w.file
			before, ok := last[key]
			if ok && (at.session < before.session || at.session == before.session && at.position < before.position) {
				e.book.violated(fmt.Sprintf("%s: comes before %s, which was written earlier", name, before.token))
			}
			at.token = w.token
			last[key] = at
		}
	}
}

// where is where a message has got to.
type where struct {
	token      string
	journalled int
	said       int
	places     []string
	outcome    string
	// replaced says that the session which took it was replaced by a new input.
	replaced bool
	session  int
	position int
}

func find(w written, ls []*life) where {
	var at where
	for i, l := range ls {
		for _, m := range l.messages {
			if n := strings.Count(m.Text, w.token); n > 0 {
				at.journalled += n
				at.outcome = fmt.Sprintf("session %d, seq %d, outcome %q", l.session, m.Seq, m.Outcome)
				if i < len(ls)-1 {
					at.replaced = true
				}
			}
		}
		offset := 0
		for k, m := range l.conv {
			if m.Role != llm.User {
				continue
			}
			if n := strings.Count(m.Content, w.token); n > 0 {
				at.said += n
				at.places = append(at.places, fmt.Sprintf("session %d message %d: %.60q", l.session, k, m.Content))
				at.session, at.position = l.session, k*1_000_000+strings.Index(m.Content, w.token)
			}
			offset += len(m.Content)
		}
	}
	return at
}

func (e *episode) checkInput(w written, ls []*life, newest int) {
	opened, said := 0, 0
	for _, l := range ls {
		if strings.Contains(l.input, w.token) {
			opened++
			for _, m := range l.conv {
				if m.Role == llm.User {
					said += strings.Count(m.Content, w.token)
				}
			}
		}
	}
	name := fmt.Sprintf("task %s, input.txt by %s, %s", w.task, w.how, w.token)
	switch {
	case opened > 1:
		e.book.violated(fmt.Sprintf("%s: started %d sessions", name, opened))
	case opened == 0 && w.order == newest && w.durable:
		e.book.violated(name + ": started nothing")
	case opened == 0 && e.model.hasSeen(w.token):
		e.book.violated(name + ": the model has seen it, no journal has it")
	case said > 1:
		e.book.violated(fmt.Sprintf("%s: said %d times to the model", name, said))
	case opened == 1 && said == 0 && w.order == newest:
		e.book.violated(name + ": never said to the model")
	}
}

// checkRefused: what is too large for anybody is kept for its writer.
func (e *episode) checkRefused(w written) {
	name := fmt.Sprintf("task %s, %s that is too large, %s", w.task, w.file, w.token)
	if e.model.hasSeen(w.token) {
		e.book.violated(name + ": said to the model")
	}
	paths, _ := filepath.Glob(filepath.Join(e.temp, w.task, refusedPrefix+"*"))
	kept := 0
	for _, path := range paths {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), w.token) {
			kept++
		}
	}
	if kept > 1 || kept == 0 && w.durable {
		e.book.violated(fmt.Sprintf("%s: kept %d times", name, kept))
	}
}

// The words by which a model is told that a call may have run or not.
var unsure = []string{"Interrupted, outcome unknown", "while it ran; what it did until then stands", "its outcome is unknown", "whether it took effect is unknown"}

func (e *episode) checkTools(ledger map[string]int, answers map[string]llm.Message, results map[string]string) {
	for trace, id := range e.model.issuedCalls() {
		ran := ledger[trace]
		e.counts.ToolRuns += ran
		result, answered := results[id]
		_, known := answers[id]
		told := slices.ContainsFunc(unsure, func(s string) bool { return strings.Contains(result, s) })
		if told {
			e.counts.Interrupted++
		}
		switch {
		case ran > 1:
			e.book.violated(fmt.Sprintf("tool call %s (%s) ran %d times", id, trace, ran))
		case ran > 0 && !known:
			e.book.violated(fmt.Sprintf("tool call %s (%s) ran, and no journal has the answer that asked for it", id, trace))
		case answered && !told && strings.HasPrefix(result, "exit code 0") && ran != 1:
			e.book.violated(fmt.Sprintf("tool call %s (%s): the model was told %.60q, the ledger has it %d times", id, trace, result, ran))
		case answered && !told && ran > 0 && !strings.HasPrefix(result, "exit code 0"):
			e.book.violated(fmt.Sprintf("tool call %s (%s) ran, but the model was told %.100q", id, trace, result))
		}
		delete(ledger, trace)
	}
	for trace := range ledger {
		e.book.violated(fmt.Sprintf("the ledger has %q, which nobody asked for", trace))
	}
}

// checkMarkers: what somebody saw finished is finished in the journal for good.
func (e *episode) checkMarkers(perTask map[string][]*life) {
	for _, m := range e.book.markers {
		i := slices.IndexFunc(perTask[m.task], func(l *life) bool { return l.session == m.session })
		if i < 0 || !perTask[m.task][i].closed(m.round) {
			e.book.violated(fmt.Sprintf("task %s: the marker of round %d of session %d was seen, the journal does not know that round as over", m.task, m.round, m.session))
		}
	}
}

// checkFiles: outputs, status and history of a task that was brought to its end.
func (e *episode) checkFiles(task string, ls []*life) {
	bad := func(format string, args ...any) {
		e.book.violated("task " + task + ": " + fmt.Sprintf(format, args...))
	}
	dir := filepath.Join(e.temp, task)
	if len(ls) == 0 {
		bad("it has no journal")
		return
	}
	now := ls[len(ls)-1]
	for i, l := range ls {
		if i > 0 && l.session != ls[i-1].session+1 {
			bad("session %d follows session %d", l.session, ls[i-1].session)
		}
		for k, r := range l.rounds {
			if r.n != k {
				bad("session %d: round %d stands where round %d belongs", l.session, r.n, k)
			}
		}
		for k, r := range l.rounds[:max(0, len(l.rounds)-1)] {
			if r.reason == "" {
				bad("session %d: round %d was never closed, round %d followed", l.session, k, k+1)
			}
		}
	}
	for _, r := range now.rounds {
		if r.reason == "" {
			bad("round %d is still open", r.n)
		}
		e.checkOutput(filepath.Join(dir, taskdir.OutputName(r.n)), bad)
	}
	more := filepath.Join(dir, taskdir.OutputName(len(now.rounds)))
	if !missing(more) {
		bad("%s belongs to no round", filepath.Base(more))
	}
	old, _ := filepath.Glob(filepath.Join(dir, "old", "*", "output*.txt"))
	for _, path := range old {
		e.checkOutput(path, bad)
	}
	s, err := taskdir.ReadStatus(dir)
	switch {
	case err != nil:
		bad("%v", err)
	case s.State != taskdir.Ended, s.Session != now.session, s.Round != now.rounds[len(now.rounds)-1].n:
		bad("status.json says %s, session %d, round %d; the journal has session %d, round %d", s.State, s.Session, s.Round, now.session, len(now.rounds)-1)
	case string(s.Reason) != now.ended:
		bad("status.json gives %q as the reason, the journal %q", s.Reason, now.ended)
	default:
		for _, m := range s.Messages {
			if m.Outcome == "taken" && m.File != taskdir.InputFile {
				bad("the receipt of %s (%s) stands at \"taken\"", m.File, m.SHA256[:min(8, len(m.SHA256))])
			}
		}
	}
	e.checkEvents(filepath.Join(dir, taskdir.EventsFile), bad)
	leftovers(dir, bad)
}

func (e *episode) checkOutput(path string, bad func(string, ...any)) {
	data, err := os.ReadFile(path)
	name, _ := filepath.Rel(e.temp, path)
	switch {
	case err != nil:
		bad("%v", err)
	case !taskdir.EndsInMarker(data):
		bad("%s does not end in the marker", name)
	case bytes.Count(data, []byte(taskdir.Marker)) != 1:
		bad("%s has the marker %d times", name, bytes.Count(data, []byte(taskdir.Marker)))
	case bytes.IndexByte(data, 0) >= 0:
		bad("%s holds NUL bytes", name)
	}
}

// checkEvents: every line is an event, but for those that a crash cut short.
func (e *episode) checkEvents(path string, bad func(string, ...any)) {
	data, err := os.ReadFile(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			bad("%v", err)
		}
		return
	}
	torn := 0
	for line := range strings.Lines(string(data)) {
		if !json.Valid([]byte(line)) {
			torn++
		}
	}
	if most := e.counts.Kills + e.counts.Fulls*100; torn > most && e.kind.name != "failing" {
		bad("events.jsonl has %d lines that are no events", torn)
	}
}

// refusedPrefix begins the name of a message that was refused.
const refusedPrefix = ".refused-"

func leftovers(dir string, bad func(string, ...any)) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		bad("%v", err)
		return
	}
	for _, entry := range entries {
		name := entry.Name()
		refused := false
		if info, err := entry.Info(); err == nil && strings.HasPrefix(name, refusedPrefix) {
			refused = info.Size() <= taskdir.MaxKeyInfo
		}
		if strings.HasPrefix(name, ".taken-") || refused || strings.HasPrefix(name, ".stray-") {
			bad("%s is left behind", name)
		}
	}
}

// checkConversation: what others can fork is whole.
func (e *episode) checkConversation(task string, ls []*life) {
	bad := func(format string, args ...any) {
		e.book.violated("task " + task + ": " + fmt.Sprintf(format, args...))
	}
	if len(ls) == 0 {
		return
	}
	conv, err := session.Conversation(e.state, task, session.Latest)
	if err != nil {
		bad("%v", err)
		return
	}
	now := ls[len(ls)-1]
	if len(conv) < len(now.conv) {
		bad("its conversation has %d messages, its journal %d", len(conv), len(now.conv))
	}
	for _, r := range now.rounds {
		if _, err := session.Conversation(e.state, task, r.n); err != nil {
			bad("%v", err)
		}
	}
	data, err := os.ReadFile(filepath.Join(e.temp, task, taskdir.HistoryFile))
	if err != nil {
		bad("%v", err)
		return
	}
	msgs, err := history.Import(data)
	if err != nil {
		bad("history.json: %v", err)
		return
	}
	for _, m := range now.conv {
		for _, tok := range token.FindAllString(m.Content, -1) {
			if m.Role == llm.User && !slices.ContainsFunc(msgs, func(h llm.Message) bool { return strings.Contains(h.Content, tok) }) {
				bad("history.json lacks %s", tok)
			}
		}
	}
}

// checkRequests: every conversation that was sent was valid and began with the one
// before, and no recorded answer was asked for again.
func (e *episode) checkRequests(recorded map[int]bool) {
	e.counts.Requests = e.server.Count()
	for _, r := range e.server.Refusals() {
		e.book.violated("the model refused " + r)
	}
	for _, requests := range llmtest.ByTask(e.server.Requests()) {
		if err := llmtest.CheckPrefixes(requests); err != nil {
			e.book.violated("prefix: " + err.Error())
		}
		for i, r := range requests {
			if !recorded[r.Ordinal] {
				continue
			}
			for _, later := range requests[i+1:] {
				if len(later.Messages) == len(r.Messages) {
					e.book.violated(fmt.Sprintf("request %d was answered and recorded, and asked again as request %d", r.Ordinal, later.Ordinal))
				}
			}
		}
	}
}
