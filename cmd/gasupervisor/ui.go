package main

// This file is how the command line speaks to people. The rules are:
//
//   - What was asked for goes to standard output, plain and aligned, so that it
//     can be piped. Everything else goes to standard error.
//   - Errors and warnings begin with the program's name, are lower case, end without
//     a full stop, and say what to do.
//   - Colour and redrawing are for terminals only, colour never with NO_COLOR.
//   - Names and texts come from models and strangers. On a terminal their control
//     characters, which could move the cursor or retitle the window, are made
//     visible. In a pipe texts stay what they are, byte for byte.
//   - With --json there is nothing but JSON on standard output.

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// ui is where a command reads and writes. It is used by one goroutine at a time.
type ui struct {
	in  io.Reader
	out io.Writer
	err io.Writer

	// inTTY, outTTY and errTTY say which of them are terminals.
	inTTY, outTTY, errTTY bool
	// colour says whether standard output may have colours.
	colour bool
	// columns is the width of the terminal that out is; it asks anew each time.
	columns func() int
}

// newUI looks at what the three are.
func newUI(in io.Reader, out, err io.Writer, getenv func(string) string) *ui {
	u := &ui{in: in, out: &noting{w: out}, err: err, inTTY: isTerminal(in), outTTY: isTerminal(out), errTTY: isTerminal(err)}
	u.colour = u.outTTY && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && (runtime.GOOS != "windows" || getenv("WT_SESSION") != "")
	u.columns = func() int { return terminalWidth(out) }
	return u
}

// noting is a writer that keeps its first error, for those who print many lines
// and ask once.
type noting struct {
	w   io.Writer
	err error
}

func (n *noting) Write(p []byte) (int, error) {
	k, err := n.w.Write(p)
	if n.err == nil {
		n.err = err
	}
	return k, err
}

// lost returns the error for which not all that was printed has arrived.
func (u *ui) lost() error {
	if n, ok := u.out.(*noting); ok {
		return n.err
	}
	return nil
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is the number of columns, 80 where nobody knows.
func terminalWidth(v any) int {
	if f, ok := v.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 80
}

// printf writes to standard output. Arguments that are not our own words go
// through show first.
func (u *ui) printf(format string, args ...any) { fmt.Fprintf(u.out, format, args...) }

// notef tells something beside what was asked for.
func (u *ui) notef(format string, args ...any) { fmt.Fprintf(u.err, format+"\n", args...) }

// warnf warns.
func (u *ui) warnf(format string, args ...any) {
	fmt.Fprintf(u.err, "gasupervisor: warning: "+format+"\n", args...)
}

// printJSON writes one value, indented.
func (u *ui) printJSON(v any) error {
	enc := json.NewEncoder(u.text())
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// The few colours there are.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint colours a text where that is allowed.
func (u *ui) paint(colour, s string) string {
	if !u.colour || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// show makes a name or a short text fit for one line of a terminal or a log:
// nothing in it can move the cursor, end the line, or turn the writing direction.
func show(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return 0x2400 + r
		}
		return visibleRune(r)
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// showLines is show for a message of several lines.
func showLines(s string) string {
	return strings.Map(visibleRune, strings.ToValidUTF8(s, "\uFFFD"))
}

// quoteName writes a name as a shell takes it.
func quoteName(name string) string {
	plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.,:@%+", r)
	})
	if plain && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(show(name), "'", `'\''`) + "'"
}

// visibleRune maps a character that would control a terminal to a visible one.
func visibleRune(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case r < ' ':
		return 0x2400 + r // the symbol for it
	case r == 0x7f:
		return 0x2421
	case r >= 0x80 && r <= 0x9f, r == '\u2028', r == '\u2029', // line separators
		r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069': // writing direction
		return utf8.RuneError
	}
	return r
}

// text returns a writer for longer texts of others: to a terminal with control
// characters made visible, to a pipe as they are.
func (u *ui) text() io.Writer {
	if !u.outTTY {
		return u.out
	}
	return &visibleWriter{w: u.out}
}

// visibleWriter makes control characters visible but line ends and tabs. A
// character may be split over two writes.
type visibleWriter struct {
	w    io.Writer
	part []byte
}

func (v *visibleWriter) Write(p []byte) (int, error) {
	data := append(v.part, p...)
	n := len(data)
	// Keep back at most the beginning of one character.
	for k := 1; k < utf8.UTFMax && k <= n; k++ {
		if c := data[n-k]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(data[n-k:]) {
				n -= k
			}
			break
		}
	}
	clean := strings.ReplaceAll(string(data[:n]), "\r\n", "\n")
	clean = strings.Map(visibleRune, strings.ToValidUTF8(clean, "\uFFFD"))
	v.part = append([]byte(nil), data[n:]...)
	if _, err := io.WriteString(v.w, clean); err != nil {
		return 0, err
	}
	return len(p), nil
}

// cells is how many columns a text takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1F300 && r <= 0x1FAFF: // emoji
		return 2
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// fit shortens a text to a number of columns.
func fit(s string, columns int) string {
	if cells(s) <= columns {
		return s
	}
	if columns <= 1 {
		return strings.Repeat(".", max(columns, 0))
	}
	n := 0
	for i, r := range s {
		w := runeCells(r)
		if n+w > columns-1 {
			return s[:i] + "…"
		}
		n += w
	}
	return s
}

// pad fills a text up to a number of columns.
func pad(s string, columns int) string {
	return s + strings.Repeat(" ", max(columns-cells(s), 0))
}

// What a terminal's table leaves of its first and its last column when there is
// too little room, and how far the last one is cut at most.
const (
	leastFirst = 12
	leastLast  = 10
	leastCut   = 4
)

// table writes rows in aligned columns. On a terminal the first column (the name)
// and the last are cut where the rows are too long, and columns without a value
// are left out; in a pipe nothing is. Cells are shown, not raw.
func (u *ui) table(header []string, rows [][]string) {
	shown := make([][]string, 0, len(rows)+1)
	for _, row := range append([][]string{header}, rows...) {
		clean := make([]string, len(row))
		for i, cell := range row {
			clean[i] = show(cell)
		}
		shown = append(shown, clean)
	}
	last := len(header) - 1
	widths := make([]int, len(header)) // below 0: left out
	for i := range header {
		used := i == 0 || i == last || !u.outTTY
		for n, row := range shown {
			used = used || n > 0 && row[i] != ""
			widths[i] = max(widths[i], cells(row[i]))
		}
		if !used {
			widths[i] = -2 // the gap behind it goes too
		}
	}
	if u.outTTY {
		room := u.columns() - 2 - leastLast
		for _, w := range widths[1:last] {
			room -= w + 2
		}
		widths[0] = min(widths[0], max(room, leastFirst))
	}
	for n, row := range shown {
		var b strings.Builder
		left := u.columns()
		for i, cell := range row {
			switch {
			case widths[i] < 0:
				continue
			case u.outTTY && i == 0:
				cell = fit(cell, widths[i])
			case u.outTTY && i == last:
				if left < leastCut {
					left = leastLast // it wraps: better than to say nothing
				}
				cell = fit(cell, left)
			}
			if i < last {
				cell = pad(cell, widths[i]) + "  "
			}
			left -= cells(cell)
			b.WriteString(cell)
		}
		line := strings.TrimRight(b.String(), " ")
		if n == 0 {
			line = u.paint(bold, line)
		}
		fmt.Fprintln(u.out, line)
	}
}
