// Command probe tries, from inside of the sandbox, what no shell can: single system
// calls. It prints what came of it; THROUGH where it worked.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "posture":
		posture()
	case "fork-posture":
		// Again, in a child of a child.
		out, err := exec.Command("/bin/sh", "-c", os.Args[0]+" posture").CombinedOutput()
		if err != nil {
			fmt.Println(err)
		}
		os.Stdout.Write(out)
	case "syscalls":
		syscalls()
	case "sockets":
		sockets()
	case "unix":
		say("unix socket "+args[0], dialUnix(args[0]))
	case "tcp":
		say("tcp "+args[0], dial("tcp", args[0]))
	case "udp":
		say("udp "+args[0], dial("udp", args[0]))
	case "setxattr":
		say("setxattr "+args[0], unix.Lsetxattr(args[0], "user.x", []byte("y"), 0))
	case "mknod":
		say("mknod", unix.Mknod(args[0], unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		say("mknod block", unix.Mknod(args[0], unix.S_IFBLK|0o666, int(unix.Mkdev(254, 0))))
	case "memory":
		memory(args[0])
	case "setuid":
		setuid()
	case "threads":
		threads()
	case "watches":
		watches()
	case "exchange":
		// What two names mean, again and again, for some seconds.
		n := 0
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); n++ {
			if err := unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE); err != nil {
				fmt.Println(err)
				return
			}
		}
		fmt.Println("exchanged")
	case "socket":
		// One that nobody listens at, for others to stumble over.
		l, err := net.Listen("unix", args[0])
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	case "without-namespaces":
		withoutNamespaces(args)
	case "fds":
		fds()
	case "root":
		roots()
	case "handles":
		handles()
	}
}

// say prints what came of a thing that must not work.
func say(what string, err error) {
	if err == nil {
		fmt.Println(what + ": THROUGH")
		return
	}
	fmt.Printf("%s: held: %v\n", what, err)
}

func raw(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

func ptr(s string) uintptr {
	p, _ := unix.BytePtrFromString(s)
	return uintptr(unsafe.Pointer(p))
}

func syscalls() {
	buf := make([]byte, 4096)
	bp := uintptr(unsafe.Pointer(&buf[0]))
	for _, c := range []struct {
		name string
		err  error
	}{
		{"unshare user", raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)},
		{"unshare mounts", raw(unix.SYS_UNSHARE, unix.CLONE_NEWNS)},
		{"unshare network", raw(unix.SYS_UNSHARE, unix.CLONE_NEWNET)},
		{"clone user", raw(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))},
		{"clone3", raw(unix.SYS_CLONE3, bp, 88)},
		{"setns", raw(unix.SYS_SETNS, 0, 0)},
		{"mount", raw(unix.SYS_MOUNT, ptr("x"), ptr("/tmp"), ptr("tmpfs"), 0, 0)},
		{"remount /", raw(unix.SYS_MOUNT, 0, ptr("/"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0)},
		{"umount", raw(unix.SYS_UMOUNT2, ptr("/proc"), unix.MNT_DETACH)},
		{"pivot_root", raw(unix.SYS_PIVOT_ROOT, ptr("/"), ptr("/tmp"))},
		{"chroot", raw(unix.SYS_CHROOT, ptr("/tmp"))},
		{"open_tree", raw(unix.SYS_OPEN_TREE, ^uintptr(99), ptr("/"), 1)},
		{"fsopen", raw(unix.SYS_FSOPEN, ptr("tmpfs"), 0)},
		{"mount_setattr", raw(unix.SYS_MOUNT_SETATTR, ^uintptr(99), ptr("/"), 0, bp, 32)},
		{"ptrace helper", raw(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1, 0, 0)},
		{"ptrace seize", raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0)},
		{"process_vm_readv", raw(unix.SYS_PROCESS_VM_READV, 1, bp, 1, bp, 1, 0)},
		{"process_vm_writev", raw(unix.SYS_PROCESS_VM_WRITEV, 1, bp, 1, bp, 1, 0)},
		{"pidfd_getfd", raw(unix.SYS_PIDFD_GETFD, 0, 3, 0)},
		{"kcmp", raw(unix.SYS_KCMP, 1, 1, 0, 0, 0)},
		{"keyctl", raw(unix.SYS_KEYCTL, 0, ^uintptr(2), 0)},
		{"add_key", raw(unix.SYS_ADD_KEY, ptr("user"), ptr("x"), bp, 1, ^uintptr(2))},
		{"request_key", raw(unix.SYS_REQUEST_KEY, ptr("user"), ptr("x"), 0, ^uintptr(2))},
		{"bpf", raw(unix.SYS_BPF, 0, bp, 64)},
		{"io_uring_setup", raw(unix.SYS_IO_URING_SETUP, 8, bp)},
		{"userfaultfd", raw(unix.SYS_USERFAULTFD, 1)},
		{"perf_event_open", raw(unix.SYS_PERF_EVENT_OPEN, bp, 0, ^uintptr(0), ^uintptr(0), 0)},
		{"fanotify_init", raw(unix.SYS_FANOTIFY_INIT, 0, 0)},
		{"kexec_load", raw(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)},
		{"init_module", raw(unix.SYS_INIT_MODULE, bp, 1, ptr(""))},
		{"delete_module", raw(unix.SYS_DELETE_MODULE, ptr("x"), 0)},
		{"reboot", raw(unix.SYS_REBOOT, 0xfee1dead, 0x28121969, 0x89abcdef, 0)},
		{"swapon", raw(unix.SYS_SWAPON, ptr("/tmp/x"), 0)},
		{"sethostname", raw(unix.SYS_SETHOSTNAME, ptr("x"), 1)},
		{"settimeofday", raw(unix.SYS_SETTIMEOFDAY, bp, 0)},
		{"syslog", raw(unix.SYS_SYSLOG, 3, bp, 100)},
		{"personality", raw(unix.SYS_PERSONALITY, 0x0400000)},
		{"memfd_secret", raw(unix.SYS_MEMFD_SECRET, 0)},
		{"TIOCSTI", raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, bp)},
		{"TIOCSTI, high bits", raw(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<40, bp)},
		{"setuid 0", setuid0()},
		{"setgroups", raw(unix.SYS_SETGROUPS, 1, bp)},
		{"capset", regainCaps()},
		{"x32", raw(0x40000000 | 39)},
		{"a call of the future", raw(3000)},
	} {
		say(c.name, c.err)
	}
}

