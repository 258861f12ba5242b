package tool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/redact"
)

// stub is a tool that answers with what its function says.
type stub struct {
	name    string
	changes bool
	run     func(context.Context, Call) Result
}

func (s stub) Spec() llm.ToolSpec { return llm.ToolSpec{Name: s.name, Parameters: []byte("{}")} }
func (s stub) Changes() bool      { return s.changes }
func (s stub) Run(ctx context.Context, c Call) Result {
	if s.run == nil {
		return Result{Text: string(c.Args)}
	}
	return s.run(ctx, c)
}

// plain is a tool that does not say whether it changes anything.
type plain struct{ Tool }

func TestDispatchArguments(t *testing.T) {
	set := NewSet(0, stub{name: "echo"})
	junk := strings.Repeat("é", 1<<19)
	for _, c := range []struct {
		name, args string
		want       string // the result, or a part of the failure
		failed     bool
	}{
		{"nothing", "", "{}", false},
		{"white space", " \n\t", "{}", false},
		{"empty object", "{}", "{}", false},
		{"object", ` {"a": [1, "x"]} `, `{"a": [1, "x"]}`, false},
		{"cut off", `{"a":`, `{"a":`, true},
		{"null", "null", "not null", true},
		{"list", "[]", "not []", true},
		{"string", `"x"`, `not "x"`, true},
		{"number", "1", "not 1", true},
		{"two objects", `{}{}`, "{}{}", true},
		{"junk", junk, "1048576 bytes", true},
		{"junk in an object", "{" + junk, "1048577 bytes", true},
		{"not UTF-8", "{\xff\xfe", "not a JSON object", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := set.Dispatch(context.Background(), llm.ToolCall{Name: "echo", Arguments: c.args})
			if r.Failed != c.failed || !strings.Contains(r.Text, c.want) {
				t.Errorf("got failed %v, %q, want failed %v and %q in it", r.Failed, r.Text, c.failed, c.want)
			}
			if len(r.Text) > 500 {
				t.Errorf("the result has %d bytes, want a bounded preview", len(r.Text))
			}
			if !utf8.ValidString(r.Text) || !utf8.ValidString(r.Summary) {
				t.Errorf("the result is not UTF-8: %q", r.Text)
			}
		})
	}
}

func TestDispatchNames(t *testing.T) {
	set := NewSet(0, stub{name: "read_file"}, stub{name: "list_files"})
	for _, name := range []string{"", "nope", "write_to_file", "READ_FILE", strings.Repeat("x", 1<<20)} {
		r := set.Dispatch(context.Background(), llm.ToolCall{Name: name, Arguments: "{}"})
		if !r.Failed || !strings.Contains(r.Text, "read_file, list_files") || len(r.Text) > 300 {
			t.Errorf("%.20q: got failed %v, %.300q", name, r.Failed, r.Text)
		}
	}
	if r := NewSet(0).Dispatch(context.Background(), llm.ToolCall{Name: "x"}); !r.Failed || !strings.Contains(r.Text, "no tools") {
		t.Errorf("empty set: %+v", r)
	}
}

