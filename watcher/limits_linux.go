package watcher

import (
	"os"
	"strconv"
	"strings"
)

// The kernel's settings that limit watching, by their sysctl names.
const (
	watchesSetting   = "fs.inotify.max_user_watches"
	instancesSetting = "fs.inotify.max_user_instances"
	queueSetting     = "fs.inotify.max_queued_events"
)

func readSetting(name string) (int, bool) {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}
