//go:build unix

package e2e

import (
	"os"
	"testing"
)

// The daemon finishes what an rm that was killed has left.
func TestRemovalThatWasBrokenOff(t *testing.T) {
	t.Parallel()
	d := newPlace(t, done)
	d.sh(`mkdir -p temp/.removed-0123456789abcdef/old/1 precious; echo whole > precious/file; ln -s ../../precious temp/.removed-0123456789abcdef/link`)
	d.start()
	d.until("the rest is removed", func() bool {
		_, err := os.Lstat(d.path("temp", ".removed-0123456789abcdef"))
		return os.IsNotExist(err)
	})
	if text := d.read(d.path("precious", "file")); text != "whole\n" {
		t.Errorf("a link was followed: %q", text)
	}
}
