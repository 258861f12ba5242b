package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gasupervisor/gasupervisor"
)

// uncommented is the shipped file with its commented keys made live.
func uncommented() string {
	return regexp.MustCompile(`(?m)^# ([a-z_]+ = )`).ReplaceAllString(gasupervisor.DefaultConfig, "$1")
}

func TestShippedFileHasTheDefaults(t *testing.T) {
	for name, text := range map[string]string{"as it ships": gasupervisor.DefaultConfig, "uncommented": uncommented()} {
		t.Run(name, func(t *testing.T) {
			l, err := parse([]byte(text), "config.toml", environment([]string{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.validate(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Default(), l.Config, sameEmpty); diff != "" {
				t.Errorf("the file differs from Default (-code +file):\n%s", diff)
			}
		})
	}
}

// sameEmpty makes no difference between what is nil and what is empty.
var sameEmpty = cmp.FilterValues(func(a, b any) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	return va.IsValid() && vb.IsValid() && (va.Kind() == reflect.Map || va.Kind() == reflect.Slice) && va.Kind() == vb.Kind() && va.Len() == 0 && vb.Len() == 0
}, cmp.Comparer(func(a, b any) bool { return true }))

func TestNoFileHasTheDefaults(t *testing.T) {
	l, err := parse(nil, "", environment([]string{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), l.Config, sameEmpty); diff != "" {
		t.Errorf("-code +nothing:\n%s", diff)
	}
}

func TestShippedFileDocumentsEveryKey(t *testing.T) {
	lines := strings.Split(gasupervisor.DefaultConfig, "\n")
	table := ""
	documented := map[string]bool{}
	key := regexp.MustCompile(`^(#\s+)?([a-z_]+) = `)
	explained := false
	for _, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "":
			explained = false
		case strings.HasPrefix(trimmed, "["):
			table = strings.Trim(trimmed, "[]")
			documented[table] = true
		case key.MatchString(line):
			if !explained {
				t.Errorf("%q stands without a comment above it", line)
			}
			documented[join(table, key.FindStringSubmatch(line)[2])] = true
		default:
			explained = strings.HasPrefix(trimmed, "#")
			if !explained {
				t.Errorf("unexpected line %q", line)
			}
		}
	}
	var check func(typ reflect.Type, path string)
	check = func(typ reflect.Type, path string) {
		for _, k := range keysOf(typ) {
			f, _ := fieldByKey(typ, k)
			at := join(path, k)
			if !documented[at] {
				t.Errorf("config.toml does not mention %s", at)
			}
			delete(documented, at)
			ft := f.Type
			if ft.Kind() == reflect.Slice {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Struct && ft != reflect.TypeFor[Network]() {
				check(ft, at)
			}
		}
	}
	check(reflect.TypeFor[Config](), "")
	for k := range documented {
		t.Errorf("config.toml mentions %s, which nothing reads", k)
	}
}

// TestEveryScalarHasAnOverride sets each value to its own default by its
// variable, and finds it changed in nothing but its origin.
func TestEveryScalarHasAnOverride(t *testing.T) {
	c := Default()
	env := map[string]string{}
	temperature := 0.5
	c.LLMs[0].Temperature = &temperature
	scalars(reflect.ValueOf(&c).Elem(), "", "", func(v reflect.Value, path, eg string) bool {
		if eg == "" {
			t.Errorf("%s has no example for its messages", path)
		}
		if path == "llm[0].api_key_file" {
			return false
		}
		name := EnvName(path)
		if env[name] != "" {
			t.Errorf("%s stands for two values", name)
		}
		env[name] = textOf(v)
		return false
	})
	if got := EnvName("llm[0].price.input"); env[got] != "0.25" {
		t.Errorf("%s = %q, want 0.25", got, env[got])
	}
	var environ []string
	for k, v := range env {
		environ = append(environ, k+"="+v)
	}
	l, err := parse(nil, "", environment(environ))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, l.Config, sameEmpty); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(l.Warnings) > 0 {
		t.Errorf("warnings: %q", l.Warnings)
	}
	if got := l.Origin("web.listen").String(); got != "GASUPERVISOR_WEB_LISTEN" {
		t.Errorf("origin of web.listen is %q", got)
	}
}

func textOf(v reflect.Value) string {
	switch p := v.Addr().Interface().(type) {
	case interface{ String() string }:
		return p.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		return textOf(v.Elem())
	}
	return strings.Trim(strings.TrimSpace(sprint(v)), `"`)
}

func TestShippedFileLoads(t *testing.T) {
	path, err := filepath.Abs("../../config.toml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(Options{Path: path, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(path)
	if got, want := l.Config.TempDir, filepath.Join(root, "temp"); got != want {
		t.Errorf("temp_dir = %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{filepath.Join(root, "temp"), root}, l.Config.Sandbox.Roots); diff != "" {
		t.Error(diff)
	}
}

// A directory is a root by itself only where the config.toml in it cannot be replaced.
func TestDefaultRoots(t *testing.T) {
	place, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(place, "nowhere")
	l, err := Load(Options{Dir: place, UserDir: nowhere, SystemDir: nowhere, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(place, "temp")}, l.Config.Sandbox.Roots); l.File != "" || diff != "" {
		t.Errorf("without a file, %q:\n%s", l.File, diff)
	}

	real := filepath.Join(place, "real.toml")
	if err := os.WriteFile(real, []byte("temp_dir = \"temp\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(place, "config.toml")
	if err := os.Symlink(real, link); err != nil {
		t.Skip(err)
	}
	for path, want := range map[string][]string{
		real: {filepath.Join(place, "temp"), place},
		link: {filepath.Join(place, "temp")},
	} {
		l, err := Load(Options{Path: path, Environ: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, l.Config.Sandbox.Roots); diff != "" {
			t.Errorf("%s:\n%s", filepath.Base(path), diff)
		}
		if told := strings.Contains(strings.Join(l.Warnings, "\n"), "is a link"); told != (path == link) {
			t.Errorf("%s: warnings %q", filepath.Base(path), l.Warnings)
		}
	}
}
