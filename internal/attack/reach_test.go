//go:build linux

package attack

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// outwards is the address of this machine that others would use.
func outwards() string {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "192.0.2.1"
}

func TestNetwork(t *testing.T) {
	p := newPlace(t, "network", "")
	try(t, p, []attack{
		{name: "TCP to this machine", line: "./probe tcp 127.0.0.1:@TCP@; ./probe tcp " + outwards() + ":22; curl -s -m5 http://127.0.0.1:@TCP@/; true", wants: `refused|unreachable`, expected: "refused, unreachable"},
		{name: "/dev/tcp and /dev/udp of the shell", line: "cat < /dev/tcp/127.0.0.1/@TCP@" + through + "; (echo x > /dev/udp/8.8.8.8/53)" + through, wants: `refused|unreachable`, expected: "refused, unreachable"},
		{name: "UDP", line: "./probe udp 127.0.0.1:@UDP@; ./probe udp 8.8.8.8:53", wants: `held`, expected: "no answer, unreachable"},
		{name: "DNS", line: "getent hosts example.org" + through + "; python3 -c 'import socket; print(socket.gethostbyname(\"example.org\"), \"THR\" \"OUGH\")' 2>&1 | tail -1; echo he\"\"ld", wants: `held`, expected: "no answer"},
		{name: "TCP to the outside", line: "./probe tcp 1.1.1.1:443; ./probe tcp [2606:4700::1111]:443", wants: `unreachable`, expected: "unreachable"},
		{name: "a unix socket by path (docker.sock)", line: "./probe unix @UNIX@; ls /run/docker.sock /var/run/docker.sock /run/dbus/system_bus_socket /run/systemd/private /tmp/.X11-unix" + through, wants: strings.ToLower(absent), expected: "not there"},
		{name: "an abstract unix socket", line: "./probe unix '@@ABSTRACT@'", wants: `held`, expected: "refused"},
		{name: "netlink, vsock, packets and other families", line: "./probe sockets", wants: `vsock: held`, expected: "refused, each"},
	})
}

// With network = "all" the machine's network is there, and still no way to other
// programs but by addresses.
func TestNetworkAll(t *testing.T) {
	p := newPlace(t, "all", `network = "all"`)
	try(t, p, []attack{
		{name: `an abstract socket, with network = "all"`, line: "./probe unix '@@ABSTRACT@'", wants: `held`, expected: "refused by Landlock"},
		{name: `a socket by path, with network = "all"`, line: "./probe unix @UNIX@", wants: `held`, expected: "not there"},
		{name: `netlink and others, with network = "all"`, line: "./probe sockets", wants: `packets: held`, expected: "refused, each"},
	})
}

// A proxy that lets one port of one name through is asked for others. The star
// stands for names that somebody could make lead anywhere.
func TestProxy(t *testing.T) {
	p := newPlace(t, "proxy", `network = ["*:1234", "*.example.org:443", "127.0.0.1:4321"]`)
	get := "curl -s -m10 -w ' code %{http_code}' "
	proxied := get + "--noproxy '' "
	try(t, p, []attack{
		{name: "proxy: loopback by name and number", line: proxied + "http://localhost:1234/; " + proxied + "http://127.0.0.1:1234/; " + proxied + "http://[::1]:1234/; " + proxied + "http://0.0.0.0:1234/; " + proxied + "http://2130706433:1234/", wants: `code 403`, expected: "403"},
		{name: "proxy: a name that leads to loopback (rebinding)", line: proxied + "http://$(hostname):1234/ ; " + proxied + "http://localhost.localdomain:1234/", wants: `code (403|502)`, expected: "403, 502"},
		{name: "proxy: link-local and metadata", line: proxied + "http://169.254.169.254:1234/latest/meta-data/; " + proxied + "http://[fe80::1]:1234/", wants: `code 403`, expected: "403"},
		{name: "proxy: private addresses", line: proxied + "http://10.0.0.1:1234/; " + proxied + "http://192.168.0.1:1234/; " + proxied + "http://[fd00::1]:1234/; " + proxied + "http://100.64.0.1:1234/", wants: `code 403`, expected: "403"},
		{name: "proxy: odd ports and other names", line: proxied + "http://www.example.org:22/; " + proxied + "https://evil.test/; " + proxied + "http://127.0.0.1:@TCP@/", wants: `code (403|000)`, expected: "403"},
		{name: "proxy: another host in the Host header", line: proxied + "-H 'Host: www.example.org' http://127.0.0.1:@TCP@/; " + proxied + "-x http://127.0.0.1:3128 -p https://127.0.0.1:@TCP@/", wants: `code (403|000)`, expected: "403"},
		{name: "past the proxy", line: get + "--noproxy '*' http://127.0.0.1:@TCP@/; ./probe tcp 1.1.1.1:443; ./probe tcp 127.0.0.1:@TCP@", wants: `held`, expected: "refused, unreachable"},
	})
}

