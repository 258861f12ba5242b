package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

func TestReportOfSubagents(t *testing.T) {
	done := func(result string) child {
		return child{round.JobResult{Task: "p.1", Outcome: round.Outcome{Reason: round.Completed, Result: result}}, nil}
	}
	stopped := child{round.JobResult{Task: "p.2", Outcome: round.Outcome{Reason: round.Stopped}}, nil}
	failed := child{round.JobResult{Task: "p.3", Outcome: round.Outcome{Reason: round.Failed, Error: &round.Failure{Message: "no route"}}}, nil}
	lost := child{err: errors.New("its directory was removed")}
	for _, tc := range []struct {
		name     string
		mode     string
		children []child
		failed   bool
		want     []string
	}{
		{"one", tool.All, []child{done("it is 7")}, false, []string{"it is 7"}},
		{"all, one failed", tool.All, []child{done("a"), failed}, false, []string{"## Subagent 1 of 2 (task p.1)\na", "## Subagent 2 of 2 (task p.3)\nended without completing: failed: no route"}},
		{"all failed", tool.All, []child{failed, lost}, true, []string{"not run: its directory was removed"}},
		{"any", tool.Any, []child{stopped, done("b")}, false, []string{"ended without completing: stopped", "b"}},
		{"first error", tool.FirstError, []child{done("a"), failed}, true, []string{"no route"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report(tool.Delegation{Mode: tc.mode}, tc.children)
			if r.Failed != tc.failed {
				t.Errorf("failed is %v", r.Failed)
			}
			for _, want := range tc.want {
				if !strings.Contains(r.Text, want) {
					t.Errorf("%q is not in:\n%s", want, r.Text)
				}
			}
		})
	}
}

func TestModesEndTheOthers(t *testing.T) {
	for _, tc := range []struct {
		mode  string
		first round.Reason
		ends  bool
	}{
		{tool.All, round.Failed, false},
		{tool.Any, round.Completed, true},
		{tool.Any, round.Failed, false},
		{tool.FirstError, round.Failed, true},
		{tool.FirstError, round.Completed, false},
	} {
		t.Run(tc.mode+" "+string(tc.first), func(t *testing.T) {
			release := make(chan struct{})
			s := &state{cfg: &Config{}, in: round.Input{Spawn: func(ctx context.Context, call string, n int, job round.Job) (func() (round.JobResult, error), error) {
				return func() (round.JobResult, error) {
					if n == 0 {
						return round.JobResult{Outcome: round.Outcome{Reason: tc.first}}, nil
					}
					select {
					case <-ctx.Done():
						return round.JobResult{Outcome: round.Outcome{Reason: round.Stopped}}, nil
					case <-release:
						return round.JobResult{Outcome: round.Outcome{Reason: round.Completed}}, nil
					}
				}, nil
			}}}
			results := make(chan tool.Result, 1)
			go func() { results <- s.send2(tc.mode) }()
			if !tc.ends {
				close(release)
			}
			r := <-results
			if stopped := strings.Contains(r.Text, string(round.Stopped)); stopped != tc.ends {
				t.Errorf("the other was stopped: %v\n%s", stopped, r.Text)
			}
		})
	}
}

// send2 sends out two subagents for one job.
func (s *state) send2(mode string) tool.Result {
	return s.sendOut(context.Background(), "c1", tool.Delegation{Prompts: []string{"a", "b"}, Mode: mode}, round.Job{})
}

// Calls of tools run in goroutines that catch a panic, and so do those that wait for
// subagents.
func TestPanicWhileASubagentIsAwaitedIsItsFailure(t *testing.T) {
	var log bytes.Buffer
	s := &state{cfg: &Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, in: round.Input{Task: "p", Spawn: func(_ context.Context, _ string, n int, _ round.Job) (func() (round.JobResult, error), error) {
		return func() (round.JobResult, error) {
			if n == 0 {
				panic("broken journal")
			}
			return round.JobResult{Outcome: round.Outcome{Reason: round.Completed, Result: "it is 7"}}, nil
		}, nil
	}}}
	r := s.send2(tool.All)
	for _, want := range []string{"not run: defect in gasupervisor: broken journal", "it is 7"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("%q is not in:\n%s", want, r.Text)
		}
	}
	if !strings.Contains(log.String(), "broken journal") || !strings.Contains(log.String(), "children_test.go") {
		t.Errorf("the log does not say where it was: %s", log.String())
	}
}
