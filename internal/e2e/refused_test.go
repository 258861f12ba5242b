//go:build unix

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// Whoever writes a message that nothing can be done about waits for an end of output
// as for any other: there is one that says what is wrong, and a receipt, and nothing
// was spent.
func TestMessagesThatAreRefused(t *testing.T) {
	t.Parallel()
	const tooLarge = "head -c 17000000 /dev/zero | tr '\\0' x"
	for name, c := range map[string]struct {
		script string // makes the task "a", and a reply where round is 1
		round  int
		says   string
	}{
		"blank input":        {`mkdir temp/a; printf ' \n\t' > temp/a/input.txt`, 0, "input.txt holds nothing but white space"},
		"too large input":    {`mkdir temp/a; ` + tooLarge + ` > temp/a/input.txt`, 0, "17000000 bytes are more than the limit"},
		"slow large input":   {`mkdir temp/a; (for i in 1 2 3; do ` + tooLarge + `; sleep 0.2; done) > temp/a/input.txt`, 0, "51000000 bytes are more than the limit"},
		"link as input":      {`echo x > x; mkdir temp/a; ln -s ../../x temp/a/input.txt`, 0, "symbolic link"},
		"directory as input": {`mkdir -p temp/a/input.txt`, 0, "it is a directory"},
		"reply of NULs":      {`truncate -s 4K temp/a/reply.txt`, 1, "reply.txt holds nothing but white space"},
		"blank reply":        {`echo > temp/a/reply.txt`, 1, "reply.txt holds nothing but white space"},
		"too large reply":    {tooLarge + ` > temp/a/.r; mv temp/a/.r temp/a/reply.txt`, 1, "17000000 bytes are more than the limit"},
		"large intervention": {tooLarge + ` > temp/a/.i; mv temp/a/.i temp/a/_intervene`, 1, "17000000 bytes are more than the limit"},
		"link as reply":      {`echo x > x; ln -s ../../x temp/a/reply.txt`, 1, "it is a symbolic link"},
		"dangling link":      {`ln -s nowhere temp/a/reply.txt`, 1, "it is a symbolic link"},
		"pipe as reply":      {`mkfifo temp/a/reply.txt`, 1, "reply.txt: refused: "},
		"directory as reply": {`mkdir -p temp/a/reply.txt/sub`, 1, "it is a directory"},
		"link to intervene":  {`ln -s input.txt temp/a/_intervene`, 1, "it is a symbolic link"},
		"blank intervention": {`echo > temp/a/_intervene`, 1, "_intervene holds nothing but white space"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, done)
			if c.round > 0 {
				d.begin("a", "begin")
				d.output("a", 0)
				d.comes("a", taskdir.AwaitingReply)
			}
			d.sh(c.script)
			wants(t, "the output", d.output("a", c.round), "[failed: ", c.says)
			d.fence("fence")
			st := d.comes("a", taskdir.AwaitingReply)
			if st.Reason != "failed" || st.Error == nil || st.Error.Kind != "input" || st.Session != 1 || st.Round != c.round {
				t.Errorf("session %d, round %d, reason %q, error %+v", st.Session, st.Round, st.Reason, st.Error)
			}
			last := st.Messages[len(st.Messages)-1]
			if !strings.HasPrefix(string(last.Outcome), "refused: ") {
				t.Errorf("the receipt of %s says %q", last.File, last.Outcome)
			}
			if n := d.model.Count(); n != 1+c.round {
				t.Errorf("%d requests, want none for what was refused", n)
			}
			d.sh(`test ! -e temp/a/old`)

			// It is put right, and all is well.
			if c.round > 0 {
				d.sh(`echo "go on" > temp/a/reply.txt`)
				wants(t, "the next output", d.output("a", c.round+1), "done")
				d.accepted()
				return
			}
			d.sh(`rm -r temp/a/input.txt temp/a/output.txt; echo "begin" > temp/a/input.txt`)
			wants(t, "the next output", d.output("a", 0), "done")
			if st := d.comes("a", taskdir.AwaitingReply); st.Session != 2 {
				t.Errorf("session %d, want 2", st.Session)
			}
		})
	}
}

// A file of another user is waited for a while: its owner may be about to change. One
// that stays unreadable gets its answer.
func TestInputThatNobodyMayRead(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	d := start(t, done)
	d.sh(`mkdir temp/a; echo begin > temp/a/.i; chmod 0 temp/a/.i; mv temp/a/.i temp/a/input.txt`)
	wants(t, "the output", d.output("a", 0), "[failed: ", "permission denied", "write input.txt again")
	d.sh(`rm temp/a/output.txt; chmod 600 temp/a/input.txt; echo begin > temp/a/input.txt`)
	wants(t, "the next output", d.output("a", 0), "done")
}

// A refused input says so again after a restart to nobody, and nothing is done twice.
func TestRefusedInputAndARestart(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.sh(`mkdir temp/a temp/b; echo > temp/a/input.txt; mkdir temp/b/input.txt`)
	for _, task := range []string{"a", "b"} {
		d.output(task, 0)
		d.comes(task, taskdir.AwaitingReply)
	}
	d.kill()
	d.start()
	d.fence("fence")
	for _, task := range []string{"a", "b"} {
		if st := d.status(task); st.Session != 1 || st.Reason != "failed" {
			t.Errorf("%s: session %d, reason %q", task, st.Session, st.Reason)
		}
	}
}

// What stands in place of a control file is in the task's warnings, and in the log
// once, however often the task is looked at.
func TestThingsInPlaceOfFilesAreSaidOnce(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.sh(`mkdir temp/unborn; ln -s ../x temp/unborn/context.json`)
	d.begin("waits", "begin")
	d.output("waits", 0)
	d.sh(`ln -s ../x temp/waits/_stop`)
	d.until("the warning is in status.json", func() bool {
		return slices.Contains(d.status("waits").Warnings, "_stop: it is a symbolic link")
	})
	said := func(task, file string) int {
		n := 0
		for line := range strings.Lines(d.log()) {
			if strings.Contains(line, "refused a file") && strings.Contains(line, "task="+task) && strings.Contains(line, "file="+file) {
				n++
			}
		}
		return n
	}
	looks := func(name string) {
		for i := range 3 {
			d.sh(`echo note > temp/waits/_keyinfo; echo note > temp/unborn/_keyinfo`)
			d.until("the note is taken", func() bool { _, err := os.Lstat(d.task("waits", "_keyinfo")); return err != nil })
			d.fence(fmt.Sprint(name, i))
		}
	}
	looks("fence")
	if a, b := said("waits", "_stop"), said("unborn", "context.json"); a != 1 || b != 1 {
		t.Errorf("the log speaks of the waiting task's file %d times, of the other's %d times, want once each", a, b)
	}
	// Another one is another.
	d.sh(`for t in waits/_stop unborn/context.json; do ln -s ../y temp/.new; mv temp/.new temp/$t; done`)
	looks("more")
	if a, b := said("waits", "_stop"), said("unborn", "context.json"); a != 2 || b != 2 {
		t.Errorf("with new ones the log speaks of the waiting task's file %d times, of the other's %d times, want twice each", a, b)
	}
	if n := len(d.status("waits").Warnings); n != 1 {
		t.Errorf("%d warnings, want one: %q", n, d.status("waits").Warnings)
	}
	d.stop()
	d.start()
	d.fence("after the restart")
	if n := len(d.status("waits").Warnings); n != 1 {
		t.Errorf("%d warnings after a restart, want one", n)
	}
}
