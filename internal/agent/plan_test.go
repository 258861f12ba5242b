package agent

import (
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/tool"
	"github.com/gasupervisor/gasupervisor/plan"
)

func TestPlanDelegates(t *testing.T) {
	for _, tc := range []struct {
		name, plan string
		without    bool
		sent       bool
		want       []string
	}{
		{name: "delegate", sent: true, plan: "- [x] a\n- [ ] [D] b\n", want: []string{"[D] b", "start one with task"}},
		{name: "one in parallel", sent: true, plan: "- [ ] [P] b\n", want: []string{"[P] b", "start one with task"}},
		{name: "several in parallel", sent: true, plan: "- [ ] [P] b\n- [ ] [P] c\n- [ ] d\n", want: []string{"with one call of task: b; c"}},
		{name: "later ones", plan: "- [ ] a\n- [ ] [D] b\n", want: []string{": a"}},
		{name: "without the tool", plan: "- [ ] [D] b\n", without: true, want: []string{": [D] b"}},
	} {
		s := &state{cfg: &Config{}, tools: Toolset{Set: tool.NewSet(0, delegator{})}}
		if tc.without {
			s.tools.Set = tool.NewSet(0)
		}
		p := plan.Parse(tc.plan)
		for _, hint := range []string{s.planReminder(p), s.planResumed(p)} {
			for _, want := range tc.want {
				if !strings.Contains(hint, want) {
					t.Errorf("%s: %q lacks %q", tc.name, hint, want)
				}
			}
			if sent := strings.Contains(hint, "subagent"); sent != tc.sent {
				t.Errorf("%s: %q", tc.name, hint)
			}
		}
	}
}

// The reminders of a plan over a whole session: every five turns while it is open,
// where it stands with each reply and after a restart, and nothing once it is done.
func TestPlanThroughASession(t *testing.T) {
	w := newScripted(t, func(r *llmtest.Request) llmtest.Reply {
		if strings.Contains(r.Last().Content, "finish") {
			return llmtest.Done("r")
		}
		return llmtest.Call("read", `{"turn":"`+strings.Repeat("x", r.Turn())+`"}`)
	})
	w.plan = "- [x] one\n- [ ] two\n- [ ] three\n"
	in := w.input("go")
	in.Settings.MaxTurns = 12
	rec := &record{}
	w.run(in, rec)
	count := func(text string) (n int) {
		for _, m := range rec.conv {
			n += strings.Count(m.Content, text)
		}
		return n
	}
	if n := count("1 of 3 steps done; the current step: two"); n != 2 {
		t.Errorf("reminded %d times in twelve turns", n)
	}
	// A first message that comes while there is a plan says where it stands.
	if n := count("1 of 3 done, continue at: two"); n != 1 {
		t.Errorf("told %d times where to go on", n)
	}
	rec.nextRound()
	w.plan = "- [x] one\n- [x] two\n- [SKIP] [VERIFY] three\n"
	in.Message, in.Round = "finish", 1
	out := w.run(in, rec)
	if out.Result != "r" || len(out.OpenPoints) != 0 {
		t.Errorf("a finished plan is held against a new round: %+v", out)
	}
	if n := count("continue at"); n != 1 {
		t.Errorf("a finished plan is gone on with: told %d times", n)
	}
	// In the round that skips it, a check is missed.
	w = newWorld(t, llmtest.Call("write", `{}`), llmtest.Done("r"), llmtest.Done("r"))
	in = w.input("x")
	w.plan = "- [ ] one\n"
	in.ReadPlan = func() (string, error) {
		if len(w.ran) > 0 {
			return "- [x] one\n- [SKIP] [VERIFY] three\n", nil
		}
		return "- [ ] one\n", nil
	}
	rec = &record{}
	out = w.run(in, rec)
	if out.Reason != round.Completed || len(out.OpenPoints) != 1 || !strings.Contains(out.OpenPoints[0], "three") {
		t.Errorf("outcome %+v", out)
	}
}
