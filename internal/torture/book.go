package main

import (
	"sync"
	"time"
)

// written is one message as a supervisor wrote it.
type written struct {
	token string
	task  string
	// file is its protocol name.
	file string
	// how it was written, for the report.
	how string
	// durable says that it was synced, or that nothing can be lost here.
	durable bool
	// shaky says that it took several tries, one of which may have left a part.
	shaky bool
	// refused says that it is too large to be taken.
	refused bool
	order   int
	at      time.Time
}

// marked is a marker that was seen by somebody who watched.
type marked struct {
	task    string
	session int
	round   int
}

// book is what supervisors know: what they have written and what they have seen.
type book struct {
	mu       sync.Mutex
	messages []written
	markers  []marked
	broken   []string
}

func (b *book) wrote(w written) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.order, w.at = len(b.messages), time.Now()
	b.messages = append(b.messages, w)
}

func (b *book) saw(m marked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.markers = append(b.markers, m)
}

// violated notes a broken promise; each only once, and not without end.
func (b *book) violated(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const most = 40
	for _, v := range b.broken {
		if v == text {
			return
		}
	}
	if len(b.broken) < most {
		b.broken = append(b.broken, text)
	}
}
