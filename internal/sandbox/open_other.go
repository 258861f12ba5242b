//go:build !unix

package sandbox

// openNonblock is nothing where files in the file system do not make one wait.
const openNonblock = 0
