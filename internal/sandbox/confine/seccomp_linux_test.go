package confine

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// run is what the kernel does with a filter, and whether it looked at an argument.
func (p program) run(t *testing.T, arch, number uint32, args ...uint32) (says uint32, looked bool) {
	t.Helper()
	var acc uint32
	for i := 0; i < len(p); i++ {
		jump := func(so bool) {
			if so {
				i += int(p[i].Jt)
			} else {
				i += int(p[i].Jf)
			}
		}
		switch k := p[i].K; p[i].Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch {
			case k == dataNumber:
				acc = number
			case k == dataArch:
				acc = arch
			default:
				looked, acc = true, 0
				if n := int(k-dataArgs) / 8; n < len(args) {
					acc = args[n]
				}
			}
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == k)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(acc > k)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&k != 0)
		case unix.BPF_RET | unix.BPF_K:
			return k, looked
		default:
			t.Fatalf("instruction %d has code %#x", i, p[i].Code)
		}
	}
	t.Fatal("it leads beyond its end")
	return 0, false
}

func TestFilter(t *testing.T) {
	const arch = unix.AUDIT_ARCH_X86_64
	perm, nosys := sayError(unix.EPERM), sayError(unix.ENOSYS)
	p := filter(arch, ownSockets, []uint32{unix.SYS_MEMFD_CREATE})
	for _, c := range []struct {
		name   string
		arch   uint32
		number uint32
		args   []uint32
		says   uint32
	}{
		{"another architecture", unix.AUDIT_ARCH_I386, unix.SYS_READ, nil, sayKill},
		{"x32", arch, 0x40000000 | unix.SYS_READ, nil, nosys},
		{"a call of the future", arch, newestCall + 1, nil, nosys},
		{"one that is absent", arch, unix.SYS_MEMFD_CREATE, nil, nosys},
		{"open", arch, unix.SYS_OPENAT, []uint32{0, 0, unix.O_RDONLY, unix.S_ISUID}, sayAllow},
		{"make a file", arch, unix.SYS_OPENAT, []uint32{0, 0, unix.O_CREAT, 0o644}, sayAllow},
		{"make a setuid file", arch, unix.SYS_OPENAT, []uint32{0, 0, unix.O_CREAT, 0o4755}, perm},
		{"make one without a name", arch, unix.SYS_OPENAT, []uint32{0, 0, unix.O_TMPFILE, 0o2755}, perm},
		{"a directory with the flag of O_TMPFILE alone", arch, unix.SYS_OPENAT, []uint32{0, 0, unix.O_DIRECTORY, 0o2755}, sayAllow},
		{"chmod", arch, unix.SYS_FCHMODAT, []uint32{0, 0, 0o755}, sayAllow},
		{"chmod setgid", arch, unix.SYS_FCHMODAT, []uint32{0, 0, 0o2755}, perm},
		{"fork", arch, unix.SYS_CLONE, []uint32{uint32(unix.SIGCHLD)}, sayAllow},
		{"a thread", arch, unix.SYS_CLONE, []uint32{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SETTLS}, sayAllow},
		{"a namespace", arch, unix.SYS_CLONE, []uint32{unix.CLONE_NEWUSER | uint32(unix.SIGCHLD)}, perm},
		{"a terminal's size", arch, unix.SYS_IOCTL, []uint32{0, unix.TIOCGWINSZ}, sayAllow},
		{"a terminal's input", arch, unix.SYS_IOCTL, []uint32{0, unix.TIOCSTI}, perm},
		{"personality", arch, unix.SYS_PERSONALITY, []uint32{0x0400000}, perm},
		{"no randomization", arch, unix.SYS_PERSONALITY, []uint32{addrNoRandomize}, sayAllow},
		{"tcp", arch, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, 0}, sayAllow},
		{"sctp", arch, unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, sayError(unix.EPROTONOSUPPORT)},
		{"vsock", arch, unix.SYS_SOCKET, []uint32{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, sayError(unix.EAFNOSUPPORT)},
		{"by path", arch, unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_STREAM, 0}, sayAllow},
	} {
		if says, _ := p.run(t, c.arch, c.number, c.args...); says != c.says {
			t.Errorf("%s: says %#x, want %#x", c.name, says, c.says)
		}
	}
	for s, want := range map[sockets]uint32{inetSockets: sayError(unix.EAFNOSUPPORT), noSockets: sayError(unix.EACCES)} {
		if says, _ := filter(arch, s, nil).run(t, arch, unix.SYS_SOCKET, unix.AF_UNIX); says != want {
			t.Errorf("a socket by path: says %#x, want %#x", says, want)
		}
	}
}

// Every call is decided by its number alone but for those that have to be looked
// into, so that the kernel need not run the filter for the others.
func TestFilterLooksAtFew(t *testing.T) {
	p := filter(unix.AUDIT_ARCH_X86_64, ownSockets, nil)
	into := []uint32{unix.SYS_IOCTL, unix.SYS_SOCKET, unix.SYS_CLONE, unix.SYS_PERSONALITY}
	for _, c := range modes {
		into = append(into, c.number)
	}
	refused := slices.Concat(denied, deniedHere, unreadable)
	for n := uint32(0); n <= newestCall; n++ {
		says, looked := p.run(t, unix.AUDIT_ARCH_X86_64, n)
		if looked != slices.Contains(into, n) {
			t.Errorf("call %d: looked at its arguments: %v", n, looked)
		}
		if !looked && (says == sayAllow) == slices.Contains(refused, n) {
			t.Errorf("call %d: says %#x", n, says)
		}
	}
}
