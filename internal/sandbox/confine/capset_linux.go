package confine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func capsetAllThreads() error {
	head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 {
		return errno
	}
	return nil
}
