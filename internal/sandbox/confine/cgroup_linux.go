package confine

import (
	"errors"
	"os"
)

// Cgroups makes a cgroup for each command.
type Cgroups struct{}

// OwnCgroups returns a maker of cgroups where the daemon was given one to divide,
// or the reason why not.
func OwnCgroups() (*Cgroups, string) { return nil, "not built" }

type group struct {
	path string
	dir  *os.File
}

func (c *Cgroups) make(Limits) (*group, error) { return nil, errors.New("not built") }

func (g *group) remove() {}
