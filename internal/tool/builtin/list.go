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

	type line struct {
		text  string
		depth int
	}
	var all []line
	perDepth := make([]int, maxDepth+1)
	bytesPerDepth := make([]int, maxDepth+1)
	ignored, err := e.walk(ctx, d, func(f found) (bool, error) {
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
		all = append(all, line{text, f.depth})
		perDepth[f.depth]++
		bytesPerDepth[f.depth] += len(text) + 1
		if len(all) >= maxWalked {
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

	deepest, n, size := -1, 0, 0
	for d := range perDepth {
		if n+perDepth[d] > maxListed || size+bytesPerDepth[d] > e.room() {
			break
		}
		n, size, deepest = n+perDepth[d], size+bytesPerDepth[d], d
	}
	var body strings.Builder
	listed := 0
	for _, l := range all {
		// Not even the first level fits: as much of it as does.
		fits := l.depth <= deepest || deepest < 0 && l.depth == 0 && listed < maxListed && body.Len()+len(l.text) < e.room()
		if fits {
			body.WriteString(l.text + "\n")
			listed++
		}
	}

	head := fmt.Sprintf("%s, %s", shown, plural(listed, "entry"))
	if listed != 1 {
		head = fmt.Sprintf("%s, %d entries", shown, listed)
	}
	if left := len(all) - listed; left > 0 {
		more := ""
		if len(all) >= maxWalked {
			more = "more than "
		}
		head += fmt.Sprintf(" (%s%d deeper or later ones are left out: list a directory of it)", more, left)
	}
	if ignored > 0 {
		head += fmt.Sprintf(" (%d that .gitignore names are left out)", ignored)
	}
	return tool.Result{Text: head + "\n" + body.String(), Summary: fmt.Sprintf("%d entries", listed)}
}
