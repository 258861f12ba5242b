//go:build linux

package attack

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// within makes t the place's test for as long as a row takes.
func (p *place) within(t *testing.T, name string, do func(t *testing.T)) {
	t.Run(strings.NewReplacer(" ", "_", "/", "|").Replace(name), func(t *testing.T) {
		outer := p.t
		p.t = t
		defer func() { p.t = outer }()
		do(t)
	})
}

// What context.json names by ways around.
func TestOddAsks(t *testing.T) {
	p := newPlace(t, "asks", "")
	p.sh("cd project && ln -s ../outside/dir link && git worktree add -q ../gas/tree")
	for name, settings := range map[string]map[string]any{
		"work_dir by ..":                      {"work_dir": p.path("project") + "/../outside"},
		"work_dir by a link":                  {"work_dir": p.path("project/link")},
		"work_dir in .git":                    {"work_dir": p.path("project/.git/worktrees")},
		"work_dir in a worktree's directory":  {"work_dir": p.path("project/.git/worktrees/tree")},
		"output_files whose parent is a link": {"output_files": map[string]string{"k": p.path("project/link/new")}},
		"output_files in .git":                {"output_files": map[string]string{"k": p.path("project/.git/worktrees/tree/commondir")}},
		"input_files by a link":               {"input_files": map[string]string{"k": p.path("project/link/file")}},
		"input_files in /proc":                {"input_files": map[string]string{"k": fmt.Sprintf("/proc/%d/environ", p.daemon.Process.Pid)}},
	} {
		p.within(t, name, func(t *testing.T) {
			task := p.begin(settings, command("ls -la; cat *"))
			_, output := p.finish(task)
			st := p.status(task)
			if st.Usage.Requests != 0 {
				t.Errorf("%d requests", st.Usage.Requests)
			}
			key, _, _ := strings.Cut(name, " ")
			judge(t, p, attack{name: "context.json: " + name, expected: "ended before a token, naming the key", wants: key + ".*refused"}, []string{output})
		})
	}
}

// A directory of the daemon's that is mounted a second time, where a task may look.
func TestMountedTwice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	p := newPlaceWith(t, "mounted", "", "sh", "-c", `cd "$HOME/.." && mkdir project/again && mount --bind gas project/again; exec "$@"`, "sh")
	again := p.path("project/again")
	t.Cleanup(func() { exec.Command("umount", "-l", again).Run() })
	if _, err := os.Stat(filepath.Join(again, "config.toml")); err != nil {
		t.Skip("nothing can be mounted here")
	}
	try(t, p, []attack{{name: "the daemon's directory, mounted a second time in a checkout", line: "cat again/state/*/session.jsonl again/llm.key" + through + "; (echo x >> again/config.toml)" + through + "; (echo x > again/agents/evil.md)" + through + "; ls -A again/state",
		wants: readOnly, expected: "hidden, read-only"}})
	results := p.run(tool{"read_file", map[string]any{"path": again + "/llm.key"}}, tool{"list_files", map[string]any{"path": again + "/state"}}, write(again+"/config.toml", "x"), write(again+"/agents/evil.md", "x"))
	judge(t, p, attack{name: "the same by file tools", expected: "refused", wants: `belongs to the daemon`}, results)
}

// A command swaps directories for links while another task's file tools work.
func TestSwapping(t *testing.T) {
	p := newPlace(t, "swapping", "")
	project := map[string]any{"work_dir": p.path("project")}
	p.sh("mkdir project/swap && echo fine > project/swap/secret.txt && ln -s ../outside project/link")
	swapper := p.begin(project, command("touch started; ./probe exchange swap link"))
	p.until("the swapping begins", func() bool { _, err := os.Lstat(p.path("project/started")); return err == nil })
	var calls []tool
	for i := range 60 {
		calls = append(calls, tool{"read_file", map[string]any{"path": "swap/secret.txt", "start_line": 1 + i%2}}, write(fmt.Sprintf("swap/new%d", i%7), "x"),
			tool{"search_files", map[string]any{"path": "swap", "regex": "CANAR" + "[Y]"}}, write(fmt.Sprintf("swap/d%d/file", i), "x"))
	}
	results, _ := p.finish(p.begin(project, calls...))
	swapped, _ := p.finish(swapper)
	judge(t, p, attack{name: "file tools in a directory that is swapped for a link, again and again", expected: "never the other place", wants: `(?s)it is a link to.*exchanged`}, append(results, swapped...))
}

