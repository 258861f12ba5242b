package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// envPrefix begins the name of every variable that overrides a value.
const envPrefix = "GASUPERVISOR_"

// EnvName returns the variable that overrides the value at a key's path:
// "llm[0].base_url" is GASUPERVISOR_LLM_0_BASE_URL.
func EnvName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "[", "_", "]", "").Replace(path))
}

// scalars calls visit for every single value of the configuration, with what the
// value's tag gives as an example. Lists and tables of free form are none.
// What is nil (a price that nobody gave) is visited as well, in a place of its
// own that is joined to the configuration if visit answers that it set it.
func scalars(v reflect.Value, path, eg string, visit func(v reflect.Value, path, eg string) (set bool)) bool {
	switch v.Addr().Interface().(type) {
	case *time.Duration, *Network, *Size:
		return visit(v, path, eg)
	}
	switch v.Kind() {
	case reflect.Struct:
		set := false
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if key := f.Tag.Get("toml"); key != "-" {
				set = scalars(v.Field(i), join(path, key), f.Tag.Get("eg"), visit) || set
			}
		}
		return set
	case reflect.Pointer:
		p := v
		if v.IsNil() {
			p = reflect.New(v.Type()).Elem()
			p.Set(reflect.New(v.Type().Elem()))
		}
		set := scalars(p.Elem(), path, eg, visit)
		if set && v.IsNil() {
			v.Set(p)
		}
		return set
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return false
		}
		set := false
		for i := range v.Len() {
			set = scalars(v.Index(i), index(path, i), eg, visit) || set
		}
		return set
	case reflect.Map:
		return false
	}
	return visit(v, path, eg)
}

// applyEnv overrides single values from the environment. It returns the names of
// the variables that exist for this configuration, for a message about others.
func (d *decoder) applyEnv(c *Config, lookup func(string) (string, bool)) map[string]bool {
	names := map[string]bool{}
	scalars(reflect.ValueOf(c).Elem(), "", "", func(v reflect.Value, path, eg string) bool {
		name := EnvName(path)
		names[name] = true
		text, ok := lookup(name)
		if !ok {
			return false
		}
		if want, ok := setText(v, text); !ok {
			if want == "text" || strings.HasPrefix(want, "a duration") || want == "a size" {
				eg = strings.Trim(eg, `"`)
			}
			d.faults = append(d.faults, &Error{File: "environment", Key: name,
				Problem: fmt.Sprintf("got %q", clip(text, 60)), Hint: fmt.Sprintf("want %s, such as %s", want, eg)})
			return false
		}
		d.origins[path] = Origin{Kind: FromEnv, Name: name}
		return true
	})
	return names
}

// setText sets v from the text of a variable. Where the text does not do, it
// returns the form that would.
func setText(v reflect.Value, text string) (want string, ok bool) {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		t, err := parseDuration(text)
		if err != nil {
			return "a duration", false
		}
		*p = t
		return "", true
	case *Size:
		n, err := parseSize(text)
		if err != nil {
			return "a size", false
		}
		*p = n
		return "", true
	case *Network:
		n, ok := networkOf(text)
		if !ok {
			// A list in the form of a variable: host:port,host:port.
			for _, h := range strings.Split(text, ",") {
				n.Hosts = append(n.Hosts, strings.TrimSpace(h))
			}
		}
		*p = n
		return "", true
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return "true or false", false
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return "a whole number", false
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return "a number", false
		}
		v.SetFloat(f)
	default:
		panic("config: no override for a value of kind " + v.Kind().String())
	}
	return "", true
}
