package confine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gasupervisor/gasupervisor/internal/sandbox"
	"github.com/gasupervisor/gasupervisor/internal/sandbox/command"
)

// start puts the helper in front of a command that is ready to start.
func (s *Sandbox) start(cmd *exec.Cmd, j Job, l Layout, ex Extras) (*command.Confinement, error) {
	level := s.Status().Level
	shell, err := filepath.EvalSymlinks(cmd.Path)
	if err != nil {
		return nil, err
	}
	sp := &spec{
		Level: level, Mounts: l.Mounts, Network: j.Reach.Network, Limits: s.config.Limits,
		Shell: shell, Args: cmd.Args[1:], Dir: cmd.Dir, Env: j.environ(cmd.Env, level, l, proxyPort), Files: accounts(s.config.User),
	}
	for _, path := range slices.Sorted(maps.Keys(j.Links)) {
		sp.Links = append(sp.Links, link{path, j.Links[path]})
	}
	if level == Landlock && sp.Network == NetworkProxy {
		return nil, &RefusalError{"network lists hosts, and without user namespaces commands cannot be kept to them", `set network = "off"` + orElse(s.Status().Do)}
	}
	t, err := newTalk(sp, s.config, j.Reach)
	if err != nil {
		return nil, err
	}
	t.after = func() { removeUnwanted(ex.Unwanted) }
	t.equip(cmd, level, s.config)
	return &command.Confinement{Started: t.started, Ended: t.ended, Whole: level == Full}, nil
}

func orElse(do string) string {
	if do == "" {
		return ""
	}
	return ", or " + do
}

// talk is the daemon's side of one helper.
type talk struct {
	spec        *spec
	reach       Reach
	mine, child *os.File
	conn        *net.UnixConn
	group       *group // its cgroup, or nil
	after       func()

	// These belong to the reader until read is closed.
	read     chan struct{}
	ready    bool
	abi      int
	stop     func()
	failed   error
	finished bool
	limit    string
	left     int
}

func newTalk(sp *spec, c Config, reach Reach) (*talk, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket for the helper: %w", err)
	}
	t := &talk{spec: sp, reach: reach, mine: os.NewFile(uintptr(fds[0]), "helper"), child: os.NewFile(uintptr(fds[1]), "daemon"), read: make(chan struct{})}
	conn, err := net.FileConn(t.mine)
	t.mine.Close()
	if err != nil {
		t.child.Close()
		return nil, fmt.Errorf("make a socket for the helper: %w", err)
	}
	t.conn = conn.(*net.UnixConn)
	if c.Cgroups != nil {
		if t.group, err = c.Cgroups.make(sp.Limits); err != nil {
			t.conn.Close()
			t.child.Close()
			return nil, err
		}
		sp.Cgroup = t.group.path
	}
	return t, nil
}

// capabilities are what the helper needs to build the root, in its own user
// namespace: to mount, to raise the loopback interface, to empty the bounding set, to
// bound what the namespace may have.
var capabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_RESOURCE}

// equip makes cmd start the helper.
func (t *talk) equip(cmd *exec.Cmd, level Level, c Config) {
	cmd.Path = cmp.Or(c.Program, "/proc/self/exe")
	cmd.Args = []string{helperName}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{t.child}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	attr := cmd.SysProcAttr
	if t.group != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(t.group.dir.Fd())
	}
	if level != Full {
		// It has to outlive the daemon by the moment that it takes to kill the rest.
		attr.Pdeathsig = 0
		return
	}
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	if t.spec.Network != NetworkAll {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	attr.UidMappings, attr.GidMappings = sameIDs(os.Geteuid()), sameIDs(os.Getegid())
	attr.AmbientCaps = capabilities
	if c.User != nil {
		become(attr, c.User)
	}
}

