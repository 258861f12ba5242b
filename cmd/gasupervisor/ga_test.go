package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var gaTable = []struct {
	name string
	args []string
	want gaArgs
	err  string
}{
	{"task", []string{"--task", "t", "--input", "hello"}, gaArgs{Task: "t", Input: "hello"}, ""},
	{"equals", []string{"--task=t", "--input=a=b", "--llm_no=2"}, gaArgs{Task: "t", Input: "a=b", LLMNo: 2}, ""},
	{"empty value", []string{"--task=", "--func", "p.txt"}, gaArgs{Func: "p.txt"}, ""},
	{"all flags", []string{"--func", "p.txt", "--llm_no", "1", "--nobg", "--verbose", "--nolog", "--no-user-tools", "--history", "h.json"},
		gaArgs{Func: "p.txt", LLMNo: 1, NoBG: true, Verbose: true, NoLog: true, NoUserTools: true, History: "h.json"}, ""},
	{"unknown", []string{"--task", "t", "--colour", "red", "extra", "-x", "--deep=3"}, gaArgs{Task: "t", Unknown: []string{"--colour", "red", "extra", "-x", "--deep=3"}}, ""},
	{"unknown before", []string{"word", "--what", "--task", "t"}, gaArgs{Task: "t", Unknown: []string{"word", "--what"}}, ""},
	{"abbreviation", []string{"--ta", "t", "--inp=x", "--verb"}, gaArgs{Task: "t", Input: "x", Verbose: true}, ""},
	{"ambiguous", []string{"--task", "t", "--no"}, gaArgs{}, "ambiguous option: --no could match --nobg, --nolog, --no-user-tools"},
	{"ambiguous with a value", []string{"--h=x"}, gaArgs{}, "ambiguous option: --h=x could match --help, --history"},
	{"no value", []string{"--task"}, gaArgs{}, "argument --task: expected one argument"},
	{"flag for a value", []string{"--task", "--nobg"}, gaArgs{}, "argument --task: expected one argument"},
	{"unknown flag for a value", []string{"--input", "-hello"}, gaArgs{}, "argument --input: expected one argument"},
	{"text with a dash", []string{"--task", "t", "--input", "- first\n- second"}, gaArgs{Task: "t", Input: "- first\n- second"}, ""},
	{"lone dash", []string{"--input", "-"}, gaArgs{Input: "-"}, ""},
	{"negative number", []string{"--llm_no", "-1", "--input", "-.5"}, gaArgs{LLMNo: -1, Input: "-.5"}, ""},
	{"number in words", []string{"--llm_no", "two"}, gaArgs{}, "argument --llm_no: invalid int value: 'two'"},
	{"number with blanks", []string{"--llm_no", " 3 "}, gaArgs{LLMNo: 3}, ""},
	{"value for a switch", []string{"--nobg=1"}, gaArgs{}, "argument --nobg: ignored explicit argument '1'"},
	{"last one wins", []string{"--task", "a", "--task", "b"}, gaArgs{Task: "b"}, ""},
	{"end of flags", []string{"--task", "t", "--", "--nobg"}, gaArgs{Task: "t", Unknown: []string{"--", "--nobg"}}, ""},
	{"value after the end", []string{"--input", "--", "-x"}, gaArgs{}, "argument --input: expected one argument"},
	{"empty word", []string{"--input", "", "--task", "t"}, gaArgs{Task: "t"}, ""},
	{"reflect", []string{"--reflect", "s.py"}, gaArgs{Reflect: "s.py"}, ""},
	{"help", []string{"-h", "--task"}, gaArgs{Help: true}, ""},
}

func TestParseGA(t *testing.T) {
	for _, tt := range gaTable {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseGA(tt.args)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("error is %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// argparseScript is the parser that scripts were written against.
const argparseScript = `
import argparse, json, sys
p = argparse.ArgumentParser(prog='x')
for f in ('--task', '--func', '--reflect', '--input', '--history'): p.add_argument(f)
p.add_argument('--llm_no', type=int, default=0)
for f in ('--verbose', '--nobg', '--nolog', '--no-user-tools'): p.add_argument(f, action='store_true')
for line in sys.stdin:
    try:
        a, u = p.parse_known_args(json.loads(line))
    except SystemExit as e:
        print(json.dumps(None if e.code else {"Help": True}))
        continue
    print(json.dumps({"Task": a.task or "", "Func": a.func or "", "Reflect": a.reflect or "", "Input": a.input or "",
        "History": a.history or "", "LLMNo": a.llm_no, "Verbose": a.verbose, "NoBG": a.nobg, "NoLog": a.nolog,
        "NoUserTools": a.no_user_tools, "Unknown": u or None}))
`

// TestParseGALikeArgparse asks Python itself, where there is one.
func TestParseGALikeArgparse(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to compare with")
	}
	var in strings.Builder
	for _, tt := range gaTable {
		b, err := json.Marshal(tt.args)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(b, '\n'))
	}
	cmd := exec.Command(python, "-c", argparseScript)
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("python3 does not run: %v", err)
	}
	// The help text stands among the answers.
	var answers []string
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "{") || line == "null" {
			answers = append(answers, line)
		}
	}
	if len(answers) != len(gaTable) {
		t.Fatalf("%d answers to %d questions:\n%s", len(answers), len(gaTable), out)
	}
	for i, tt := range gaTable {
		if (answers[i] == "null") != (tt.err != "") {
			t.Errorf("%s: argparse says %s, the table expects error %q", tt.name, answers[i], tt.err)
			continue
		}
		if tt.err != "" || tt.want.Help {
			continue
		}
		var want gaArgs
		if err := json.Unmarshal([]byte(answers[i]), &want); err != nil {
			t.Fatal(err)
		}
		// Whether the end of flags is listed differs between versions of Python.
		drop := func(a gaArgs) gaArgs {
			var rest []string
			for _, u := range a.Unknown {
				if u != "--" {
					rest = append(rest, u)
				}
			}
			a.Unknown = rest
			return a
		}
		if diff := cmp.Diff(drop(want), drop(tt.want)); diff != "" {
			t.Errorf("%s: -argparse +table:\n%s", tt.name, diff)
		}
	}
}

func TestIsGA(t *testing.T) {
	for line, want := range map[string]bool{
		"--task t":                  true,
		"--llm_no 1 --func=p.txt":   true,
		"--nobg --reflect s.py":     true,
		"task --input x":            false,
		"--config c.toml task --x":  false,
		"--help":                    false,
		"":                          false,
		"ls --task":                 false,
		"--config c run -- --task=": false,
	} {
		if got := isGA(strings.Fields(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func FuzzParseGA(f *testing.F) {
	for _, tt := range gaTable {
		f.Add(strings.Join(tt.args, "\x00"))
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\x00")
		got, err := parseGA(args)
		if err == nil && len(got.Unknown) > len(args) {
			t.Errorf("more words than there were: %q", got.Unknown)
		}
	})
}
