//go:build linux

package attack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// everyday is work that has to go on inside, on the default configuration.
func everyday(t *testing.T, p *place, settings map[string]any, rows []struct{ name, needs, line, wants string }) {
	for _, e := range rows {
		t.Run(e.name, func(t *testing.T) {
			if e.needs != "" && !has(e.needs) {
				t.Skipf("there is no %s", e.needs)
			}
			outer := p.t
			p.t = t
			defer func() { p.t = outer }()
			results, _ := p.finish(p.begin(settings, command(e.line)))
			seen := strings.Join(results, "\n")
			if !strings.Contains(seen, e.wants) || strings.Contains(seen, "killed after") {
				t.Errorf("got %s\nwant %q", seen, e.wants)
			}
			if c := p.changed(); c != "" {
				t.Errorf("something changed: %s", c)
			}
			row(t, "everyday: "+e.name, "goes on", last(seen))
		})
	}
}

// has looks for a program where the daemon's commands do.
func has(program string) bool {
	for _, dir := range strings.Split(systemPath+":/usr/local/go/bin", ":") {
		if _, err := os.Stat(dir + "/" + program); err == nil {
			return true
		}
	}
	return false
}

const (
	nodeFetch = `node -e 'const h=require("http"); const s=h.createServer((q,r)=>r.end("from node")).listen(0,"127.0.0.1",async()=>{console.log(await (await fetch("http://127.0.0.1:"+s.address().port)).text()); s.close()})'`
	venv      = "python3 -c 'import ensurepip' 2>/dev/null || { echo venv works; exit; }; python3 -m venv ~/v && ~/v/bin/python -c 'import sys; print(sys.prefix)' && ~/v/bin/pip --version && echo venv works"
)

func TestEveryday(t *testing.T) {
	p := newPlace(t, "everyday", "")
	everyday(t, p, map[string]any{"work_dir": p.path("project")}, []struct{ name, needs, line, wants string }{
		{"git in a clone", "git", "git status --short; echo x > new && git add new && git commit -qm 'a change' && git log --format='%s by %an' | head -1 && git stash list && git switch -qc branch && git diff HEAD~1 --stat", "a change by gasupervisor agent"},
		{"process substitution", "", "cat <(echo in) && diff <(echo a) <(echo a) && echo same", "in\nsame"},
		{"temporary files", "", "mktemp && mktemp -d && python3 -c 'import tempfile; print(tempfile.mkdtemp())' && cd ~ && mkdir -p .config/x && echo ok", "ok"},
		{"node -e with fetch", "node", nodeFetch, "from node"},
		{"python3 -m venv", "python3", venv, "venv works"},
		{"multiprocessing", "python3", "python3 -c 'import multiprocessing as m; print(sum(m.Pool(4).map(abs, range(-9, 0))))'", "45"},
		{"names", "", "whoami && id -un && hostname && getent passwd $(id -u) >/dev/null && getent hosts localhost && echo named", "named"},
		{"what is left running", "", "sleep 300 & echo hi", "1 process that it left running ended with it"},
		{"git status of a bare look", "git", "git -C . rev-parse --show-toplevel && git log -1 --format=%H | wc -c", "41"},
	})
	// What one command leaves in /tmp and HOME the next one, and a file tool, finds.
	results, _ := p.finish(p.begin(nil, command("echo kept > /tmp/a; echo kept > ~/b"), command("cat /tmp/a ~/b"),
		tool{"read_file", map[string]any{"path": "/tmp/a"}}, write("/tmp/c", "by a tool\n"), command("cat /tmp/c")))
	if seen := strings.Join(results, "\n"); strings.Count(seen, "kept") != 3 || !strings.Contains(seen, "by a tool") || strings.Contains(seen, "state/private") {
		t.Errorf("got %s", seen)
	}
	// Also where the file tool comes first.
	results, _ = p.finish(p.begin(nil, write("/tmp/first", "by a tool\n"), command("cat /tmp/first; ls -d ~")))
	if seen := strings.Join(results, "\n"); !strings.Contains(seen, "by a tool") || strings.Contains(seen, "state/private") {
		t.Errorf("got %s", seen)
	}
	// A worktree whose repository is beside it.
	p.sh("cd project && git worktree add -q ../gas/tree && git -C ../gas/tree log -1 --oneline")
	everyday(t, p, map[string]any{"work_dir": p.path("gas/tree")}, []struct{ name, needs, line, wants string }{
		{"git in a worktree", "git", "git status --short && echo y > other && git add other && git commit -qm 'from a worktree' && git log --format=%s | head -1", "from a worktree"},
		{"process substitution in a worktree", "", "cat <(echo in) && diff <(echo a) <(echo a) && echo same", "in\nsame"},
		{"node -e with fetch in a worktree", "node", nodeFetch, "from node"},
		{"python3 -m venv in a worktree", "python3", venv, "venv works"},
		{"the worktree's pointers stay", "git", "(echo x > .git); git config user.name x; (echo x > $(git rev-parse --git-dir)/commondir); git status >/dev/null && echo whole", "whole"},
	})
	everyday(t, p, map[string]any{"work_dir": p.path("gas/tree"), "tools": []string{"execute_command", "read_file"}}, []struct{ name, needs, line, wants string }{
		{"git in a worktree that is only read", "git", "git log --format=%s | head -1; touch x 2>&1; git status >/dev/null 2>&1; true", "Read-only file system"},
	})
}

