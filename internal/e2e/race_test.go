//go:build unix && race

package e2e

// raceEnabled says that the daemon is to be built with the race detector, as the
// tests are.
const raceEnabled = true
