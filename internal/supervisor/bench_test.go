package supervisor

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/round"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// memoryDir is a directory in memory where the system has one: what is measured is
// not the disk.
func memoryDir(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "gasupervisor-bench-")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// inUse is the memory of heap and stacks after everything was collected.
func inUse() (heap, stack int64) {
	// Stacks are cut to half where most of them is unused, once in each collection.
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse), int64(m.StackInuse)
}

// BenchmarkWaitingSession measures what a session costs that waits for a reply:
//
//	go test -run '^$' -bench WaitingSession -benchtime 1x ./internal/supervisor
//
// The bytes are of 10,000 sessions, after a round each and after a restart; ms/restart
// is from the first look to the last session's being at rest.
func BenchmarkWaitingSession(b *testing.B) {
	const tasks = 10_000
	name := func(i int) string { return fmt.Sprint("task ", i) }
	for range b.N {
		done := make(chan struct{}, tasks)
		w := newWorld(b, memoryDir(b), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
			defer func() { done <- struct{}{} }()
			return answers(in, emit, "an answer of a few words to: "+in.Message)
		}))
		heap0, stack0 := inUse()
		measure := func(when string) {
			heap, stack := inUse()
			b.ReportMetric(float64(heap-heap0)/tasks, "heap-bytes/session-"+when)
			b.ReportMetric(float64(stack-stack0)/tasks, "stack-bytes/session-"+when)
		}
		w.start()
		for i := range tasks {
			w.tell(name(i), "input.txt", "a task of a few words")
		}
		for range tasks {
			<-done
		}
		atRest := func() {
			for i := range tasks {
				w.ended(name(i), "output.txt")
			}
			w.snapshotIs(Snapshot{Tasks: tasks})
			time.Sleep(2 * time.Second) // until taken files are deleted and status files written
		}
		atRest()
		measure("after-round")
		if err := w.halt(); err != nil {
			b.Fatal(err)
		}
		w.start()
		start := time.Now()
		for i := range tasks {
			w.look(name(i))
		}
		w.until("all sessions to be at rest", func() bool { s := w.snapshot(); return s.Tasks == tasks && s.Live == 0 && s.Settling == 0 })
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/restart")
		measure("after-restart")
		w.halt()
	}
}

// BenchmarkInputToRunner and BenchmarkReplyToRunner measure the way from a look to
// the call of the runner, on a disk:
//
//	go test -run '^$' -bench ToRunner ./internal/supervisor
func BenchmarkInputToRunner(b *testing.B) {
	began := make(chan time.Time, 1)
	w := newWorld(b, b.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		began <- time.Now()
		return echo(ctx, in, emit)
	}))
	w.start()
	var took []time.Duration
	for i := range b.N {
		name := fmt.Sprint("task ", i)
		w.put(name, "input.txt", "go")
		start := time.Now()
		w.look(name)
		took = append(took, (<-began).Sub(start))
		w.ended(name, "output.txt")
	}
	report(b, took)
}

// BenchmarkReplyToRunner is about sessions with a conversation of 20 KB.
func BenchmarkReplyToRunner(b *testing.B) {
	const tasks = 100
	began := make(chan time.Time, 1)
	w := newWorld(b, b.TempDir(), runnerFunc(func(ctx context.Context, in round.Input, emit round.Emit) round.Outcome {
		began <- time.Now()
		text := "short"
		if in.Round == 0 {
			text = fmt.Sprintf("%020000d", 0)
		}
		return answers(in, emit, text)
	}))
	w.start()
	for i := range tasks {
		name := fmt.Sprint("task ", i)
		w.tell(name, "input.txt", "go")
		<-began
		w.ended(name, "output.txt")
	}
	var took []time.Duration
	for i := range b.N {
		name, n := fmt.Sprint("task ", i%tasks), i/tasks+1
		w.put(name, "reply.txt", "more")
		start := time.Now()
		w.look(name)
		took = append(took, (<-began).Sub(start))
		w.ended(name, taskdir.OutputName(n))
	}
	report(b, took)
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
}
