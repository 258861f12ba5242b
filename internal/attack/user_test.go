//go:build linux

package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// asNobody starts the daemon when what tasks write belongs to nobody.
var asNobody = []string{"sh", "-c", `cd "$HOME/.." && chown nobody gas/temp project && chown -R nobody project/.git && exec "$@"`, "sh"}

// newPlaceOfNobody makes a place whose agents act as nobody.
func newPlaceOfNobody(t *testing.T, name, config string) (*place, int, int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can let agents act as another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	p := newPlaceWith(t, name, "user = \"nobody\"\n"+config, asNobody...)
	if text := p.logText(); !strings.Contains(text, `"commands of agents are confined" level="full`) {
		t.Skipf("commands cannot be confined in full here:\n%s", text)
	}
	return p, uid, gid
}

// With [sandbox] user agents of a daemon that is root act as that user.
func TestUser(t *testing.T) {
	p, uid, gid := newPlaceOfNobody(t, "user", "")
	p.sh("echo " + canary + " > project/roots && chmod 600 project/roots && echo root > project/common && mkdir -m 700 project/rootdir && echo x > project/rootdir/" + canary + "-name")
	t.Run("posture", func(t *testing.T) {
		got := parsePosture(t, p.run(command("./probe posture")))
		got.full(t, true)
		want := posture{UIDMap: fmt.Sprintf("0 0 1 %d %[1]d 1", uid), GIDMap: fmt.Sprintf("0 0 1 %d %[1]d 1", gid)}
		if got.UIDMap != want.UIDMap || got.GIDMap != want.GIDMap {
			t.Errorf("maps %q, %q, want %q, %q", got.UIDMap, got.GIDMap, want.UIDMap, want.GIDMap)
		}
		four := func(id int) string { return strings.TrimSpace(strings.Repeat(strconv.Itoa(id)+"\t", 4)) }
		if got.UID != four(uid) || got.GID != four(gid) || got.Groups != "" {
			t.Errorf("user %q, group %q, groups %q", got.UID, got.GID, got.Groups)
		}
		row(t, "posture: [sandbox] user", "that user, its group and no other, capabilities none", "as expected")
	})
	owner := func(path string) func(*place) string {
		return func(p *place) string {
			var st syscall.Stat_t
			if err := syscall.Lstat(p.path(path), &st); err != nil {
				return err.Error()
			}
			if int(st.Uid) != uid || int(st.Gid) != gid {
				return fmt.Sprintf("%s belongs to %d:%d", path, st.Uid, st.Gid)
			}
			return ""
		}
	}
	try(t, p, []attack{
		{name: "[sandbox] user: become root again", line: "./probe syscalls; su -c id </dev/null" + through + "; sudo -n id" + through, wants: `setuid 0: held.*\n.*setgroups: held`, expected: "not permitted"},
		{name: "[sandbox] user: root's files in what is granted", line: "cat roots" + through + "; ls rootdir" + through + "; (echo x > common)" + through + "; chmod 777 common" + through + "; chown $(id -u) common" + through + "; mv rootdir/* x" + through,
			wants: `Permission denied`, expected: "permission denied"},
		{name: "[sandbox] user: the same by file tools", tools: []tool{
			{"read_file", map[string]any{"path": "roots"}}, {"list_files", map[string]any{"path": "rootdir"}}, {"list_files", map[string]any{"path": ".", "recursive": true}},
			{"search_files", map[string]any{"path": ".", "regex": "CANAR" + "[Y]"}}, write("common", "x"), write("rootdir/y", "x"),
			{"replace_in_file", map[string]any{"path": "common", "old": "root", "new": "x"}},
		}, wants: `permission denied`, expected: "permission denied", check: func(p *place) string {
			if b, err := os.ReadFile(p.path("project/common")); string(b) != "root\n" {
				return fmt.Sprintf("%q, %v", b, err)
			}
			return ""
		}},
		{name: "[sandbox] user: what a file tool makes", tools: []tool{write("made/by/tool", "x"), command("echo y >> made/by/tool && rm -r made/by && echo he\"\"ld")}, wants: `held`, expected: "is the user's", check: owner("project/made")},
		{name: "[sandbox] user: a file tool that is the first in /tmp", tools: []tool{write("/tmp/first", "x"), command("echo y >> /tmp/first && ls -ld $XDG_RUNTIME_DIR && echo he\"\"ld")}, wants: `held`, expected: "is the user's"},
		{name: "[sandbox] user: signals to the helper and to others", line: "kill -9 1; kill -9 @PID@; kill -9 -1; echo x", wants: `not permitted|No such|killed|137`, expected: "not permitted, no such process"},
	})
	p.sh("mkdir -m 755 project/out")
	for key, value := range map[string]any{"work_dir": p.path("project/out"), "output_files": map[string]string{"k": p.path("project/out/x")}} {
		_, output := p.finish(p.begin(map[string]any{key: value}, command("echo THR\"\"OUGH")))
		judge(t, p, attack{name: "[sandbox] user: " + key + " that only root may write", expected: "ended before a token, naming the key", wants: key + ".* in context.json is refused.*chown|" + key + ".*user nobody"}, []string{output})
	}
	t.Run("everyday", func(t *testing.T) {
		everyday(t, p, map[string]any{"work_dir": p.path("project")}, []struct{ name, needs, line, wants string }{
			{"git", "git", "git status --short >/dev/null; echo x > new && git add new && git commit -qm 'as nobody' && git log --format=%s | head -1", "as nobody"},
			{"python3 -m venv", "python3", "python3 -c 'import ensurepip' 2>/dev/null || { echo venv works; exit; }; python3 -m venv ~/v && ~/v/bin/python -c 'print(1)' && echo venv works", "venv works"},
			{"its own task's directory", "", "for d in " + p.path("gas/temp") + "/t*; do touch $d/mine || exit; done; whoami", "nobody"},
		})
	})
}

// A configuration that cannot be kept stops the daemon, and check says the same.
func TestUserRefused(t *testing.T) {
	cases := map[string]string{"no-such-user": `there is no user "no-such-user"`, "root": "is root", "nobody": "nobody may not write"}
	if os.Geteuid() != 0 {
		cases = map[string]string{"nobody": "only a daemon that runs as root"}
	}
	for name, says := range cases {
		dir := t.TempDir()
		config := fmt.Sprintf("temp_dir = \"temp\"\nstate_dir = \"state\"\n[[llm]]\nname = \"x\"\nbase_url = \"http://127.0.0.1:1\"\nmodel = \"x\"\n[sandbox]\nuser = %q\n", name)
		if err := errors.Join(os.Mkdir(dir+"/temp", 0o755), os.WriteFile(dir+"/config.toml", []byte(config), 0o644)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"run"}, {"check", "--offline"}} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, binary, append(args, "--config", dir+"/config.toml")...)
			cmd.Env = []string{"PATH=" + systemPath, "HOME=" + dir}
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "[sandbox] user: ") || !strings.Contains(string(out), says) {
				t.Errorf("%s, %s: %v\n%s", name, args[0], err, out)
			}
		}
	}
}
