package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gasupervisor/gasupervisor/internal/spelling"
)

// maxSize bounds a configuration file.
const maxSize = 1 << 20

// Options say where Load looks. The zero value is the process' own environment
// and working directory, without reading keys.
type Options struct {
	// Path is the file that the user named; "" searches.
	Path string
	// Dir is the working directory; "" is the process'.
	Dir string
	// Environ is the environment as os.Environ returns it; nil is the process'.
	Environ []string
	// UserDir and SystemDir are the directories searched after Dir; "" are the
	// operating system's.
	UserDir   string
	SystemDir string

	// ReadKeys reads the LLMs' keys as well, which only those need who send requests.
	ReadKeys bool
	// Unset, where it is not nil, is called for each variable that a key was read
	// from, so that no command the daemon starts can inherit it.
	Unset func(name string) error
}

// Loaded is a configuration and what is known about it.
type Loaded struct {
	Config Config
	// File is the absolute path of the file read; "" where there was none.
	File string
	// Dir is the absolute directory that relative paths were taken from.
	Dir string
	// Why says why this file, as in "--config"; "defaults" where there is none.
	Why string
	// Warnings are lines for the start log and for check: what was passed over and
	// what will not have the effect that it seems to have.
	Warnings []string

	origins map[string]Origin
}

// Origin returns where the value at a key's path came from.
func (l *Loaded) Origin(path string) Origin { return l.origins[path] }

// Setting is one value with its origin, for people to read.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// LLMSettings lists what decides where requests go, what they cost and with
// which key, for each LLM in order. Keys themselves are not shown.
func (l *Loaded) LLMSettings() []Setting {
	var out []Setting
	for i, e := range l.Config.LLMs {
		at := index("llm", i)
		add := func(key, value string) {
			out = append(out, Setting{Key: at + "." + key, Value: value, Origin: l.origins[at+"."+key].String()})
		}
		add("name", e.Name)
		add("base_url", e.BaseURL)
		add("model", e.Model)
		if e.APIKeyFile != "" {
			add("api_key_file", e.APIKeyFile)
		} else {
			add("api_key_env", e.APIKeyEnv)
		}
		window := "unknown"
		if e.ContextWindow > 0 {
			window = fmt.Sprint(e.ContextWindow)
		}
		add("context_window", window)
		price := "unknown"
		if p := e.Price; p != nil {
			price = fmt.Sprintf("%g / %g / %g USD per million tokens (input, cached, output)", p.Input, p.Cached, p.Output)
		}
		add("price", price)
	}
	return out
}

