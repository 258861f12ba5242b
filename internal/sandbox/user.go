package sandbox

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
)

// User is the user as whom agents act where the daemon is root: their commands run
// as this user, and their file tools reach what this user may. A nil *User is the
// daemon's own. It may be used by many goroutines at once.
type User struct {
	Name     string
	UID, GID int
	// own are the daemon's groups, to come back to.
	own []int
}

// FindUser returns the user of a name or number, which has to be known to the
// system. The error says why agents cannot act as that user.
func FindUser(name string) (*User, error) {
	if err := canActAsOthers(); err != nil {
		return nil, err
	}
	known, err := user.Lookup(name)
	if _, number := strconv.Atoi(name); err != nil && number == nil {
		known, err = user.LookupId(name)
	}
	if err != nil {
		return nil, fmt.Errorf("there is no user %q on this system", name)
	}
	u := &User{Name: known.Username}
	uid, err1 := strconv.Atoi(known.Uid)
	gid, err2 := strconv.Atoi(known.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("read the ids of user %q: %w", name, err)
	}
	if u.UID, u.GID = uid, gid; uid == 0 {
		return nil, fmt.Errorf("%q is root, as the daemon is: name another user, or leave it empty", name)
	}
	return u, u.remember()
}
