//go:build !linux

package confine

// IsHelper reports whether the program was started as a helper, which there are
// only on Linux.
func IsHelper(args []string) bool { return false }

// RunHelper is not called here.
func RunHelper() int { return 1 }
