package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

// How the demonstration looks: what a shell would be told begins with "$", what
// it would print stands behind a bar.

func (d *demo) intro(l *config.Loaded) {
	d.say(`A task is a directory. Write input.txt and an agent works on it; its output
grows beside it. Every line that begins with $ is all that a shell has to do.`)
	if d.live {
		d.say("The model is real: %s at %s.", show(l.Config.LLMs[0].Model), show(l.Config.LLMs[0].BaseURL))
	} else {
		d.say(`The model is scripted: its answers were written for this demo. The daemon,
the tools and the files are real.`)
	}
}

func (d *demo) outro() {
	d.say("")
	if !d.live {
		if asked := d.model.Requests(); len(asked) > 0 {
			d.say("input.txt was closed and %s later the model was asked.", demoTime(asked[0].At.Sub(d.written)))
		}
		d.say("With a real model:")
		d.ui.printf("  OPENAI_API_KEY=sk-... gasupervisor demo --live\n")
		d.ui.printf("  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3 \\\n      gasupervisor demo --live\n")
	}
	d.say("In earnest:")
	d.ui.printf("  gasupervisor init && gasupervisor run\n")
}

func demoTime(t time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(max(t, 0).Microseconds())/1000)
}

func (d *demo) say(format string, args ...any) {
	d.ui.printf(format+"\n", args...)
	d.gap = true
}

// command shows a command line.
func (d *demo) command(format string, args ...any) {
	if d.gap {
		d.gap = false
		d.ui.printf("\n")
	}
	d.ui.printf("%s\n", d.ui.paint(bold, "$ "+fmt.Sprintf(format, args...)))
}

// pause leaves a person time to read; in a pipe nobody needs it.
func (d *demo) pause(ctx context.Context, t time.Duration) {
	if !d.paced {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}

// shellText quotes a text for printf and echo: control characters as escapes,
// which printf knows.
func shellText(s string) string {
	s = strings.ReplaceAll(s, "\n", `\n`)
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// quoted shows text of others behind a bar, wrapped at the terminal's width. It
// calls inTheMiddle, once, after the heading of the second turn.
func (d *demo) quoted(inTheMiddle func()) io.Writer {
	width := 0
	if d.ui.outTTY {
		width = min(d.ui.columns(), 100) - cells(demoBar) - 1
	}
	d.gap = true
	return &barWriter{ui: d.ui, width: max(width, 0), inTheMiddle: inTheMiddle}
}

const demoBar = "  │ "

// barWriter is a writer for text that arrives in pieces. Complete words are
// shown at once, so that streaming looks like streaming.
type barWriter struct {
	ui *ui
	// width is how many columns there are; 0 does not wrap.
	width       int
	inTheMiddle func()

	line    string // as far as it has come
	shown   string // of it, on the screen
	column  int
	blank   bool // an empty line is due before the next
	started bool
}

const secondTurn = "Turn 2 ..."

func (w *barWriter) Write(p []byte) (int, error) {
	w.line += string(p)
	for {
		line, rest, whole := strings.Cut(w.line, "\n")
		if !whole {
			break
		}
		w.line = line
		w.advance(true)
		w.endLine(line)
		w.line, w.shown = rest, ""
	}
	w.advance(false)
	return len(p), nil
}

// advance shows what there is of the line, up to the last complete word.
func (w *barWriter) advance(whole bool) {
	text := strings.TrimPrefix(w.line, w.shown)
	if !whole {
		text = text[:strings.LastIndexByte(text, ' ')+1]
	}
	if text == "" {
		return
	}
	w.shown += text
	for _, word := range strings.SplitAfter(text, " ") {
		if word != "" {
			w.word(word)
		}
	}
}

func (w *barWriter) word(word string) {
	clean := strings.Map(visibleRune, strings.ReplaceAll(strings.ToValidUTF8(word, string(utf8.RuneError)), "\t", "    "))
	if w.column == 0 {
		if w.blank && w.started {
			w.ui.printf("%s\n", w.ui.paint(dim, strings.TrimRight(demoBar, " ")))
		}
		w.blank, w.started = false, true
		w.ui.printf("%s", w.ui.paint(dim, demoBar))
	}
	n := cells(strings.TrimRight(clean, " "))
	if w.width > 0 && w.column > 0 && w.column+n > w.width {
		w.ui.printf("\n%s  ", w.ui.paint(dim, demoBar))
		w.column = 2
	}
	w.ui.printf("%s", clean)
	w.column += cells(clean)
}

func (w *barWriter) endLine(line string) {
	if w.column == 0 {
		w.blank = true
		return
	}
	w.ui.printf("\n")
	w.column = 0
	if line == secondTurn && w.inTheMiddle != nil {
		call := w.inTheMiddle
		w.inTheMiddle, w.started = nil, false
		call()
	}
}
