//go:build unix

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestTaskRemovedAndMadeAgain(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.begin("t1", "the first life")
	d.output("t1", 0)
	d.comes("t1", taskdir.AwaitingReply)
	d.sh(`rm -r temp/t1`)
	d.until("the session ends with its directory", func() bool { return strings.Contains(d.log(), "directory is gone") })
	d.fence("fence")
	if _, err := os.Stat(d.task("t1")); !os.IsNotExist(err) {
		t.Fatalf("the removed directory is there again: %v", err)
	}
	d.begin("t1", "the second life")
	d.output("t1", 0)
	d.fence("fence2")
	second := d.requests("the second life")
	if len(second) != 1 || len(d.requests("the first life")) != 1 {
		t.Fatalf("%d requests of the first life, %d of the second, want one each", len(d.requests("the first life")), len(second))
	}
	lacks(t, "the second life", string(second[0].Body), "the first life")
	if st := d.comes("t1", taskdir.AwaitingReply); st.Session != 1 {
		t.Errorf("session %d in a new directory, want 1", st.Session)
	}
}

func TestTaskRemovedDuringARound(t *testing.T) {
	t.Parallel()
	sleep := nap(t)
	d := start(t, llmtest.Route(
		llmtest.Task("first life", command(sleep), llmtest.Done("never")),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("done")))))
	d.begin("t1", "first life")
	d.until("its command runs", func() bool { return len(processes(t, sleep)) > 0 })
	d.sh(`rm -r temp/t1`)
	d.until("nothing of it runs", func() bool { return len(processes(t, sleep)) == 0 })
	d.begin("t1", "second life")
	d.output("t1", 0)
	d.fence("fence")
	if n := len(d.requests("second life")); n != 1 {
		t.Errorf("%d requests of the second life, want 1", n)
	}
}

func TestDirectoriesThatAreBornFull(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	for name, script := range map[string]string{
		"renamed":   `echo renamed-input > ready; mkdir temp/renamed; mv ready temp/renamed/input.txt`,
		"moved":     `mkdir away && echo moved-input > away/input.txt && mv away temp/moved`,
		"copied":    `mkdir away2 && echo copied-input > away2/input.txt && cp -r away2 temp/copied`,
		"instantly": `mkdir temp/instantly && echo instantly-input > temp/instantly/input.txt`,
		"with more": `mkdir away3 && echo more-input > away3/input.txt && echo '{"dependencies": ["one more thing"]}' > away3/context.json && mv away3 "temp/with more"`,
	} {
		t.Run(name, func(t *testing.T) {
			d.sh(script)
			d.output(name, 0)
		})
	}
	d.fence("fence")
	for _, input := range []string{"renamed-input", "moved-input", "copied-input", "instantly-input", "more-input"} {
		if n := len(d.requests(input)); n != 1 {
			t.Errorf("%d requests for %s, want 1", n, input)
		}
	}
	wants(t, "the task with a context", d.requests("more-input")[0].FirstUser(), "one more thing")
}

