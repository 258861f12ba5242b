package confine

import (
	"fmt"
	"strings"
)

// SeatbeltProfile returns the profile by which macOS keeps a command to a layout.
// The last rule that matches a path is the one that counts, so that inner paths
// come after outer ones, as they do in a layout. proxyPort is the port of the
// proxy on the loopback interface, for NetworkProxy.
//
// Without namespaces a command finds everything where it is. It sees that other
// processes exist; it can neither signal nor inspect them.
func SeatbeltProfile(l Layout, network Network, proxyPort int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("(version 1)")
	line("(deny default)")
	line("(allow process-fork)")
	line("(allow signal (target same-sandbox))")
	line("(allow process-info* (target same-sandbox))")
	line("(allow sysctl-read)")
	line("(allow ipc-posix-sem)")
	line(`(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo") (global-name "com.apple.system.notification_center") (global-name "com.apple.trustd") (global-name "com.apple.trustd.agent"))`)
	// Programs look at the directories on the way to what they open.
	line("(allow file-read-metadata)")
	line(`(allow file-read* (literal "/") (subpath "/dev") (subpath "/private/var/db/dyld") (subpath "/private/var/db/timezone") (subpath "/private/etc/ssl"))`)
	line(`(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/full") (literal "/dev/random") (literal "/dev/urandom") (regex #"^/dev/fd/"))`)
	for _, m := range l.Mounts {
		path := seatbeltText(m.Path)
		kind := "literal"
		if m.Dir {
			kind = "subpath"
		}
		switch m.How {
		case Read:
			line("(allow file-read* process-exec (%s %s))", kind, path)
		case Write:
			line("(allow file-read* file-write* process-exec (%s %s))", kind, path)
			// It cannot be taken away itself.
			line("(deny file-write-unlink (literal %s))", path)
		case Keep:
			line("(deny file-write* (%s %s))", kind, path)
		case Hide:
			line("(deny file-read* file-write* process-exec (%s %s))", kind, path)
		case Pin:
			line("(deny file-write-unlink (literal %s))", path)
		}
	}
	switch network {
	case NetworkAll:
		line("(allow network*)")
		line("(allow system-socket)")
		line(`(deny network-outbound (remote unix-socket))`)
	case NetworkProxy:
		line(`(allow network-outbound (remote ip "localhost:%d"))`, proxyPort)
		line("(allow system-socket)")
	}
	return b.String()
}

// seatbeltText writes a path as a string of the profile's language.
func seatbeltText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
