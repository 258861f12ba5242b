package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/redact"
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

	p := part{start: start, room: e.room(), keys: e.Keys}
	if err := p.read(ctx, f, t, count); ctx.Err() != nil {
		return tool.Failure("reading %s was broken off: %v", shown, context.Cause(ctx))
	} else if err != nil {
		return e.fileFailure(path, err)
	}
	switch {
	case p.lines == 0:
		return tool.Result{Text: shown + " is empty", Summary: "empty file"}
	case p.last == 0:
		return tool.Failure("%s has %d lines; there is no line %d", shown, p.lines, start)
	}
	// The path stands in the call already, and every turn pays for it again.
	name := shown + ", "
	if shown == filepath.Clean(path) {
		name = ""
	}
	head := name + p.head()
	if t.Charset != utf8Text {
		head += "; the file is " + string(t.Charset)
	}
	return tool.Result{Text: head + "\n" + p.body.String(), Summary: p.span()}
}

// part is what is shown of a file: lines from start on, in room bytes.
type part struct {
	start, room int
	keys        *redact.Replacer

	body strings.Builder
	// last is the last line shown, 0 for none; cut is how many bytes of it are left out.
	last, cut int
	// lines counts the file's, up to where reading ended; more says that there are
	// others behind.
	lines int
	more  bool
}

// read takes count lines at most, and counts those behind them as far as that is
// worth while. The error may be ctx's.
func (p *part) read(ctx context.Context, f io.Seeker, t *text, count int) error {
	for full := false; ; p.lines++ {
		enough := full || p.lines-p.start+1 >= count
		if p.lines%1024 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if p.more = enough && farInto(f); p.more {
				return nil
			}
		}
		var err error
		if enough || p.lines+1 < p.start {
			err = t.skip()
		} else {
			full, err = p.next(t)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// farInto reports whether so much of a file was read that the rest is not counted.
func farInto(f io.Seeker) bool {
	at, err := f.Seek(0, io.SeekCurrent)
	return err == nil && at > countAtMost
}

// next takes the next line, and reports whether there is room for no other.
func (p *part) next(t *text) (full bool, err error) {
	line, cut, err := t.next(p.room)
	if err != nil {
		return false, err
	}
	if p.body.Len() > 0 && p.body.Len()+len(line) > p.room {
		return true, nil
	}
	if cut > 0 {
		kept := len(p.keys.CutEnd(string(line)))
		line, cut = line[:kept], cut+len(line)-kept
	}
	p.body.Write(line)
	p.body.WriteByte('\n')
	p.last, p.cut = p.lines+1, cut
	return cut > 0, nil
}

// span says which lines are shown, and of how many.
func (p *part) span() string {
	of := ""
	if p.more {
		of = "more than "
	}
	return fmt.Sprintf("lines %d-%d of %s%d", p.start, p.last, of, p.lines)
}

// head says what is shown and how to go on.
func (p *part) head() string {
	head := p.span()
	switch {
	case p.start == 1 && p.last == p.lines && !p.more:
		head = plural(p.lines, "line")
	case p.last < p.lines || p.more:
		head += fmt.Sprintf("; start_line %d goes on", p.last+1)
	}
	if p.cut > 0 {
		head += fmt.Sprintf("; the end of line %d is left out (%d bytes)", p.last, p.cut)
	}
	return head
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
