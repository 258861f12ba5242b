module github.com/gasupervisor/gasupervisor

go 1.26.8

require (
	golang.org/x/sys v0.50.0
	mvdan.cc/sh/v3 v3.14.1
)

require golang.org/x/term v0.45.0 // indirect
