package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// The files that a session's first round begins with: context.json and
// _history.json. They are read once, and again as long as the model has not
// answered.

// largeFile is the size from which a file is only read by a round that the journal
// knows of: should it be too much for the daemon, it is so a few times and not for ever.
const largeFile = 1 << 20

// readFiles reads them where the round has yet to begin, or where they are others
// than those it began with; the record is nil where there is nothing to say. wait
// says when to call again for files that are not whole.
func (s *Session) readFiles(ctx context.Context, dir *taskdir.Dir) (b *beganRecord, f *round.Failure, wait time.Duration, err error) {
	st, r := s.st, s.run
	switch {
	case st.filesCount() && !st.Began:
		return &beganRecord{}, nil, 0, nil
	case st.filesCount() || st.Answers > 0:
		return nil, nil, 0, nil
	}
	sight, err := dir.Look()
	if err != nil {
		s.Look() // It finds out what became of the directory.
		return nil, nil, time.Second, nil
	}
	if st.Began && !s.filesChanged(sight) {
		return nil, nil, 0, nil
	}
	if sizeOf(sight.Context)+sizeOf(sight.History) >= largeFile {
		if err := s.sync(ctx); err != nil {
			return nil, nil, 0, err
		}
	}
	b = &beganRecord{}
	if st.Began {
		// A file that is gone by now has been read all the same.
		b.Settings, b.Warnings, b.Context = st.Settings, st.ContextWarnings, st.ContextMark
		b.History, b.HistoryMark = slices.Clone(st.Conversation[:st.Forked]), st.HistoryMark
	}
	if r.contextFile == nil {
		r.contextFile, r.historyFile = dir.InPlace(taskdir.ContextFile), dir.InPlace(taskdir.ForkFile)
	}
	var settings, conversation reading
	if sight.Context != nil {
		settings = s.readFile(dir, b, r.contextFile, "context", &b.Context, func(text string) (err error) {
			b.Settings, b.Warnings, err = round.ParseSettings([]byte(text))
			return err
		})
	}
	if sight.History != nil {
		conversation = s.readFile(dir, b, r.historyFile, "history", &b.HistoryMark, func(text string) (err error) {
			b.History, err = history.Import([]byte(text))
			return err
		})
	}
	if wait = max(settings.wait, conversation.wait); wait > 0 {
		return nil, nil, wait, nil
	}
	r.contextFile, r.historyFile = nil, nil
	if f = settings.failure; f == nil {
		f = conversation.failure
	}
	if settings.read && f == nil {
		f = s.fork(b)
	}
	return b, f, 0, nil
}

// filesChanged reports whether one of the files is there and not the one that was read.
func (s *Session) filesChanged(sight taskdir.Sight) bool {
	return sight.Context != nil && !s.st.ContextMark.sees(sight.Context) ||
		sight.History != nil && !s.st.HistoryMark.sees(sight.History)
}

func sizeOf(s *taskdir.Stat) int64 {
	if s == nil {
		return 0
	}
	return s.Size
}

// reading is how a file of the first round was read.
type reading struct {
	wait    time.Duration
	read    bool
	failure *round.Failure
}

func (s *Session) readFile(dir *taskdir.Dir, b *beganRecord, p *taskdir.Pending, kind string, mark *fileMark, use func(text string) error) reading {
	c, err := dir.Read(p, time.Now())
	var notWhole taskdir.ErrNotWhole
	switch {
	case errors.As(err, &notWhole) && notWhole.Waited < longWait:
		return reading{wait: notWhole.RetryAfter}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, taskdir.ErrEmpty):
		return reading{}
	}
	if err == nil {
		*mark = markOf(c.Stat, c.SHA256)
		err = use(c.Text)
	}
	out := reading{read: true}
	outcome := outcomeRead
	if err != nil {
		outcome = "refused: " + err.Error()
		out.failure = &round.Failure{Kind: kind, Message: p.Name() + ": " + err.Error()}
	}
	b.Receipts = append(b.Receipts, Receipt{
		File: p.Name(), TakenAt: time.Now(), Bytes: c.Bytes, SHA256: c.SHA256, Encoding: c.Encoding, Outcome: outcome,
	})
	return out
}

// fork starts the conversation from that of the task that context.json names.
func (s *Session) fork(b *beganRecord) *round.Failure {
	from := b.Settings.ForkFrom
	other := b.HistoryMark != (fileMark{})
	if from == "" {
		if !other {
			b.History = nil // of a fork that context.json does not ask for any more
		}
		return nil
	}
	fail := func(format string, args ...any) *round.Failure {
		return &round.Failure{Kind: "context", Message: fmt.Sprintf("context.json, key \"fork_from\", value %q: ", from) + fmt.Sprintf(format, args...)}
	}
	if other {
		return fail("there is a _history.json as well; a conversation starts from one of them")
	}
	if s.cfg.Alone && from != s.task {
		return fail("tasks do not share their conversations here (share in [sandbox] of config.toml); gasupervisor fork makes a task of another one's conversation")
	}
	conv, err := Conversation(s.cfg.StateDir, from, Latest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail("there is no such task; name one that has had a session")
	case err != nil:
		return fail("%v", err)
	}
	b.History = conv
	return nil
}
