// Package e2e holds the tests that come in by the front door: the real program,
// built once, as a process of its own; files written as a shell writes them; a
// scripted model over real HTTP; real signals. They know of the daemon what its
// users know: the files of a task, the exit codes, the log.
//
// A test is a place of its own (see daemon in the harness): a directory with a
// config.toml, a model, and a daemon that ends with the test.
package e2e
