package taskdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pollInterval is how often those who follow look: fast enough to look live, and
// without a watch, of which a system has few.
const pollInterval = 50 * time.Millisecond

// FollowOption changes what Follow does.
type FollowOption func(*follower)

// KeepMarker shows the marker at the end of a round too.
func KeepMarker() FollowOption { return func(f *follower) { f.keep = true } }

// AllRounds goes on to the next round, until the session has ended.
func AllRounds() FollowOption { return func(f *follower) { f.all = true } }

// Follow copies the output of a round to w as it grows, and returns nil when the
// round is over. It waits for an output that is not there yet; fs.ErrNotExist says
// that the task is not. It goes on with the same file when a new input moves it
// away. ErrGone says that the output was deleted. Otherwise it blocks until the
// context ends, and returns the cause.
func Follow(ctx context.Context, tempDir, name string, round int, w io.Writer, options ...FollowOption) error {
	f := &follower{ctx: ctx, tempDir: tempDir, name: name, w: w}
	for _, o := range options {
		o(f)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	f.tick = tick.C
	f.session = f.sessionNow()
	for {
		over, err := f.round(&round)
		if err != nil || over || !f.all {
			return err
		}
		round++
	}
}

type follower struct {
	ctx           context.Context
	tempDir, name string
	w             io.Writer
	keep, all     bool
	tick          <-chan time.Time
	session       int // 0 if not known
}

// round shows one round. It sets *n back where another session has begun, and
// reports over where no further round comes.
func (f *follower) round(n *int) (over bool, err error) {
	file, over, err := f.waitFor(n)
	if err != nil || over {
		return over, err
	}
	defer file.Close()
	out := tail{w: f.w, keep: f.keep}
	buf := make([]byte, 32<<10)
	for {
		// Before the reading: who deletes it may have written the marker just before.
		in, err := statFile(file)
		if err != nil {
			return false, err
		}
		for {
			k, err := file.Read(buf)
			done, werr := out.write(buf[:k])
			if done || werr != nil {
				return false, werr
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return false, err
			}
		}
		if in.nlink == 0 {
			return false, fmt.Errorf("follow %s: %w", file.Name(), ErrGone)
		}
		if f.all && f.session == 0 {
			// It was too early to ask when the following began; after the marker it may be
			// too late.
			f.session = f.sessionNow()
		}
		if err := f.pause(); err != nil {
			return false, err
		}
	}
}

// waitFor opens the output of a round once it is there.
func (f *follower) waitFor(n *int) (file *os.File, over bool, err error) {
	for {
		err := inTask(f.tempDir, f.name, func(d *Dir) error {
			file, _, err = d.open(OutputName(*n), os.O_RDONLY)
			if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			file = nil
			if f.all {
				over, err = f.noMore(d, n)
				return err
			}
			return nil
		})
		if err != nil || file != nil || over {
			return file, over, err
		}
		if err := f.pause(); err != nil {
			return nil, false, err
		}
	}
}

// noMore says whether the session has ended with nothing written that would
// revive it. Where another session has begun, its first round is the next.
func (f *follower) noMore(d *Dir, n *int) (bool, error) {
	st, err := ReadStatus(d.path)
	if err != nil {
		return false, nil // moved away, or not there yet
	}
	if f.session != 0 && st.Session != f.session {
		*n = 0
	}
	f.session = st.Session
	if st.State != Ended {
		return false, nil
	}
	s, err := d.Look()
	if err != nil {
		return false, err
	}
	waits := s.Reply != nil || s.Intervene != nil || len(s.Taken) > 0
	return !waits && s.Outputs <= *n, nil
}

func (f *follower) sessionNow() int {
	st, err := ReadStatus(filepath.Join(f.tempDir, f.name))
	if err != nil {
		return 0
	}
	return st.Session
}

func (f *follower) pause() error {
	select {
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	case <-f.tick:
		return nil
	}
}

// tail passes an output on piece by piece, and holds back what may turn out to
// be its ending. The first line break in a row is passed on at once: whoever
// reads lines gets each as soon as it is complete.
type tail struct {
	w    io.Writer
	keep bool
	held []byte
	last byte // passed on
}

// write passes on what is certain, and reports whether the marker has come.
func (t *tail) write(data []byte) (done bool, err error) {
	if len(data) == 0 {
		return false, nil
	}
	t.held = append(t.held, data...)
	if i := bytes.Index(t.held, []byte(Marker)); i >= 0 {
		if t.keep {
			return true, t.pass(append(t.held[:i+len(Marker)], '\n'))
		}
		body := bytes.TrimRight(t.held[:i], "\r\n")
		if len(body) > 0 || t.last != '\n' && t.last != 0 {
			body = append(body, '\n')
		}
		return true, t.pass(body)
	}
	n := len(t.held)
	for k := min(n, len(Marker)-1); k > 0; k-- {
		if bytes.HasSuffix(t.held, []byte(Marker[:k])) {
			n -= k
			break
		}
	}
	start := n
	for start > 0 && (t.held[start-1] == '\n' || t.held[start-1] == '\r') {
		start--
	}
	if start > 0 || t.last != '\n' && t.last != 0 {
		if i := bytes.IndexByte(t.held[start:n], '\n'); i >= 0 {
			start += i + 1
		}
	}
	err = t.pass(t.held[:start])
	t.held = t.held[:copy(t.held, t.held[start:])]
	return false, err
}

func (t *tail) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	t.last = p[len(p)-1]
	_, err := t.w.Write(p)
	return err
}

// trimEnding cuts the marker and the blank lines before it off a finished output.
func trimEnding(text string) string {
	text = strings.TrimRight(text, "\r\n\t ")
	text = strings.TrimRight(strings.TrimSuffix(text, Marker), "\r\n")
	if text == "" {
		return ""
	}
	return text + "\n"
}
