package confine

import (
	"strings"
	"testing"
)

func TestSeatbeltProfile(t *testing.T) {
	l := Layout{Mounts: []Mount{
		{Path: "/Users/u/p", How: Write, Dir: true},
		{Path: "/Users/u/p/.git", How: Pin, Dir: true},
		{Path: "/Users/u/p/.git/config", How: Keep},
		{Path: "/Users/u/p/state", How: Hide, Dir: true},
		{Path: `/Users/u/p/state/a "b"\c`, How: Read, Dir: true},
		{Path: "/usr", How: Read, Dir: true},
	}}
	got := SeatbeltProfile(l, NetworkOff, 0)
	last := -1
	for _, want := range []string{
		"(version 1)\n(deny default)\n",
		`(allow file-read* file-write* process-exec (subpath "/Users/u/p"))`,
		`(deny file-write-unlink (literal "/Users/u/p"))`,
		`(deny file-write-unlink (literal "/Users/u/p/.git"))`,
		`(deny file-write* (literal "/Users/u/p/.git/config"))`,
		`(deny file-read* file-write* process-exec (subpath "/Users/u/p/state"))`,
		`(allow file-read* process-exec (subpath "/Users/u/p/state/a \"b\"\\c"))`,
		`(allow file-read* process-exec (subpath "/usr"))`,
	} {
		at := strings.Index(got, want)
		if at <= last {
			t.Errorf("%s is missing, or out of order, in\n%s", want, got)
		}
		last = at
	}
	if strings.Contains(got, "allow network") || strings.Contains(got, "allow system-socket") {
		t.Errorf("network off allows some:\n%s", got)
	}
	if strings.Count(got, "(") != strings.Count(got, ")") {
		t.Errorf("brackets do not match:\n%s", got)
	}
	if got := SeatbeltProfile(l, NetworkProxy, 4711); !strings.Contains(got, `(allow network-outbound (remote ip "localhost:4711"))`) || strings.Contains(got, "(allow network*)") {
		t.Errorf("proxy:\n%s", got)
	}
	if got := SeatbeltProfile(l, NetworkAll, 0); !strings.Contains(got, "(allow network*)") || !strings.Contains(got, "(deny network-outbound (remote unix-socket))") {
		t.Errorf("all:\n%s", got)
	}
}