// Load finds, reads and checks the configuration. It blocks for file reads only.
// What is wrong with a configuration comes back as one error that holds an
// *Error for each fault.
func Load(opts Options) (*Loaded, error) {
	env := environment(opts.Environ)
	place, err := find(opts, env)
	if err != nil {
		return nil, err
	}
	l, err := parse(place.data, place.file, env)
	if l == nil {
		return nil, err
	}
	l.File, l.Dir, l.Why = place.file, place.dir, place.why
	l.Warnings = append(place.warnings, l.Warnings...)
	l.absolute()
	if err := together(err, l.validate()); err != nil {
		return nil, err
	}
	if opts.ReadKeys {
		if err := l.readKeys(env, opts.Unset); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// lookup finds a variable of the environment.
type lookup struct {
	get   func(string) (string, bool)
	names func() []string
}

func environment(environ []string) lookup {
	if environ == nil {
		return lookup{get: os.LookupEnv, names: func() []string { return varNames(os.Environ()) }}
	}
	vars := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	return lookup{
		get:   func(k string) (string, bool) { v, ok := vars[k]; return v, ok },
		names: func() []string { return varNames(environ) },
	}
}

func varNames(environ []string) []string {
	names := make([]string, 0, len(environ))
	for _, kv := range environ {
		k, _, _ := strings.Cut(kv, "=")
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// parse reads a configuration's text and applies the environment. Paths stay as
// they are; nothing is validated but types. The text may be empty. What has a
// wrong type stays at its default, and comes back beside the rest as faults.
func parse(data []byte, file string, env lookup) (*Loaded, error) {
	text, err := plainText(data, file)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if _, err := toml.Decode(text, &doc); err != nil {
		return nil, syntaxError(err, file)
	}
	d := &decoder{file: file, lines: keyLines(text), origins: map[string]Origin{}}
	c := Default()
	c.LLMs = nil
	d.table(reflect.ValueOf(&c).Elem(), doc, "")
	if len(c.LLMs) == 0 {
		c.LLMs = []LLM{newLLM()}
	}
	known := d.applyEnv(&c, env.get)
	if also, ok := env.get(alsoRead); ok {
		c.Sandbox.Read = append(slices.Clone(c.Sandbox.Read), filepath.SplitList(also)...)
	}
	l := &Loaded{Config: c, origins: d.origins}
	l.fillFirst(env)
	for i := range l.Config.LLMs {
		e := &l.Config.LLMs[i]
		if l.origins[index("llm", i)+".base_url"].Kind == FromDefault {
			e.BaseURL = cmp.Or(e.BaseURL, defaultBaseURL)
		}
		e.BaseURL = strings.TrimRight(strings.TrimSpace(e.BaseURL), "/")
	}
	l.warnUnknownVars(env, known)
	return l, d.faults.orNil()
}

// plainText strips a byte order mark, and names other encodings instead of
// letting a parser complain about characters.
func plainText(data []byte, file string) (string, error) {
	if len(data) > maxSize {
		return "", &Error{File: file, Problem: "the file is larger than 1 MB", Hint: "is this a configuration?"}
	}
	if bytes.HasPrefix(data, []byte{0xFF, 0xFE}) || bytes.HasPrefix(data, []byte{0xFE, 0xFF}) {
		return "", &Error{File: file, Line: 1, Problem: "the file is UTF-16", Hint: "save it as UTF-8"}
	}
	return string(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))), nil
}

func syntaxError(err error, file string) error {
	var p toml.ParseError
	if !errors.As(err, &p) {
		return &Error{File: file, Problem: "no valid TOML", Hint: err.Error(), Err: err}
	}
	return &Error{File: file, Line: p.Position.Line, Key: p.LastKey, Problem: "no valid TOML: " + p.Message,
		Hint: "texts need quotes, and a key stands only once", Err: err}
}

// fillFirst gives the first entry what nothing has set: from the variables that
// programs for OpenAI's API share, else the defaults.
func (l *Loaded) fillFirst(env lookup) {
	e := &l.Config.LLMs[0]
	origin := func(key string) Origin { return l.origins["llm[0]."+key] }
	fill := func(dst *string, key, variable, value string) {
		if origin(key).Kind != FromDefault {
			return
		}
		if v, ok := env.get(variable); variable != "" && ok && strings.TrimSpace(v) != "" {
			*dst = strings.TrimSpace(v)
			l.origins["llm[0]."+key] = Origin{Kind: FromEnv, Name: variable}
			return
		}
		*dst = value
	}
	fill(&e.Name, "name", "", defaultFirstName)
	fill(&e.BaseURL, "base_url", "OPENAI_BASE_URL", defaultBaseURL)
	model := defaultModel
	if origin("base_url").Kind == FromFile {
		// A server of one's own has models of its own: Validate asks for the name.
		model = ""
	}
	fill(&e.Model, "model", "OPENAI_MODEL", model)
	if origin("api_key_env").Kind == FromDefault && origin("api_key_file").Kind == FromDefault {
		e.APIKeyEnv = defaultKeyEnv
	}
	// The shipped window and price are those of the shipped model at its maker's.
	if origin("base_url").Kind == FromDefault && origin("model").Kind == FromDefault {
		if origin("context_window").Kind == FromDefault {
			e.ContextWindow = defaultWindow
		}
		if e.Price == nil {
			e.Price = defaultPrice()
		}
	}
}

// alsoRead is a list of paths, in the form of PATH, that adds to [sandbox] read. With
// it a program that starts a daemon grants what belongs to it, whatever the user's own
// configuration says of other places.
const alsoRead = envPrefix + "ALSO_READ"

// reserved are variables with the prefix that override nothing.
func reserved(name string) bool {
	return name == envPrefix+"CONFIG" || name == alsoRead || strings.HasPrefix(name, envPrefix+"INTERNAL_")
}

func (l *Loaded) warnUnknownVars(env lookup, known map[string]bool) {
	for _, name := range env.names() {
		if !strings.HasPrefix(name, envPrefix) || known[name] || reserved(name) {
			continue
		}
		w := fmt.Sprintf("environment: %s overrides nothing", name)
		if meant := spelling.Nearest(name, slices.Sorted(maps.Keys(known))); meant != "" {
			w += "; did you mean " + meant + "?"
		}
		l.Warnings = append(l.Warnings, w)
	}
}

// absolute makes every path absolute and fills in the sandbox's default roots.
func (l *Loaded) absolute() {
	c := &l.Config
	paths := []*string{&c.TempDir, &c.StateDir, &c.AgentsDir, &c.SkillsDir}
	for i := range c.LLMs {
		paths = append(paths, &c.LLMs[i].APIKeyFile)
	}
	if len(c.Sandbox.Roots) == 0 && c.TempDir != "" {
		c.Sandbox.Roots = append([]string{c.TempDir}, l.ownRoot()...)
	}
	c.Sandbox.Roots = slices.Clone(c.Sandbox.Roots)
	c.Sandbox.Read = slices.Clone(c.Sandbox.Read)
	for _, list := range [][]string{c.Sandbox.Roots, c.Sandbox.Read} {
		for i := range list {
			paths = append(paths, &list[i])
		}
	}
	for _, p := range paths {
		if *p != "" {
			*p = resolve(l.Dir, *p)
		}
	}
}

// ownRoot is the configuration's directory as a root of the sandbox; none where a
// command that may write there could put another config.toml in its place, for the
// next start: one that is there is covered, one that is missing, or a link, cannot be.
func (l *Loaded) ownRoot() []string {
	if l.File == "" {
		return nil
	}
	if fi, err := os.Lstat(l.File); err != nil || fi.Mode()&fs.ModeSymlink != 0 {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s is a link, which cannot be kept from being replaced, so its directory is no root: "+
			"name what tasks may use in roots of [sandbox]", l.File))
		return nil
	}
	return []string{l.Dir}
}

