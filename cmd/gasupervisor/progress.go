package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// progress shows how far a batch has come: on a terminal one line that is redrawn
// below a line for each thing that is done, in a pipe these lines alone.
//
// Its methods may be called by several goroutines. Each change is one write, so
// that a line is never mixed with another.
type progress struct {
	w       io.Writer
	tty     bool
	columns func() int
	now     func() time.Time

	mu      sync.Mutex
	total   int
	done    int
	failed  int
	running []running
	begun   time.Time
	// drawn is how many columns of the bar are on the screen; 0 where there is none.
	drawn  int
	closed bool
}

type running struct {
	name  string
	begun time.Time
}

// newProgress prepares a display of total things. w is where it goes, as a rule
// standard error; columns is asked for its width, and only a terminal gets a bar.
func newProgress(w io.Writer, tty bool, columns func() int, total int, now func() time.Time) *progress {
	return &progress{w: w, tty: tty, columns: columns, now: now, total: total, begun: now()}
}

// begin says that one thing has begun.
func (p *progress) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, running{show(name), p.now()})
	p.draw("")
}

// end says that one thing is over; what is said of it in a few words. A failed one
// is counted apart.
func (p *progress) end(name, what string, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name = show(name)
	took := ""
	if i := slices.IndexFunc(p.running, func(r running) bool { return r.name == name }); i >= 0 {
		took = " (" + shortTime(p.now().Sub(p.running[i].begun)) + ")"
		p.running = slices.Delete(p.running, i, i+1)
	}
	p.done++
	if failed {
		p.failed++
	}
	p.draw(fmt.Sprintf("[%d/%d] %s: %s%s", p.done, p.total, name, show(what), took))
}

// run keeps the times on the bar going until ctx ends. Without a terminal it only waits.
func (p *progress) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.mu.Lock()
			p.draw("")
			p.mu.Unlock()
		}
	}
}

// close takes the bar off the screen; nothing is shown after it.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn > 0 {
		io.WriteString(p.w, "\r"+strings.Repeat(" ", p.drawn)+"\r")
	}
	p.closed = true
}

// draw writes a line, if there is one, and the bar below it.
func (p *progress) draw(line string) {
	if p.closed {
		return
	}
	if !p.tty {
		if line != "" {
			io.WriteString(p.w, line+"\n")
		}
		return
	}
	// The last column stays free: a full line would wrap, and the next carriage
	// return would only reach the start of its second half.
	room := p.columns() - 1
	var b strings.Builder
	b.WriteByte('\r')
	if line != "" {
		b.WriteString(pad(fit(line, max(room, 0)), min(p.drawn, room)))
		b.WriteByte('\n')
		p.drawn = 0
	}
	bar := fit(p.bar(room), max(room, 0))
	// Spaces wipe what a longer bar left, without escape sequences, so that it
	// works on any console.
	b.WriteString(pad(bar, min(p.drawn, room)))
	if extra := min(p.drawn, room) - cells(bar); extra > 0 {
		b.WriteByte('\r')
		b.WriteString(bar)
	}
	p.drawn = cells(bar)
	io.WriteString(p.w, b.String())
}

// barWidth is how many columns the picture takes, brackets included.
const barWidth = 24

// bar is the line itself, as long as fits in room.
func (p *progress) bar(room int) string {
	counts := fmt.Sprintf("%d/%d", p.done, p.total)
	if p.failed > 0 {
		counts += fmt.Sprintf(", %d failed", p.failed)
	}
	if eta, ok := p.eta(); ok {
		counts += ", about " + shortTime(eta) + " left"
	} else if p.done < p.total {
		counts += ", " + shortTime(p.now().Sub(p.begun))
	}
	s := counts
	if room >= cells(counts)+barWidth+1 {
		filled := 0
		if p.total > 0 {
			filled = min(p.done*(barWidth-2)/p.total, barWidth-2)
		}
		s = "[" + strings.Repeat("=", filled) + strings.Repeat(" ", barWidth-2-filled) + "] " + counts
	}
	names := make([]string, len(p.running))
	for i, r := range p.running {
		names[i] = r.name
	}
	if len(names) > 0 && room-cells(s) > 12 {
		s += "  " + strings.Join(names, ", ")
	}
	return s
}

// eta is the time left, from the pace so far. Nothing done yet gives none.
func (p *progress) eta() (time.Duration, bool) {
	if p.done == 0 || p.done >= p.total {
		return 0, false
	}
	pace := p.now().Sub(p.begun) / time.Duration(p.done)
	return pace * time.Duration(p.total-p.done), true
}

// shortTime writes a duration as people say it: 0.4s, 12s, 3m20s, 2h05m.
func shortTime(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
