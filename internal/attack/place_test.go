//go:build linux

package attack

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
	"github.com/gasupervisor/gasupervisor/internal/waittest"
)

// canary begins everything that is secret.
const canary = "CANARY"

// systemPath is a search path without a user's own directories, which would be
// granted for reading.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// patience bounds every wait.
const patience = 60 * time.Second

// place is a daemon, and around it all that it must keep agents from.
type place struct {
	t    *testing.T
	dir  string
	n    int // tasks so far
	name string

	model  *llmtest.Server
	daemon *exec.Cmd
	ended  chan error
	log    *os.File

	// What listens outside.
	tcp, udp, unix, abstract string
	before                   map[string]string
}

// tool is a call of a tool.
type tool struct {
	name string
	args map[string]any
}

func command(line string) tool {
	return tool{"execute_command", map[string]any{"command": line, "timeout_seconds": 50}}
}

// script makes the model do what the task says: a JSON list of calls, each in a
// turn of its own.
func script(r *llmtest.Request) llmtest.Reply {
	_, text, ok := strings.Cut(r.FirstUser(), "CALLS")
	if !ok {
		return llmtest.Done("nothing to do")
	}
	var calls []struct {
		Name string
		Args json.RawMessage
	}
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(&calls); err != nil {
		return llmtest.Done("cannot read the calls: " + err.Error())
	}
	n := r.Turn() - 1
	if n >= len(calls) {
		return llmtest.Done("done")
	}
	if calls[n].Name == "say" {
		return llmtest.Text(string(calls[n].Args)).Call("attempt_completion", `{"result":"said"}`)
	}
	return llmtest.Call(calls[n].Name, string(calls[n].Args))
}

// newPlace makes a place and starts its daemon. config is more TOML.
func newPlace(t *testing.T, name, config string) *place {
	t.Helper()
	p := newPlaceWith(t, name, config)
	if text := p.logText(); !strings.Contains(text, `"commands of agents are confined" level="full`) {
		t.Skipf("commands cannot be confined in full here:\n%s", text)
	}
	return p
}

// newPlaceWith starts the daemon by way of another program, where there is one,
// and leaves it to the caller how far it confines.
func newPlaceWith(t *testing.T, name, config string, by ...string) *place {
	t.Helper()
	// Not in /tmp, which is another one for commands.
	dir, err := os.MkdirTemp("/var/tmp", "gasupervisor-attack-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, name: name, model: llmtest.NewServer(t, script)}
	for path, text := range map[string]string{
		"home/.ssh/id_ed25519":                canary + "-ssh-key",
		"home/.netrc":                         canary + "-netrc",
		"home/.bashrc":                        "# " + canary + "\n",
		"home/.profile":                       "# " + canary + "\n",
		"home/.config/systemd/user/a.service": "# " + canary + "\n",
		"home/.cargo/credentials.toml":        canary + "-cargo",
		"outside/secret.txt":                  canary + "-outside",
		"outside/dir/file":                    canary + "-outside",
		"gas/agents/reviewer.md":              "---\nname: reviewer\n---\nReview.\n",
		"gas/llm.key":                         canary + "-key-file",
		"gas/temp/other/notes.txt":            "notes of another task",
		"gas/temp/parent/input.txt.old":       "x",
		"project/main.go":                     "package main\n",
		"docs/readme.txt":                     "to be read\n",
	} {
		p.write(path, text)
	}
	p.sh("git init -q project && cd project && git -c user.name=t -c user.email=t@x add -A && git -c user.name=t -c user.email=t@x commit -qm first")
	p.sh("mkdir -p gas/state && cp " + probe + " docs/probe && cp " + probe + " project/probe")
	p.listen()
	p.write("gas/config.toml", fmt.Sprintf(`temp_dir = "temp"
state_dir = "state"
[[llm]]
name = "scripted"
base_url = %[1]q
api_key_env = "SECRET_KEY"
model = "test"
context_window = 2000000
[[llm]]
name = "other"
base_url = %[1]q
api_key_file = "llm.key"
model = "test"
[log]
level = "debug"
[sandbox]
roots = ["temp", "../project", "."]
read = ["../docs"]
%[2]s
`, p.model.URL, config))
	p.start(by...)
	p.before = p.snapshot()
	return p
}

func (p *place) path(elem ...string) string {
	return filepath.Join(append([]string{p.dir}, elem...)...)
}

func (p *place) task(name string, elem ...string) string {
	return p.path(append([]string{"gas", "temp", name}, elem...)...)
}

func (p *place) write(path, text string) {
	p.t.Helper()
	path = p.path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) sh(line string) {
	p.t.Helper()
	cmd := exec.Command("sh", "-ec", line)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "HOME="+p.path("home"))
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// listen opens what a command may try to reach. Whoever does gets a canary.
func (p *place) listen() {
	p.t.Helper()
	serve := func(l net.Listener, err error) net.Listener {
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintf(c, "HTTP/1.0 200 OK\r\n\r\n%s-%s\n", canary, l.Addr().Network())
				c.Close()
			}
		}()
		return l
	}
	_, port, _ := net.SplitHostPort(serve(net.Listen("tcp", "127.0.0.1:0")).Addr().String())
	p.tcp = port
	// A path of a socket is short.
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { os.RemoveAll(short) })
	os.Chmod(short, 0o755)
	p.unix = filepath.Join(short, "docker.sock")
	serve(net.Listen("unix", p.unix))
	p.abstract = fmt.Sprintf("gasupervisor-attack-%d-%s", os.Getpid(), p.name)
	serve(net.Listen("unix", "@"+p.abstract))
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { u.Close() })
	_, p.udp, _ = net.SplitHostPort(u.LocalAddr().String())
	go func() {
		b := make([]byte, 100)
		for {
			_, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			u.WriteTo([]byte(canary+"-udp"), from)
		}
	}()
}

