package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// faults makes files that fail by plan: each call of an operation takes the next
// error of its list, nil for success.
type faults struct {
	open, write, sync, truncate []error
	opens                       int
	whole                       bool // a failing write writes nothing instead of half
}

func next(list *[]error) error {
	if len(*list) == 0 {
		return nil
	}
	err := (*list)[0]
	*list = (*list)[1:]
	return err
}

func (f *faults) opener(path string) (File, error) {
	f.opens++
	if err := next(&f.open); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, faults: f}, nil
}

type faultyFile struct {
	*os.File
	faults *faults
}

// WriteAt writes half before it fails; a failure with io.ErrShortWrite is one
// that the file does not report.
func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := next(&f.faults.write); err != nil {
		if f.faults.whole {
			return 0, err
		}
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		if err == io.ErrShortWrite {
			err = nil
		}
		return n, err
	}
	return f.File.WriteAt(b, off)
}

func (f *faultyFile) Sync() error {
	if err := next(&f.faults.sync); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Truncate(size int64) error {
	if err := next(&f.faults.truncate); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func TestFaultsOnceAreHealed(t *testing.T) {
	for name, f := range map[string]*faults{
		"short write":            {write: []error{nil, io.ErrShortWrite}},
		"no space for a moment":  {write: []error{nil, syscall.ENOSPC}},
		"failed sync":            {sync: []error{nil, syscall.EIO}},
		"write fails, then sync": {write: []error{nil, syscall.EIO}, sync: []error{nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			j := create(t, WithOpener(f.opener))
			commit(t, j, `1`)
			commit(t, j, `2`, `3`)
			if f.opens != 2 {
				t.Errorf("opened %d times, want anew after the failure", f.opens)
			}
			commit(t, j, `4`)
			wantRecords(t, j.Path(), `1`, `2`, `3`, `4`)
		})
	}
}

func TestFaultsThatStay(t *testing.T) {
	for name, tt := range map[string]struct {
		faults faults
		want   error
	}{
		"disk full":             {faults{write: []error{nil, syscall.ENOSPC, syscall.ENOSPC}}, syscall.ENOSPC},
		"short writes":          {faults{write: []error{nil, io.ErrShortWrite, io.ErrShortWrite}}, io.ErrShortWrite},
		"sync fails":            {faults{sync: []error{nil, syscall.EIO, nil, syscall.EIO}}, syscall.EIO},
		"cannot be opened anew": {faults{write: []error{nil, syscall.EIO}, open: []error{nil, syscall.EMFILE, syscall.EMFILE}}, syscall.EMFILE},
		"cannot be cut":         {faults{write: []error{nil, syscall.EIO}, truncate: []error{syscall.EROFS, syscall.EROFS}}, syscall.EROFS},
		"cut cannot be synced":  {faults{sync: []error{nil, syscall.EIO, syscall.EIO, syscall.EIO}}, syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			f := tt.faults
			j := create(t, WithOpener(f.opener))
			commit(t, j, `1`)
			size := j.Size()
			_, err := j.Commit(raw(`2`), raw(`3`))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), j.Path()) {
				t.Fatalf("error %v, want %v and the path in it", err, tt.want)
			}
			if j.Size() != size {
				t.Errorf("size %d after a failed commit, want %d", j.Size(), size)
			}
			// The same again, as a caller that tries later does.
			if off := commit(t, j, `2`, `3`); off != size {
				t.Errorf("offset %d, want %d", off, size)
			}
			wantRecords(t, j.Path(), `1`, `2`, `3`)
		})
	}
}

func TestFailedCommitIsCutAtOnce(t *testing.T) {
	f := &faults{sync: []error{nil, syscall.EIO, nil, syscall.EIO}}
	j := create(t, WithOpener(f.opener))
	commit(t, j, `1`)
	if _, err := j.Commit(raw(`2`)); err == nil {
		t.Fatal("a commit whose sync failed twice succeeded")
	}
	wantRecords(t, j.Path(), `1`)
}

