//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// readsOn is an agent that reads n times before it is done.
func readsOn(n int) llmtest.Script {
	return func(r *llmtest.Request) llmtest.Reply {
		seen := 0
		for _, m := range r.Messages {
			if at := strings.LastIndex(m.Content, "file<"); m.Role == llm.ToolRole && at >= 0 {
				fmt.Sscanf(m.Content[at:], "file<%d>", &seen)
			}
		}
		if seen >= n {
			return llmtest.Done("read all")
		}
		return command(fmt.Sprintf("seq 1 900; echo 'file<%d>'", seen+1))
	}
}

// over counts the requests of a task that were longer than the window.
func (d *daemon) over(text string, window int) (n int) {
	for _, r := range d.requests(text) {
		if r.Size()/4 > window {
			n++
		}
	}
	return n
}

// Windows that hardly take in the descriptions of the tools, or do not: the round
// works or says what is wrong, and asks for neither more often than it has to.
func TestTinyWindows(t *testing.T) {
	t.Parallel()
	const reads = 4
	for _, c := range []struct {
		window   int
		enforced bool
	}{{1024, true}, {2048, true}, {4000, true}, {6000, true}, {1024, false}} {
		t.Run(fmt.Sprint(c.window, c.enforced), func(t *testing.T) {
			t.Parallel()
			var opts []llmtest.Option
			if c.enforced {
				opts = append(opts, llmtest.Window(c.window))
			}
			d := newPlaceWith(t, llmtest.NewServer(t, readsOn(reads), opts...), fmt.Sprintf("GASUPERVISOR_LLM_0_CONTEXT_WINDOW=%d", c.window))
			d.start()
			d.begin("a", "read them all")
			text := d.output("a", 0)
			st := d.comes("a", taskdir.AwaitingReply)
			asked := d.model.Count()
			switch {
			case c.enforced && c.window < 2100: // less than prompt and tools
				if st.Reason != "failed" || st.Error == nil || st.Error.Kind != "context_length" || asked > 4 {
					t.Errorf("reason %q, error %+v after %d requests", st.Reason, st.Error, asked)
				}
				wants(t, "output.txt", text, "choose an LLM with a larger one")
			case st.Reason != "completed" || asked > 2*(reads+1):
				t.Errorf("reason %q, error %+v after %d requests", st.Reason, st.Error, asked)
			}
			if refused := d.model.Refusals(); len(refused) > 0 {
				t.Errorf("the model refused: %v", refused)
			}
		})
	}
}

// A message that is larger than the window fails at once, and does not keep the next
// one from being answered.
func TestMessageLargerThanTheWindow(t *testing.T) {
	t.Parallel()
	const window = 10000
	d := newPlaceWith(t, llmtest.NewServer(t, done, llmtest.Window(window)), fmt.Sprintf("GASUPERVISOR_LLM_0_CONTEXT_WINDOW=%d", window))
	d.start()
	large := strings.Repeat("and on ", window)
	d.begin("a", "large input "+large)
	wants(t, "output.txt", d.output("a", 0), "failed", "write a shorter message")
	d.begin("b", "small input")
	d.output("b", 0)
	d.write("temp/b/reply.txt", "large reply "+large)
	wants(t, "output1.txt", d.output("b", 1), "failed", "write a shorter message")
	if st := d.comes("b", taskdir.AwaitingReply); st.Error == nil || st.Error.Kind != "context_length" {
		t.Errorf("reason %q, error %+v", st.Reason, st.Error)
	}
	d.sh(`echo "forget it" > temp/b/reply.txt`)
	wants(t, "output2.txt", d.output("b", 2), "done")
	of := d.requests("small input")
	wants(t, "the conversation", string(of[len(of)-1].Body), "large reply", "cut to save space", "forget it")
	if n := d.over("small input", window); n > 2 {
		t.Errorf("%d requests that were too large, want one for each of two rounds at most", n)
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}
}

// What a provider says of its window in an error counts for those that come after.
func TestWindowLearnedFromAnError(t *testing.T) {
	t.Parallel()
	const window, reads = 8000, 8
	d := newPlaceWith(t, llmtest.NewServer(t, readsOn(reads), llmtest.Window(window)))
	d.start()
	for i, name := range []string{"first", "second"} {
		d.begin(name, "read them all: "+name)
		d.output(name, 0)
		st := d.comes(name, taskdir.AwaitingReply)
		if w := st.Usage.ContextWindow; st.Reason != "completed" || w == nil || *w != window {
			t.Errorf("%s: reason %q, error %+v, window %v", name, st.Reason, st.Error, w)
		}
		if got, want := d.over("read them all: "+name, window), 1-i; got != want {
			t.Errorf("%s: %d requests were too large, want %d", name, got, want)
		}
	}
}
