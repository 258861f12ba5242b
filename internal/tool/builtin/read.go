package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// countAtMost bounds how much of a file is read only to say how many lines it has.
const countAtMost = 256 << 20

var pathAliases = []string{"file_path", "filename", "file", "dir", "directory"}

func (e Env) readFile() tool.Tool {
	return &builtin{
		name: ReadFile,
		parameters: `"path":{"type":"string","description":"absolute, or relative to the working directory"},` +
			`"start_line":{"type":"integer","description":"counted from 1"},` +
			`"line_count":{"type":"integer"}`,
		required: []string{"path"},
		aliases: map[string][]string{
			"path": pathAliases, "start_line": {"start", "offset"}, "line_count": {"count", "limit"},
		},
		run: func(ctx context.Context, a *args) tool.Result {
			path, start, count := a.text("path"), a.number("start_line", 0, 1), a.number("line_count", 1, 1<<30)
			if a.err() != nil {
				return tool.Result{}
			}
			return e.read(ctx, path, max(start, 1), count)
		},
	}
}

// read shows count lines from start on, as many as a result holds. A header says
// which lines these are and how to go on; the lines themselves are as they stand
// in the file, so that they can be given to replace_in_file.
func (e Env) read(ctx context.Context, path string, start, count int) tool.Result {
	shown := e.Files.Show(e.Files.Resolve(path))
	f, err := e.Files.Open(path)
	if err != nil {
		return e.fileFailure(path, err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return e.fileFailure(path, err)
	}
	t, err := openText(f)
	if err != nil {
		return e.fileFailure(path, err)
	}
	if t.Charset == notText {
		return tool.Failure("%s is a binary file of %d bytes; look at it with a command that knows its format", shown, fi.Size())
	}

	room := e.room()
	var body strings.Builder
	lines, last, cutLine := 0, 0, 0
	full := false
	counted := true
	for {
		if lines%1024 == 0 {
			if ctx.Err() != nil {
				return tool.Failure("reading %s was broken off: %v", shown, context.Cause(ctx))
			}
			if full || lines >= start+count-1 {
				if at, err := f.Seek(0, io.SeekCurrent); err == nil && at > countAtMost {
					counted = false
					break
				}
			}
		}
		if full || lines+1 < start || lines-start+1 >= count {
			err = t.skip()
		} else {
			var line []byte
			var cut int
			line, cut, err = t.next(room)
			switch {
			case err != nil:
			case body.Len() > 0 && body.Len()+len(line) > room:
				full = true
			default:
				body.Write(line)
				body.WriteByte('\n')
				last = lines + 1
				if cut > 0 {
					cutLine, full = cut, true
				}
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return e.fileFailure(path, err)
		}
		lines++
	}

	switch {
	case lines == 0 && counted:
		return tool.Result{Text: shown + " is empty", Summary: "empty file"}
	case last == 0:
		return tool.Failure("%s has %d lines; there is no line %d", shown, lines, start)
	}
	total := fmt.Sprint(lines)
	if !counted {
		total = fmt.Sprintf("more than %d", lines)
	}
	// The path stands in the call already, and every turn pays for it again.
	name := shown + ", "
	if shown == filepath.Clean(path) {
		name = ""
	}
	head := fmt.Sprintf("%slines %d-%d of %s", name, start, last, total)
	switch {
	case start == 1 && last == lines && counted:
		head = name + plural(lines, "line")
	case last < lines || !counted:
		head += fmt.Sprintf("; start_line %d goes on", last+1)
	}
	if cutLine > 0 {
		head += fmt.Sprintf("; the end of line %d is left out (%d bytes)", last, cutLine)
	}
	if t.Charset != utf8Text {
		head += "; the file is " + string(t.Charset)
	}
	summary := fmt.Sprintf("lines %d-%d of %s", start, last, total)
	return tool.Result{Text: head + "\n" + body.String(), Summary: summary}
}

// room is how many bytes a tool puts into a result beside its notes.
func (e Env) room() int { return max(e.ResultCap-600, 400) }

// fileFailure tells the model what stood against a file, in words that lead on.
func (e Env) fileFailure(path string, err error) tool.Result {
	abs := e.Files.Resolve(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tool.Failure("%s does not exist%s", e.Files.Name(abs), e.nearest(abs))
	case errors.Is(err, fs.ErrPermission):
		return tool.Failure("%s: permission denied by the system", e.Files.Name(abs))
	}
	return tool.Failure("%v", err)
}

// nearest says how far a path that does not exist leads, and what is of a
// similar name there.
func (e Env) nearest(abs string) string {
	dir := filepath.Dir(abs)
	for {
		if d, err := e.Files.OpenDir(dir); err == nil {
			defer d.Close()
			if dir != filepath.Dir(abs) {
				return fmt.Sprintf("; the deepest directory on the way that does is %s", e.Files.Name(dir))
			}
			entries, _, err := d.Entries(5000)
			if err != nil {
				return ""
			}
			want := strings.ToLower(filepath.Base(abs))
			stem := strings.TrimSuffix(want, filepath.Ext(want))
			var like []string
			for _, entry := range entries {
				name := strings.ToLower(entry.Name())
				if name == want || stem != "" && strings.HasPrefix(name, stem) || strings.TrimSuffix(name, filepath.Ext(name)) == stem {
					like = append(like, entry.Name())
				}
			}
			if len(like) == 0 || len(like) > 5 {
				return ""
			}
			return "; its directory has " + strings.Join(like, ", ")
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return ""
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
