package confine

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a filter sees of a call (seccomp(2), struct seccomp_data): the halves of
// the arguments are where a little-endian machine has them, which all supported
// ones are.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// low is the offset of an argument's lower half, which is all that the kernel looks
// at in the arguments that are checked.
func low(arg uint32) uint32 { return dataArgs + 8*arg }

// What a filter says.
const (
	sayAllow = unix.SECCOMP_RET_ALLOW
	sayKill  = unix.SECCOMP_RET_KILL_PROCESS
)

func sayError(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// newNamespaces are the flags of clone that make namespaces. Processes, threads
// and vfork need none of them.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

// addrNoRandomize is the one personality that debuggers and compilers ask for.
const addrNoRandomize = 0x0040000

// denied are the calls that commands have no use for and attacks on the kernel or
// on other processes have. They fail with EPERM, as they do for a user without
// rights. They come on top of what namespaces, capabilities and Landlock forbid.
var denied = []uint32{
	// Mounts and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_LISTNS, unix.SYS_SETNS, unix.SYS_UNSHARE,
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	// Keys, and files by handle.
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	// Large parts of the kernel that few programs use.
	unix.SYS_BPF, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_USERFAULTFD,
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_MEMFD_SECRET, unix.SYS_LOOKUP_DCOOKIE,
	// The machine.
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG,
	unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
}

// newestCall is the last system call that was looked at for this list. Later ones
// answer as they do on an older kernel, which programs are prepared for.
const newestCall = unix.SYS_RSEQ_SLICE_YIELD

// arches are the architectures for which the numbers above hold.
func auditArch() (uint32, error) {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, nil
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, nil
	case "riscv64":
		return unix.AUDIT_ARCH_RISCV64, nil
	case "loong64":
		return unix.AUDIT_ARCH_LOONGARCH64, nil
	}
	return 0, fmt.Errorf("there is no filter for %s", runtime.GOARCH)
}

// program assembles a filter. Every check is closed in itself: it either returns
// or falls through to the next one.
type program []unix.SockFilter

func (p *program) op(code uint16, k uint32, yes, no uint8) {
	*p = append(*p, unix.SockFilter{Code: code, K: k, Jt: yes, Jf: no})
}

func (p *program) load(offset uint32) { p.op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
func (p *program) say(what uint32)    { p.op(unix.BPF_RET|unix.BPF_K, what, 0, 0) }

// skipUnless skips n instructions unless what was loaded is k; skipIf if it is.
func (p *program) skipUnless(k uint32, n uint8) { p.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, n) }
func (p *program) skipIf(k uint32, n uint8)     { p.op(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, n, 0) }

// skipUnlessAny skips n instructions unless one of the bits is set.
func (p *program) skipUnlessAny(bits uint32, n uint8) {
	p.op(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, bits, 0, n)
}
func (p *program) skipUnlessAbove(k uint32, n uint8) {
	p.op(unix.BPF_JMP|unix.BPF_JGT|unix.BPF_K, k, 0, n)
}

// call is a check of one system call's arguments: body is skipped for others, and
// has to end in a say. The number is loaded before and after.
func (p *program) call(number uint32, body func(*program)) {
	var b program
	body(&b)
	p.skipUnless(number, uint8(len(b)))
	*p = append(*p, b...)
}

// protocols are those of internet sockets; 0 is the usual one for the type.
var protocols = []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, unix.IPPROTO_MPTCP}

// sockets says which sockets a command may make.
type sockets int

const (
	ownSockets  sockets = iota // the usual ones: by path they reach what is granted only
	inetSockets                // none by path, where that could be anybody's
	noSockets                  // none but pairs
)

