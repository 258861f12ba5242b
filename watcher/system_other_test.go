//go:build !linux

package watcher

// system is the Backend of this system.
type system = notify