// A task's own directory is swapped for a link while its rounds begin.
func TestSwappedTask(t *testing.T) {
	p := newPlace(t, "swapped", "")
	p.sh("mkdir gas/temp/raced && ln -s ../../outside gas/temp/link && cp docs/probe gas/temp/exchanger")
	raced, err := os.OpenRoot(p.task("raced"))
	if err != nil {
		t.Fatal(err)
	}
	defer raced.Close()
	swapper := p.begin(nil, command("touch started; ./exchanger exchange raced link"))
	p.until("the swapping begins", func() bool { _, err := os.Lstat(p.path("gas/temp/started")); return err == nil })
	calls := `CALLS[{"name":"execute_command","args":{"command":"cd raced; cat secret.txt; echo x > new"}},{"name":"read_file","args":{"path":"raced/secret.txt"}}]`
	deadline := time.Now().Add(5 * time.Second)
	for i := 0; time.Now().Before(deadline); i++ {
		if err := raced.WriteFile("input.txt", fmt.Appendf(nil, "Raced %d. %s", i, calls), 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // for the daemon to begin one, and not for anything to happen
	}
	results, _ := p.finish(swapper)
	rounds := 0
	for _, r := range p.model.Requests() {
		if strings.Contains(r.FirstUser(), "Raced ") {
			rounds++
		}
		if r.Has(canary + "-") {
			t.Error("a request has a secret")
		}
	}
	judge(t, p, attack{name: "a task's directory that is swapped for a link while its rounds begin", expected: "never the other place", wants: `exchanged`}, append(results, fmt.Sprint(rounds, " requests")))
}

// A subagent against the task that sent it out.
func TestParent(t *testing.T) {
	p := newPlace(t, "parent", "share = false")
	parent := p.task("t1")
	calls, err := json.Marshal([]map[string]any{
		{"name": "execute_command", "args": map[string]any{"command": "D=" + parent + "; (touch $D/_stop)" + through + "; (echo x > $D/reply.txt)" + through + "; (echo x > $D/_intervene)" + through + "; mv $D $D.x" + through + "; ls $D; find / -name session.jsonl 2>/dev/null | grep ." + through}},
		{"name": "write_to_file", "args": map[string]any{"path": parent + "/_stop", "content": "x"}},
		{"name": "write_to_file", "args": map[string]any{"path": parent + "/_keyinfo", "content": "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if task := p.begin(nil, tool{"task", map[string]any{"description": "against its parent", "prompt": "Child of parent. CALLS" + string(calls)}}); p.task(task) != parent {
		t.Fatal(task)
	}
	p.finish("t1")
	var results []string
	for _, r := range p.model.Requests() {
		if strings.Contains(r.FirstUser(), "Child of parent.") && !strings.Contains(r.FirstUser(), "against its parent") && r.Turn() > 1 {
			results = append(results, strings.Join(r.Results(), "\n"))
		}
	}
	judge(t, p, attack{name: "a subagent forges _stop, reply, key info and journal of its parent", expected: "read-only, refused", wants: `(?s)(Read-only|No such).*is refused`,
		check: func(p *place) string {
			if st := p.status("t1"); string(st.Reason) != "completed" {
				return fmt.Sprintf("the parent ended with %s", st.Reason)
			}
			return ""
		}}, results)
}

// Commands and plantings of an odd size or kind.
func TestOdd(t *testing.T) {
	p := newPlace(t, "odd", "")
	p.sh("mkfifo project/pipe")
	try(t, p, []attack{
		{name: "a command of 200 KB, and one of 1 MB", tools: []tool{command("echo " + strings.Repeat("x", 200<<10)), command("echo " + strings.Repeat("x", 1<<20)), command("echo after")}, wants: `after`, expected: "an error, and the next one runs"},
		{name: "a command with a zero byte, and an environment of 100 MB", tools: []tool{command("echo a\x00b"), command("export X=$(head -c 100000000 /dev/zero | tr '\\0' x); /bin/true; echo $?; echo he\"\"ld")}, wants: `held`, expected: "an error, and the next one runs"},
		{name: "programs from memory, FUSE, a further namespace by clone3", line: "python3 -c 'import os; print(os.memfd_create(\"x\"))' 2>&1 | tail -1; ls /dev/fuse" + through + "; unshare -r true" + through + "; ./probe syscalls | grep -E 'clone3|pidfd_getfd|process_vm|io_uring|TIOCSTI'",
			wants: `clone3: held`, expected: "refused, each"},
	})
	// The daemon itself reads AGENTS.md of a working directory.
	for name, how := range map[string]string{"a link to a key": "ln -sf " + p.path("home/.ssh/id_ed25519") + " AGENTS.md", "a pipe": "rm -f AGENTS.md; mkfifo AGENTS.md", "a link to the daemon's environment": "rm -f AGENTS.md; ln -s /proc/self/environ AGENTS.md"} {
		p.within(t, "AGENTS.md "+name, func(t *testing.T) {
			results := p.run(command(how + "; ls -l AGENTS.md"))
			results = append(results, p.run(command("echo he\"\"ld"))...)
			for _, r := range p.model.Requests() {
				if r.Has(canary + "-") {
					t.Error("a request has a secret")
				}
			}
			judge(t, p, attack{name: "an AGENTS.md that is " + name, expected: "not read", wants: "held"}, results)
		})
	}
	p.within(t, "rm", func(t *testing.T) {
		task := p.begin(nil, command("D="+p.path("gas/temp/planted")+"; mkdir -p $D && cd $D && ln -s "+p.path("outside/dir")+" d && ln -s "+p.path("outside")+" old && mkfifo output.txt status.json && ln -s "+p.path("outside/secret.txt")+" result.json && mkdir -m 0 closed; ls -la"))
		results, _ := p.finish(task)
		for _, args := range [][]string{{"ls"}, {"show", "planted"}, {"result", "planted"}, {"rm", "planted"}} {
			cmd := exec.CommandContext(t.Context(), binary, args...)
			cmd.Env = []string{"PATH=" + systemPath, "HOME=" + p.path("home"), "GASUPERVISOR_CONFIG=" + p.path("gas/config.toml")}
			out, err := cmd.CombinedOutput()
			results = append(results, strings.Join(args, " ")+": "+fmt.Sprint(err)+" "+unseen(string(out)))
		}
		judge(t, p, attack{name: "links and pipes in a task's directory, and the command line", expected: "not followed", wants: "rm planted: <nil>",
			check: func(p *place) string {
				if _, err := os.Lstat(p.task("planted")); err == nil {
					return "the task's directory is still there"
				}
				return ""
			}}, results)
	})
}

// The proxy lets every name and port through, but for where they may lead.
func TestProxySpellings(t *testing.T) {
	p := newPlace(t, "spellings", `network = ["*:*"]`)
	// ask makes a line that sends text to the proxy and prints the answer's first line,
	// send one that waits for more answers.
	ask := func(text string) string {
		return "(exec 3<>/dev/tcp/127.0.0.1/3128; printf '" + text + `' >&3; read -r -t 20 line <&3; case "$line" in *" 200"*) echo THR""OUGH;; esac; echo "$line")`
	}
	send := func(text string) string {
		return "(exec 3<>/dev/tcp/127.0.0.1/3128; printf '" + text + "' >&3; timeout 3 head -c 2000 <&3 | tr -d '\\r' | grep -aE 'HTTP/1|" + canary + "' | head -3)"
	}
	var connects, gets []string
	for _, host := range []string{"127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "0", "0.0.0.0", "[::]", "localhost", "LOCALHOST.", "ip6-localhost", "127.0.0.1.nip.io"} {
		connects = append(connects, ask("CONNECT "+host+":@TCP@ HTTP/1.1\\r\\nHost: example.org:443\\r\\n\\r\\n"))
		gets = append(gets, ask("GET http://"+host+":@TCP@/ HTTP/1.1\\r\\nHost: example.org\\r\\nConnection: close\\r\\n\\r\\n"))
	}
	try(t, p, []attack{
		{name: "proxy: CONNECT to loopback in twenty spellings", line: strings.Join(connects, "; "), wants: `HTTP/1.1 403`, expected: "403, 502"},
		{name: "proxy: plain HTTP to loopback in twenty spellings", line: strings.Join(gets, "; "), wants: `HTTP/1.1 403`, expected: "403, 502"},
		{name: "proxy: one request that could be read as two", line: strings.Join([]string{
			send("POST http://example.invalid/ HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 4\\r\\nContent-Length: 60\\r\\n\\r\\n"),
			send("POST http://example.invalid/ HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 50\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET http://127.0.0.1:@TCP@/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"),
			send("GET http://example.invalid/ HTTP/1.1\\r\\nHost: a\\r\\nHost: 127.0.0.1:@TCP@\\r\\n\\r\\n"),
			send("GET http://example.invalid:80@127.0.0.1:@TCP@/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"),
			send("GET / HTTP/1.1\\r\\nHost: 127.0.0.1:@TCP@\\r\\n\\r\\n"),
		}, "; "), wants: `HTTP/1.1 400`, expected: "400, 403, 502"},
	})
}
