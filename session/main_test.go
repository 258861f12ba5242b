package session

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails if goroutines of sessions live on after all tests: who starts one
// waits for it.
func TestMain(m *testing.M) {
	code := m.Run()
	for deadline := time.Now().Add(5 * time.Second); code == 0; {
		left := goroutines()
		if left == "" {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
			code = 1
		}
		runtime.Gosched()
	}
	os.Exit(code)
}

// goroutines returns the stacks of those at work in this package, this one apart.
func goroutines() string {
	buf := make([]byte, 1<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	var left []string
	for _, g := range all[1:] {
		if strings.Contains(g, "gasupervisor/session.") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}
