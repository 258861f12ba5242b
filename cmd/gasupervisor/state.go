package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// view is what files say about a task.
type view struct {
	Name string `json:"task"`
	Dir  string `json:"dir"`
	// State is status.json's where there is one, else what the files suggest.
	State string `json:"state"`
	// Settled says that nothing is being done and nothing waits to be done.
	Settled bool `json:"settled"`
	// Status is nil where there is none, or none that can be read; Problem says why.
	Status  *taskdir.Status `json:"status"`
	Problem string          `json:"problem,omitempty"`

	sight    taskdir.Sight
	finished bool
}

// States of tasks that have no status.json.
const (
	stateNoInput    = "no input"   // nothing has been written yet
	stateUnseen     = "not taken"  // the daemon has not seen its input
	stateElsewhere  = "ended"      // another program's finished output
	stateUnreadable = "unreadable" // status.json, or the directory
)

// lookAt looks at a task. fs.ErrNotExist says that there is none.
func lookAt(tempDir, name string) (view, error) {
	if err := taskdir.CheckName(name); err != nil {
		return view{}, err
	}
	root, err := taskdir.OpenRoot(tempDir)
	if err != nil {
		return view{}, err
	}
	defer root.Close()
	return lookIn(root, name)
}

func lookIn(root *taskdir.Root, name string) (view, error) {
	v := view{Name: name, Dir: taskdir.TaskPath(root.Path(), name)}
	d, err := root.Open(name)
	if err != nil {
		return v, err
	}
	defer d.Close()
	// The status first: what is written after it is found by the look.
	st, statusErr := taskdir.ReadStatus(d.Path())
	if v.sight, err = d.Look(); err != nil {
		return v, err
	}
	if v.sight.Outputs > 0 {
		if v.finished, err = d.Finished(v.sight.Outputs - 1); err != nil {
			return v, err
		}
	}
	switch {
	case statusErr == nil:
		v.Status, v.State = st, string(st.State)
		idle := st.State == taskdir.AwaitingReply || st.State == taskdir.Ended
		v.Settled = idle && (v.finished || v.sight.Outputs == 0) && !v.pending(st.UpdatedAt.Time)
	case !errors.Is(statusErr, fs.ErrNotExist):
		v.State, v.Problem = stateUnreadable, statusErr.Error()
	case v.finished:
		v.State, v.Settled = stateElsewhere, true
	case v.sight.Input == nil:
		v.State = stateNoInput
	default:
		v.State = stateUnseen
	}
	return v, nil
}

// pending reports whether something was written that the daemon has not answered.
// What it has taken stays for a moment under another name; then only the time
// tells whether the status knows of it.
func (v *view) pending(updated time.Time) bool {
	s := &v.sight
	if s.Reply != nil || s.Intervene != nil || s.Input != nil && s.Input.Mtime.After(updated) {
		return true
	}
	for _, t := range s.Taken {
		if (t.Name == taskdir.ReplyFile || t.Name == taskdir.InterveneFile) && t.Stat.Mtime.After(updated) {
			return true
		}
	}
	return false
}

// started reports whether anything was ever asked of the task.
func (v *view) started() bool {
	return v.sight.Input != nil || v.sight.Outputs > 0 || v.sight.HasStatus
}

// busy reports whether a round is queued or running.
func (v *view) busy() bool {
	return v.Status != nil && (v.Status.State == taskdir.Queued || v.Status.State == taskdir.Running)
}

// summary is the state in a few words.
func (v *view) summary(now time.Time) string {
	st := v.Status
	if st == nil {
		return v.State
	}
	switch st.State {
	case taskdir.AwaitingReply:
		s := "awaiting reply"
		if left := st.ReplyDeadline.Sub(now); !st.ReplyDeadline.IsZero() && left > 0 {
			s += ", " + shortTime(left) + " left"
		}
		if st.Reason != "" && st.Reason != "completed" {
			s += " (" + string(st.Reason) + ")"
		}
		return s
	case taskdir.Ended:
		return "ended: " + string(st.Reason)
	case taskdir.Running:
		if w := st.Waiting; w != nil {
			s := "running, waits"
			if left := w.Until.Sub(now); !w.Until.IsZero() && left > 0 {
				s += ", " + shortTime(left) + " left"
			}
			return s
		}
	}
	return string(st.State)
}

// noTask is a plain message for a name that is no task.
func noTask(err error, tempDir, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitFailed, err: fmt.Errorf("there is no task %q in %s", name, tempDir), hint: "see: gasupervisor ls"}
	}
	var n *taskdir.NameError
	if errors.As(err, &n) {
		return &exitError{code: exitUsage, err: err}
	}
	return err
}
