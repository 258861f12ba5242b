//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// place writes a file in the place, with the directories on its way.
func (d *daemon) place(name, text string) {
	d.t.Helper()
	if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o755); err != nil {
		d.t.Fatal(err)
	}
	d.write(name, text)
}

// as begins a task with an agent.
func (d *daemon) as(agent, name, input string) {
	d.t.Helper()
	d.place("temp/"+name+"/context.json", `{"agent": "`+agent+`"}`)
	d.write("temp/"+name+"/input.txt", input)
}

func (d *daemon) system(containing string) string {
	d.t.Helper()
	requests := d.requests(containing)
	if len(requests) == 0 {
		d.t.Fatalf("no request speaks of %q", containing)
	}
	return requests[len(requests)-1].System()
}

func TestCustomAgents(t *testing.T) {
	t.Parallel()
	d := newPlace(t, done)
	body := "You read maps.\r\n\r\n---\r\nNorth is up.  \n"
	d.place("agents/reader.md", "---\r\nname: reader\r\ndescription: reads maps\r\ntools: [read_file]\r\n---\r\n"+body)
	d.place(".claude/agents/scout.md", "---\nname: scout\ndescription: scouts\ntools: Read, Grep, Bash(ls:*)\nmodel: sonnet\n---\nYou scout.")
	d.place("agents/broken.md", "---\nname: broken\ntools: [read_file\n---\nYou are broken.")
	d.place("temp/.claude/agents/evil.md", "You are evil.")
	d.place("temp/work/.git/HEAD", "ref: refs/heads/feature/x\n")
	d.start()

	// A custom agent's prompt is its file's body, byte for byte, and then what it
	// cannot know; its tools are those of the file.
	d.place("temp/a/context.json", `{"agent": "reader", "work_dir": "`+d.path("temp/work")+`"}`)
	d.write("temp/a/input.txt", "find the way")
	d.output("a", 0)
	system := d.system("find the way")
	if !strings.HasPrefix(system, body) {
		t.Errorf("the prompt begins with %q", system[:min(len(system), 80)])
	}
	wants(t, "the prompt", system, "- Working directory: "+d.path("temp/work")+"\n", "- Git: yes, branch feature/x\n", "- Platform: ", "- Shell: /", "- Date: 20", "- Model: test")
	if got := d.requests("find the way")[0].ToolNames(); !slices.Equal(got, []string{"read_file", "attempt_completion"}) {
		t.Errorf("tools %v", got)
	}

	d.as("scout", "b", "look around")
	d.output("b", 0)
	if got := d.requests("look around")[0].ToolNames(); !slices.Equal(got, []string{"read_file", "search_files", "attempt_completion"}) {
		t.Errorf("tools %v", got)
	}
	for _, name := range []string{"evil", "broken"} {
		d.as(name, name, "go")
		wants(t, name, d.output(name, 0), "failed", `"`+name+`"`)
	}
	if strings.Contains(d.output("broken", 0), "broken.md:3") == false {
		t.Error("the output does not say what is wrong with the agent's file")
	}

	// The general agent knows which agents it can send out.
	d.begin("c", "do something")
	d.output("c", 0)
	wants(t, "the general agent's prompt", d.system("do something"), "- reader: reads maps", "- scout: scouts")

	// A file that changed is in force for the next session, and for none before.
	d.write("agents/reader.md", "---\ndescription: reads maps\ntools: [list_files]\n---\nYou read charts.")
	d.as("reader", "d", "find it again")
	d.output("d", 0)
	if system := d.system("find it again"); !strings.HasPrefix(system, "You read charts.\n") {
		t.Errorf("after a change the prompt begins with %q", system[:min(len(system), 80)])
	}
	d.write("temp/a/reply.txt", "and back")
	d.output("a", 1)
	requests := d.model.Requests()
	if again := requests[len(requests)-1]; !again.Has("and back") || again.System() != system {
		t.Error("a session that goes on has another prompt than it began with")
	}

	// reload says what has changed since. Nobody has asked for an agent meanwhile.
	d.write("agents/broken.md", "---\nname: mended\n---\nYou are mended.")
	out, errOut, code := d.cli("reload")
	if code != 0 || !strings.Contains(out, "added       mended  agents/broken.md\n") || strings.Contains(out, "reader") || !strings.Contains(errOut, "from now on") {
		t.Errorf("reload: code %d\n%s%s", code, out, errOut)
	}
	d.as("mended", "e", "go on")
	d.output("e", 0)
	if out, errOut, _ := d.cli("reload"); out != "" || !strings.Contains(errOut, "nothing changed") {
		t.Errorf("reload after that: %s%s", out, errOut)
	}
	d.accepted()
}