// setuid0 is no attack for root, which has nothing to gain.
func setuid0() error {
	if os.Getuid() == 0 {
		return errors.New("is root already, of nothing")
	}
	return raw(unix.SYS_SETRESUID, 0, 0, 0)
}

func regainCaps() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0), Inheritable: ^uint32(0)}, {Effective: ^uint32(0), Permitted: ^uint32(0)}}
	return unix.Capset(&head, &all[0])
}

func sockets() {
	for _, s := range []struct {
		name                   string
		family, kind, protocol int
	}{
		{"netlink, audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		{"netlink, uevents", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		{"netlink, netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"netlink, sockets", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"sctp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{"dccp", unix.AF_INET6, 6, unix.IPPROTO_DCCP},
		{"packets", unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"kernel's ciphers", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"can", unix.AF_CAN, unix.SOCK_RAW, 1},
		{"key", unix.AF_KEY, unix.SOCK_RAW, 2},
		{"xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
	} {
		fd, err := unix.Socket(s.family, s.kind, s.protocol)
		if err == nil {
			unix.Close(fd)
		}
		say(s.name, err)
	}
}

func dialUnix(path string) error { return dial("unix", path) }

// dial connects and wants to hear something.
func dial(network, addr string) error {
	c, err := net.DialTimeout(network, addr, 3*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	c.Write([]byte("hello\n\n"))
	line, err := bufio.NewReader(c).ReadString('\n')
	if line != "" {
		fmt.Println(line)
		return nil
	}
	return err
}

// memory takes memory in ways that are not alike, until something stops it.
func memory(way string) {
	const step = 16 << 20
	var kept [][]byte
	for i := 0; ; i++ {
		switch way {
		case "heap":
			kept = append(kept, touch(make([]byte, step)))
		case "shared":
			b, err := unix.Mmap(-1, 0, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
			if err != nil {
				say("mmap", err)
				return
			}
			kept = append(kept, touch(b))
		case "memfd":
			fd, err := unix.MemfdCreate("x", 0)
			if err != nil {
				say("memfd", err)
				return
			}
			if _, err := unix.Write(fd, make([]byte, step)); err != nil {
				say("memfd write", err)
				return
			}
		case "shm":
			if err := os.WriteFile("/dev/shm/"+strconv.Itoa(i), make([]byte, step), 0o600); err != nil {
				say("/dev/shm", err)
				return
			}
		case "sysv":
			id, _, errno := unix.Syscall(unix.SYS_SHMGET, 0, step, 0o1600)
			if errno != 0 {
				say("shmget", errno)
				return
			}
			at, _, errno := unix.Syscall(unix.SYS_SHMAT, id, 0, 0)
			if errno != 0 {
				say("shmat", errno)
				return
			}
			touch(unsafe.Slice((*byte)(unsafe.Pointer(at)), step))
			unix.Syscall(unix.SYS_SHMDT, at, 0, 0)
		}
		if i > 4096 {
			fmt.Println("64 GB: THROUGH")
			return
		}
	}
}

// setuid leaves programs behind that run as whoever runs this.
func setuid() {
	os.WriteFile("s", []byte("x"), 0o755)
	f, _ := os.Open("s")
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755}
	fd, err := unix.Openat2(unix.AT_FDCWD, "s2", &how)
	say("openat2", err)
	_ = fd
	for mode := range map[uint32]bool{0o4755: true, 0o2755: true, 0o6755: true} {
		_, err = unix.Open("s3", unix.O_CREAT|unix.O_WRONLY, mode)
		say("open", err)
		_, err = unix.Open(".", unix.O_TMPFILE|unix.O_WRONLY, mode)
		say("open, without a name", err)
		say("chmod", unix.Chmod("s", mode))
		say("fchmod", unix.Fchmod(int(f.Fd()), mode))
		say("fchmodat", raw(unix.SYS_FCHMODAT, ^uintptr(99), ptr("s"), uintptr(mode)))
		say("fchmodat2", raw(unix.SYS_FCHMODAT2, ^uintptr(99), ptr("s"), uintptr(mode), 0))
		say("mknod", unix.Mknod("s4", unix.S_IFREG|mode, 0))
	}
	say("capabilities of a file", unix.Setxattr("s", "security.capability", []byte("\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
}

// threads starts threads until the runtime gives up.
func threads() {
	var n atomic.Int32
	for range 20000 {
		go func() {
			runtime.LockOSThread()
			n.Add(1)
			unix.Pause()
		}()
	}
	for n.Load() < 20000 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("20000 threads: THROUGH")
}

// watches takes all the file watches that it is given.
func watches() {
	n := 0
	for ; n < 4096; n++ {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			break
		}
	}
	text, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	all, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n > all/4 {
		fmt.Printf("%d of %d instances: THROUGH %v\n", n, all, err)
		return
	}
	fmt.Printf("held: %d of %d instances\n", n, all)
}

// withoutNamespaces runs a program that can make none, as on a system that does not
// allow it.
func withoutNamespaces(args []string) {
	const number, first = 0, 16
	deny := uint32(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	f := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_UNSHARE, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: deny},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: uint32(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: first},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: deny},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	}
	if err == nil {
		err = unix.Exec(args[0], args, os.Environ())
	}
	fmt.Println(err)
	os.Exit(1)
}

func touch(b []byte) []byte {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}

// fds looks for files that were left open.
func fds() {
	found := false
	for fd := 3; fd < 4096; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			target, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			// What the Go runtime opens itself.
			if strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup") {
				continue
			}
			fmt.Printf("fd %d is %s: THROUGH\n", fd, target)
			found = true
		}
	}
	if !found {
		fmt.Println("held: nothing is open but 0, 1 and 2")
	}
}

