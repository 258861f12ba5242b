//go:build linux

package attack

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// posture is what the probe reports of itself.
type posture struct {
	CapInh, CapPrm, CapEff, CapBnd, CapAmb, NoNewPrivs, Seccomp, Umask string

	UID    string `json:"Uid"`
	GID    string `json:"Gid"`
	Groups string

	HelperName       string `json:"helper Name"`
	HelperPrm        string `json:"helper CapPrm"`
	HelperEff        string `json:"helper CapEff"`
	HelperAmb        string `json:"helper CapAmb"`
	HelperNoNewPrivs string `json:"helper NoNewPrivs"`

	User   string `json:"ns user"`
	Mnt    string `json:"ns mnt"`
	PID    string `json:"ns pid"`
	Net    string `json:"ns net"`
	IPC    string `json:"ns ipc"`
	UTS    string `json:"ns uts"`
	Cgroup string `json:"ns cgroup"`

	UIDMap    string `json:"uid_map"`
	GIDMap    string `json:"gid_map"`
	Setgroups string `json:"setgroups"`

	Limits      map[string]uint64 `json:"limits"`
	SecureBits  int               `json:"secure bits"`
	Environment []string          `json:"environment"`
	Mounts      map[string]string `json:"mounts"`
	Sockets     []string          `json:"sockets"`
}

func parsePosture(t *testing.T, results []string) posture {
	t.Helper()
	_, text, ok := strings.Cut(strings.Join(results, "\n"), "POSTURE")
	if !ok {
		t.Fatalf("no posture in %q", results)
	}
	var p posture
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&p); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return p
}

const none = "0000000000000000"

// always is what holds at every level.
func (p posture) always(t *testing.T) {
	t.Helper()
	for name, got := range map[string]string{"inheritable": p.CapInh, "permitted": p.CapPrm, "effective": p.CapEff, "ambient": p.CapAmb} {
		if got != none {
			t.Errorf("%s capabilities: %s", name, got)
		}
	}
	if p.NoNewPrivs != "1" || p.Seccomp != "2" {
		t.Errorf("no_new_privs %s, seccomp %s", p.NoNewPrivs, p.Seccomp)
	}
	if len(p.Sockets) > 0 {
		t.Errorf("sockets in reach: %q", p.Sockets)
	}
	if p.Limits["core"] != 1 || p.Limits["files"] != 8192 || p.Limits["size"] != 10<<30 {
		t.Errorf("limits: %v", p.Limits)
	}
	want := []string{
		"CCACHE_DIR", "DEBIAN_FRONTEND", "DENO_DIR", "GASUPERVISOR_CALL", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "GOCACHE", "GOFLAGS", "GOMODCACHE", "GOPATH", "HOME",
		"NO_COLOR", "OLDPWD", "PAGER", "PATH", "PIP_CACHE_DIR", "PWD", "SHLVL", "TERM", "TMPDIR", "UV_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
		"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "YARN_CACHE_FOLDER", "_", "npm_config_cache",
	}
	for _, name := range p.Environment {
		if !slices.Contains(want, name) && !strings.Contains(strings.ToLower(name), "proxy") {
			t.Errorf("the environment has %s", name)
		}
	}
}

// full is what holds with namespaces, beside the layout.
func (p posture) full(t *testing.T, network bool) {
	t.Helper()
	p.always(t)
	if p.CapBnd != none || p.SecureBits != 0xef {
		t.Errorf("bounding set %s, secure bits %#x", p.CapBnd, p.SecureBits)
	}
	if p.HelperPrm != none || p.HelperEff != none || p.HelperAmb != none || p.HelperNoNewPrivs != "1" {
		t.Errorf("the helper has %s %s %s, no_new_privs %s", p.HelperPrm, p.HelperEff, p.HelperAmb, p.HelperNoNewPrivs)
	}
	for name, got := range map[string]string{"user": p.User, "mnt": p.Mnt, "pid": p.PID, "net": p.Net, "ipc": p.IPC, "uts": p.UTS, "cgroup": p.Cgroup} {
		ours, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if own := got != ours; own != (name != "net" || network) || got == "" {
			t.Errorf("%s namespace: %s, and outside %s", name, got, ours)
		}
	}
	for at, flags := range p.Mounts {
		device := strings.HasPrefix(at, "/dev/") && at != "/dev/shm"
		if !strings.Contains(flags, "nosuid") && !strings.HasPrefix(at, "/proc/") {
			t.Errorf("%s is mounted %s, without nosuid", at, flags)
		}
		if !strings.Contains(flags, "nodev") && !device && !strings.HasPrefix(at, "/proc/") {
			t.Errorf("%s is mounted %s, without nodev", at, flags)
		}
		if strings.HasPrefix(at, "/proc") && !strings.Contains(flags, "ro") {
			t.Errorf("%s is mounted %s, not read-only", at, flags)
		}
	}
}

// owned is what holds where the commands' user is the daemon's.
func (p posture) owned(t *testing.T) {
	t.Helper()
	if want := fmt.Sprintf("%d %d 1", os.Getuid(), os.Getuid()); p.UIDMap != want {
		t.Errorf("uid map %q, want %q", p.UIDMap, want)
	}
	if want := fmt.Sprintf("%d %d 1", os.Getgid(), os.Getgid()); p.GIDMap != want || p.Setgroups != "deny" {
		t.Errorf("gid map %q, want %q; setgroups %s", p.GIDMap, want, p.Setgroups)
	}
}