func TestAgentsAndSkillsAreNotForAgentsToWrite(t *testing.T) {
	t.Parallel()
	targets := []string{"agents/new.md", "skills/pdf/SKILL.md", ".claude/agents/new.md", ".agents/skills/x/SKILL.md"}
	d := newPlace(t, func(r *llmtest.Request) llmtest.Reply {
		if len(r.Results()) > 0 {
			return llmtest.Done("tried: " + strings.Join(r.Results(), "\n"))
		}
		reply := llmtest.Text("I write.")
		for _, name := range targets {
			reply = reply.Call("write_to_file", `{"path":"`+r.LastUser()[strings.LastIndex(r.LastUser(), "[[")+2:strings.LastIndex(r.LastUser(), "]]")]+"/"+name+`","content":"You may do all."}`)
		}
		return reply
	})
	d.place("skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads PDF\n---\nRun pdftotext.")
	d.start()
	d.place("temp/a/context.json", `{"work_dir": "`+d.dir+`"}`)
	d.write("temp/a/input.txt", "write [["+d.dir+"]]")
	text := d.output("a", 0)
	if n := strings.Count(text, "belongs to the daemon"); n < len(targets) {
		t.Errorf("%d of %d were refused: %s", n, len(targets), text)
	}
	for _, name := range targets {
		if b, err := os.ReadFile(d.path(name)); err == nil && strings.Contains(string(b), "You may do all") {
			t.Errorf("%s was written", name)
		}
	}
}

func TestSkills(t *testing.T) {
	t.Parallel()
	d := newPlace(t, func(r *llmtest.Request) llmtest.Reply {
		last := strings.Join(r.Results(), "\n")
		switch {
		case !slices.Contains(r.ToolNames(), "use_skill"):
			return llmtest.Done("no skills")
		case r.Last().Role == "user":
			return call("use_skill", "skill_name", "pdf")
		case strings.Contains(last, "Its directory is "):
			_, rest, _ := strings.Cut(last, "Its directory is ")
			dir, _, _ := strings.Cut(rest, ";")
			return call("read_file", "path", dir+"/scripts/x.sh")
		}
		return llmtest.Done("skill says: " + last)
	})
	d.start()
	d.begin("none", "before there are any")
	wants(t, "output.txt", d.output("none", 0), "no skills")
	if slices.Contains(d.requests("before there are any")[0].ToolNames(), "use_skill") {
		t.Error("use_skill is offered where there is no skill")
	}
	d.place("skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads PDF\n---\nRun scripts/x.sh.")
	d.place("skills/pdf/scripts/x.sh", "pdftotext a.pdf")
	d.begin("a", "read it")
	wants(t, "output.txt", d.output("a", 0), "skill says", "pdftotext a.pdf")
	wants(t, "the last request", string(d.requests("read it")[2].Body), "Run scripts/x.sh.", "- scripts/x.sh")
	wants(t, "the prompt", d.system("read it"), "- pdf: reads PDF")

	// An agent has the skills that its file names from the start.
	d.place("agents/clerk.md", "---\ndescription: reads papers\ntools: []\nskills: pdf\n---\nYou read papers.")
	d.as("clerk", "b", "read this paper")
	d.output("b", 0)
	wants(t, "the agent's prompt", d.system("read this paper"), "You read papers.", "# Skill pdf. Its directory is "+d.path("skills/pdf"), "Run scripts/x.sh.")
}

func TestAnAgentSendsOutACustomOne(t *testing.T) {
	t.Parallel()
	d := newPlace(t, func(r *llmtest.Request) llmtest.Reply {
		switch {
		case strings.HasPrefix(r.System(), "You explore"):
			return llmtest.Done("it is in a.go:3")
		case len(r.Results()) > 0:
			return llmtest.Done("found: " + r.Results()[0])
		}
		return llmtest.Text("I ask.").Call("task", `{"description":"find it","prompt":"where is it?","subagent_type":"explorer"}`)
	})
	shipped, err := filepath.Abs("../../agents/explorer.md")
	if err != nil {
		t.Fatal(err)
	}
	d.place("agents/explorer.md", d.read(shipped))
	d.start()
	d.begin("a", "find it")
	wants(t, "output.txt", d.output("a", 0), "found: ", "a.go:3")
	st := d.comes("a.1", taskdir.Ended)
	if st.Agent != "explorer" || st.Reason != "completed" {
		t.Errorf("agent %q, reason %q", st.Agent, st.Reason)
	}
	got := d.requests("where is it?")[0].ToolNames()
	if want := []string{"read_file", "list_files", "search_files", "list_code_definition_names", "attempt_completion"}; !slices.Equal(got, want) {
		t.Errorf("tools %v, want %v", got, want)
	}
	d.accepted()
}