func TestShrunkenFileIsNotFilledWithZeros(t *testing.T) {
	f := &faults{write: []error{nil, syscall.EIO}, whole: true}
	j := create(t, WithOpener(f.opener))
	commit(t, j, `1`)
	if err := os.Truncate(j.Path(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Commit(raw(`2`)); err == nil || !strings.Contains(err.Error(), "changed from outside") {
		t.Errorf("error %v, want it to say that the file was changed", err)
	}
	if info, err := os.Stat(j.Path()); err != nil || info.Size() != 3 {
		t.Errorf("%d bytes, %v; want the file left as it is", info.Size(), err)
	}
}

func TestOpenCutFails(t *testing.T) {
	j := create(t)
	commit(t, j, `1`)
	j.Close()
	f, err := os.OpenFile(j.Path(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("torn")
	f.Close()
	bad := &faults{truncate: []error{syscall.EROFS}}
	if _, _, err := Open(j.Path(), WithOpener(bad.opener)); !errors.Is(err, syscall.EROFS) {
		t.Errorf("error %v, want EROFS in its chain", err)
	}
	again, report, err := Open(j.Path(), WithOpener(bad.opener))
	if err != nil || report.Torn != 4 {
		t.Fatalf("second Open: %+v, %v", report, err)
	}
	defer again.Close()
	commit(t, again, `2`)
	wantRecords(t, j.Path(), `1`, `2`)
}

func TestCreateFailsWithoutLeavingAFile(t *testing.T) {
	f := &faults{open: []error{syscall.EMFILE}}
	path := t.TempDir() + "/a/session.jsonl"
	if _, err := Create(path, WithOpener(f.opener)); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("error %v, want EMFILE", err)
	}
	j, err := Create(path, WithOpener(f.opener))
	if err != nil {
		t.Fatalf("second try: %v", err)
	}
	j.Close()
}

// TestRandomFaults commits numbered records while everything fails now and then,
// with the caller trying each until it stands, and dies and starts again at times.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		plan := func() []error {
			list := make([]error, 400)
			for i := range list {
				if rnd.IntN(5) == 0 {
					list[i] = []error{syscall.ENOSPC, syscall.EIO, io.ErrShortWrite}[rnd.IntN(3)]
				}
			}
			return list
		}
		f := &faults{write: plan(), sync: plan(), truncate: plan(), open: plan()}
		j := create(t)
		path := j.Path()
		j.Close()
		j = nil
		var want []string
		for n := 0; n < 40; {
			if j == nil {
				var err error
				if j, _, err = Open(path, WithOpener(f.opener)); err != nil {
					continue
				}
				// The dead one's last commit may have come to stand, as its first records.
				found, _, err := readAll(path, 0)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if got := recs(found); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
					t.Fatalf("seed %d: found %q after a restart, want at least %q", seed, got, want)
				}
				want = recs(found)
				n = len(want)
			}
			batch := []json.RawMessage{raw(fmt.Sprintf(`"r%d"`, n)), raw(fmt.Sprintf(`"r%d"`, n+1))}
			off, err := j.Commit(batch...)
			if err != nil {
				if rnd.IntN(4) == 0 {
					j.Close()
					j = nil
				}
				continue
			}
			tail, _, err := readAll(path, off)
			if err != nil || !slices.Equal(recs(tail), []string{string(batch[0]), string(batch[1])}) {
				t.Fatalf("seed %d: read %v, %v from the commit's offset", seed, tail, err)
			}
			want = append(want, string(batch[0]), string(batch[1]))
			n += 2
		}
		wantRecords(t, path, want...)
		for i, rec := range want {
			if rec != fmt.Sprintf(`"r%d"`, i) {
				t.Fatalf("seed %d: record %d is %s", seed, i, rec)
			}
		}
		j.Close()
	}
}
