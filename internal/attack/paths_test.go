//go:build linux

package attack

import (
	"os"
	"testing"
)

// Refusals, as programs say them.
const (
	absent   = `No such file or directory`
	readOnly = `Read-only file system|Permission denied|Operation not permitted`
	either   = absent + `|` + readOnly
)

// through reports success in a way that the line itself does not hold.
const through = ` && echo THR""OUGH; true`

func TestReading(t *testing.T) {
	p := newPlace(t, "reading", "")
	try(t, p, []attack{
		{name: "read /etc/shadow", line: "cat /etc/shadow" + through, wants: absent, expected: "not there"},
		{name: "read the system's other secrets", line: "ls /etc/ssl/private /etc/sudoers /root/.ssh /var /run /boot /sys /home 2>&1; true", wants: absent, expected: "not there"},
		{name: "read the home directory", line: "ls -la @DIR@/home" + through + "; cat @DIR@/home/.netrc ~/.netrc", wants: absent, expected: "not there"},
		{name: "read ssh keys", line: "cat @DIR@/home/.ssh/id_ed25519 ~/.ssh/id_ed25519" + through, wants: absent, expected: "not there"},
		{name: "read a file beside what is granted", line: "cat @DIR@/outside/secret.txt" + through, wants: absent, expected: "not there"},
		{name: "read the daemon's state", line: "ls @DIR@/gas/state/" + through + "; cat @DIR@/gas/state/*/session.jsonl", wants: absent, expected: "not there"},
		{name: "read the key file", line: "cat @DIR@/gas/llm.key" + through, wants: absent, expected: "not there"},
		{name: "read the daemon's environment", line: "cat /proc/@PID@/environ /proc/1/environ" + through + "; grep -az SECRET /proc/*/environ; env", wants: absent, expected: "no such process, permission denied"},
		{name: "read the daemon's memory", line: "head -c1 /proc/@PID@/mem /proc/1/mem /proc/1/maps" + through, wants: either, expected: "no such process, permission denied"},
		{name: "find files left open", line: "./probe fds; ls -l /proc/self/fd", wants: `held: nothing is open`, expected: "none"},
		{name: "leave by /proc/1/root and /proc/self/root", line: "./probe root; cat /proc/1/root/etc/shadow /proc/self/root/etc/shadow" + through, wants: `held`, expected: "the same root, or permission denied"},
		{name: "leave by ..", line: "cat ../../../../../../../../etc/shadow ../outside/secret.txt" + through, wants: absent, expected: "not there"},
		{name: "open files by handle", line: "./probe handles", wants: `open_by_handle_at in \.: held`, expected: "refused"},
		{name: "look into the kernel", line: "head -c1 /proc/kcore" + through + "; head -c1 /proc/kallsyms /proc/keys /proc/kpageflags /proc/timer_list | grep -q '[^=>]  *[a-f0-9]' && echo THR\"\"OUGH; dmesg; ls /sys", wants: either, expected: "not there, or empty"},
		{name: "devices", line: "ls /dev; for d in /dev/vda /dev/sda /dev/mem /dev/kmsg /dev/tty /dev/ptmx /dev/fuse /dev/kvm /dev/net/tun; do [ -e $d ] && echo $d THR\"\"OUGH; done; echo he\"\"ld", wants: `held`, expected: "null, zero, full, random, urandom, shm"},
		{name: "read_file: /etc/shadow, keys, state, processes", tools: []tool{
			{"read_file", map[string]any{"path": "/etc/shadow"}},
			{"read_file", map[string]any{"path": p.path("home/.ssh/id_ed25519")}},
			{"read_file", map[string]any{"path": p.path("gas/llm.key")}},
			{"read_file", map[string]any{"path": "/proc/self/environ"}},
			{"read_file", map[string]any{"path": "../outside/secret.txt"}},
			{"list_files", map[string]any{"path": p.path("gas/state"), "recursive": true}},
			{"search_files", map[string]any{"path": p.path("home"), "regex": "."}},
		}, wants: `is refused`, expected: "each refused, with the path and why"},
		{name: "read_file through a link that a command made", tools: []tool{
			command("ln -s " + p.path("outside/secret.txt") + " l1; ln -s " + p.path("outside") + " l2; ln -s / l3; ls -la"),
			{"read_file", map[string]any{"path": "l1"}},
			{"read_file", map[string]any{"path": "l2/secret.txt"}},
			{"read_file", map[string]any{"path": "l3/etc/shadow"}},
			{"search_files", map[string]any{"path": ".", "regex": "CAN" + "[A]RY"}},
		}, wants: `it is a link to`, expected: "refused: it is a link to ..."},
	})
}

