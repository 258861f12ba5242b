package agentdef

import (
	"strings"
	"testing"
)

func TestGeneralIsValidAndSaysWhatMatters(t *testing.T) {
	g := General()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if g.Turns() != 180 || !g.Inherits() || g.Tools != nil {
		t.Fatalf("general: turns %d, inherits %v, tools %v", g.Turns(), g.Inherits(), g.Tools)
	}
	for _, want := range []string{"attempt_completion", "update_plan", "update_working_checkpoint", FromSupervisor, FromDaemon, "absolute paths", "nobody answers", "three or more steps"} {
		if !strings.Contains(g.Prompt, want) {
			t.Errorf("the prompt does not mention %q", want)
		}
	}
	if g.Prompt != General().Prompt {
		t.Error("the prompt changes from call to call")
	}
	// Every request pays for it: it has to stay short.
	if n := len(g.Prompt); n > 5000 {
		t.Errorf("the prompt has %d bytes", n)
	}
}

func TestTurns(t *testing.T) {
	for kind, want := range map[Kind]int{KindGeneral: 180, KindCustom: 30, KindFork: 60} {
		if got := (Definition{Kind: kind}).Turns(); got != want {
			t.Errorf("%s: %d turns, want %d", kind, got, want)
		}
		if got := (Definition{Kind: kind, MaxTurns: 7}).Turns(); got != 7 {
			t.Errorf("%s with 7: %d turns", kind, got)
		}
	}
}

func TestInherits(t *testing.T) {
	for _, tc := range []struct {
		def  Definition
		want bool
	}{
		{Definition{}, true},
		{Definition{Model: Inherit}, true},
		{Definition{Model: "gpt"}, false},
		{Definition{LLM: "other"}, false},
		{Definition{LLM: "other", Model: Inherit}, false},
	} {
		if got := tc.def.Inherits(); got != tc.want {
			t.Errorf("%+v: %v", tc.def, got)
		}
	}
}

func TestValidate(t *testing.T) {
	ok := Definition{Name: "reviewer", Kind: KindCustom, Prompt: "Review."}
	for name, tc := range map[string]struct {
		change func(*Definition)
		want   string // part of the error; "" for none
	}{
		"good":              {func(*Definition) {}, ""},
		"no name":           {func(d *Definition) { d.Name = " " }, "name"},
		"spaced name":       {func(d *Definition) { d.Name = "a " }, "name"},
		"newline in a name": {func(d *Definition) { d.Name = "a\nb" }, "name"},
		"unicode name":      {func(d *Definition) { d.Name = "代码 审查" }, ""},
		"no kind":           {func(d *Definition) { d.Kind = "" }, "kind"},
		"no prompt":         {func(d *Definition) { d.Prompt = "\n" }, "prompt"},
		"fork":              {func(d *Definition) { d.Kind, d.Prompt = KindFork, "" }, ""},
		"fork with prompt":  {func(d *Definition) { d.Kind = KindFork }, "prompt"},
		"completion":        {func(d *Definition) { d.Completion = "maybe" }, "completion"},
		"turns":             {func(d *Definition) { d.MaxTurns = -1 }, "max_turns"},
		"timeout":           {func(d *Definition) { d.Timeout = -1 }, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			d := ok.Clone()
			tc.change(&d)
			err := d.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error about %q", err, tc.want)
			}
		})
	}
}
