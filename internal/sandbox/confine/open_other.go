//go:build !unix

package confine

const openPlain = 0