// become makes the helper run as another user from its first instruction on, with no
// other groups. Root's id stands for the files that root owns, through whose
// directories the helper finds what is granted; nobody has it.
func become(attr *syscall.SysProcAttr, u *sandbox.User) {
	attr.Credential = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	attr.UidMappings = append(attr.UidMappings, sameIDs(u.UID)...)
	if u.GID != os.Getegid() {
		attr.GidMappings = append(attr.GidMappings, sameIDs(u.GID)...)
	}
	// Else the daemon's groups could not be given up.
	attr.GidMappingsEnableSetgroups = true
	attr.AmbientCaps = append(slices.Clone(capabilities), unix.CAP_DAC_READ_SEARCH)
}

func sameIDs(id int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
}

// started sends the helper what it has to know.
func (t *talk) started(err error) error {
	t.child.Close()
	if err != nil {
		close(t.read)
		t.close()
		return fmt.Errorf("start the helper: %w", err)
	}
	t.conn.SetWriteDeadline(time.Now().Add(patience))
	err = sendSpec(t.conn, t.spec)
	go t.listen()
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("tell the helper: %w", err)
	}
	// Where it ended already, it has said why.
	return nil
}

// listen reads what the helper says until it ends.
func (t *talk) listen() {
	defer close(t.read)
	var text []byte
	buf, rights := make([]byte, 4096), make([]byte, 256)
	for {
		n, nr, _, _, err := t.conn.ReadMsgUnix(buf, rights)
		if nr > 0 {
			t.take(rights[:nr])
		}
		text = append(text, buf[:max(n, 0)]...)
		for {
			line, rest, ok := bytes.Cut(text, []byte{'\n'})
			if !ok {
				break
			}
			text = rest
			t.hear(line)
		}
		if err != nil || n == 0 {
			return
		}
	}
}

func (t *talk) hear(line []byte) {
	var m told
	if err := json.Unmarshal(line, &m); err != nil {
		t.failed = fmt.Errorf("understand the helper: %w", err)
		return
	}
	switch {
	case m.Error != "":
		t.failed = &StepError{m.Step, errors.New(m.Error)}
	case m.Ready:
		t.ready, t.abi = true, m.Landlock
	case m.Ended:
		t.finished, t.limit, t.left = true, m.Limit, m.Left
	}
}

// take serves the listener that the helper hands over.
func (t *talk) take(rights []byte) {
	msgs, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			f := os.NewFile(uintptr(fd), "proxy")
			l, err := net.FileListener(f)
			f.Close()
			if err != nil || t.stop != nil || t.reach.Serve == nil {
				continue
			}
			t.stop = t.reach.Serve(l)
		}
	}
}

// ended is called when the helper is dead.
func (t *talk) ended() command.Report {
	t.conn.SetReadDeadline(time.Now().Add(time.Second))
	<-t.read
	outOfMemory := t.group != nil && t.group.ranOut()
	t.close()
	r := command.Report{Limit: t.limit, Left: t.left}
	switch {
	case t.limit != "":
	case outOfMemory:
		r.Limit = fmt.Sprintf("it used more than %s of memory (memory in [sandbox] of config.toml)", Size(t.spec.Limits.Memory))
	case t.failed != nil:
		r.Err = t.failed
	case !t.ready:
		r.Err = errors.New("the helper ended before it started the command")
	case !t.finished:
		r.Limit = "its helper was killed, perhaps because memory ran out"
	}
	if t.after != nil {
		t.after()
	}
	return r
}

func (t *talk) close() {
	t.conn.Close()
	if t.stop != nil {
		t.stop()
	}
	if t.group != nil {
		t.group.remove()
	}
}

