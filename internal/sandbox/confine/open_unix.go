//go:build unix

package confine

import "syscall"

// openPlain opens what was a file or a directory when it was looked at, and may have
// become a pipe, which would wait for its other end, or a link.
const openPlain = syscall.O_NONBLOCK | syscall.O_NOFOLLOW