// mounted compares the mounts that are not the system's with what is wanted.
func (p posture) mounted(t *testing.T, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for at, flags := range p.Mounts {
		own := false
		for _, system := range []string{"/proc/", "/etc/", "/usr", "/opt", "/nix", "/lib", "/bin", "/sbin"} {
			own = own || strings.HasPrefix(at, system)
		}
		if own && strings.HasPrefix(flags, "ro") {
			continue
		}
		got[at] = flags[:2]
	}
	for at, flags := range want {
		if got[at] != flags {
			t.Errorf("%s is mounted %q, want %s", at, got[at], flags)
		}
		delete(got, at)
	}
	for at, flags := range got {
		t.Errorf("%s is mounted %s, and nothing says so", at, flags)
	}
}

func TestPosture(t *testing.T) {
	private := func(p *place) map[string]string {
		return map[string]string{
			"/": "ro", "/proc": "ro", "/dev/null": "rw", "/dev/zero": "rw", "/dev/full": "rw", "/dev/random": "rw", "/dev/urandom": "rw", "/dev/shm": "rw",
			"/agent/home": "rw", "/agent/cache": "rw", "/tmp": "rw", p.path("docs"): "ro",
		}
	}
	// What the daemon keeps for itself in its directory, the way to it included.
	daemons := func(p *place, more map[string]string) map[string]string {
		for path, flags := range map[string]string{
			"state": "ro", "config.toml": "ro", "llm.key": "ro", "agents": "ro", "skills": "ro", ".claude": "rw", ".claude/agents": "ro", ".agents": "rw", ".agents/skills": "ro",
		} {
			more[p.path("gas", path)] = flags
		}
		return more
	}
	for _, c := range []struct {
		name, config string
		network      bool // of its own
		settings     func(p *place) map[string]any
		mounts       func(p *place) map[string]string
	}{
		{"the defaults", "", true, func(*place) map[string]any { return nil }, func(p *place) map[string]string { return map[string]string{p.path("gas/temp"): "rw"} }},
		{"a checkout", "", true, func(p *place) map[string]any { return map[string]any{"work_dir": p.path("project")} }, func(p *place) map[string]string {
			return map[string]string{p.path("gas/temp"): "rw", p.path("project"): "rw", p.path("project/.git"): "rw", p.path("project/.git/config"): "ro", p.path("project/.git/hooks"): "ro"}
		}},
		{"the daemon's directory", "", true, func(p *place) map[string]any { return map[string]any{"work_dir": p.path("gas")} }, func(p *place) map[string]string {
			return daemons(p, map[string]string{p.path("gas"): "rw", p.path("gas/temp"): "rw"})
		}},
		{"share = false", "share = false", true, func(p *place) map[string]any { return map[string]any{"work_dir": p.path("project")} }, func(p *place) map[string]string {
			return map[string]string{p.task("t1"): "rw", p.path("project"): "rw", p.path("project/.git"): "rw", p.path("project/.git/config"): "ro", p.path("project/.git/hooks"): "ro"}
		}},
		{"share = false around temp", "share = false", true, func(p *place) map[string]any { return map[string]any{"work_dir": p.path("gas")} }, func(p *place) map[string]string {
			return daemons(p, map[string]string{p.path("gas"): "rw", p.path("gas/temp"): "ro", p.task("t1"): "rw"})
		}},
		{"no writing tools", "", true, func(p *place) map[string]any {
			return map[string]any{"work_dir": p.path("project"), "tools": []string{"execute_command"}}
		}, func(p *place) map[string]string {
			return map[string]string{p.path("gas/temp"): "ro", p.path("project"): "ro"}
		}},
		{"a proxy", `network = ["example.org:443"]`, true, func(*place) map[string]any { return nil }, func(p *place) map[string]string { return map[string]string{p.path("gas/temp"): "rw"} }},
		{"the whole network", `network = "all"`, false, func(*place) map[string]any { return nil }, func(p *place) map[string]string { return map[string]string{p.path("gas/temp"): "rw"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t, strings.ReplaceAll(c.name, " ", "-"), c.config)
			for _, how := range []string{"posture", "fork-posture"} {
				settings := c.settings(p)
				p.n = 0
				os.RemoveAll(p.task("t1"))
				results, _ := p.finish(p.begin(settings, command(p.path("docs/probe")+" "+how)))
				got := parsePosture(t, results)
				got.full(t, c.network)
				got.owned(t)
				want := private(p)
				for at, flags := range c.mounts(p) {
					want[at] = flags
				}
				got.mounted(t, want)
				if got.HelperName != "gasupervisor" && got.HelperName != "exe" {
					t.Errorf("process 1 is %q", got.HelperName)
				}
				if got.Umask != "0022" {
					t.Errorf("umask %s", got.Umask)
				}
				p.stop()
				p.sh("rm -rf gas/state/*/ gas/temp/t1")
				if how == "posture" {
					p.start()
				}
			}
			row(t, "posture: "+c.name, "capabilities none, namespaces own, mounts as granted, also after a fork", "as expected")
		})
	}
	t.Run("Landlock alone", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root is refused at this level")
		}
		p := newPlaceWith(t, "partial-posture", "", probe, "without-namespaces")
		if !strings.Contains(p.logText(), "confined in part") {
			t.Skipf("Landlock alone does not do here:\n%s", p.logText())
		}
		results, _ := p.finish(p.begin(nil, command(p.path("docs/probe")+" posture")))
		got := parsePosture(t, results)
		got.always(t)
		for name, ns := range map[string]string{"user": got.User, "mnt": got.Mnt, "pid": got.PID, "net": got.Net} {
			if ours, _ := os.Readlink("/proc/self/ns/" + name); ns != ours {
				t.Errorf("%s namespace %s, outside %s", name, ns, ours)
			}
		}
		row(t, "posture: Landlock alone", "capabilities none, no new privileges, seccomp", "as expected")
	})
}
