package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// textHelp explains what T is in the help texts.
const textHelp = `T is the text itself, "-" for standard input, or "@file" for a file's content
("@@..." for a text that begins with "@").`

// text resolves a T. Input and files may have any of the encodings that the
// daemon reads.
func (a *app) text(arg string) (string, error) {
	switch {
	case arg == "-":
		return a.stdin()
	case strings.HasPrefix(arg, "@@"):
		return arg[1:], nil
	case strings.HasPrefix(arg, "@"):
		f, err := os.Open(arg[1:])
		if err != nil {
			return "", usagef("read text: %w", err)
		}
		defer f.Close()
		return readText(f, arg[1:])
	}
	if strings.TrimSpace(arg) == "" {
		return "", usagef("the text is empty")
	}
	return arg, nil
}

// textOrStdin is text for an argument that may be missing: then it is read from a
// pipe, but never from a terminal, where it would look like a hang.
func (a *app) textOrStdin(args []string, what string) (string, error) {
	if len(args) > 0 {
		return a.text(strings.Join(args, " "))
	}
	if a.ui.inTTY {
		return "", usagef("%s is missing", what)
	}
	return a.stdin()
}

func (a *app) stdin() (string, error) { return readText(a.ui.in, "standard input") }

func readText(r io.Reader, name string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, taskdir.MaxMessage+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > taskdir.MaxMessage {
		return "", usagef("%s holds more than %d MB", name, taskdir.MaxMessage>>20)
	}
	text, _ := taskdir.Decode(data)
	if strings.TrimSpace(text) == "" {
		return "", usagef("%s is empty", name)
	}
	return text, nil
}
