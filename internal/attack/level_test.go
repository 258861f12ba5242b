//go:build linux

package attack

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Without confinement the attacks do get through: what the other tests see is
// not the attacks' own failing.
func TestTheAttacksWork(t *testing.T) {
	p := newPlaceWith(t, "off", `mode = "off"`)
	for name, line := range map[string]string{
		"read a secret":     "cat " + p.path("outside/secret.txt"),
		"read the keys":     "cat " + p.path("home/.ssh/id_ed25519"),
		"write outside":     "touch " + p.path("outside/new") + through,
		"write a hook":      "(echo x > .git/hooks/pre-commit)" + through,
		"TCP":               "./probe tcp 127.0.0.1:" + p.tcp,
		"UDP":               "./probe udp 127.0.0.1:" + p.udp,
		"a socket by path":  "./probe unix " + p.unix,
		"an abstract one":   "./probe unix @" + p.abstract,
		"other sockets":     "./probe sockets",
		"system calls":      "./probe syscalls",
		"attributes":        "./probe setxattr " + p.path("docs/readme.txt"),
		"signal the daemon": "kill -0 " + strconv.Itoa(p.daemon.Process.Pid) + through,
	} {
		seen := strings.Join(p.run(command(line)), "\n")
		if !strings.Contains(seen, "THROUGH") && !strings.Contains(seen, canary) {
			t.Errorf("%s does not get through even so:\n%s", name, seen)
		}
	}
}

// Without user namespaces an ordinary user's commands are behind Landlock alone.
func TestPartial(t *testing.T) {
	p := newPlaceWith(t, "partial", "", probe, "without-namespaces")
	if os.Geteuid() == 0 {
		if !strings.Contains(p.logText(), "cannot be confined here") {
			t.Fatalf("the log:\n%s", p.logText())
		}
		seen := strings.Join(p.run(command("echo THR\"\"OUGH")), "\n")
		if !strings.Contains(seen, "refused") || strings.Contains(seen, "THROUGH") {
			t.Error(seen)
		}
		row(t, "no user namespaces, and root: any command", "refused", seen)
		return
	}
	if !strings.Contains(p.logText(), "confined in part") {
		t.Skipf("Landlock alone does not do here:\n%s", p.logText())
	}
	// A checkout has files that would have to be kept, which Landlock cannot.
	seen := strings.Join(p.run(command("echo THR\"\"OUGH")), "\n")
	if !strings.Contains(seen, "refused") || strings.Contains(seen, "THROUGH") {
		t.Error(seen)
	}
	row(t, "Landlock alone: a command in a checkout", "refused", seen)
	for _, a := range []attack{
		{name: "Landlock alone: read secrets", line: "cat /etc/shadow /etc/passwd" + through + "; cat @DIR@/outside/secret.txt @DIR@/home/.ssh/id_ed25519 @DIR@/gas/llm.key" + through + "; ls @DIR@/gas/state" + through, wants: `Permission denied`, expected: "permission denied"},
		{name: "Landlock alone: write", line: "(echo x > @DIR@/outside/new)" + through + "; (echo x > @DIR@/docs/readme.txt)" + through + "; (echo x > @DIR@/home/.bashrc)" + through + "; (echo x > /tmp/x-$$)" + through + "; truncate -s0 @DIR@/docs/readme.txt" + through, wants: `Permission denied`, expected: "permission denied"},
		{name: "Landlock alone: the daemon's environment, memory, descriptors", line: "cat /proc/@PID@/environ" + through + "; head -c1 /proc/@PID@/mem" + through + "; cat /proc/@PID@/fd/*" + through + "; cat /proc/@PID@/root/etc/shadow" + through, wants: `Permission denied`, expected: "permission denied"},
		{name: "Landlock alone: signals to the daemon and to others", line: "kill -0 @PID@" + through + "; kill -9 @PID@" + through + "; kill -9 $PPID" + through, wants: `not permitted`, expected: "not permitted"},
		{name: "Landlock alone: sockets", line: "@DIR@/docs/probe tcp 127.0.0.1:@TCP@; @DIR@/docs/probe udp 127.0.0.1:@UDP@; @DIR@/docs/probe unix @UNIX@; @DIR@/docs/probe unix '@@ABSTRACT@'; @DIR@/docs/probe sockets", wants: `held: .*permission denied`, expected: "permission denied"},
		{name: "Landlock alone: system calls", line: "@DIR@/docs/probe syscalls", wants: `held`, expected: "refused, each"},
		{name: "Landlock alone: outlive the call", line: "setsid -f env -i sh -c '(setsid -f sleep 303 &)'; echo he\"\"ld", wants: `held`, expected: "dead with it",
			check: func(p *place) string { p.settled("sleep 303"); return "" }},
		{name: "Landlock alone: what is fine", line: "touch x && cat x && rm x && cat <(echo he\"\"ld) && echo $HOME && touch ~/a $TMPDIR/b && echo x >/dev/null && git --version", wants: `held`, expected: "goes on"},
	} {
		line := strings.NewReplacer("@DIR@", p.dir, "@TCP@", p.tcp, "@UDP@", p.udp, "@UNIX@", p.unix, "@ABSTRACT@", p.abstract, "@PID@", strconv.Itoa(p.daemon.Process.Pid)).Replace(a.line)
		results, _ := p.finish(p.begin(nil, command(line)))
		judge(t, p, a, results)
	}
}
