//go:build !linux

package watcher

import (
	"sync"

	"github.com/fsnotify/fsnotify"
)

// notify is fsnotify behind the Backend interface.
type notify struct {
	w    *fsnotify.Watcher
	errs chan error
	wg   sync.WaitGroup
}

// newBackend makes the Backend of this system. fsnotify has no use for counts.
func newBackend(func(name string) bool) (Backend, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	n := &notify{w: w, errs: make(chan error, 16)}
	n.wg.Go(n.forwardErrors)
	return n, nil
}

// forwardErrors always receives. fsnotify sends some errors while it holds the
// lock that Add and Remove need, so that one who adds and receives in the same
// goroutine would wait for himself. Errors that find no room are dropped: those
// before them have the same consequence.
func (n *notify) forwardErrors() {
	defer close(n.errs)
	for err := range n.w.Errors {
		select {
		case n.errs <- err:
		default:
		}
	}
}

func (n *notify) Add(dir string) error    { return n.w.Add(dir) }
func (n *notify) Remove(dir string) error { return n.w.Remove(dir) }

// watching lists the directories that are watched.
func (n *notify) watching() []string { return n.w.WatchList() }

func (n *notify) Events() <-chan fsnotify.Event { return n.w.Events }
func (n *notify) Errors() <-chan error          { return n.errs }

func (n *notify) Close() error {
	err := n.w.Close()
	n.wg.Wait()
	return err
}
