package lock

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holderOf names the process that has f locked exclusively, from the kernel's own
// list; "" where the list does not tell (another namespace, a hidden /proc).
func holderOf(f *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ""
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer locks.Close()
	dev := uint64(st.Dev)
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), st.Ino)
	for sc := bufio.NewScanner(locks); sc.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 1234 08:01:567 0 EOF
		fields := strings.Fields(sc.Text())
		if len(fields) >= 6 && fields[1] == "FLOCK" && fields[3] == "WRITE" && fields[5] == want && fields[4] != "0" && fields[4] != "-1" {
			return "process " + fields[4]
		}
	}
	return ""
}
