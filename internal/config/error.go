package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong with a configuration.
type Error struct {
	// File is the file's path, or "environment".
	File string
	// Line counts from 1; 0 where there is none.
	Line int
	// Key is the key's path, as in "llm[0].model", or a variable's name; it may be
	// empty for a file that is no TOML at all.
	Key string
	// Problem says what is there, Hint what should be.
	Problem string
	Hint    string
	// Err is the cause, where there is one.
	Err error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, ": %s", e.Key)
	}
	fmt.Fprintf(&b, ": %s", e.Problem)
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// faults are all that is wrong, one a line.
type faults []*Error

func (f faults) Error() string {
	lines := make([]string, len(f))
	for i, e := range f {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As each single Error.
func (f faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i, e := range f {
		errs[i] = e
	}
	return errs
}

// orNil is nil where nothing is wrong, and sorted otherwise: the file from top to
// bottom, then the environment.
func (f faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b *Error) int {
		if (a.Line == 0) != (b.Line == 0) {
			return b.Line - a.Line
		}
		return a.Line - b.Line
	})
	return f
}

// together joins what is wrong with types and what is wrong with values. A value
// that could not be read is at its default, about which nothing is said; nor about
// other LLMs where one could not be read, since they name each other.
func together(types, values error) error {
	t, _ := types.(faults)
	v, ok := values.(faults)
	if types != nil && t == nil || values != nil && !ok {
		return errors.Join(types, values)
	}
	unread := func(key string) bool {
		return slices.ContainsFunc(t, func(e *Error) bool {
			return e.Key == key || strings.HasPrefix(e.Key, "llm") && strings.HasPrefix(key, "llm")
		})
	}
	all := slices.Clone(t)
	for _, e := range v {
		if !unread(e.Key) {
			all = append(all, e)
		}
	}
	return all.orNil()
}

// OriginKind says what kind of place a value came from.
type OriginKind int

// The kinds of origin. The zero value is the default.
const (
	FromDefault OriginKind = iota
	FromFile
	FromEnv
)

// Origin is where a value came from.
type Origin struct {
	Kind OriginKind
	// Name is the file's path or the variable's name.
	Name string
	// Line counts from 1; 0 where there is none.
	Line int
}

func (o Origin) String() string {
	switch {
	case o.Kind == FromDefault:
		return "default"
	case o.Line > 0:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	}
	return o.Name
}
