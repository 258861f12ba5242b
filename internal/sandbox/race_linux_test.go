package sandbox

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// While the tools work, something swaps a directory for a link to the outside
// and a file for a link to a protocol file, again and again. Nothing ever comes
// from outside or goes there.
func TestFilesRace(t *testing.T) {
	g := newGround(t, nil)
	g.write("granted/d/secret", "inside")
	g.write("temp/t/f", "inside")
	g.write("temp/t/input.txt", "task")
	g.link(g.outside, "granted/dlink")
	g.link("input.txt", "temp/t/flink")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	swap := func(a, b string) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := unix.Renameat2(unix.AT_FDCWD, g.path(a), unix.AT_FDCWD, g.path(b), unix.RENAME_EXCHANGE); err != nil {
					t.Errorf("swap: %v", err)
					return
				}
			}
		})
	}
	swap("granted/d", "granted/dlink")
	swap("temp/t/f", "temp/t/flink")
	var read, written, opened, failed int
	for i := range 3000 {
		if b, err := g.files.ReadFile("d/secret", 100); err == nil {
			if read++; string(b) != "inside" {
				t.Fatalf("read %q", b)
			}
		} else {
			failed++
		}
		if _, err := g.files.WriteFile(fmt.Sprintf("d/new%d", i%10), []byte("x"), 0o644); err == nil {
			written++
		}
		if _, err := g.files.WriteFile(g.path("temp/t/f"), []byte("inside"), 0o644); err == nil {
			written++
		}
		if d, err := g.files.OpenDir("d"); err == nil {
			opened++
			if f, err := d.Open("secret"); err == nil {
				b := make([]byte, 10)
				n, _ := f.Read(b)
				if string(b[:n]) != "inside" {
					t.Fatalf("read %q", b[:n])
				}
				f.Close()
			}
			d.Close()
		}
	}
	close(stop)
	wg.Wait()
	if got := g.read("temp/t/input.txt"); got != "task" {
		t.Errorf("the protocol file holds %q", got)
	}
	entries, err := os.ReadDir(g.outside)
	if err != nil || len(entries) != 1 || g.read("outside/secret") != "secret" {
		t.Errorf("outside holds %v, %v", entries, err)
	}
	if read == 0 || written == 0 || opened == 0 || failed == 0 {
		t.Errorf("nothing was raced: %d read, %d written, %d opened, %d failed", read, written, opened, failed)
	}
}