// go test with a dependency that the user has downloaded, and nothing of a network.
func TestEverydayGo(t *testing.T) {
	if !has("go") {
		t.Skip("there is no go")
	}
	if os.Getenv(asUser) != "" && *table == "" {
		t.Skip("compiling takes long, and is done as root and for the table")
	}
	p := newPlace(t, "go", "")
	p.stop()
	// The module and its checksum come from a proxy that is a directory.
	p.write("mod/example.org/dep/@v/list", "v1.0.0\n")
	p.write("src/go.mod", "module example.org/dep\n")
	p.write("src/dep.go", "package dep\n\nfunc Answer() int { return 42 }\n")
	p.write("project/go.mod", "module example.org/main\n\ngo 1.20\n\nrequire example.org/dep v1.0.0\n")
	p.write("project/main_test.go", "package main\n\nimport (\n\t\"testing\"\n\n\t\"example.org/dep\"\n)\n\nfunc TestIt(t *testing.T) {\n\tif dep.Answer() != 42 {\n\t\tt.Fatal()\n\t}\n}\n")
	p.write("pack.py", `import zipfile, sys
z = zipfile.ZipFile(sys.argv[1] + "/v1.0.0.zip", "w")
for f in ("go.mod", "dep.go"):
    z.write("src/" + f, "example.org/dep@v1.0.0/" + f)
z.close()
open(sys.argv[1] + "/v1.0.0.mod", "w").write(open("src/go.mod").read())
open(sys.argv[1] + "/v1.0.0.info", "w").write('{"Version":"v1.0.0"}')
`)
	if !has("python3") {
		t.Skip("there is no python3 to pack a module with")
	}
	p.sh("python3 pack.py mod/example.org/dep/@v")
	goPath := "PATH=" + systemPath + ":/usr/local/go/bin"
	p.sh("cd project && export " + goPath + " GOPATH=$HOME/go GOMODCACHE=$HOME/go/pkg/mod GOCACHE=$PWD/../gocache GOFLAGS=-modcacherw GOPROXY=file://" + p.path("mod") + " GONOSUMDB=* GONOSUMCHECK=1 GOFLAGS=-mod=mod && go mod tidy && go mod download")
	p.sh("cd project && git worktree add -q ../gas/tree && cp go.mod go.sum main_test.go ../gas/tree")
	p.before = nil
	p.write("project/main.go", "package main\n\nfunc main() {}\n")
	for _, dir := range []string{"project", "gas/tree"} {
		p.goTest(dir, goPath)
	}
}

// goTest runs go test in a directory, as an agent's command.
func (p *place) goTest(dir, goPath string) {
	p.t.Helper()
	cmd := exec.CommandContext(context.Background(), binary, "check", "--policy", p.path("c.json"), "--run", "go test ./... && echo tested")
	p.write("c.json", fmt.Sprintf(`{"work_dir": %q}`, p.path(dir)))
	cmd.Dir = p.path("gas")
	cmd.Env = []string{goPath, "HOME=" + p.path("home"), "GASUPERVISOR_CONFIG=" + p.path("gas/config.toml"), "TMPDIR=" + os.TempDir(), "GASUPERVISOR_AGENT_COMMAND_TIMEOUT=20m"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok  \texample.org/main") || !strings.Contains(string(out), "tested") {
		p.t.Errorf("in %s: %v\n%s", dir, err, out)
	}
}

