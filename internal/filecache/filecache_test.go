package filecache

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

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
		if got := c.Get(); got != value || loads != n {
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
	// A time that lies ahead is no more than another time.
	write("far", -time.Hour)
	want("far", 7)
	want("far", 7)
	if got, want := fmt.Sprint(told), "[none>one one>two two>six six>six six>none none>far]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

func TestLooksAreShared(t *testing.T) {
	const callers = 50
	looks := 0
	looking, goOn := make(chan struct{}), make(chan struct{})
	c := New(func() []string {
		if looks++; looks == 2 {
			close(looking)
			<-goOn
		}
		return nil
	}, func() int { return 1 }, nil)
	var wg sync.WaitGroup
	wg.Go(func() { c.Get() })
	<-looking
	var asked sync.WaitGroup
	asked.Add(callers)
	for range callers {
		wg.Go(func() {
			now := time.Now()
			asked.Done()
			c.getFor(now)
		})
	}
	asked.Wait() // all have asked while the first looks, and before a second look
	close(goOn)
	wg.Wait()
	if looks != 3 {
		t.Errorf("%d looks for all, want the first one's and one more, besides the one at the start", looks)
	}
	if c.Get(); looks != 4 {
		t.Error("who asks later is not looked for")
	}
}
