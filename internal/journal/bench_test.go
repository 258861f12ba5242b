package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{200, 2000, 20000} {
		rec := raw(`"` + strings.Repeat("x", size) + `"`)
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			j := create(b)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := j.Commit(rec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFloor is the same write and sync with nothing around it.
func BenchmarkFloor(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	data := []byte(strings.Repeat("x", 2000))
	b.ReportAllocs()
	for off := int64(0); b.Loop(); off += int64(len(data)) {
		if _, err := f.WriteAt(data, off); err != nil {
			b.Fatal(err)
		}
		if err := datasync(f); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommitWithoutDisk shows the daemon's own share of a commit.
func BenchmarkCommitWithoutDisk(b *testing.B) {
	j := create(b, WithOpener(func(path string) (File, error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return nowhere{f}, err
	}))
	rec := raw(`"` + strings.Repeat("x", 2000) + `"`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Commit(rec); err != nil {
			b.Fatal(err)
		}
	}
}

type nowhere struct{ *os.File }

func (nowhere) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
func (nowhere) Sync() error                            { return nil }

func BenchmarkCreate(b *testing.B) {
	dir := b.TempDir()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		j, err := Create(filepath.Join(dir, Place(strings.Repeat("n", n%200)+strconv.Itoa(n)), "session.jsonl"))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := j.Commit(raw(`{"task":"name"}`)); err != nil {
			b.Fatal(err)
		}
		j.Close()
	}
}

// BenchmarkReadBackLast is what start-up does for each session that waits.
func BenchmarkReadBackLast(b *testing.B) {
	j := create(b)
	for range 50 {
		commit(b, j, `"`+strings.Repeat("x", 5000)+`"`)
	}
	commit(b, j, `{"last":true}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadBack(j.Path(), func(int64, json.RawMessage) (bool, error) { return false, nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	j := create(b)
	for range 50 {
		commit(b, j, `"`+strings.Repeat("x", 5000)+`"`)
	}
	b.ReportAllocs()
	b.SetBytes(j.Size())
	for b.Loop() {
		if _, err := Read(j.Path(), 0, func(int64, json.RawMessage) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
