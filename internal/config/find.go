package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/BurntSushi/toml"
)

// place is where a configuration was found.
type place struct {
	file string
	data []byte
	dir  string
	why  string
	// warnings tell of files that were passed over.
	warnings []string
}

// find reads the first configuration in the order of the search.
func find(opts Options, env lookup) (place, error) {
	dir := opts.Dir
	if dir == "" {
		wd, err := os.Getwd()
		if err != nil {
			return place{}, fmt.Errorf("find configuration: %w", err)
		}
		dir = wd
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return place{}, fmt.Errorf("find configuration: %w", err)
	}

	// What somebody named has to be there.
	if opts.Path != "" {
		return read(resolve(dir, opts.Path), "--config")
	}
	if v, ok := env.get(envPrefix + "CONFIG"); ok && v != "" {
		return read(resolve(dir, v), envPrefix+"CONFIG")
	}

	var warnings []string
	local, err := read(filepath.Join(dir, "config.toml"), "the working directory")
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		// Many programs have a config.toml; one that cannot be read is not taken for ours.
		warnings = append(warnings, fmt.Sprintf("not used: %v", err))
	case !isOurs(local.data):
		warnings = append(warnings, fmt.Sprintf("not used: %s has no temp_dir key, so it seems to be another program's (name it with --config if it is meant)", local.file))
	default:
		if problem := writableByOthers(local.file); problem != "" {
			warnings = append(warnings, fmt.Sprintf("not used: %s, %s (name it with --config to use it all the same)", local.file, problem))
			break
		}
		return local, nil
	}

	type candidate struct{ dir, why string }
	var rest []candidate
	if opts.UserDir != "" {
		rest = append(rest, candidate{opts.UserDir, "the user's configuration directory"})
	} else if d, err := os.UserConfigDir(); err == nil {
		rest = append(rest, candidate{filepath.Join(d, "gasupervisor"), "the user's configuration directory"})
	}
	rest = append(rest, candidate{systemDir(opts.SystemDir), "the system's configuration directory"})
	for _, c := range rest {
		p, err := read(filepath.Join(c.dir, "config.toml"), c.why)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p.warnings = warnings
		return p, err
	}
	return place{dir: dir, why: "defaults", warnings: warnings}, nil
}

func systemDir(given string) string {
	if given != "" {
		return given
	}
	if runtime.GOOS == "windows" {
		return filepath.Join(os.Getenv("ProgramData"), "gasupervisor")
	}
	return "/etc/gasupervisor"
}

// read reads one file. Pipes are welcome; directories are not.
func read(path, why string) (place, error) {
	f, err := os.Open(path)
	if err != nil {
		return place{}, &Error{File: path, Problem: "cannot be read: " + cause(err), Hint: "named by " + why, Err: err}
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return place{}, &Error{File: path, Problem: "is a directory", Hint: "want a file, such as " + filepath.Join(path, "config.toml")}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return place{}, &Error{File: path, Problem: "cannot be read: " + cause(err), Err: err}
	}
	return place{file: path, data: data, dir: filepath.Dir(path), why: why}, nil
}

// cause is an error without the path that the message names already.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// isOurs reports whether a config.toml that nobody named is this program's. One
// that is broken is ours if it reads like it, so that its fault is reported.
func isOurs(data []byte) bool {
	text, err := plainText(data, "")
	if err != nil {
		return false
	}
	var doc map[string]any
	if _, err := toml.Decode(text, &doc); err != nil {
		return regexp.MustCompile(`(?m)^[ \t]*temp_dir[ \t]*=`).MatchString(text)
	}
	_, ok := doc["temp_dir"]
	return ok
}
