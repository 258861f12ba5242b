package command

import (
	"bytes"
	"syscall"

	"golang.org/x/sys/unix"
)

func leader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// awaitExit has no way to wait without reaping here.
func awaitExit(int) bool { return false }

// zombieState is SZOMB of sys/proc.h.
const zombieState = 5

func processes() []proc {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	out := make([]proc, 0, len(list))
	for i := range list {
		out = append(out, toProc(&list[i]))
	}
	return out
}

func toProc(k *unix.KinfoProc) proc {
	return proc{
		pid: int(k.Proc.P_pid), parent: int(k.Eproc.Ppid), group: int(k.Eproc.Pgid),
		zombie: k.Proc.P_stat == zombieState,
		start:  uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec),
	}
}

// startOf returns 0, the beginning of time, for a process that is gone.
func startOf(pid int) uint64 {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return toProc(k).start
}

// marked reports whether mark stands among the arguments and the environment that
// the process was started with.
func marked(pid int, mark string) bool {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	return err == nil && bytes.Contains(b, append(append([]byte{0}, mark...), 0))
}

func kill(p proc) error { return unix.Kill(p.pid, unix.SIGKILL) }
