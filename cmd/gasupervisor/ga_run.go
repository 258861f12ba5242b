package main

import (
	"context"
	"errors"
)

// genericAgent runs GenericAgent's command line.
func (a *app) genericAgent(ctx context.Context, args []string) error {
	ga, err := parseGA(args)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	if err := ga.check(); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	return errors.New("GenericAgent's flags are not wired yet")
}
