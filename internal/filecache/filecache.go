// Package filecache keeps what was made of files that people edit, and makes it
// anew once they have changed. There is no watcher: whoever needs the value asks,
// and asking looks at the files' times, which costs microseconds. So a change is in
// force for whoever asks after it, and nothing runs while nobody does.
package filecache

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// sameTick is how long two changes of a file may be apart and show the same time,
// on the coarsest of file systems.
const sameTick = 2 * time.Second

// Cache is a value made of files. Its methods may be called by many goroutines at
// once.
type Cache[T any] struct {
	paths   func() []string
	load    func() T
	changed func(before, now T)

	mu    sync.Mutex
	value T
	seen  stamp
	// loaded is when the value was made, looked when the last look at the files began.
	loaded, looked time.Time
}

// New makes the value. paths names the files and directories that it is made of,
// which may be missing; load makes it. changed, where it is not nil, is called
// after the value was made anew, maybe of files that say the same as before, by
// the goroutine whose Get found it; it must not call the Cache.
func New[T any](paths func() []string, load func() T, changed func(before, now T)) *Cache[T] {
	c := &Cache[T]{paths: paths, load: load, changed: changed}
	c.seen = look(paths())
	c.loaded = time.Now()
	c.value = load()
	return c
}

// Get returns the value as the files are now. It blocks for the disk only.
func (c *Cache[T]) Get() T { return c.getFor(time.Now()) }

// getFor is Get for somebody who asked at that time.
func (c *Cache[T]) getFor(asked time.Time) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Of many who ask at once the first looks, and the second for all the others:
	// a look that began after one had asked is as good as one's own.
	if c.looked.After(asked) {
		return c.value
	}
	c.looked = time.Now()
	st := look(c.paths())
	if st.text != c.seen.text || c.loaded.Sub(st.newest).Abs() <= sameTick {
		before := c.value
		c.seen, c.loaded, c.value = st, c.looked, c.load()
		if c.changed != nil {
			c.changed(before, c.value)
		}
	}
	return c.value
}

// stamp is what tells that files have changed without reading them.
type stamp struct {
	text string
	// newest is the latest time of a change. A file that changed just before it was
	// read can change again and show the same time; one whose time lies far ahead, as
	// from another machine's clock, cannot.
	newest time.Time
}

func look(paths []string) stamp {
	var b strings.Builder
	var st stamp
	for _, path := range paths {
		fi, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", path, err)
			continue
		}
		fmt.Fprintf(&b, "%s %d %d %v\n", path, fi.Size(), fi.ModTime().UnixNano(), fi.Mode())
		if fi.ModTime().After(st.newest) {
			st.newest = fi.ModTime()
		}
	}
	st.text = b.String()
	return st
}
