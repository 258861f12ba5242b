package watcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// BenchmarkCloseToLook is the way of an event: a file is written and closed, the
// look is read.
func BenchmarkCloseToLook(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n, " tasks"), func(b *testing.B) {
			dir := b.TempDir()
			for i := range n {
				if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
					b.Fatal(err)
				}
			}
			r := start(b, dir, nil)
			for range n {
				r.next()
			}
			var waited time.Duration
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				r.write(fmt.Sprint(i%n, "/reply.tmp"), "x")
				i++
				name := fmt.Sprint((i-1)%n, "/")
				r.rename(name+"reply.tmp", name+"reply.txt")
				closed := time.Now()
				r.next()
				waited += time.Since(closed)
			}
			b.ReportMetric(float64(waited.Microseconds())/float64(b.N), "µs/look")
			r.stop()
		})
	}
}

func BenchmarkDroppedEvent(b *testing.B) {
	l := still("t1")
	ev := fsnotify.Event{Name: filepath.FromSlash("/no/such/temp/t1/output.txt"), Op: fsnotify.Write}
	b.ReportAllocs()
	for b.Loop() {
		l.event(ev)
	}
}

// BenchmarkStart10000 is what a start costs with that many waiting sessions: time
// until all are watched and looked at, and the memory that stays.
func BenchmarkStart10000(b *testing.B) {
	const n = 10000
	dir := b.TempDir()
	for i := range n {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("task-", i)), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		w := New(Config{Dir: dir, Counts: counts})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- w.Run(ctx) }()
		for range n {
			<-w.Looks()
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/start")
		b.ReportMetric(float64(heap()-before)/n, "B/task")
		cancel()
		<-done
	}
}

// BenchmarkRegularPass is the daemon's own share of the minute's look at 10,000
// tasks, without the looks themselves.
func BenchmarkRegularPass(b *testing.B) {
	const n = 10000
	dir := b.TempDir()
	for i := range n {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("task-", i)), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	w := New(Config{Dir: dir, Counts: counts})
	l := newLoop(w.cfg, dir, &w.mode)
	defer l.close()
	l.start(time.Now())
	for l.busy() {
		l.step()
	}
	b.ReportAllocs()
	for b.Loop() {
		for l.front() != nil {
			l.taken()
		}
		l.startRound(time.Now())
		for l.round.len() > 0 {
			l.tick(l.nextBatch)
		}
	}
}
