package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/outline"
	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// CodeDefinitions is the tool's name.
const CodeDefinitions = "list_code_definition_names"

// Bounds of a list of definitions.
const (
	maxSourceFile  = 1 << 20
	maxSourceFiles = 2000
)

func (e Env) codeDefinitions() tool.Tool {
	return &builtin{
		name:       CodeDefinitions,
		parameters: `"path":{"type":"string","description":"a source file, or a directory, listed with all below it"}`,
		required:   []string{"path"},
		aliases:    map[string][]string{"path": pathAliases},
		run: func(ctx context.Context, a *args) tool.Result {
			return e.definitions(ctx, a.text("path"), &definitions{room: e.room(), keys: e.Keys})
		},
	}
}

// definitions gathers what the files of one call define.
type definitions struct {
	room int
	keys *redact.Replacer

	files   []sourceFile
	tooMany bool
	unread  int
}

// sourceFile is a file with its definitions.
type sourceFile struct {
	name  string
	found []outline.Definition
}

func (e Env) definitions(ctx context.Context, where string, l *definitions) tool.Result {
	shown := e.Files.Show(e.Files.Resolve(where))
	d, err := e.Files.OpenDir(where)
	switch {
	case errors.Is(err, sandbox.ErrNotDirectory):
		if !outline.Knows(where) {
			return tool.Failure("%s is in no language that this tool knows (%s); look into it with %s or %s", shown, outline.Languages, SearchFiles, ReadFile)
		}
		var f *os.File
		if f, err = e.Files.Open(where); err == nil {
			l.file(f, filepath.ToSlash(shown))
		}
	case err == nil:
		defer d.Close()
		prefix := filepath.ToSlash(shown) + "/"
		if shown == "." {
			prefix = ""
		}
		_, err = e.walk(ctx, d, func(f found) (bool, error) {
			if f.entry.IsDir() {
				return true, nil
			}
			if !f.entry.Type().IsRegular() || !outline.Knows(f.path) {
				return false, nil
			}
			if len(l.files) >= maxSourceFiles {
				l.tooMany = true
				return false, errEnough
			}
			file, err := f.dir.Open(path.Base(f.path))
			if err != nil {
				l.unread++
				return false, nil
			}
			l.file(file, prefix+f.path)
			return false, ctx.Err()
		})
	}
	if ctx.Err() != nil {
		return tool.Failure("listing the definitions in %s was broken off: %v", shown, context.Cause(ctx))
	}
	if err != nil {
		return e.fileFailure(where, err)
	}
	return l.result(shown)
}

// file reads one file and closes it.
func (l *definitions) file(f *os.File, name string) {
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSourceFile+1))
	if err != nil || len(data) > maxSourceFile {
		l.unread++
		return
	}
	if found := outline.Definitions(name, data); len(found) > 0 {
		l.files = append(l.files, sourceFile{name, found})
	}
}

// result writes the list. Where it is too long, what lies within other definitions
// is left out first, then all but the names of the files: an overview of the whole
// tells more than all of its beginning.
func (l *definitions) result(shown string) tool.Result {
	if len(l.files) == 0 {
		text := fmt.Sprintf("no definitions in %s (known are: %s)", shown, outline.Languages)
		return tool.Result{Text: text, Summary: "no definitions"}
	}
	body, listed, note := l.list(99), 0, ""
	for _, f := range l.files {
		listed += len(f.found)
	}
	all := listed
	if len(body) > l.room {
		body, listed, note = l.list(0), 0, "only those at the top level: name a file for what is in them"
		for _, f := range l.files {
			for _, d := range f.found {
				if d.Depth == 0 {
					listed++
				}
			}
		}
	}
	if len(body) > l.room {
		note = "too many to list, so only how many each file has: name a directory or a file"
		var b strings.Builder
		for i, f := range l.files {
			line := fmt.Sprintf("%s: %d\n", f.name, len(f.found))
			if b.Len()+len(line) > l.room {
				note += fmt.Sprintf("; %d files are left out", len(l.files)-i)
				break
			}
			b.WriteString(line)
		}
		body, listed = b.String(), all
	}
	notes := []string{}
	if note != "" {
		notes = append(notes, note)
	}
	if l.tooMany {
		notes = append(notes, fmt.Sprintf("after %d files the rest was not looked at", maxSourceFiles))
	}
	if l.unread > 0 {
		notes = append(notes, plural(l.unread, "file")+" could not be read or is over 1 MB")
	}
	head := fmt.Sprintf("%s in %s", plural(all, "definition"), plural(len(l.files), "file"))
	if len(notes) > 0 {
		head += " (" + strings.Join(notes, "; ") + ")"
	}
	return tool.Result{Text: head + "\n" + body, Summary: fmt.Sprintf("%s in %s", plural(listed, "definition"), plural(len(l.files), "file"))}
}

// list writes the definitions down to a depth, one a line with the number of its
// line.
func (l *definitions) list(depth int) string {
	var b strings.Builder
	for _, f := range l.files {
		b.WriteString(f.name + "\n")
		for _, d := range f.found {
			if d.Depth <= depth {
				text := d.Text
				if head, cut := strings.CutSuffix(text, "…"); cut {
					text = l.keys.CutEnd(head) + "…"
				}
				fmt.Fprintf(&b, "%5d: %s%s\n", d.Line, strings.Repeat("  ", d.Depth), text)
			}
		}
		if depth > 0 && b.Len() > 2*l.room {
			break // too long in any case
		}
	}
	return b.String()
}
