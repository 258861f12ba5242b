package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/journal"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// scaleEnded is a temp directory full of tasks that have ended. They are copies of
// one, since running them all would take too long.
func (b *bench) scaleEnded(ctx context.Context) error {
	if !canLookInside {
		return errNeedsLinux
	}
	overrides := []string{"GASUPERVISOR_REPLY_TIMEOUT=1s"}
	return b.with(ctx, "ended", done, []llmtest.Option{llmtest.Forget()}, overrides, func(d *daemon) error {
		const pattern = "pattern"
		if err := d.begin(pattern, "Do it."); err != nil {
			return err
		}
		err := d.until(ctx, 10*time.Millisecond, func() bool {
			st, err := taskdir.ReadStatus(filepath.Join(d.temp, pattern))
			return err == nil && st.State == taskdir.Ended
		})
		if err != nil {
			return err
		}
		if _, err := d.settled(ctx); err != nil {
			return err
		}
		before, err := d.inside()
		if err != nil {
			return err
		}
		if err := d.kill(); err != nil {
			return err
		}
		n := grouped(int64(b.ended))
		b.say("preparing: %s ended tasks", n)
		if err := copies(ctx, d, pattern, b.ended); err != nil {
			return err
		}
		for _, cold := range []bool{true, false} {
			if cold && !b.cold {
				continue
			}
			name := "ended: start with " + n + " ended tasks"
			if cold {
				name += ", nothing of them in memory"
				if err := dropCaches(); err != nil {
					return fmt.Errorf("drop the system's caches: %w", err)
				}
			}
			b.say("measuring: start")
			begun := time.Now()
			if err := d.launch(); err != nil {
				return err
			}
			if err := d.watching(ctx, b.ended); err != nil {
				return err
			}
			watched := time.Since(begun)
			used, err := d.settled(ctx)
			if err != nil {
				return err
			}
			b.report(name+", all watched", seconds, value(watched.Seconds()))
			b.report(name+", all looked at", seconds, figure{known: true, value: (time.Since(begun) - quiet).Seconds(), note: fmt.Sprintf("%.2f s of CPU", used.Seconds())})
			if cold {
				if err := d.kill(); err != nil {
					return err
				}
			}
		}
		after, err := d.inside()
		if err != nil {
			return err
		}
		b.report("ended: before", nil, text("%s", before))
		b.report("ended: after", nil, text("%s", after))
		b.report("ended: memory per ended task", bytesOf, value(float64(after.resident-before.resident)/float64(b.ended)))
		s, err := d.inputs(ctx, min(b.n, 100))
		if err != nil {
			return err
		}
		b.report("ended: input.txt closed -> model asked, among them (median, p99)", milliseconds, times(s))
		// The look at everything comes once a minute.
		share, err := b.idleShare(ctx, d)
		if err != nil {
			return err
		}
		b.report(fmt.Sprintf("ended: CPU of the looks at all of them, over %s", b.idle), percent, figure{known: true, value: share,
			note: fmt.Sprintf("%.2f s in all", share/100*b.idle.Seconds())})
		return nil
	})
}

// copies makes n copies of a task that has ended: its files, and its journal under
// another name.
func copies(ctx context.Context, d *daemon, pattern string, n int) error {
	from := filepath.Join(d.temp, pattern)
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(from, e.Name())); err != nil {
			return err
		}
	}
	input, err := os.Stat(filepath.Join(from, taskdir.InputFile))
	if err != nil {
		return err
	}
	const name = "session.jsonl"
	records, err := os.ReadFile(filepath.Join(d.dir, "state", journal.Place(pattern), name))
	if err != nil {
		return err
	}
	for i := range n {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		task := fmt.Sprintf("ended %d", i)
		to, place := filepath.Join(d.temp, task), filepath.Join(d.dir, "state", journal.Place(task))
		errs := []error{os.Mkdir(to, 0o755), os.Mkdir(place, 0o700)}
		for name, content := range files {
			errs = append(errs, os.WriteFile(filepath.Join(to, name), content, 0o644))
		}
		// One that was written later would begin a new session.
		errs = append(errs, os.Chtimes(filepath.Join(to, taskdir.InputFile), time.Time{}, input.ModTime()))
		renamed, err := renameJournal(records, pattern, task)
		errs = append(errs, err, os.WriteFile(filepath.Join(place, name), renamed, 0o600))
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// renameJournal gives the records of a journal to another task: lines of a length,
// a checksum and JSON, as package journal describes them.
func renameJournal(records []byte, from, to string) ([]byte, error) {
	var out bytes.Buffer
	table := crc32.MakeTable(crc32.Castagnoli)
	key := func(name string) string {
		b, _ := json.Marshal(name) // text always marshals
		return `"task":` + string(b)
	}
	for line := range strings.Lines(string(records)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("a journal has the line %q", line)
		}
		rec := strings.ReplaceAll(fields[2], key(from), key(to))
		fmt.Fprintf(&out, "%d %08x %s\n", len(rec), crc32.Checksum([]byte(rec), table), rec)
	}
	return out.Bytes(), nil
}

// dropCaches makes the system forget what it has read of files, which takes root.
func dropCaches() error { return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200) }
