package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// life is one session of a task, as its journal tells it.
type life struct {
	path     string
	session  int
	input    string
	parent   string   // of a subagent
	children []string // that it has sent out
	requests int      // that are on its own account
	messages []journalled
	rounds   []roundLife
	answers  []llm.Message
	conv     []llm.Message
	aside    bool
	text     string // of the open round's message
	ended    string
	resumed  int
}

type journalled struct {
	Seq     uint64
	File    string
	Text    string
	Outcome string
}

type roundLife struct {
	n      int
	reason string // "" while it is open
}

// entry is as much of a journal's record as is looked at here.
type entry struct {
	Opened *struct {
		Session      int
		Text, Parent string
	}
	Message *struct {
		Seq                 uint64
		File, Text, Outcome string
	}
	Round *struct {
		Round int
		Seq   uint64
	}
	Began  *struct{ History []llm.Message }
	Answer *struct {
		Message llm.Message
		Spent   llm.Usage
	}
	Spent  *llm.Usage
	Child  *struct{ Task string }
	Append *struct{ Messages []llm.Message }
	Closed *struct {
		Reason string
		Join   bool
	}
	Ended *struct{ Reason string }
	Aside *struct{ N int }
	Resumed,
	Rewrite *json.RawMessage
}

// readLife reads one journal.
func readLife(path string) (*life, error) {
	l := &life{path: path}
	_, err := journal.Read(path, 0, func(_ int64, rec json.RawMessage) error {
		var e entry
		if err := json.Unmarshal(rec, &e); err != nil {
			return err
		}
		l.add(&e)
		return nil
	})
	return l, err
}

func (l *life) add(e *entry) {
	switch {
	case e.Opened != nil:
		l.session, l.input, l.parent = e.Opened.Session, e.Opened.Text, e.Opened.Parent
		l.rounds, l.text = []roundLife{{n: 0}}, e.Opened.Text
	case e.Message != nil:
		l.messages = append(l.messages, journalled(*e.Message))
	case e.Round != nil:
		l.rounds, l.text = append(l.rounds, roundLife{n: e.Round.Round}), ""
		for _, m := range l.messages {
			if m.Seq == e.Round.Seq {
				l.text = m.Text
			}
		}
	case e.Began != nil:
		if len(l.rounds) == 1 {
			l.conv = slices.Clone(e.Began.History)
		}
	case e.Answer != nil:
		l.answers = append(l.answers, e.Answer.Message)
		l.requests += e.Answer.Spent.Requests
		l.conv = append(l.conv, e.Answer.Message)
	case e.Spent != nil:
		l.requests += e.Spent.Requests
	case e.Child != nil:
		if !slices.Contains(l.children, e.Child.Task) {
			l.children = append(l.children, e.Child.Task)
		}
	case e.Append != nil:
		l.conv = append(l.conv, e.Append.Messages...)
	case e.Closed != nil:
		if e.Closed.Join {
			l.conv = append(l.conv, llm.Message{Role: llm.User, Content: l.text})
		}
		if n := len(l.rounds); n > 0 {
			l.rounds[n-1].reason = e.Closed.Reason
		}
	case e.Ended != nil:
		l.ended = e.Ended.Reason
	case e.Aside != nil:
		l.aside = true
	case e.Resumed != nil:
		l.resumed++
	}
}

// closed reports whether a round is recorded as over.
func (l *life) closed(round int) bool {
	return slices.ContainsFunc(l.rounds, func(r roundLife) bool { return r.n == round && r.reason != "" })
}

// lives reads all sessions of a task, the oldest first.
func lives(stateDir, task string) ([]*life, error) {
	dir := filepath.Join(stateDir, journal.Place(task))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []*life
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, "session") || !strings.HasSuffix(name, ".jsonl") || name == "session.next.jsonl" {
			continue
		}
		l, err := readLife(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", task, err)
		}
		if l.session > 0 {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b *life) int { return a.session - b.session })
	return out, nil
}

// current reads the journal of a task's present session; nil where there is none.
func current(stateDir, task string) (*life, error) {
	l, err := readLife(filepath.Join(stateDir, journal.Place(task), "session.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return l, err
}