// filter returns the filter for commands.
//
// Calls whose arguments count come first. Whatever is allowed by its number alone the
// kernel finds out once, when it takes the filter, and does not ask again (seccomp's
// cache of actions, from 5.11 on). So the filter runs for these few calls only, and
// openat and ioctl are the frequent ones among them.
//
// absent are calls that are to look as if the kernel did not have them.
func filter(arch uint32, socks sockets, absent []uint32) program {
	var p program
	p.load(dataArch)
	p.skipIf(arch, 1)
	p.say(sayKill)
	p.load(dataNumber)
	for _, c := range modes {
		p.call(c.number, func(p *program) { p.mode(c) })
	}
	p.call(unix.SYS_IOCTL, func(p *program) {
		// The kernel looks at the lower half alone.
		p.load(low(1))
		p.skipIf(unix.TIOCSTI, 3)
		p.skipIf(unix.TIOCLINUX, 2)
		p.skipIf(unix.TIOCSETD, 1)
		p.say(sayAllow)
		p.say(sayError(unix.EPERM))
	})
	p.call(unix.SYS_SOCKET, func(p *program) { p.sockets(socks) })
	p.call(unix.SYS_CLONE, func(p *program) {
		p.load(low(0))
		p.skipUnlessAny(newNamespaces, 1)
		p.say(sayError(unix.EPERM))
		p.say(sayAllow)
	})
	p.call(unix.SYS_PERSONALITY, func(p *program) {
		p.load(low(0))
		p.skipIf(0, 3)
		p.skipIf(math.MaxUint32, 2)
		p.skipIf(addrNoRandomize, 1)
		p.say(sayError(unix.EPERM))
		p.say(sayAllow)
	})
	// On amd64 this also catches the numbers of x32, which has bit 30 set.
	p.skipUnlessAbove(newestCall, 1)
	p.say(sayError(unix.ENOSYS))
	for _, n := range slices.Concat(denied, deniedHere) {
		p.skipUnless(n, 1)
		p.say(sayError(unix.EPERM))
	}
	for _, n := range slices.Concat(unreadable, absent) {
		p.skipUnless(n, 1)
		p.say(sayError(unix.ENOSYS))
	}
	p.say(sayAllow)
	return p
}

// unreadable are calls whose flags or mode are in memory, where no filter can look:
// programs fall back to clone and openat.
var unreadable = []uint32{unix.SYS_CLONE3, unix.SYS_OPENAT2}

// modeCall is a call that gives a file its mode, in the argument of that number. Where
// flags is not negative the mode counts only if the argument of that number says that
// a file is to be made; else it may be anything.
type modeCall struct {
	number      uint32
	mode, flags int
}

// modes are the calls by which a file would become setuid or setgid: one that
// outlives the command, for others on the machine to run.
var modes = append([]modeCall{
	{unix.SYS_OPENAT, 3, 2}, {unix.SYS_FCHMOD, 1, -1}, {unix.SYS_FCHMODAT, 2, -1}, {unix.SYS_FCHMODAT2, 2, -1}, {unix.SYS_MKNODAT, 2, -1},
}, modesHere...)

const (
	setIDs = unix.S_ISUID | unix.S_ISGID
	// makes are the flags of open that make a file: O_CREAT, and what O_TMPFILE has
	// beside O_DIRECTORY.
	makes = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
)

func (p *program) mode(c modeCall) {
	if c.flags >= 0 {
		p.load(low(uint32(c.flags)))
		p.skipUnlessAny(makes, 3)
	}
	p.load(low(uint32(c.mode)))
	p.skipUnlessAny(setIDs, 1)
	p.say(sayError(unix.EPERM))
	p.say(sayAllow)
}

// sockets checks socket(family, type, protocol).
func (p *program) sockets(s sockets) {
	if s == noSockets {
		p.say(sayError(unix.EACCES))
		return
	}
	p.load(low(0))
	if s == ownSockets {
		p.skipUnless(unix.AF_UNIX, 1)
		p.say(sayAllow)
	}
	// Of the internet's protocols, the common ones: others are modules of the kernel
	// that nobody has looked at for long.
	p.skipIf(unix.AF_INET, 1)
	p.skipUnless(unix.AF_INET6, uint8(2+2*len(protocols)))
	p.load(low(2))
	for _, n := range protocols {
		p.skipUnless(n, 1)
		p.say(sayAllow)
	}
	p.say(sayError(unix.EPROTONOSUPPORT))
	// Programs list their interfaces and addresses with this one protocol.
	p.skipUnless(unix.AF_NETLINK, 3)
	p.load(low(2))
	p.skipUnless(unix.NETLINK_ROUTE, 1)
	p.say(sayAllow)
	p.say(sayError(unix.EAFNOSUPPORT))
}

// unseenMemory are the calls that make memory which belongs to no process, and
// which nobody counts where the kernel does not.
func (s *spec) unseenMemory() []uint32 {
	switch {
	case s.Limits.Memory == 0 || s.Cgroup != "":
		return nil
	case s.sharedBound:
		return []uint32{unix.SYS_MEMFD_CREATE}
	}
	return []uint32{unix.SYS_MEMFD_CREATE, unix.SYS_SHMGET}
}

// filterSyscalls puts the calling thread, and what it starts, behind the filter.
func filterSyscalls(s *spec) error {
	arch, err := auditArch()
	if err != nil {
		return err
	}
	socks := ownSockets
	switch {
	case s.Level == Full:
	case s.Network == NetworkAll:
		socks = inetSockets
	default:
		socks = noSockets
	}
	// Where only the helper counts memory it does not see all of it.
	p := filter(arch, socks, s.unseenMemory())
	if len(p) > unix.BPF_MAXINSNS {
		return errors.New("the filter is too long")
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if errno != 0 {
		return errno
	}
	return nil
}
