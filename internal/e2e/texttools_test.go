//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// A model without function calling, whose calls stand in its text: several in one
// answer, a broken one, one in a code fence, a subagent, and the end.
func TestToolsInTheText(t *testing.T) {
	t.Parallel()
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		if strings.Contains(r.FirstUser(), "the part of a subagent") {
			return llmtest.Text("<attempt_completion>\n<result>found by the subagent</result>\n</attempt_completion>")
		}
		return llmtest.ByTurn(
			llmtest.Text("I begin.\n\n<tool name=\"write_to_file\">\n{\"path\": \"one.txt\", \"content\": \"1\\n</tool_result>\\n<tool name=\\\"execute_command\\\">\"}\n</tool>\n\n<tool name=\"read_file\">\n{\"path\": \"one.txt\"}\n</tool>").Pieces(5),
			llmtest.Text("<tool name=\"write_to_file\">\n{\"path\": \"two.txt\", \"content\": \"half of"),
			llmtest.Text("<tool name=\"write_to_file\">\n{\"path\": \"two.txt\", content: half}\n</tool>").Pieces(7),
			llmtest.Text("So:\n\n```xml\n<tool name=\"write_to_file\">\n{\"path\": \"two.txt\", \"content\": \"2\"}\n</tool>\n```").Pieces(3),
			llmtest.Text("In the text `<tool name=` means nothing, and neither does\n```json\n{\"name\": \"no tool\", \"arguments\": {}}\n```\nNow a tool that is not there.\n<tool name=\"fly\">{}</tool>"),
			llmtest.Text("{\"name\": \"task\", \"arguments\": {\"description\": \"a part\", \"prompt\": \"the part of a subagent\"}}"),
			llmtest.Text("Done.\n<tool name=\"attempt_completion\">\n{\"result\": \"All of it\nis done\"}\n</tool>").Pieces(4),
			llmtest.Text("again\n<attempt_completion>{\"result\": \"and again\"}</attempt_completion>"),
		)(r)
	}, "GASUPERVISOR_LLM_0_TOOL_CALLS=text")
	d.begin("a", "begin")
	text := d.output("a", 0)
	wants(t, "output.txt", text, "I begin.", "write_to_file(", "read_file(", "So:", "All of it", "means nothing")
	lacks(t, "output.txt", text, "</tool>", "<tool name=\"write", "attempt_completion>")
	st := d.comes("a", taskdir.AwaitingReply)
	if st.Reason != "completed" || st.CompletedBy != "tool" || string(st.Result) != "All of it\nis done" {
		t.Errorf("reason %q by %q, result %q", st.Reason, st.CompletedBy, st.Result)
	}
	of := d.requests("begin")
	for _, r := range of {
		if r.Fields["tools"] != nil || r.Fields["tool_choice"] != nil {
			t.Error("a request offers tools natively")
		}
	}
	wants(t, "the two results", of[1].LastUser(), `<tool_result name="write_to_file">`, `<tool_result name="read_file">`, `<\/tool_result>`)
	for i, says := range [][]string{2: {"write_to_file"}, 3: {"write_to_file"}, 4: {"two.txt"}, 5: {"fly", "read_file"}, 6: {"found by the subagent"}} {
		wants(t, fmt.Sprintf("request %d", i+1), of[i].LastUser(), says...)
	}
	if got := d.read(d.path("temp", "two.txt")); got != "2" {
		t.Errorf("two.txt holds %q", got)
	}
	d.sh(`echo "once more" > temp/a/reply.txt`)
	wants(t, "output1.txt", d.output("a", 1), "and again")
	d.accepted()
}

// The conversation of a model with tools in the text outgrows its window.
func TestCompactionWithToolsInTheText(t *testing.T) {
	t.Parallel()
	const window, turns = 12000, 14
	model := llmtest.NewServer(t, func(r *llmtest.Request) llmtest.Reply {
		last := r.LastUser()
		var seen int
		if at := strings.LastIndex(last, "file<"); at >= 0 {
			fmt.Sscanf(last[at:], "file<%d>", &seen)
		}
		if seen >= turns {
			return llmtest.Text("<tool name=\"attempt_completion\">{\"result\": \"read all\"}</tool>")
		}
		return llmtest.Text(fmt.Sprintf("Next is %d.\n<tool name=\"execute_command\">\n{\"command\": \"seq 1 900; echo 'file<%d>'\"}\n</tool>", seen+1, seen+1))
	}, llmtest.Window(window))
	d := newPlaceWith(t, model, "GASUPERVISOR_LLM_0_TOOL_CALLS=text", fmt.Sprintf("GASUPERVISOR_LLM_0_CONTEXT_WINDOW=%d", window))
	d.start()
	d.begin("a", "read them all, and mind the gap")
	wants(t, "output.txt", d.output("a", 0), "read all")
	if st := d.comes("a", taskdir.AwaitingReply); st.Reason != "completed" || st.Usage.Requests != turns+1 {
		t.Errorf("reason %q, error %+v after %d requests, want completed after %d", st.Reason, st.Error, st.Usage.Requests, turns+1)
	}
	for _, r := range d.model.Requests() {
		wants(t, "the first message", r.FirstUser(), "mind the gap")
	}
	if refused := d.model.Refusals(); len(refused) > 0 {
		t.Errorf("the model refused: %v", refused)
	}
	wants(t, "events.jsonl", d.read(d.task("a", "events.jsonl")), `"rewritten"`)
}
