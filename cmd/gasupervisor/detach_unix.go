//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// detach makes a process outlive this one's terminal and session.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
