//go:build unix && !linux && !darwin

package command

import "syscall"

func leader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func awaitExit(int) bool { return false }

// processes lists nothing: here the process group is all that is killed.
func processes() []proc { return nil }

func startOf(int) uint64 { return 0 }

func marked(int, string) bool { return false }

func kill(p proc) error { return syscall.Kill(p.pid, syscall.SIGKILL) }
