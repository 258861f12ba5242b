//go:build !unix

package config

import "io/fs"

// Windows' rights are lists that a mode does not show; a user's own directories
// are not writable by others there unless somebody made them so.

func writableByOthers(string) string { return "" }

func readableByOthers(fs.FileInfo) bool { return false }