func TestDispatchResult(t *testing.T) {
	for _, c := range []struct {
		name    string
		in      Result
		text    string
		summary string
	}{
		{"summary from the first line", Result{Text: "\n  first\x1b[0m\tline\nsecond"}, "\n  first\x1b[0m\tline\nsecond", "first[0m line"},
		{"own summary on one line", Result{Text: "x", Summary: "a\nb"}, "x", "a"},
		{"long summary", Result{Text: strings.Repeat("é", 200)}, strings.Repeat("é", 200), strings.Repeat("é", 119) + "…"},
		{"empty", Result{}, "(no output)", "(no output)"},
		{"empty failure", Result{Failed: true}, "failed, without a message", "failed, without a message"},
		{"bad bytes", Result{Text: "a\xffb"}, "a�b", "ab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := NewSet(0, stub{name: "t", run: func(context.Context, Call) Result { return c.in }})
			r := set.Dispatch(context.Background(), llm.ToolCall{Name: "t"})
			if r.Text != c.text || r.Summary != c.summary || r.Failed != c.in.Failed {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// A key that the cap would cut in two is taken out before.
func TestDispatchKeys(t *testing.T) {
	const key, limit = "Q1w2E3r4T5y6U7i8O9p0", 200
	var in string
	set := NewSet(limit, stub{name: "t", run: func(context.Context, Call) Result { return Result{Text: in, Summary: in} }}).Redacting(redact.New(key))
	for at := range limit {
		in = strings.Repeat(".", at) + key + strings.Repeat(".", limit-at)
		r := set.Dispatch(context.Background(), llm.ToolCall{Name: "t"})
		if len(r.Text) > limit || strings.ContainsAny(r.Text+r.Summary, "Qw3Tp") {
			t.Fatalf("with the key at %d: %+v", at, r)
		}
	}
}

func TestDispatchPanic(t *testing.T) {
	set := NewSet(0, stub{name: "t", run: func(context.Context, Call) Result { panic(errors.New("nil map")) }})
	r := set.Dispatch(context.Background(), llm.ToolCall{Name: "t"})
	if !r.Failed || !strings.Contains(r.Text, "nil map") || !strings.Contains(r.Text, "set_test.go") {
		t.Errorf("got %+v", r)
	}
}

func TestDispatchEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("stopped by hand"))
	ran := false
	set := NewSet(0, stub{name: "t", run: func(context.Context, Call) Result { ran = true; return Result{} }})
	r := set.Dispatch(ctx, llm.ToolCall{Name: "t"})
	if ran || !r.Failed || !strings.Contains(r.Text, "stopped by hand") {
		t.Errorf("ran %v, got %+v", ran, r)
	}
}

func TestSet(t *testing.T) {
	set := NewSet(0, stub{name: "a", changes: true}, stub{name: "b"}, plain{stub{name: "c"}}, stub{name: "a"})
	if got := fmt.Sprint(set.Names()); got != "[a b c]" {
		t.Errorf("names %s", got)
	}
	if !set.Changes("a") || set.Changes("b") || set.Changes("c") || set.Changes("d") {
		t.Error("Changes is wrong")
	}
	if !set.Has("c") || set.Has("d") {
		t.Error("Has is wrong")
	}
	if specs := set.Specs(); len(specs) != 3 || specs[2].Name != "c" {
		t.Errorf("specs %v", specs)
	}
	set.Names()[0] = "x"
	if set.Names()[0] != "a" {
		t.Error("Names hands out the set's own slice")
	}
}

func TestCap(t *testing.T) {
	text := strings.Repeat("日本語\n", 1000)
	for limit := range 400 {
		got := Cap(text, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("limit %d: %d bytes, valid %v", limit, len(got), utf8.ValidString(got))
		}
	}
	got := Cap("HEAD"+text+"TAIL", 1000)
	if !strings.HasPrefix(got, "HEAD") || !strings.HasSuffix(got, "TAIL") || !strings.Contains(got, " lines cut here") {
		t.Errorf("got %q", got)
	}
	if Cap("abc", 3) != "abc" {
		t.Error("a text within the limit was changed")
	}
}

func FuzzDispatch(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":`, "null", "[]", `"x"`, "{\"a\":\"\\ud800\"}"} {
		f.Add("echo", s, 100)
	}
	f.Fuzz(func(t *testing.T, name, args string, limit int) {
		limit = 100 + limit%1000
		if limit < 100 {
			limit += 1000
		}
		r := NewSet(limit, stub{name: "echo"}).Dispatch(context.Background(), llm.ToolCall{Name: name, Arguments: args})
		if len(r.Text) > limit || !utf8.ValidString(r.Text) || r.Summary == "" || strings.ContainsAny(r.Summary, "\n\r") {
			t.Errorf("got %+v", r)
		}
	})
}
