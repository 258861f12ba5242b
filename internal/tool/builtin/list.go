package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// maxListed bounds a listing, maxWalked what is looked at for it.
const (
	maxListed = 1000
	maxWalked = 200_000
)

func (e Env) listFiles() tool.Tool {
	return &builtin{
		name: ListFiles,
		parameters: `"path":{"type":"string","description":"\".\" is the working directory"},` +
			`"recursive":{"type":"boolean"}`,
		required: []string{"path"},
		aliases:  map[string][]string{"path": pathAliases},
		run: func(ctx context.Context, a *args) tool.Result {
			path, recursive := a.text("path"), a.flag("recursive")
			if a.err() != nil {
				return tool.Result{}
			}
			return e.list(ctx, path, recursive)
		},
	}
}

// list shows a directory. Where there is too much to show, the deepest levels are
// left out first, so that the whole is seen before its parts.
func (e Env) list(ctx context.Context, path string, recursive bool) tool.Result {
	shown := e.Files.Show(e.Files.Resolve(path))
	d, err := e.Files.OpenDir(path)
	if errors.Is(err, sandbox.ErrNotDirectory) {
		return tool.Failure("%s is a file, not a directory; read it with %s", shown, ReadFile)
	}
	if err != nil {
		return e.fileFailure(path, err)
	}
	defer d.Close()

	var l listing
	l.ignored, err = e.walk(ctx, d, func(f found) (bool, error) {
		text := f.path
		switch {
		case f.isLink():
			text += " (link)"
		case f.entry.IsDir():
			text += "/"
			if recursive && opaque[f.entry.Name()] {
				text += " (not listed)"
			}
		}
		l.add(text, f.depth)
		if len(l.lines) >= maxWalked {
			return false, errEnough
		}
		return recursive, nil
	})
	if ctx.Err() != nil {
		return tool.Failure("listing %s was broken off: %v", shown, context.Cause(ctx))
	}
	if err != nil {
		return e.fileFailure(path, err)
	}
	return l.result(shown, e.room())
}

// listing is the entries of a directory, with how many and how long those of each
// depth are.
type listing struct {
	lines   []listed
	count   [maxDepth + 1]int
	size    [maxDepth + 1]int
	ignored int
}

type listed struct {
	text  string
	depth int
}

func (l *listing) add(text string, depth int) {
	l.lines = append(l.lines, listed{text, depth})
	l.count[depth]++
	l.size[depth] += len(text) + 1
}

// deepest is the deepest level down to which all entries fit; -1 where not even the
// first one's do.
func (l *listing) deepest(room int) int {
	n, size := 0, 0
	for d := range l.count {
		n, size = n+l.count[d], size+l.size[d]
		if n > maxListed || size > room {
			return d - 1
		}
	}
	return maxDepth
}

// result writes as much of the listing as fits, and says what was left out.
func (l *listing) result(shown string, room int) tool.Result {
	deepest := l.deepest(room)
	var body strings.Builder
	n := 0
	for _, line := range l.lines {
		// Where not even the first level fits, as much of it as does.
		part := deepest < 0 && line.depth == 0 && n < maxListed && body.Len()+len(line.text) < room
		if line.depth <= deepest || part {
			body.WriteString(line.text + "\n")
			n++
		}
	}
	entries := fmt.Sprintf("%d entries", n)
	if n == 1 {
		entries = "1 entry"
	}
	head := shown + ", " + entries
	if left := len(l.lines) - n; left > 0 {
		more := ""
		if len(l.lines) >= maxWalked {
			more = "more than "
		}
		head += fmt.Sprintf(" (%s%d deeper or later ones are left out: list a directory of it)", more, left)
	}
	if l.ignored > 0 {
		head += fmt.Sprintf(" (%d that .gitignore names are left out)", l.ignored)
	}
	return tool.Result{Text: head + "\n" + body.String(), Summary: entries}
}
