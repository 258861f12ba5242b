// Package attack has no code but tests: they attack the built program from inside
// of its own sandbox and from its task directories, as root and as an ordinary
// user, and fail where an attack gets through.
//
// Each attack is a row: what is tried, what is expected, and what was seen. A row
// holds where nothing secret came back (all that is secret in the place says so),
// nothing outside of what was granted has changed, the line itself did not report
// that it got through, and what it did report is what a failed attempt reports, so
// that an attack that never happened does not count as held off.
//
// scripts/attack prints the rows.
package attack
