package usage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Day is what one day cost.
type Day struct {
	// Date is YYYY-MM-DD.
	Date string `json:"date"`
	// LLMs is what each LLM cost, by its name in the configuration.
	LLMs map[string]llm.Usage `json:"llms"`
	// Started is how many sessions started.
	Started int `json:"started"`
}

// Total is the sum over all LLMs.
func (d Day) Total() llm.Usage {
	var sum llm.Usage
	for _, name := range slices.Sorted(maps.Keys(d.LLMs)) { // in one order, since sums of fractions depend on it
		sum = sum.Add(d.LLMs[name])
	}
	return sum
}

func (d *Day) add(e entry) {
	if e.Usage != nil {
		if d.LLMs == nil {
			d.LLMs = map[string]llm.Usage{}
		}
		d.LLMs[e.LLM] = d.LLMs[e.LLM].Add(*e.Usage)
	}
	if e.Task != "" {
		d.Started++
	}
	d.Started += e.Started
}

// Read returns the days from first to last (YYYY-MM-DD, "" for no bound) of which
// there are accounts, in order. It may be called while a daemon writes them. A
// directory that does not exist has none.
func Read(dir, first, last string) ([]Day, error) {
	dates, err := files(dir)
	if err != nil {
		return nil, fmt.Errorf("read usage accounts: %w", err)
	}
	var days []Day
	for _, date := range dates {
		if first != "" && date < first || last != "" && date > last {
			continue
		}
		d := Day{Date: date}
		if err := readFile(filepath.Join(dir, date+".jsonl"), d.add); err != nil {
			return nil, fmt.Errorf("read usage accounts: %w", err)
		}
		days = append(days, d)
	}
	return days, nil
}

// files returns the dates of which there are files, in order.
func files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dates []string
	for _, e := range entries {
		date, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if _, err := time.Parse(dateForm, date); ok && err == nil {
			dates = append(dates, date)
		}
	}
	return dates, nil
}

// maxLine is more than any line of ours has, in bytes.
const maxLine = 64 << 10

// readFile calls fn with each whole line of a file. Lines that cannot be read, such as one
// that a crash tore or one longer than maxLine, are passed over. A file that does
// not exist has none.
func readFile(path string, fn func(entry)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = readLines(f, maxLine, fn)
	return err
}

// readLines calls fn with each whole line of up to longest bytes, and returns how many
// bytes were read.
func readLines(src io.Reader, longest int, fn func(entry)) (n int64, err error) {
	r := bufio.NewReaderSize(src, longest)
	for {
		line, err := r.ReadSlice('\n')
		size := int64(len(line))
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = r.ReadSlice('\n')
			line, size = nil, size+int64(len(more))
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, nil // what is left is being written, or was never finished
		case err != nil:
			return n, err
		}
		n += size
		var e entry
		if json.Unmarshal(line, &e) == nil {
			fn(e)
		}
	}
}

// sumUpSize is the size in bytes from which on the file of a day gone by is summed up.
const sumUpSize = 8 << 10

// sumUpBefore makes short files of those of the days before date. What cannot be
// summed up stays as it is, and is right all the same.
func sumUpBefore(dir, date string) {
	dates, err := files(dir)
	if err != nil {
		return
	}
	for _, d := range dates {
		path := filepath.Join(dir, d+".jsonl")
		if fi, err := os.Lstat(path); d >= date || err != nil || fi.Size() < sumUpSize {
			continue
		}
		day := Day{Date: d}
		if readFile(path, day.add) != nil {
			continue
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		for _, name := range slices.Sorted(maps.Keys(day.LLMs)) {
			sum := day.LLMs[name]
			err = errors.Join(err, enc.Encode(entry{LLM: name, Usage: &sum}))
		}
		if day.Started > 0 {
			err = errors.Join(err, enc.Encode(entry{Started: day.Started}))
		}
		if err == nil {
			_ = atomicfile.Write(path, b.Bytes(), 0o600)
		}
	}
}
