package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// args are the arguments of a call, read tolerantly: what a model means is
// plain from a number in quotes as well. What is wrong is gathered, so that one
// answer names it all.
type args struct {
	fields map[string]json.RawMessage
	wrong  []string
}

// parseArgs reads a JSON object. A parameter that came under one of its aliases
// is put where it belongs; null is as good as absent.
func parseArgs(raw json.RawMessage, aliases map[string][]string) (*args, error) {
	a := &args{}
	if err := json.Unmarshal(raw, &a.fields); err != nil {
		return nil, err
	}
	for name, v := range a.fields {
		if string(v) == "null" {
			delete(a.fields, name)
		}
	}
	for name, others := range aliases {
		for _, other := range others {
			if _, taken := a.fields[name]; taken {
				break
			}
			if v, ok := a.fields[other]; ok {
				a.fields[name] = v
				delete(a.fields, other)
			}
		}
	}
	return a, nil
}

// err returns all that is wrong with the arguments asked for so far.
func (a *args) err() error {
	if len(a.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(a.wrong, "; "))
}

func (a *args) complain(format string, v ...any) {
	a.wrong = append(a.wrong, fmt.Sprintf(format, v...))
}

func (a *args) need(name string) {
	if _, ok := a.fields[name]; ok {
		return
	}
	given := "none were given"
	if len(a.fields) > 0 {
		given = "given were: " + strings.Join(slices.Sorted(maps.Keys(a.fields)), ", ")
	}
	a.complain("the argument %q is missing (%s)", name, given)
}

// text returns a text. A value of another kind is taken as its JSON text: models
// write the content of JSON files as an object.
func (a *args) text(name string) string {
	raw, ok := a.fields[name]
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(bytes.TrimSpace(raw))
}

// number returns a whole number of at least least, or otherwise where the
// argument is absent.
func (a *args) number(name string, least, otherwise int) int {
	raw, ok := a.fields[name]
	if !ok {
		return otherwise
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(strings.Trim(string(raw), `"`)), 64)
	switch {
	case err != nil || math.IsNaN(f) || math.IsInf(f, 0):
		a.complain("%s must be a whole number, not %s", name, clip(string(raw), 40))
		return otherwise
	case f < float64(least):
		a.complain("%s must be at least %d, not %s", name, least, clip(string(raw), 40))
		return otherwise
	case f > math.MaxInt32:
		return math.MaxInt32
	}
	return int(f)
}

// flag returns a yes or no; absent is no.
func (a *args) flag(name string) bool {
	raw, ok := a.fields[name]
	if !ok {
		return false
	}
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true", "yes", "1":
		return true
	case "false", "no", "0", "":
		return false
	}
	a.complain("%s must be true or false, not %s", name, clip(string(raw), 40))
	return false
}

// clip shortens s to at most n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
