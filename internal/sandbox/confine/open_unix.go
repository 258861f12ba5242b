//go:build unix

package confine

import "syscall"

// openNonblock keeps the opening of a pipe from waiting for its other end.
const openNonblock = syscall.O_NONBLOCK
