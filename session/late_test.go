package session

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// Files of the first round that come while the session is at rest.

// parked is a session that waits, with the memo that its supervisor keeps.
func parked(t *testing.T, stop bool) (*desk, *Memo) {
	t.Helper()
	d := newDesk(t, answer("hi"))
	d.cfg.Park = true
	d.cfg.keep = time.Millisecond
	d.put("a", "context.json", `{"max_turns": 5}`)
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	<-l.done
	if stop {
		d.quiet("a", "_stop", "")
		l = d.start("a", l.memo)
		<-l.done
		d.state("a", taskdir.Ended, round.Stopped)
	}
	if l.err != nil || l.memo == nil {
		t.Fatalf("the session does not wait: %+v, %v", l.memo, l.err)
	}
	return d, l.memo
}

// rest has a session look and waits until it is at rest again.
func (d *desk) rest(memo *Memo) *Memo {
	d.t.Helper()
	l := d.start("a", memo)
	<-l.done
	if l.err != nil || l.memo == nil || l.memo.Damaged != "" {
		d.t.Fatalf("the session does not wait: %+v, %v", l.memo, l.err)
	}
	return l.memo
}

func TestFilesThatComeTooLateAtRestGetAReceipt(t *testing.T) {
	for name, stop := range map[string]bool{"waiting": false, "ended": true} {
		t.Run(name, func(t *testing.T) {
			d, memo := parked(t, stop)
			before := d.receipts("a")
			state := d.status("a").State
			d.quiet("a", "context.json", `{"max_turns": 70}`)
			d.quiet("a", "_history.json", `[]`)
			memo = d.rest(memo)
			want := before + "\ncontext.json: " + outcomeLate + "\n_history.json: " + outcomeLate
			if got := d.receipts("a"); got != want || d.status("a").State != state {
				t.Fatalf("receipts while %s:\n%s\nwant:\n%s", d.status("a").State, got, want)
			}

			// Looks that find nothing new write nothing, and do without the journal.
			shown := d.read("a", "status.json")
			journal := d.last.place().current()
			if err := os.Rename(journal, journal+".away"); err != nil {
				t.Fatal(err)
			}
			memo = d.rest(memo)
			if got := d.read("a", "status.json"); got != shown {
				t.Errorf("a look that found nothing wrote:\n%s\nover:\n%s", got, shown)
			}
			if err := os.Rename(journal+".away", journal); err != nil {
				t.Fatal(err)
			}

			// Nor does the next process say it again; it says what came while none ran.
			d.rest(nil)
			if got := d.read("a", "status.json"); got != shown {
				t.Errorf("the next process wrote:\n%s\nover:\n%s", got, shown)
			}
			d.quiet("a", "context.json", `{"max_turns": 700}`)
			d.rest(nil)
			if got := d.receipts("a"); got != want+"\ncontext.json: "+outcomeLate {
				t.Errorf("receipts:\n%s", got)
			}
			d.quiet("a", "reply.txt", "go on")
			d.start("a", memo)
			d.ended("a", "output1.txt")
		})
	}
}

func TestFilesBeforeAnInputAreNotLate(t *testing.T) {
	d, memo := parked(t, false)
	d.quiet("a", "context.json", `{"max_turns": 70}`)
	looked := make(chan struct{}, 1)
	d.cfg.Settled = func(string) { looked <- struct{}{} }
	l := d.start("a", memo)
	<-looked
	d.cfg.Settled = nil
	d.put("a", "input.txt", "begin anew")
	d.ended("a", "output.txt")
	d.until("session 2", func() bool { return d.status("a").Session == 2 })
	<-l.done
	if old := d.read("a", "old/1/status.json"); !strings.Contains(old, "began session 1") || strings.Contains(old, outcomeLate) {
		t.Errorf("the earlier session says of the file of the next one:\n%s", old)
	}
	if got := d.receipts("a"); !strings.Contains(got, "context.json: "+outcomeRead) || strings.Contains(got, outcomeLate) {
		t.Errorf("receipts:\n%s", got)
	}

	// The program moves the earlier session's files before it writes.
	if _, err := taskdir.MoveForNewInput(d.temp, "a"); err != nil {
		t.Fatal(err)
	}
	d.quiet("a", "context.json", `{"max_turns": 700}`)
	d.rest(l.memo)
	if got := d.read("a", "status.json"); got != "" {
		t.Errorf("the session whose files were moved away shows itself:\n%s", got)
	}
}

func TestFilesThatTheNextRoundReadsAreNotLate(t *testing.T) {
	d := newDesk(t, nil)
	d.cfg.Park = true
	d.cfg.Runner = runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		if in.Settings.MaxTurns == 0 {
			return round.Outcome{Reason: round.Failed, Error: &round.Failure{Kind: "policy", Message: "more than may be given"}}
		}
		return oneTurn(in, emit, "hi")
	})
	d.put("a", "input.txt", "go")
	l := d.start("a", nil)
	d.ended("a", "output.txt")
	<-l.done
	d.quiet("a", "context.json", `{"max_turns": 70}`)
	memo := d.rest(l.memo)
	if got := d.receipts("a"); strings.Contains(got, "context.json") {
		t.Errorf("receipts:\n%s", got)
	}
	d.quiet("a", "reply.txt", "again")
	d.start("a", memo)
	d.ended("a", "output1.txt")
	d.hasReceipt("a", "context.json: "+outcomeRead)
}
