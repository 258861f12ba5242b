package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// newFilePerm is for files that tools make; the umask narrows it.
const newFilePerm = 0o644

func (e Env) writeToFile() tool.Tool {
	return &builtin{
		name: WriteToFile,
		parameters: `"path":{"type":"string"},` +
			`"content":{"type":"string"},` +
			`"mode":{"type":"string","enum":["overwrite","append"],"description":"default overwrite"}`,
		required: []string{"path", "content"},
		aliases:  map[string][]string{"path": pathAliases, "content": {"text", "file_text", "contents"}},
		changes:  true,
		run: func(_ context.Context, a *args) tool.Result {
			return e.write(a.text("path"), a.text("content"), a.text("mode"))
		},
	}
}

func (e Env) write(path, content, mode string) tool.Result {
	put, did := e.Files.WriteFile, "overwrote"
	switch strings.ToLower(mode) {
	case "", "overwrite", "write", "create":
	case "append":
		put, did = e.Files.AppendFile, "added to"
	default:
		return tool.Failure("mode must be overwrite or append, not %q", clip(mode, 40))
	}
	created, err := put(path, []byte(content), newFilePerm)
	if err != nil {
		return e.fileFailure(path, err)
	}
	if created {
		did = "created"
	}
	abs := e.Files.Name(e.Files.Resolve(path))
	size := fmt.Sprintf("%s, %s", plural(len(content), "byte"), plural(countLines(content), "line"))
	return tool.Result{
		Text:    fmt.Sprintf("%s %s (%s)", did, abs, size),
		Summary: fmt.Sprintf("%s, %s", did, size),
	}
}

// countLines counts a last line without its end too.
func countLines(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}
