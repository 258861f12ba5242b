package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// hold applies a record now and leaves it to the next commit to make it durable:
// for what nothing acts upon before that.
func (s *Session) hold(r *record) error {
	r.At = fileTime()
	if err := s.st.apply(r, s.journalSize()); err != nil {
		return err
	}
	s.held = append(s.held, r)
	return nil
}

// commit makes what was held and this record durable, in one write and one sync.
// While the disk does not take it, it tries again; the only error is the end of
// ctx, or a defect.
func (s *Session) commit(ctx context.Context, r *record) error {
	if err := s.hold(r); err != nil {
		return err
	}
	return s.sync(ctx)
}

// sync makes what was held durable. The state is then ahead of nobody; until it
// returns, nothing of it is shown.
func (s *Session) sync(ctx context.Context) error {
	if len(s.held) == 0 {
		return nil
	}
	if s.st.atRest() {
		m := s.st.memo()
		s.held[len(s.held)-1].Memo = &m
	}
	lines := make([]json.RawMessage, len(s.held))
	for i, r := range s.held {
		var err error
		if lines[i], err = encode(r); err != nil {
			return err
		}
	}
	err := s.store(ctx, lines)
	s.held = nil
	if err == nil {
		s.fresh = false
		s.at("committed")
	}
	return err
}

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// complainEvery bounds how often a trouble that goes on is logged.
	complainEvery = time.Minute
)

// store appends to the journal, and does not give up while ctx lasts.
func (s *Session) store(ctx context.Context, lines []json.RawMessage) error {
	var since, said time.Time
	looked := false
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := s.tryStore(ctx, lines)
		if err == nil {
			if !since.IsZero() {
				s.log().Info("journal is written again", "after", time.Since(since).Round(time.Millisecond))
				s.statusDue = time.Now()
			}
			if looked {
				s.Look()
			}
			return nil
		}
		now := time.Now()
		if since.IsZero() {
			since = now
			// Others need not wait for this disk.
			s.settle()
		}
		if now.Sub(said) >= complainEvery {
			said = now
			s.log().Error("journal cannot be written, trying again; nothing is acknowledged meanwhile", "err", err)
			s.showTrouble(err)
		}
		retry := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			retry.Stop()
			return fmt.Errorf("write journal of task %q: %w", s.task, err)
		case <-s.looks:
			// It is repeated when the journal is written; only a _stop can do something now.
			retry.Stop()
			looked = true
			s.stopAnyway()
		case <-retry.C:
		}
	}
}

// tryStore is one attempt; a new session's journal is created by its first.
func (s *Session) tryStore(ctx context.Context, lines []json.RawMessage) error {
	if s.cfg.Disk != nil {
		select {
		case s.cfg.Disk <- struct{}{}: // also in the last moment, where nobody is in the way
		default:
			select {
			case s.cfg.Disk <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		defer func() { <-s.cfg.Disk }()
	}
	if s.j == nil {
		j, err := s.openJournal()
		if err != nil {
			return err
		}
		s.j = j
	}
	_, err := s.j.Commit(lines...)
	return err
}

func (s *Session) openJournal() (*journal.Journal, error) {
	path := s.place().current()
	if s.switching {
		path = s.place().next()
	}
	j, report, err := journal.Open(path, s.cfg.Journal...)
	if s.fresh && errors.Is(err, fs.ErrNotExist) {
		return journal.Create(path, s.cfg.Journal...)
	}
	if err == nil && report.Torn > 0 {
		s.log().Warn("journal ended in an unfinished record, which was set aside", "path", path, "bytes", report.Torn, "aside", report.Aside)
	}
	return j, err
}

// journalSize is the offset at which the next commit begins, 0 before the first.
func (s *Session) journalSize() int64 {
	if s.j == nil {
		return 0
	}
	return s.j.Size()
}

// snapshot writes the whole state, from which a later reading can begin. Nothing
// is held when it is called, or the record would not stand where apply is told.
func (s *Session) snapshot(ctx context.Context) error {
	whole := *s.st
	return s.commit(ctx, &record{Snapshot: &whole})
}

// stopAnyway cancels the round for a _stop that cannot be taken, since the journal
// cannot be written: to stop is worth more than to say so. The file stays, and the
// look that follows finds it.
func (s *Session) stopAnyway() {
	if s.phase != Running || !s.run.live() || s.dir == nil {
		return
	}
	sight, err := s.dir.Look()
	if err != nil || sight.Stop == nil || s.stale(sight.Stop.Mtime) {
		return
	}
	s.run.cancel(round.ErrStopped)
}

// showTrouble says in status.json that the journal cannot be written. All else in
// it is what was last acknowledged.
func (s *Session) showTrouble(cause error) {
	dir, err := s.openDir()
	if err != nil {
		return
	}
	v, err := taskdir.ReadStatus(dir.Path())
	if err != nil {
		v = taskdir.NewStatus(s.task)
	}
	v.UpdatedAt = taskdir.Time{Time: time.Now()}
	const trouble = "the journal cannot be written"
	v.Warnings = append(slices.DeleteFunc(v.Warnings, func(w string) bool { return strings.HasPrefix(w, trouble) }),
		fmt.Sprintf("%s (%v): what came since is not acknowledged yet, and is tried again", trouble, cause))
	if err := dir.WriteStatus(v, false); err != nil {
		s.log().Warn("status.json cannot be written", "err", err)
	}
}