// resolve makes a path absolute: "~/" is the home directory, anything else
// relative is relative to dir.
func resolve(dir, p string) string {
	if rest, ok := strings.CutPrefix(p, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(dir, p)
}

// readKeys reads the keys of all entries, then takes them out of the environment.
func (l *Loaded) readKeys(env lookup, unset func(string) error) error {
	var wrong faults
	var used []string
	for i := range l.Config.LLMs {
		e := &l.Config.LLMs[i]
		var (
			text, from string
			at         Origin
			key        string
		)
		switch {
		case e.APIKeyFile != "":
			key = index("llm", i) + ".api_key_file"
			at = l.origins[key]
			b, warning, err := readKeyFile(e.APIKeyFile)
			if err != nil {
				wrong = append(wrong, &Error{File: cmp.Or(at.Name, l.place()), Line: at.Line, Key: key, Problem: err.Error(),
					Hint: "want a readable file that holds nothing but the key", Err: err})
				continue
			}
			if warning != "" {
				l.Warnings = append(l.Warnings, warning)
			}
			text, from = b, "the key in "+e.APIKeyFile
		case e.APIKeyEnv != "":
			key = index("llm", i) + ".api_key_env"
			at = l.origins[key]
			v, ok := env.get(e.APIKeyEnv)
			if ok {
				used = append(used, e.APIKeyEnv)
			} else if at.Kind != FromDefault {
				l.Warnings = append(l.Warnings, fmt.Sprintf("LLM %s: the variable %s (%s) is not set, so requests carry no key", e.Name, e.APIKeyEnv, at))
			}
			text, from = v, "the key in "+e.APIKeyEnv
		}
		text = strings.TrimSpace(text)
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			wrong = append(wrong, &Error{File: cmp.Or(at.Name, l.place()), Line: at.Line, Key: key,
				Problem: from + " holds blanks, line ends or characters that no key has", Hint: "want the key alone"})
			continue
		}
		e.Key = Secret(text)
	}
	if unset != nil {
		slices.Sort(used)
		for _, name := range slices.Compact(used) {
			if err := unset(name); err != nil {
				wrong = append(wrong, &Error{File: "environment", Key: name, Problem: "cannot be removed from the environment", Err: err})
			}
		}
	}
	return wrong.orNil()
}

// readKeyFile returns a key file's text, and a warning where others can read it.
func readKeyFile(path string) (text, warning string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", fmt.Errorf("read key: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 16<<10))
	if err != nil {
		return "", "", fmt.Errorf("read key: %w", err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return "", "", fmt.Errorf("read key: %s is empty", path)
	}
	if st, err := f.Stat(); err == nil && readableByOthers(st) {
		warning = fmt.Sprintf("%s holds a key and can be read by other users: chmod 600 it", path)
	}
	return string(b), warning, nil
}

// place is what an error names where a value has no origin of its own.
func (l *Loaded) place() string { return cmp.Or(l.File, "defaults") }

// NeedsKey reports whether requests of this entry are certain to be refused for
// want of a key.
func (e *LLM) NeedsKey() bool {
	return e.Key == "" && strings.HasPrefix(e.BaseURL, "https://api.openai.com/")
}
