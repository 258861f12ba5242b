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