// roots looks for another root by way of other processes.
func roots() {
	for _, path := range []string{"/proc/1/root", "/proc/1/cwd", "/proc/1/fd/3", "/proc/1/exe", "/proc/1/mem", "/proc/1/environ", "/proc/1/maps"} {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		say(path, err)
	}
	names, err := os.ReadDir("/proc/self/root")
	for _, n := range names {
		if !slices.Contains([]string{"agent", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "root", "sbin", "tmp", "usr", "run", "home", "var"}, n.Name()) {
			fmt.Printf("/%s is in the root: THROUGH\n", n.Name())
		}
	}
	fmt.Println("root: held:", len(names), "names", err)
}

// handles opens files by number.
func handles() {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/usr", 0)
	say("name_to_handle_at", err)
	if err != nil {
		handle = unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	}
	for _, dir := range []string{"/usr", "/tmp", "."} {
		fd, err := unix.Open(dir, unix.O_RDONLY, 0)
		if err != nil {
			continue
		}
		_, err = unix.OpenByHandleAt(fd, handle, unix.O_RDONLY)
		say("open_by_handle_at in "+dir, err)
	}
}

// posture reports how the process stands.
func posture() {
	p := map[string]any{}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch k {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Umask", "Uid", "Gid", "Groups":
			p[k] = strings.TrimSpace(v)
		}
	}
	helper, _ := os.ReadFile("/proc/1/status")
	for line := range strings.Lines(string(helper)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch k {
		case "Name", "CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs":
			p["helper "+k] = strings.TrimSpace(v)
		}
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		p["ns "+ns], _ = os.Readlink("/proc/self/ns/" + ns)
	}
	for _, m := range []string{"uid_map", "gid_map", "setgroups"} {
		b, _ := os.ReadFile("/proc/self/" + m)
		p[m] = strings.Join(strings.Fields(string(b)), " ")
	}
	limits := map[string]uint64{}
	for name, r := range map[string]int{"core": unix.RLIMIT_CORE, "files": unix.RLIMIT_NOFILE, "size": unix.RLIMIT_FSIZE, "processes": unix.RLIMIT_NPROC} {
		var l unix.Rlimit
		unix.Getrlimit(r, &l)
		limits[name] = l.Max
	}
	p["limits"] = limits
	bits, _ := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	p["secure bits"] = bits
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		env = append(env, name)
	}
	slices.Sort(env)
	p["environment"] = env
	mounts := map[string]string{}
	info, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(info)) {
		f := strings.Fields(line)
		var flags []string
		for _, o := range strings.Split(f[5], ",") {
			if o == "ro" || o == "rw" || strings.HasPrefix(o, "no") && o != "noatime" {
				flags = append(flags, o)
			}
		}
		mounts[f[4]] = strings.Join(flags, ",")
	}
	p["mounts"] = mounts
	var sockets []string
	filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			sockets = append(sockets, path)
		}
		if err == nil && d.IsDir() && (path == "/proc" || path == "/usr" || path == "/opt" || path == "/root") {
			return filepath.SkipDir
		}
		return nil
	})
	p["sockets"] = sockets
	b, _ := json.Marshal(p)
	fmt.Println("POSTURE" + string(b))
}