func TestWriting(t *testing.T) {
	p := newPlace(t, "writing", "")
	try(t, p, []attack{
		{name: "write, chmod, chown, touch, truncate outside", line: "D=@DIR@/outside; (echo x > $D/secret.txt)" + through + "; chmod 777 $D/secret.txt" + through + "; chown 0 $D/secret.txt" + through +
			"; touch $D/secret.txt $D/new 2>&1" + through + "; truncate -s0 $D/secret.txt" + through, wants: absent, expected: "not there"},
		{name: "the same where reading is granted", line: "D=@DIR@/docs; (echo x > $D/readme.txt)" + through + "; chmod 777 $D/readme.txt" + through + "; touch $D/readme.txt" + through +
			"; truncate -s0 $D/readme.txt" + through + "; rm $D/readme.txt" + through + "; mv $D/readme.txt $D/x" + through + "; ln $D/readme.txt $D/x" + through, wants: readOnly, expected: "read-only"},
		{name: "setfattr", line: "./probe setxattr @DIR@/docs/readme.txt; ./probe setxattr @DIR@/outside/secret.txt; ./probe setxattr .git/config", wants: `held`, expected: "read-only, not there"},
		{name: "cron and systemd units", line: "(echo x > /etc/cron.d/x)" + through + "; (echo x > /etc/systemd/system/x.service)" + through + "; (echo x > /var/spool/cron/root)" + through + "; ls /etc/cron.d", wants: either, expected: "not there"},
		{name: "shell profiles and user units", line: "(echo x >> @DIR@/home/.bashrc)" + through + "; (echo x >> @DIR@/home/.config/systemd/user/a.service)" + through + "; (echo x >> /etc/profile)" + through, wants: either, expected: "not there"},
		{name: "the system", line: "(echo x > /usr/bin/x)" + through + "; (echo x > /usr/lib/x)" + through + "; rm /usr/bin/env" + through + "; mkdir /x" + through, wants: readOnly, expected: "read-only"},
		{name: ".git/hooks and .git/config of the checkout", line: "(echo x > .git/hooks/pre-commit)" + through + "; (echo x >> .git/config)" + through + "; git config core.fsmonitor ./x" + through + "; rm -rf .git/hooks" + through +
			"; mv .git/config .git/c" + through + "; ln -sf /tmp/x .git/config" + through, wants: readOnly + "|busy", expected: "read-only, busy"},
		{name: "another .git in its place", line: "mv .git g2" + through + "; rm -rf .git 2>&1 | tail -1; mkdir -p /tmp/g && (mv -T /tmp/g .git)" + through, wants: `busy|Read-only`, expected: "busy"},
		{name: "a commondir that leads git elsewhere", line: "mkdir -p /tmp/evil; echo /tmp/evil > .git/commondir; ls .git/commondir",
			wants: `commondir`, expected: "removed when the command is over",
			check: func(p *place) string {
				if _, err := os.Lstat(p.path("project/.git/commondir")); err == nil {
					return "it is still there"
				}
				return ""
			}},
		{name: "hard links to what may only be read", line: "ln @DIR@/docs/readme.txt x" + through + "; ln /usr/bin/env x" + through + "; ln .git/config x" + through, wants: `Invalid cross-device link|` + readOnly, expected: "cross-device"},
		{name: "dangling links", line: "ln -s @DIR@/outside/new l; (echo x > l)" + through + "; ls @DIR@/outside", wants: absent, expected: "nothing created"},
		{name: "device files", line: "./probe mknod dev0; mknod dev1 c 1 3" + through, wants: `mknod: held`, expected: "refused"},
		{name: "setuid programs", line: "cp /usr/bin/id sid; chmod 4755 sid; ./sid; su -c id </dev/null" + through + "; sudo -n id" + through + "; grep NoNewPrivs /proc/self/status", wants: `NoNewPrivs:\s1`, expected: "no new privileges"},
		{name: "write_to_file: the same places", tools: []tool{
			write(p.path("outside/new"), "x"), write(p.path("home/.bashrc"), "x"), write("/etc/cron.d/x", "x"), write(p.path("docs/readme.txt"), "x"),
			write(".git/hooks/pre-commit", "x"), write(".git/config", "x"), write(".git/commondir", "x"), write(".git", "x"), write("../outside/new", "x"), write(p.path("gas/config.toml"), "x"),
			write(p.path("gas/state/x"), "x"),
		}, wants: `is refused`, expected: "each refused, with the path and why"},
		{name: "write_to_file through links that a command made", tools: []tool{
			command("ln -s " + p.path("outside/new") + " d1; ln -s " + p.path("outside") + " d2; ln -s .git/config d3; ln -s .git d4; mkfifo fifo; true"),
			write("d1", "x"), write("d2/new", "x"), write("d3", "x"), write("d4/hooks/post-commit", "x"), write("fifo", "x"),
		}, wants: `it is a link to`, expected: "refused: it is a link to ..."},
	})
}

func write(path, text string) tool {
	return tool{"write_to_file", map[string]any{"path": path, "content": text}}
}

// The daemon's own files, for an agent that has the directory they lie in.
func TestDaemonsFiles(t *testing.T) {
	p := newPlace(t, "daemon", "")
	in := func(calls ...tool) []string {
		results, _ := p.finish(p.begin(map[string]any{"work_dir": p.path("gas")}, calls...))
		return results
	}
	for _, a := range []attack{
		{name: "config, state, key file, from their own directory", line: "(echo x >> config.toml)" + through + "; mv config.toml c" + through + "; cat state/* state/*/*" + through + "; mv state s" + through + "; ls -A state; cat llm.key; rm -rf state config.toml" + through,
			wants: readOnly + "|busy", expected: "read-only, hidden"},
		{name: "the daemon's program", line: "(echo x >> " + binary + ")" + through + "; rm " + binary + through + "; ls " + binary, wants: either, expected: "not there"},
		{name: "agents and skills, which say what later agents may do", line: "(echo x > agents/evil.md)" + through + "; mkdir -p skills/x" + through + "; mkdir -p .claude/agents/x" + through + "; mkdir -p .agents/skills/x" + through +
			"; (echo x >> agents/reviewer.md)" + through + "; mv agents a" + through + "; mv .claude c" + through + "; rm -rf agents .claude" + through, wants: readOnly + "|busy", expected: "read-only, busy"},
		{name: "move away the directory around them", line: "mv ../gas ../gas2" + through + "; mv temp temp2" + through + "; ls ..", wants: `busy|` + readOnly, expected: "busy"},
	} {
		t.Run(a.name, func(t *testing.T) {
			outer := p.t
			p.t = t
			defer func() { p.t = outer }()
			judge(t, p, a, in(command(a.line)))
		})
	}
}
