//go:build unix

package watcher

import (
	"strings"
	"testing"
)

func TestStrangeNames(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	for _, name := range []string{" ", "a\nb", "%s", "-rf", "emoji 😀", "\xff\xfe", strings.Repeat("n", 255), "a\\b"} {
		r.mkdir(name)
		r.await(name, Appeared)
		r.write(name+"/input.txt", "x")
		r.await(name, Changed)
	}
}