// pip and npm, and node's fetch where it knows proxies, by way of the proxy.
func TestEverydayProxy(t *testing.T) {
	asked := make(chan string, 1000)
	wheel, tarball := packages(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		switch r.URL.Path {
		case "/simple/thing/":
			fmt.Fprint(w, `<!DOCTYPE html><html><body><a href="/thing-1.0-py3-none-any.whl">thing-1.0-py3-none-any.whl</a></body></html>`)
		case "/thing":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"name":"thing","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"thing","version":"1.0.0","description":"by proxy","dist":{"tarball":"http://%s/thing-1.0.0.tgz"}}}}`, r.Host)
		case "/thing-1.0-py3-none-any.whl":
			w.Write(wheel)
		case "/thing-1.0.0.tgz":
			w.Write(tarball)
		case "/repo.git/info/refs":
			fmt.Fprintf(w, "%040d\trefs/heads/main\n", 1)
		default:
			fmt.Fprint(w, "plain text of a server")
		}
	}))
	defer server.Close()
	addr := server.Listener.Addr().(*net.TCPAddr)
	p := newPlace(t, "packages", fmt.Sprintf(`network = ["127.0.0.1:%d", "localhost:%d"]`, addr.Port, addr.Port))
	base := fmt.Sprintf("http://localhost:%d", addr.Port)
	p.sh("cd project && git worktree add -q ../gas/tree")
	for _, dir := range []string{"project", "gas/tree"} {
		t.Run(dir, func(t *testing.T) { p.packageTools(t, dir, base) })
	}
	if len(asked) == 0 {
		t.Error("nobody reached the server")
	}
}

// packageTools runs what fetches from a registry, in a directory.
func (p *place) packageTools(t *testing.T, dir, base string) {
	everyday(t, p, map[string]any{"work_dir": p.path(dir)}, []struct{ name, needs, line, wants string }{
		{"curl", "curl", "curl -sf " + base + "/x", "plain text of a server"},
		{"python", "python3", "python3 -c 'import urllib.request; print(urllib.request.urlopen(\"" + base + "/x\").read().decode())'", "plain text of a server"},
		{"pip", "pip3", "pip3 download --no-deps -d ~/d --index-url " + base + "/simple/ --trusted-host localhost thing==2.0 2>&1 | tail -5; true", "from versions: 1.0"},
		{"pip install", "pip3", "pip3 install --no-deps --disable-pip-version-check --target ~/lib --index-url " + base + "/simple/ --trusted-host localhost thing 2>&1 | tail -5; PYTHONPATH=~/lib python3 -c 'import thing'", "installed by pip"},
		{"npm install", "npm", "mkdir -p ~/n && cd ~/n && npm --registry " + base + "/ install --no-audit --no-fund thing 2>&1 | tail -5; node -e 'require(\"thing\")'", "installed by npm"},
		{"npm", "npm", "npm --registry " + base + "/ view thing description", "by proxy"},
		{"git over http", "git", "git ls-remote " + base + "/repo.git 2>&1; true", "refs/heads/main"},
		{"node", "node", `node -e 'const v=process.versions.node.split(".").map(Number); if (v[0]<22||v[0]==22&&v[1]<21) {console.log("this node knows no proxies")} else fetch("` + base + `/x").then(r=>r.text()).then(console.log)'`, "p"},
	})
}

// packages are a wheel for pip and a tarball for npm, both of which say "installed".
func packages(t *testing.T) (wheel, tarball []byte) {
	t.Helper()
	var w, g bytes.Buffer
	z := zip.NewWriter(&w)
	gz := gzip.NewWriter(&g)
	r := tar.NewWriter(gz)
	add := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range [][2]string{
		{"thing.py", "print('installed by pip')\n"},
		{"thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n"},
		{"thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"thing-1.0.dist-info/RECORD", "thing.py,,\nthing-1.0.dist-info/METADATA,,\nthing-1.0.dist-info/WHEEL,,\nthing-1.0.dist-info/RECORD,,\n"},
	} {
		out, err := z.Create(f[0])
		add(err)
		_, err = out.Write([]byte(f[1]))
		add(err)
	}
	for _, f := range [][2]string{{"package/package.json", `{"name":"thing","version":"1.0.0","main":"index.js"}`}, {"package/index.js", "console.log('installed by npm')\n"}} {
		add(r.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := r.Write([]byte(f[1]))
		add(err)
	}
	add(z.Close())
	add(r.Close())
	add(gz.Close())
	return w.Bytes(), g.Bytes()
}
