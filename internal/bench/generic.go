package main

import "errors"

type generic struct{}

func newGeneric(checkout, python, dir string) (*generic, error) { return nil, errors.New("later") }
