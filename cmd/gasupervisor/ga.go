package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// gaArgs are GenericAgent's command line. Empty texts mean "not given", as they
// do there.
type gaArgs struct {
	Task    string
	Func    string
	Reflect string
	Input   string
	History string
	LLMNo   int

	Verbose     bool
	NoBG        bool
	NoLog       bool
	NoUserTools bool
	Help        bool

	// Unknown is everything else, in order; GenericAgent takes no offence at it.
	Unknown []string
}

// gaFlag is one of its flags: value for those that take one, set for those that do not.
type gaFlag struct {
	name  string
	value func(*gaArgs, string) error
	set   func(*gaArgs)
}

// gaFlags lists them in the order of their definition there.
func gaFlags() []gaFlag {
	text := func(dst func(*gaArgs) *string) func(*gaArgs, string) error {
		return func(a *gaArgs, s string) error { *dst(a) = s; return nil }
	}
	return []gaFlag{
		{name: "-h", set: func(a *gaArgs) { a.Help = true }},
		{name: "--help", set: func(a *gaArgs) { a.Help = true }},
		{name: "--task", value: text(func(a *gaArgs) *string { return &a.Task })},
		{name: "--func", value: text(func(a *gaArgs) *string { return &a.Func })},
		{name: "--reflect", value: text(func(a *gaArgs) *string { return &a.Reflect })},
		{name: "--input", value: text(func(a *gaArgs) *string { return &a.Input })},
		{name: "--history", value: text(func(a *gaArgs) *string { return &a.History })},
		{name: "--llm_no", value: func(a *gaArgs, s string) error {
			n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(s), "_", ""))
			if err != nil {
				return fmt.Errorf("invalid int value: '%s'", s)
			}
			a.LLMNo = n
			return nil
		}},
		{name: "--verbose", set: func(a *gaArgs) { a.Verbose = true }},
		{name: "--nobg", set: func(a *gaArgs) { a.NoBG = true }},
		{name: "--nolog", set: func(a *gaArgs) { a.NoLog = true }},
		{name: "--no-user-tools", set: func(a *gaArgs) { a.NoUserTools = true }},
	}
}

// isGA reports whether a command line is GenericAgent's: it begins with a flag,
// and --task, --func or --reflect is among its flags.
func isGA(args []string) bool {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return false
	}
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		name, _, _ := strings.Cut(arg, "=")
		switch name {
		case "--task", "--func", "--reflect":
			return true
		}
	}
	return false
}

// argument is what a word of the command line is to argparse.
type argument struct {
	word string
	// option is set for flags, known or not; flag is nil for unknown ones.
	option bool
	flag   *gaFlag
	// explicit is the text after "=".
	explicit    string
	hasExplicit bool
	// end is the first "--".
	end bool
}

var negativeNumber = regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`)

// parseGA reads a command line the way Python's argparse (parse_known_args) does,
// down to abbreviations, `--flag=value`, values that begin with "-" if they hold a
// blank or are numbers, and its messages. Scripts depend on all of it.
func parseGA(args []string) (gaArgs, error) {
	var out gaArgs
	flags := gaFlags()
	words, err := classify(args, flags)
	if err != nil {
		return out, err
	}
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w.end || w.flag == nil:
			out.Unknown = append(out.Unknown, w.word)
		case w.flag.set != nil:
			if w.hasExplicit {
				return out, fmt.Errorf("argument %s: ignored explicit argument '%s'", w.flag.name, w.explicit)
			}
			w.flag.set(&out)
			if out.Help {
				return out, nil // argparse stops here
			}
		default:
			value := w.explicit
			if !w.hasExplicit {
				if i+1 >= len(words) || words[i+1].option || words[i+1].end {
					return out, fmt.Errorf("argument %s: expected one argument", w.flag.name)
				}
				i++
				value = words[i].word
			}
			if err := w.flag.value(&out, value); err != nil {
				return out, fmt.Errorf("argument %s: %w", w.flag.name, err)
			}
		}
	}
	return out, nil
}

// classify decides for each word whether it is a flag.
func classify(args []string, flags []gaFlag) ([]argument, error) {
	exact := func(name string) *gaFlag {
		if i := slices.IndexFunc(flags, func(f gaFlag) bool { return f.name == name }); i >= 0 {
			return &flags[i]
		}
		return nil
	}
	var words []argument
	ended := false
	for _, arg := range args {
		w := argument{word: arg}
		name, explicit, hasExplicit := strings.Cut(arg, "=")
		switch {
		case ended:
		case arg == "--":
			w.end, ended = true, true
		case !strings.HasPrefix(arg, "-") || arg == "-":
		case exact(arg) != nil:
			w.option, w.flag = true, exact(arg)
		case hasExplicit && exact(name) != nil:
			w.option, w.flag, w.explicit, w.hasExplicit = true, exact(name), explicit, true
		default:
			var matches []*gaFlag
			var names []string
			for i := range flags {
				if strings.HasPrefix(name, "--") && strings.HasPrefix(flags[i].name, name) {
					matches, names = append(matches, &flags[i]), append(names, flags[i].name)
				}
			}
			switch {
			case len(matches) > 1:
				return nil, fmt.Errorf("ambiguous option: %s could match %s", arg, strings.Join(names, ", "))
			case len(matches) == 1:
				w.option, w.flag, w.explicit, w.hasExplicit = true, matches[0], explicit, hasExplicit
			case negativeNumber.MatchString(arg) || strings.Contains(arg, " "):
				// A value, as in --llm_no -1 and --input "- do this".
			default:
				w.option = true
			}
		}
		words = append(words, w)
	}
	return words, nil
}

// check names what GenericAgent can do and this program cannot.
func (a gaArgs) check() error {
	switch {
	case a.Reflect != "":
		return errors.New("--reflect: watching by a Python script is not built; let the script, or cron, write input.txt instead")
	case a.Task == "" && a.Func == "" && !a.Help:
		return errors.New("--task or --func: want a name or a file")
	}
	return nil
}
