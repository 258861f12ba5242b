//go:build !linux

package sandbox

import "os"

// handlePath has no answer here; standsAt compares by other means.
func handlePath(*os.Root) (path string, ok bool) { return "", false }
