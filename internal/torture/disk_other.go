//go:build !linux

package main

import "errors"

// disk is a file system made for an episode, which only Linux can do.
type disk struct{ at string }

func cannot(kind string) string {
	switch kind {
	case "power", "full", "full-temp":
		return "only Linux has what it takes"
	}
	return ""
}

var errNoDisk = errors.New("disks are made on Linux only")

func newDisk(string, string, bool) (*disk, error) { return nil, errNoDisk }

func (d *disk) failPower() error { return errNoDisk }
func (d *disk) fillUp() error    { return errNoDisk }
func (d *disk) empty() error     { return errNoDisk }
func (d *disk) close() error     { return nil }
