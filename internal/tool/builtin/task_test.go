package builtin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gasupervisor/gasupervisor/internal/tool"
)

func TestTaskReadsWhatModelsWrite(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		want       tool.Delegation
		wrong      string
	}{
		{"one prompt", `{"description":"look","prompt":"look at a"}`, tool.Delegation{Description: "look", Prompts: []string{"look at a"}, Mode: "all"}, ""},
		{"many", `{"description":"look","prompts":["a","b",""],"mode":"any","subagent_type":"explorer"}`,
			tool.Delegation{Description: "look", Prompts: []string{"a", "b"}, Agent: "explorer", Mode: "any"}, ""},
		{"a list in a text", `{"description":"look","prompts":"[\"a\",\"b\"]"}`, tool.Delegation{Description: "look", Prompts: []string{"a", "b"}, Mode: "all"}, ""},
		{"a text for a list", `{"description":"look","prompts":"just this"}`, tool.Delegation{Description: "look", Prompts: []string{"just this"}, Mode: "all"}, ""},
		{"fork", `{"description":"look","prompt":"a","fork":"true"}`, tool.Delegation{Description: "look", Prompts: []string{"a"}, Fork: true, Mode: "all"}, ""},
		{"no prompt", `{"description":"look"}`, tool.Delegation{}, "prompt or prompts is missing"},
		{"both kinds", `{"description":"look","prompt":"a","fork":true,"subagent_type":"x"}`, tool.Delegation{}, "exclude each other"},
		{"mode", `{"description":"look","prompt":"a","mode":"some"}`, tool.Delegation{}, "all, any or first_error"},
		{"too many", `{"description":"look","prompts":[` + strings.TrimSuffix(strings.Repeat(`"x",`, 33), ",") + `]}`, tool.Delegation{}, "more than the 32"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got tool.Delegation
			env := Env{Delegate: func(_ context.Context, call string, d tool.Delegation) tool.Result {
				if call != "c1" {
					t.Errorf("call %q", call)
				}
				got = d
				return tool.Result{Text: "ok"}
			}}
			r := env.task().Run(context.Background(), tool.Call{ID: "c1", Args: json.RawMessage(tc.args)})
			if r.Failed != (tc.wrong != "") || !strings.Contains(r.Text, tc.wrong) {
				t.Fatalf("got %+v, want it to say %q", r, tc.wrong)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if r := (Env{}).task().Run(context.Background(), tool.Call{Args: json.RawMessage(`{"description":"x","prompt":"y"}`)}); !r.Failed {
		t.Error("an agent without subagents sent one out")
	}
}
