package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// Bounds of a search.
const (
	maxMatches    = 200
	maxSearchFile = 32 << 20
	maxSearchLine = 1 << 20 // what is looked at of one line
	snippet       = 240     // bytes shown of a matching line
)

func (e Env) searchFiles() tool.Tool {
	return &builtin{
		name: SearchFiles,
		parameters: `"path":{"type":"string","description":"directory or file"},` +
			`"regex":{"type":"string"},` +
			`"file_pattern":{"type":"string","description":"glob, such as *.go or src/**/*.{ts,tsx}"}`,
		required: []string{"path", "regex"},
		aliases: map[string][]string{
			"path": pathAliases, "regex": {"pattern", "query"}, "file_pattern": {"glob", "include"},
		},
		run: func(ctx context.Context, a *args) tool.Result {
			where, expr, glob := a.text("path"), a.text("regex"), a.text("file_pattern")
			re, err := regexp.Compile(expr)
			if err != nil {
				return tool.Failure("the regex is not valid: %v (RE2 syntax: no lookaround, no backreferences; escape ( [ { . * + ? | \\ to take them literally)", err)
			}
			s := &search{re: re, room: e.room(), keys: e.Keys}
			if glob != "" && glob != "*" {
				if s.glob, err = compileGlob(glob); err != nil {
					return tool.Failure("the file_pattern is not valid: %v", err)
				}
			}
			return e.search(ctx, where, s)
		},
	}
}

// search gathers the matches of one call.
type search struct {
	re   *regexp.Regexp
	glob *regexp.Regexp // nil: all files
	room int
	keys *redact.Replacer

	body            strings.Builder
	matches, files  int // matching lines, files with one
	searched        int
	binary, tooBig  int
	unreadable      int
	stopped         bool
	longLinesCutOff bool
}

func (e Env) search(ctx context.Context, where string, s *search) tool.Result {
	shown := e.Files.Show(e.Files.Resolve(where))
	prefix := shown + "/"
	if shown == "." {
		prefix = ""
	}
	d, err := e.Files.OpenDir(where)
	switch {
	case errors.Is(err, sandbox.ErrNotDirectory):
		var f *os.File
		if f, err = e.Files.Open(where); err == nil {
			err = s.file(ctx, f, filepath.ToSlash(shown))
		}
	case err == nil:
		defer d.Close()
		_, err = e.walk(ctx, d, func(f found) (bool, error) {
			if f.entry.IsDir() {
				return true, nil
			}
			if !f.entry.Type().IsRegular() || s.glob != nil && !s.glob.MatchString(f.path) {
				return false, nil
			}
			file, err := f.dir.Open(path.Base(f.path))
			if err != nil {
				s.unreadable++
				return false, nil
			}
			return false, s.file(ctx, file, filepath.ToSlash(prefix)+f.path)
		})
	}
	if ctx.Err() != nil {
		return tool.Failure("the search was broken off: %v", context.Cause(ctx))
	}
	if err != nil && !errors.Is(err, errEnough) {
		return e.fileFailure(where, err)
	}
	return s.result(shown)
}

// file searches one file and closes it.
func (s *search) file(ctx context.Context, f *os.File, name string) error {
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > maxSearchFile {
		s.tooBig++
		return nil
	}
	t, err := openText(f)
	if err != nil {
		s.unreadable++
		return nil
	}
	if t.Charset == notText {
		s.binary++
		return nil
	}
	s.searched++
	before := s.matches
	for n := 1; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, cut, err := t.next(maxSearchLine)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.unreadable++
			}
			return nil
		}
		s.longLinesCutOff = s.longLinesCutOff || cut > 0
		at := s.re.FindIndex(line)
		if at == nil {
			continue
		}
		hit := fmt.Sprintf("%s:%d: %s\n", name, n, s.excerpt(string(line), at[0], cut > 0))
		if s.matches >= maxMatches || s.body.Len()+len(hit) > s.room {
			s.stopped = true
			return errEnough
		}
		s.body.WriteString(hit)
		if s.matches == before {
			s.files++
		}
		s.matches++
	}
}

// result says what was found and what was not looked at.
func (s *search) result(shown string) tool.Result {
	var notes []string
	if s.stopped {
		notes = append(notes, "there are more: narrow the regex, the path or the file_pattern")
	}
	if s.tooBig > 0 {
		notes = append(notes, fmt.Sprintf("%s over %d MB not searched", plural(s.tooBig, "file"), maxSearchFile>>20))
	}
	if s.binary > 0 {
		notes = append(notes, plural(s.binary, "binary file")+" not searched")
	}
	if s.unreadable > 0 {
		notes = append(notes, plural(s.unreadable, "file")+" could not be read")
	}
	if s.longLinesCutOff {
		notes = append(notes, "of lines over 1 MB only the beginning was searched")
	}
	head := fmt.Sprintf("%s in %s", plural(s.matches, "matching line"), plural(s.files, "file"))
	if s.matches == 0 {
		head = fmt.Sprintf("no match in %s under %s", plural(s.searched, "file"), shown)
	}
	summary := head
	if len(notes) > 0 {
		head += " (" + strings.Join(notes, "; ") + ")"
	}
	return tool.Result{Text: head + "\n" + s.body.String(), Summary: summary}
}

// excerpt returns what is around a match at from, without a part of a key. cut says
// that the line goes on.
func (s *search) excerpt(line string, from int, cut bool) string {
	if cut {
		line = s.keys.CutEnd(line)
	}
	clean := s.keys.String(line)
	if clean != line {
		from = len(s.keys.String(s.keys.CutEnd(line[:min(from, len(line))])))
	}
	return excerpt(clean, from)
}

// excerpt returns what is around a match at from, on whole characters.
func excerpt(line string, from int) string {
	if len(line) <= snippet {
		return line
	}
	hi := min(len(line), max(0, from-snippet/4)+snippet)
	lo := hi - snippet
	for lo > 0 && !utf8.RuneStart(line[lo]) {
		lo--
	}
	for hi < len(line) && !utf8.RuneStart(line[hi]) {
		hi++
	}
	out := line[lo:hi]
	if lo > 0 {
		out = "…" + out
	}
	if hi < len(line) {
		out += "…"
	}
	return out
}
