//go:build !linux

package sandbox

import (
	"errors"
	"os"
	"runtime"
)

// canActAsOthers says why agents cannot act as another user than the daemon.
func canActAsOthers() error {
	return errors.New("agents can act as another user than the daemon on Linux only, and this is " + runtime.GOOS + ": leave it empty")
}

func (u *User) remember() error {
	u.own = nil // nobody acts as another here
	return nil
}

// act does something; there is no other user to do it as.
func (u *User) act(do func() error) error { return do() }

// MayWrite reports whether the user may write there.
func (u *User) MayWrite(string) bool { return false }

// Owns reports whether a directory, and no link to one, is there.
func (u *User) Owns(dir string) bool {
	fi, err := os.Lstat(dir)
	return err == nil && fi.IsDir()
}

// Give makes a directory the user's.
func (u *User) Give(string) error { return canActAsOthers() }
