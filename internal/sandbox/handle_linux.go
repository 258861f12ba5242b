package sandbox

import (
	"fmt"
	"os"
)

// handlePath asks the kernel for the path of an open directory; ok is false
// where /proc does not answer.
func handlePath(root *os.Root) (path string, ok bool) {
	h, err := root.Open(".")
	if err != nil {
		return "", false
	}
	defer h.Close()
	path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", h.Fd()))
	return path, err == nil
}

// mountsHere lists the mounts that the daemon sees; none where /proc does not answer.
func mountsHere() []mounted {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return parseMounts(string(text))
}
