//go:build !race

package session

// raceEnabled says that everything takes ten times as long.
const raceEnabled = false
