//go:build !linux

package main

import (
	"errors"
	"runtime"
	"time"
)

const canLookInside = false

var errLinux = errors.New("needs Linux")

func resident(int) (int64, error)     { return 0, errLinux }
func proportional(int) (int64, error) { return 0, errLinux }
func cpu(int) (time.Duration, error)  { return 0, errLinux }
func openFiles(int) (int, error)      { return 0, errLinux }
func watches(int) (int, error)        { return 0, errLinux }
func machine(string) string           { return runtime.GOOS + "/" + runtime.GOARCH + ", " + cores() }
func loadAverage() string             { return "unknown" }
func raiseFiles() error               { return nil }

func newWatches() (func(string) error, error) { return nil, errLinux }