// probe tries out what the kernel lets this user do.
func (s *Sandbox) probe() Status {
	err := s.try(Full)
	if err == nil {
		return Status{Level: Full, ABI: landlockABI()}
	}
	st := Status{Level: None, ABI: landlockABI(), Why: "no namespaces of its own: " + err.Error(), Do: namespaceHint()}
	if u := s.config.User; u != nil && errors.Is(err, unix.EACCES) {
		st.Do = fmt.Sprintf("let user %s (user in [sandbox] of config.toml) run the daemon's program: chmod 755", u.Name)
	}
	switch {
	case os.Geteuid() == 0:
		st.Why += "; and root cannot be confined without"
	case st.ABI < minABI:
		st.Why += fmt.Sprintf("; and the kernel's Landlock, version %d, is too old to do without (%d)", st.ABI, minABI)
	default:
		if err := s.try(Landlock); err != nil {
			st.Why += "; Landlock alone: " + err.Error()
		} else {
			st.Level = Landlock
		}
	}
	return st
}

// try starts a helper that goes all the way but for the shell.
func (s *Sandbox) try(level Level) error {
	t, err := newTalk(&spec{
		Level: level, Probe: true, Mounts: []Mount{{Path: "/usr", How: Read, Dir: true}}, Network: NetworkOff,
		Limits: s.config.Limits, Files: accounts(s.config.User),
	}, Config{}, Reach{})
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{}
	t.equip(cmd, level, s.config)
	err = t.started(cmd.Start())
	if err != nil {
		return err
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	err = cmd.Wait()
	t.conn.SetReadDeadline(time.Now().Add(time.Second))
	<-t.read
	t.close()
	if t.failed != nil {
		return t.failed
	}
	if err != nil || !t.ready {
		return fmt.Errorf("the helper ended: %w", cmp.Or(err, errors.New("without a word")))
	}
	return nil
}

// namespaceHint says what may be in the way of user namespaces.
func namespaceHint() string {
	read := func(name string) string {
		b, _ := os.ReadFile("/proc/sys/" + name)
		return strings.TrimSpace(string(b))
	}
	switch {
	case read("user/max_user_namespaces") == "0":
		return "sudo sysctl user.max_user_namespaces=10000"
	case read("kernel/unprivileged_userns_clone") == "0":
		return "sudo sysctl kernel.unprivileged_userns_clone=1"
	case read("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "give the program an AppArmor profile that allows userns, or sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return "allow user namespaces: in a container, a seccomp profile that has them and a /proc that is not masked"
}

// accounts are the files by which programs find the name of their user. The
// system's own tell of others.
func accounts(as *sandbox.User) []inline {
	uid, gid := os.Geteuid(), os.Getegid()
	name := "agent"
	if as != nil {
		uid, gid, name = as.UID, as.GID, as.Name
	} else if uid == 0 {
		name = "root"
	} else if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && !strings.ContainsAny(u.Username, ":\n") {
		name = u.Username
	}
	passwd := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", name, uid, gid, insideHome)
	group := fmt.Sprintf("%s:x:%d:\n", name, gid)
	const nobody = 65534
	if uid != nobody {
		passwd += fmt.Sprintf("nobody:x:%d:%d::/:/bin/false\n", nobody, nobody)
	}
	if gid != nobody {
		group += fmt.Sprintf("nogroup:x:%d:\n", nobody)
	}
	return []inline{{"/etc/passwd", passwd}, {"/etc/group", group}, {"/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"}, {"/etc/host.conf", "multi on\n"}}
}

// makeDirs makes a directory and those around it, through no link: an agent may be
// exchanging them.
func makeDirs(path string) error {
	fd, err := openNoLinks(path)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.ENOENT) || path == "/" {
		return err
	}
	if err := makeDirs(filepath.Dir(path)); err != nil {
		return err
	}
	above, err := openNoLinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unix.Close(above)
	if err := unix.Mkdirat(above, filepath.Base(path), 0o755); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// removeUnwanted removes files by which a command would get around what is kept.
func removeUnwanted(paths []string) {
	for _, p := range paths {
		dir, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(p), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err != nil {
			continue
		}
		unix.Unlinkat(dir, filepath.Base(p), 0)
		unix.Close(dir)
	}
}
