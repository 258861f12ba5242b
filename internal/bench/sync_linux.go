package main

import (
	"os"
	"syscall"
)

// datasync is what a journal needs: content and length, not the times.
func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
