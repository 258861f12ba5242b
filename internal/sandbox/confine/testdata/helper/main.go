// Command helper is the helper alone, for tests, whose own program may be built
// with cgo, as the race detector needs it, and could not drop the capabilities of
// all its threads.
package main

import _ "github.com/gasupervisor/gasupervisor/internal/sandbox/confine"

func main() {}
