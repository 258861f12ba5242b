package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func demoOf(t *testing.T, d *demo) *bytes.Buffer {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	d.ui = newUI(strings.NewReader(""), &out, &out, func(string) string { return "" })
	return &out
}

func TestDemoTellsItsStoryInOrder(t *testing.T) {
	d := &demo{keep: true}
	out := demoOf(t, d)
	if err := d.run(context.Background()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := 0
	for _, part := range []string{
		"The model is scripted",
		"$ cd " + d.dir, "$ gasupervisor run &", "$ mkdir -p temp/minutes/notes", "> temp/minutes/notes/may-09.txt",
		"> temp/minutes/input.txt", "$ tail -f temp/minutes/output.txt", "Turn 1 ...", "list_files(minutes/notes)", "Turn 2 ...",
		"> temp/minutes/_intervene", "read_file(minutes/notes/may-09.txt) →", "write_to_file(", "[ROUND END]",
		"$ cat temp/minutes/report.md", "# Open points", "> temp/minutes/reply.txt", "$ tail -f temp/minutes/output1.txt",
		"Ada, with 2 points: order the cables, send the invoice.", "[ROUND END]", "$ touch temp/minutes/_stop",
		"OPENAI_API_KEY=", "demo --live",
	} {
		i := strings.Index(out.String()[at:], part)
		if i < 0 {
			t.Fatalf("%q is missing, or out of its place:\n%s", part, out)
		}
		at += i + len(part)
	}

	report, err := os.ReadFile(filepath.Join(d.taskDir(), demoReport))
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Open points\nAda\n- order the cables\n- send the invoice\nCem\n- call the printer\n"; string(report) != want {
		t.Errorf("report:\n%s\nwant what is open in the notes:\n%s", report, want)
	}

	st, err := taskdir.ReadStatus(d.taskDir())
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, m := range st.Messages {
		files = append(files, m.File)
	}
	if want := []string{"input.txt", "_intervene", "reply.txt", "_stop"}; !slices.Equal(files, want) {
		t.Errorf("the daemon took %q, want %q", files, want)
	}
	if st.State != taskdir.Ended || st.Round != 1 {
		t.Errorf("state %q, round %d; want ended after round 1", st.State, st.Round)
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %q", refused)
	}

	data, err := os.ReadFile(filepath.Join(d.taskDir(), taskdir.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for line := range strings.Lines(string(data)) {
		var e struct{ Event, Tool, State string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		switch e.Event {
		case "state", "turn", "tool_ended", "message_applied":
			events = append(events, strings.TrimSpace(e.Event+" "+e.Tool+e.State))
		}
	}
	want := []string{
		"state running",
		"turn", "tool_ended list_files",
		"turn", "tool_ended read_file", "tool_ended read_file", "tool_ended read_file", "message_applied",
		"turn", "tool_ended write_to_file",
		"turn", "tool_ended attempt_completion", "state awaiting_reply",
		"state running",
		"turn", "tool_ended attempt_completion", "state awaiting_reply",
		"state ended",
	}
	if !slices.Equal(events, want) {
		t.Errorf("events %q\nwant %q", events, want)
	}
}

func TestDemoLeavesNothingBehind(t *testing.T) {
	for _, c := range []struct {
		name string
		ctx  func() context.Context
		fail bool
	}{
		{"to its end", context.Background, false},
		{"interrupted", func() context.Context {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &demo{}
			out := demoOf(t, d)
			if err := d.run(c.ctx()); (err != nil) != c.fail {
				t.Errorf("error %v\n%s", err, out)
			}
			left, err := os.ReadDir(os.Getenv("TMPDIR"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestDemoLiveNeedsAModel(t *testing.T) {
	d := &demo{live: true, environ: []string{"OPENAI_API_KEY=", "HOME=/"}}
	out := demoOf(t, d)
	if err := d.run(context.Background()); err == nil || !strings.Contains(err.Error(), "--live") || out.Len() > 0 {
		t.Errorf("error %v, output %q", err, out)
	}
}

func TestBarWriterWrapsWhatComesInPieces(t *testing.T) {
	const text = "Turn 1 ...\n\nOne two three four five six\n\nTurn 2 ...\n\nseven\nanunbreakableword\n"
	want := "  │ Turn 1 ...\n  │\n  │ One two \n  │   three \n  │   four five \n  │   six\n  │\n  │ Turn 2 ...\n$ echo\n  │ seven\n  │ anunbreakableword\n"
	for _, size := range []int{1, 7, 1000} {
		var out bytes.Buffer
		u := newUI(strings.NewReader(""), &out, &out, func(string) string { return "" })
		w := &barWriter{ui: u, width: 11, inTheMiddle: func() { u.printf("$ echo\n") }}
		for chunk := range slices.Chunk([]byte(text), size) {
			if _, err := w.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("in pieces of %d:\n%s\nwant:\n%s", size, &out, want)
		}
	}
}
