//go:build !linux

package watcher

// Other systems have no settings of their own for watches.
const (
	watchesSetting   = ""
	instancesSetting = ""
	queueSetting     = ""
)

func readSetting(string) (int, bool) { return 0, false }
