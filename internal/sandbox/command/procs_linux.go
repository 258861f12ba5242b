package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leader makes the shell the leader of a session, without a terminal that a
// program could ask a question on, and lets it die with the daemon.
func leader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit blocks until the child is dead and leaves it a zombie, so that its id
// stays its own; false where that cannot be done.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// processes lists what /proc shows; nothing where there is no /proc.
func processes() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	buf := make([]byte, 1024)
	var out []proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readStat(pid, buf); ok {
			out = append(out, p)
		}
	}
	return out
}

// readStat reads /proc/<pid>/stat with buf for room.
func readStat(pid int, buf []byte) (proc, bool) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/stat", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return proc{}, false
	}
	n, err := unix.Read(fd, buf)
	unix.Close(fd)
	if err != nil || n <= 0 {
		return proc{}, false
	}
	return parseStat(pid, buf[:n])
}

// parseStat reads the fields that follow the program's name, which may itself
// hold spaces and brackets (proc_pid_stat(5)).
func parseStat(pid int, line []byte) (proc, bool) {
	_, rest, ok := bytesCutLast(line, []byte(") "))
	if !ok {
		return proc{}, false
	}
	f := bytes.Fields(rest)
	if len(f) < 20 {
		return proc{}, false
	}
	num := func(i int) int {
		n, err := strconv.Atoi(string(f[i]))
		ok = ok && err == nil
		return n
	}
	p := proc{pid: pid, parent: num(1), group: num(2), session: num(3)}
	state := f[0][0]
	p.zombie = state == 'Z' || state == 'X'
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	p.start = start
	return p, ok && err == nil
}

func bytesCutLast(b, sep []byte) (before, after []byte, found bool) {
	i := bytes.LastIndex(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+len(sep):], true
}

func startOf(pid int) uint64 {
	p, _ := readStat(pid, make([]byte, 1024))
	return p.start
}

// marked reports whether the environment that the process was started with holds
// mark. That of another user's process cannot be read.
func marked(pid int, mark string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for _, kv := range bytes.Split(env, []byte{0}) {
		if string(kv) == mark {
			return true
		}
	}
	return false
}

// kill kills p and no process that got its id since it was listed.
func kill(p proc) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unix.Kill(p.pid, unix.SIGKILL)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if startOf(p.pid) != p.start {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}
