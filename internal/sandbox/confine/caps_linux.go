package confine

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// lastCapability is beyond what any kernel has.
const lastCapability = 63

// secureBits: user 0 is nobody special, capabilities are not kept and not made
// ambient, and none of this can be undone (capabilities(7)).
const secureBits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// dropCapabilities leaves the calling thread and what it starts without any
// capability, and without a way to get one. In a user namespace of its own the
// helper may also empty the bounding set; else it has nothing to empty it with.
func dropCapabilities(own bool) error {
	if own {
		for c := uintptr(0); c <= lastCapability; c++ {
			err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			if errors.Is(err, unix.EINVAL) {
				break // the kernel has no more
			}
			if err != nil {
				return fmt.Errorf("bounding set: %w", err)
			}
		}
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
			return fmt.Errorf("secure bits: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient set: %w", err)
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("sets: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return nil
}

// dropAllThreads takes the capabilities from the helper's other threads, once
// nothing is left to set up. They are good for nothing outside of its own
// namespaces, and no command can get at the helper, so that this is a second line:
// a program built with cgo, as tests with the race detector are, does without.
func dropAllThreads() error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errno == unix.ENOTSUP {
		return nil
	}
	if errno != 0 {
		return fmt.Errorf("no_new_privs: %w", errno)
	}
	return capsetAllThreads()
}
