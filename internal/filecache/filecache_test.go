package filecache

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// always takes away that looks are shared.
func (c *Cache[T]) always() *Cache[T] {
	c.cost = 0
	return c
}

func TestCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	loads := 0
	var told []string
	c := New(func() []string { return []string{path} }, func() string {
		loads++
		b, err := os.ReadFile(path)
		if err != nil {
			return "none"
		}
		return string(b)
	}, func(before, now string) { told = append(told, before+">"+now) })
	write := func(text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	want := func(value string, n int) {
		t.Helper()
		if got := c.always().Get(); got != value || loads != n {
			t.Fatalf("got %q after %d loads, want %q after %d", got, loads, value, n)
		}
	}
	want("none", 1)
	write("one", time.Hour)
	want("one", 2)
	want("one", 2)
	// A file that changed just now is read again until its time can be trusted,
	// since it may change once more and look the same.
	write("two", 0)
	want("two", 3)
	write("six", 0)
	want("six", 4)
	write("six", time.Minute)
	want("six", 5)
	want("six", 5)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("none", 6)
	if got, want := fmt.Sprint(told), "[none>one one>two two>six six>six six>none]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

func TestLooksAreShared(t *testing.T) {
	asked := 0
	c := New(func() []string { asked++; return nil }, func() int { return 1 }, nil)
	c.looked, c.cost = time.Now(), time.Hour
	if c.Get(); asked != 1 {
		t.Errorf("looked %d times", asked)
	}
	// A clock that was set back does not keep it from looking.
	c.looked = time.Now().Add(time.Hour)
	if c.Get(); asked != 2 {
		t.Errorf("looked %d times", asked)
	}
}
