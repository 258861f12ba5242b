package confine

import "fmt"

// Size writes a number of bytes for people.
func Size(n int64) string {
	const k = 1 << 10
	switch {
	case n >= k*k*k:
		return fmt.Sprintf("%.1f GB", float64(n)/(k*k*k))
	case n >= k*k:
		return fmt.Sprintf("%.1f MB", float64(n)/(k*k))
	}
	return fmt.Sprintf("%d bytes", n)
}