func TestTasksWrittenWhileNoDaemonRuns(t *testing.T) {
	t.Parallel()
	d := newPlace(t, done)
	d.sh(`mkdir -p temp/early && echo early > temp/early/input.txt`)
	d.start()
	d.output("early", 0)
	d.stop()
	d.sh(`mkdir temp/between && echo between > temp/between/input.txt && echo more > temp/early/reply.txt`)
	d.start()
	d.output("between", 0)
	d.output("early", 1)
	if n := d.model.Count(); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

// slowly writes texts through one handle, at a writer's pace.
func slowly(t *testing.T, path string, pace time.Duration, texts ...string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if i > 0 {
			time.Sleep(pace)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSlowWriterOfTheInput(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.sh(`mkdir temp/chunks temp/truncated`)
	slowly(t, d.task("chunks", "input.txt"), 100*time.Millisecond, "one, ", "two, ", "three")
	d.output("chunks", 0)
	// `>` empties the file at once and writes later.
	slowly(t, d.task("truncated", "input.txt"), 200*time.Millisecond, "", "all of it")
	d.output("truncated", 0)
	d.fence("fence")
	if n := d.model.Count(); n != 3 {
		t.Errorf("%d requests, want 3: each input is taken once", n)
	}
	wants(t, "the input", d.model.Requests()[0].FirstUser(), "one, two, three")
	wants(t, "the input", d.model.Requests()[1].FirstUser(), "all of it")
}

// replies are the supervisor's messages after the first, as the model was last
// shown them, without what the daemon adds.
func replies(r *llmtest.Request) (texts []string) {
	first := true
	for _, m := range r.Messages {
		if m.Role != llm.User || !strings.HasPrefix(m.Content, "[supervisor]") {
			continue
		}
		if !first {
			_, text, _ := strings.Cut(m.Content, "\n")
			texts = append(texts, text)
		}
		first = false
	}
	return texts
}

func TestSlowWriterOfAReply(t *testing.T) {
	t.Parallel()
	const n, pace = 60, 50 * time.Millisecond
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("line %d of %d\n", i, n))
	}
	whole := strings.Join(lines, "")

	t.Run("one handle is one reply", func(t *testing.T) {
		t.Parallel()
		d := start(t, done)
		d.begin("a", "begin")
		d.output("a", 0)
		slowly(t, d.task("a", "reply.txt"), pace, lines...)
		d.output("a", 1)
		d.fence("fence")
		of := d.requests("begin")
		if len(of) != 2 {
			t.Fatalf("%d requests, want 2", len(of))
		}
		if got := replies(of[1]); len(got) != 1 || strings.TrimSpace(got[0]) != strings.TrimSpace(whole) {
			t.Errorf("replies %q, want the whole file as one", got)
		}
	})
	t.Run("a handle per line loses and doubles none", func(t *testing.T) {
		t.Parallel()
		d := start(t, done)
		d.begin("a", "begin")
		d.output("a", 0)
		for _, line := range lines {
			appendTo(t, d.task("a", "reply.txt"), line)
			time.Sleep(pace)
		}
		var got []string
		d.until("the last line arrives", func() bool {
			of := d.requests("begin")
			got = replies(of[len(of)-1])
			return strings.Contains(strings.Join(got, "\n"), strings.TrimSpace(lines[n-1]))
		})
		var arrived []string
		for _, reply := range got {
			if strings.TrimSpace(reply) == "" {
				t.Error("an empty reply")
			}
			for line := range strings.Lines(reply) {
				if line = strings.TrimSpace(line); line != "" {
					arrived = append(arrived, line+"\n")
				}
			}
		}
		if !slices.Equal(arrived, lines) {
			t.Errorf("arrived %q, want %d lines in their order", arrived, n)
		}
	})
}

// appendTo does what `>>` does.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestProgramsThatSaveByRenaming(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	d := start(t, llmtest.Route(
		llmtest.Task("the whole input", llmtest.Done("one"), call("list_files", "path", ".").When(gate), llmtest.Done("two")),
		llmtest.Otherwise(llmtest.Always(llmtest.Done("done")))))
	d.sh(`mkdir temp/a
		for name in .input.txt.tmp .input.txt.swp input.txt~ '#input.txt#' input.txt.bak 4913; do echo "not yet" > "temp/a/$name"; done`)
	d.fence("fence")
	if n := d.model.Count(); n != 1 {
		t.Fatalf("%d requests, want none but the fence's: temporary files start nothing", n)
	}
	d.sh(`echo "the whole input" > temp/a/.input.txt.tmp && mv temp/a/.input.txt.tmp temp/a/input.txt`)
	d.output("a", 0)
	d.sh(`echo "half a reply" > temp/a/.reply.txt.tmp; echo backup > temp/a/reply.txt~`)
	d.fence("fence2")
	d.sh(`echo "the whole reply" > temp/a/.reply.txt.tmp && mv temp/a/.reply.txt.tmp temp/a/reply.txt`)
	d.until("the reply arrives", func() bool { return len(d.requests("the whole input")) == 2 })
	d.sh(`echo "the intervention" > temp/a/.x && mv temp/a/.x temp/a/_intervene`)
	close(gate)
	d.output("a", 1)
	d.fence("fence3")
	of := d.requests("the whole input")
	if len(of) != 3 {
		t.Fatalf("%d requests, want 3", len(of))
	}
	wants(t, "the second request", of[1].LastUser(), "the whole reply")
	wants(t, "the third request", of[2].LastUser(), "the intervention")
	for _, r := range d.model.Requests() {
		lacks(t, "a request", string(r.Body), "not yet", "half a reply", "backup")
	}
}

func TestInputWrittenOverOrOnlyTouched(t *testing.T) {
	t.Parallel()
	d := start(t, done)
	d.begin("a", "version one")
	d.output("a", 0)
	d.comes("a", taskdir.AwaitingReply)

	d.sh(`chmod 600 temp/a/input.txt`)
	d.fence("fence")
	if n := len(d.requests("version one")); n != 1 {
		t.Fatalf("%d requests after a chmod, want 1", n)
	}

	// Truncated, written and chmodded: one input.
	d.sh(`echo "version two" > temp/a/input.txt; chmod 644 temp/a/input.txt`)
	d.until("the second session runs", func() bool { return len(d.requests("version two")) > 0 })
	d.output("a", 0)
	d.fence("fence2")
	if n := len(d.requests("version two")); n != 1 {
		t.Errorf("%d requests after an overwrite and a chmod, want 1", n)
	}
	if st := d.comes("a", taskdir.AwaitingReply); st.Session != 2 {
		t.Errorf("session %d, want 2", st.Session)
	}
	wants(t, "the earlier session's output", d.finished(d.task("a", "old", "1", "output.txt")), "done")
}