func TestKernel(t *testing.T) {
	p := newPlace(t, "kernel", "")
	alive := func(p *place) string {
		if err := p.daemon.Process.Signal(syscall.Signal(0)); err != nil {
			return fmt.Sprintf("the daemon: %v", err)
		}
		return ""
	}
	try(t, p, []attack{
		{name: "further namespaces, mounts, ptrace, keys, bpf, io_uring, userfaultfd ...", line: "./probe syscalls", wants: `userfaultfd: held`, expected: "refused, each of 44"},
		{name: "unshare, nsenter, mount, chroot", line: "unshare -Ur id" + through + "; unshare -m true" + through + "; nsenter -t 1 -a id" + through + "; mount -t tmpfs x /tmp" + through + "; umount /proc" + through + "; chroot / true" + through, wants: `not permitted|must be superuser|denied|Operation not`, expected: "not permitted"},
		{name: "signals to the helper", line: "for s in KILL TERM INT HUP SEGV ABRT STOP QUIT USR1; do kill -$s 1; done; sleep 0.2; echo still he\"\"ld", wants: `still held`, expected: "not permitted, and it goes on"},
		{name: "signals to the daemon", line: "kill -9 @PID@" + through + "; kill -9 -1; sleep 0.1; echo x", wants: `No such process|killed|137`, expected: "no such process", check: alive},
		{name: "the kernel's switches in /proc", line: "(echo b > /proc/sysrq-trigger)" + through + "; (echo 1 > /proc/sys/vm/drop_caches)" + through + "; (echo x > /proc/sys/kernel/core_pattern)" + through + "; (echo 1000 > /proc/1/oom_score_adj)" + through + "; (echo -1000 > /proc/self/oom_score_adj)" + through + "; (echo x > /proc/self/mem)" + through + "; (echo 0 0 1 > /proc/self/uid_map)" + through, wants: readOnly, expected: "read-only"},
		{name: "32-bit and other calls", line: "file -L /lib/ld-linux.so.2 2>/dev/null; ./probe syscalls | grep -E 'x32|future'", wants: `x32: held.*\n.*future: held`, expected: "refused"},
		{name: "leave a setuid program for others to run", line: "./probe setuid; cp /usr/bin/id mine; chmod 4755 mine" + through + "; chmod g+s mine" + through + "; install -m 4755 mine mine2" + through + "; mkdir d && touch plain && chmod 755 plain && echo x > plain && cat plain",
			wants: `fchmodat2: held`, expected: "not permitted", check: func(p *place) string {
				out, err := exec.Command("find", p.path("project"), "-perm", "/6000", "-type", "f", "-newer", p.path("gas/config.toml")).CombinedOutput()
				if err != nil || len(out) > 0 {
					return fmt.Sprintf("%v: %s", err, out)
				}
				return ""
			}},
		{name: "a terminal's input", line: "(exec 3<>/dev/tty) && echo THR\"\"OUGH; tty; ls /dev/pts", wants: `(?i)no such|not a tty`, expected: "there is none"},
	})
	if os.Geteuid() == 0 {
		p.sh("cp /usr/bin/id project/suid-id && chown 65534 project/suid-id && chmod 4755 project/suid-id")
		try(t, p, []attack{{name: "a setuid program that lies in the checkout", line: "./suid-id", wants: `uid=0\(root\) gid=0\(root\) groups=0\(root\)\n`, expected: "the same user as before"}})
	}
}
