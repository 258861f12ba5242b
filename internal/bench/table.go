package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// sample is a number of times measured.
type sample []time.Duration

// at is the time below which a part of the sample lies.
func (s sample) at(part float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// figure is what a cell of the table shows.
type figure struct {
	known bool
	// value is in the unit of the row, p99 as well where it is not 0.
	value, p99 float64
	note       string
}

func value(v float64) figure { return figure{known: true, value: v} }

// times is a sample in milliseconds.
func times(s sample) figure {
	return figure{known: true, value: inMs(s.at(.5)), p99: inMs(s.at(.99))}
}

func inMs(t time.Duration) float64 { return float64(t.Nanoseconds()) / 1e6 }

// row is a line of the table.
type row struct {
	what, goal string
	unit       unit
	daemon     figure
	floor      figure
	generic    figure
}

// unit formats a value.
type unit func(float64) string

func milliseconds(v float64) string { return fmt.Sprintf("%.2f ms", v) }
func seconds(v float64) string      { return fmt.Sprintf("%.2f s", v) }
func percent(v float64) string      { return fmt.Sprintf("%.2f %%", v) }
func count(v float64) string        { return grouped(int64(v)) }

func bytesOf(v float64) string {
	switch {
	case v < 10_000:
		return fmt.Sprintf("%.1f KB", v/1000)
	case v < 1e6:
		return fmt.Sprintf("%.0f KB", v/1000)
	}
	return fmt.Sprintf("%.1f MB", v/1e6)
}

// grouped writes 12345 as 12,345.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func (r row) cell(f figure) string {
	if !f.known {
		return f.note
	}
	text := r.unit(f.value)
	if f.p99 != 0 {
		text += ", " + r.unit(f.p99)
	}
	if f.note != "" {
		text += " (" + f.note + ")"
	}
	return text
}

// ratio is how many floors the daemon takes.
func (r row) ratio() string {
	if !r.daemon.known || r.floor.value <= 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f", r.daemon.value/r.floor.value)
	if r.floor.p99 > 0 && r.daemon.p99 > 0 {
		text += fmt.Sprintf(", %.1f", r.daemon.p99/r.floor.p99)
	}
	return text
}

// print writes the table, which Markdown takes as it is.
func (b *bench) print(w io.Writer) error {
	head := []string{"what (median, p99)", "to reach", "daemon", "floor", "ratio"}
	if b.scale {
		head = []string{"what", "figure"}
	}
	if b.ga != nil {
		head = append(head, "GenericAgent")
	}
	lines := [][]string{head, nil}
	for _, r := range b.rows {
		cells := []string{r.what, r.goal, r.cell(r.daemon), r.cell(r.floor), r.ratio()}
		if b.scale {
			cells = []string{r.what, r.cell(r.daemon)}
		}
		if b.ga != nil {
			cells = append(cells, r.cell(r.generic))
		}
		lines = append(lines, cells)
	}
	width := make([]int, len(head))
	for _, cells := range lines {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for i := range head {
		lines[1] = append(lines[1], strings.Repeat("-", width[i]))
	}
	for _, cells := range lines {
		var line strings.Builder
		for i, c := range cells {
			line.WriteString("| " + c + strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+1))
		}
		if _, err := fmt.Fprintln(w, line.String()+"|"); err != nil {
			return err
		}
	}
	return nil
}

// report adds a line to a table of a scale run, and says it at once.
func (b *bench) report(what string, u unit, f figure) {
	r := row{what: what, unit: u, daemon: f}
	b.rows = append(b.rows, r)
	b.say("  %s: %s", what, r.cell(f))
}

// text is a figure in words.
func text(format string, args ...any) figure { return figure{note: fmt.Sprintf(format, args...)} }
