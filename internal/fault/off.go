//go:build !faults

package fault

// Enabled says whether this build obeys the environment.
const Enabled = false

// Point is a place to crash at.
func Point(string) {}

// Error returns the error that an operation is to fail with, nil for none.
func Error(string) error { return nil }