func (p *place) start(by ...string) {
	p.t.Helper()
	var err error
	if p.log, err = os.OpenFile(p.path("daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		p.t.Fatal(err)
	}
	args := append(slices.Clone(by), binary, "run")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + systemPath, "HOME=" + p.path("home"), "GASUPERVISOR_CONFIG=" + p.path("gas/config.toml"),
		"SECRET_KEY=" + canary + "-api-key-0123456789", "OTHER_SECRET=" + canary + "-env",
	}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p.daemon, p.ended = cmd, ended
	p.t.Cleanup(p.stop)
	p.until("the daemon has started", func() bool { return strings.Contains(p.logText(), "commands of agents") || len(ended) > 0 })
	if len(ended) > 0 {
		p.t.Fatalf("the daemon has ended:\n%s", p.logText())
	}
}

func (p *place) logText() string {
	b, err := os.ReadFile(p.path("daemon.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

func (p *place) stop() {
	if p.daemon == nil {
		return
	}
	p.daemon.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.daemon.Process.Kill()
		<-p.ended
	}
	p.daemon = nil
	p.log.Close()
	if p.t.Failed() {
		text := p.logText()
		p.t.Logf("log of the daemon:\n%s", text[max(0, len(text)-14000):])
	}
}

func (p *place) until(what string, so func() bool) {
	p.t.Helper()
	if !waittest.Poll(so) {
		p.t.Fatalf("waited %s for: %s", waittest.Patience, what)
	}
}

// begin makes a task that makes calls, and returns its name. settings is its
// context.json.
func (p *place) begin(settings map[string]any, calls ...tool) string {
	p.t.Helper()
	p.n++
	name := fmt.Sprintf("t%d", p.n)
	if err := os.MkdirAll(p.task(name), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if settings != nil {
		b, err := json.Marshal(settings)
		if err != nil {
			p.t.Fatal(err)
		}
		p.write("gas/temp/"+name+"/context.json", string(b))
	}
	list := []map[string]any{}
	for _, c := range calls {
		list = append(list, map[string]any{"name": c.name, "args": c.args})
	}
	b, err := json.Marshal(list)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("gas/temp/"+name+"/input.txt", fmt.Sprintf("Task %s of %s. CALLS%s", name, p.name, b))
	return name
}

// finish waits for the end of a task's round and returns what its tools gave back,
// and the output.
func (p *place) finish(name string) (results []string, output string) {
	p.t.Helper()
	path := p.task(name, taskdir.OutputName(0))
	p.until(path+" is finished", func() bool {
		b, err := os.ReadFile(path)
		output = string(b)
		return err == nil && strings.Contains(output, taskdir.Marker)
	})
	for _, r := range p.model.Requests() {
		if strings.Contains(r.FirstUser(), fmt.Sprintf("Task %s of %s.", name, p.name)) && r.Turn() == len(results)+2 {
			results = append(results, strings.Join(r.Results(), "\n"))
		}
	}
	return results, output
}

// run does all of it, in the project.
func (p *place) run(calls ...tool) []string {
	p.t.Helper()
	results, _ := p.finish(p.begin(map[string]any{"work_dir": p.path("project")}, calls...))
	return results
}

// end ends a task, so that its session does not wait on.
func (p *place) status(name string) *taskdir.Status {
	p.t.Helper()
	st, err := taskdir.ReadStatus(p.task(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	return st
}

// victims are what nothing may change, whatever is granted.
var victims = []string{"home", "outside", "docs", "gas/agents", "gas/config.toml", "gas/llm.key", "project/.git/hooks", "project/.git/config", "project/.git/commondir"}

// snapshot describes the victims: content, mode, owner, times, links.
func (p *place) snapshot() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for _, v := range victims {
		err := filepath.WalkDir(p.path(v), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}
			var st syscall.Stat_t
			if err := syscall.Lstat(path, &st); err != nil {
				return err
			}
			text := fmt.Sprintf("%o %d:%d links %d at %d.%d", st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Sec, st.Mtim.Nsec)
			if d.Type().IsRegular() {
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text += fmt.Sprintf(" %x", sha256.Sum256(b))
			}
			names := make([]byte, 1024)
			if n, err := syscall.Listxattr(path, names); err == nil {
				text += fmt.Sprintf(" %q", names[:n])
			}
			out[path] = text
			return nil
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return out
}

// changed says what has happened to the victims.
func (p *place) changed() string {
	p.t.Helper()
	now := p.snapshot()
	for path, text := range p.before {
		if now[path] != text {
			return fmt.Sprintf("%s was %q and is %q", path, text, now[path])
		}
		delete(now, path)
	}
	for path := range now {
		return path + " is new"
	}
	return ""
}

// processes lists the processes whose command line or environment has a text.
func processes(text string) (pids []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		args, _ := os.ReadFile(d + "/cmdline")
		stat, _ := os.ReadFile(d + "/stat")
		if strings.Contains(string(args), text) && !strings.Contains(string(stat), ") Z ") {
			pids = append(pids, filepath.Base(d))
		}
	}
	return pids
}

// removeAll removes also what was made read-only.
func removeAll(dir string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(path, 0o755)
		}
		return nil
	})
	os.RemoveAll(dir)
}
