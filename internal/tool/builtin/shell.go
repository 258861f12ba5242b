package builtin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/redact"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

func (e Env) executeCommand() tool.Tool {
	e.Command.DefaultTimeout = cmp.Or(e.Command.DefaultTimeout, 2*time.Minute)
	e.Command.MaxTimeout = max(cmp.Or(e.Command.MaxTimeout, 10*time.Minute), e.Command.DefaultTimeout)
	return &builtin{
		name: ExecuteCommand,
		parameters: `"command":{"type":"string"},` +
			fmt.Sprintf(`"timeout_seconds":{"type":"integer","description":"default %d, at most %d"}`,
				seconds(e.Command.DefaultTimeout), seconds(e.Command.MaxTimeout)),
		required: []string{"command"},
		aliases: map[string][]string{
			"command": {"cmd", "code", "script"}, "timeout_seconds": {"timeout"},
		},
		changes: true,
		run: func(ctx context.Context, a *args) tool.Result {
			line, limit := a.text("command"), a.number("timeout_seconds", 1, seconds(e.Command.DefaultTimeout))
			if a.err() != nil {
				return tool.Result{}
			}
			if strings.TrimSpace(line) == "" {
				return tool.Failure("the command is empty")
			}
			if strings.ContainsRune(line, 0) {
				return tool.Failure("the command holds a zero byte")
			}
			return e.command(ctx, line, min(time.Duration(limit)*time.Second, e.Command.MaxTimeout))
		},
	}
}

func seconds(d time.Duration) int { return max(1, int(d/time.Second)) }

func (e Env) command(ctx context.Context, line string, limit time.Duration) tool.Result {
	o, err := command.Run(ctx, command.Command{
		Line: line, Dir: e.WorkDir, Env: e.Command.Env, Timeout: limit,
		OutputCap: cmp.Or(e.Command.OutputCap, e.room()), Confine: e.Command.Confine, Limits: e.Command.Limits,
	})
	if err != nil {
		return tool.Failure("%v", err)
	}
	took := fmt.Sprintf("%.1f s", o.Took.Seconds())
	r := tool.Result{Failed: o.End != command.Exited || o.Exit != 0}
	printed := plural(int(o.Output.Lines), "line")
	var head string
	switch o.End {
	case command.TimedOut:
		head = fmt.Sprintf("killed: the time limit of %d s was over", seconds(limit))
		if limit < e.Command.MaxTimeout {
			head += fmt.Sprintf(" (timeout_seconds can be up to %d)", seconds(e.Command.MaxTimeout))
		}
		r.Summary = fmt.Sprintf("timed out after %d s, %s", seconds(limit), printed)
	case command.Cancelled:
		head = fmt.Sprintf("killed after %s: %v", took, context.Cause(ctx))
		r.Summary = fmt.Sprintf("killed after %s, %s", took, printed)
	case command.Limited:
		head = fmt.Sprintf("killed after %s: %s", took, o.Limit)
		r.Summary = fmt.Sprintf("killed after %s: %s", took, o.Limit)
	default:
		head = fmt.Sprintf("exit code %d, %s", o.Exit, took)
		r.Summary = fmt.Sprintf("exit %d, %s, %s", o.Exit, printed, took)
		if o.Left > 0 {
			head += fmt.Sprintf("; %s that it left running ended with it", processes(o.Left))
		}
	}
	if o.Survivors > 0 {
		head += fmt.Sprintf("; %s could not be killed", processes(o.Survivors))
	}
	out := outputText(o.Output, e.Keys)
	switch {
	case out != "":
		head += "\n" + out
	case o.End == command.Exited:
		head += ", no output"
	}
	r.Text = head
	return r
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// outputText makes text for a model of what a command printed.
func outputText(o command.Output, keys *redact.Replacer) string {
	if o.Cut == 0 {
		return tidy(decode(o.Head))
	}
	// Cut at line ends where there are any near: a character of an encoding with
	// several bytes cannot be told from its second half.
	head, tail := []byte(keys.CutEnd(string(o.Head))), []byte(keys.CutStart(string(o.Tail)))
	if i := bytes.LastIndexByte(head, '\n'); i > len(head)/2 {
		head = head[:i+1]
	} else {
		head = wholeEnd(head)
	}
	if i := bytes.IndexByte(tail, '\n'); i >= 0 && i < len(tail)/2 {
		tail = tail[i+1:]
	} else {
		for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
			tail = tail[1:]
		}
	}
	cut := o.Bytes - int64(len(head)+len(tail))
	return fmt.Sprintf("%s\n[... %d bytes left out here; to see them, send the output to a file and read that ...]\n%s",
		strings.TrimRight(tidy(decode(head)), "\n"), cut, tidy(decode(tail)))
}

// wholeEnd drops a character of UTF-8 that b ends within.
func wholeEnd(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax, len(b)); i++ {
		c := b[len(b)-i]
		if c < utf8.RuneSelf {
			break
		}
		if utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// escapes are the sequences that move the cursor and colour the text of a terminal.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[@-Z\\\\^_])")

// tidy leaves out what is meant for a terminal: escape sequences, and the states
// of a line that were overwritten by later ones.
func tidy(s string) string {
	if strings.ContainsRune(s, '\x1b') {
		s = escapes.ReplaceAllString(s, "")
	}
	if !strings.ContainsRune(s, '\r') {
		return s
	}
	var b strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(s, "\r\n", "\n")) {
		body, end := strings.CutSuffix(line, "\n")
		body = strings.TrimRight(body, "\r")
		b.WriteString(body[strings.LastIndexByte(body, '\r')+1:])
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
