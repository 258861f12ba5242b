//go:build !linux

package main

import "syscall"

// withParent lets the daemon die with this process, where the system can.
func withParent() *syscall.SysProcAttr { return nil }
