//go:build !linux

package sandbox

import "os"

// handlePath has no answer here; standsAt compares by other means.
func handlePath(*os.Root) (path string, ok bool) { return "", false }

// mountsHere lists mounts by which one directory has two paths; elsewhere than on
// Linux these are rare.
func mountsHere() []mounted { return nil }
