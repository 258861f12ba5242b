package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s holds %q, want %q", path, got, want)
	}
}

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestWriteCreatesAndReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	for _, content := range []string{"first, and longer", "second", ""} {
		if err := Write(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		wantContent(t, path, content)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("directory holds %q, want the file alone", got)
	}
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, want 0600", info.Mode().Perm())
		}
	}
}

func TestWriteInWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := Write("plain", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantContent(t, "plain", "x")
}

func TestWriteAtWithoutSync(t *testing.T) {
	dir := t.TempDir()
	if err := WriteAt(open(t, dir), "s", []byte("x"), 0o644, false); err != nil {
		t.Fatal(err)
	}
	wantContent(t, filepath.Join(dir, "s"), "x")
}

func TestWriteReplacesALinkAndNotItsTarget(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "status.json")
	if err := os.Symlink(victim, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := Write(link, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantContent(t, victim, "untouched")
	info, err := os.Lstat(link)
	if err != nil {
		t.Fatal(err)
	}
	if !info.Mode().IsRegular() {
		t.Errorf("still %v, want a regular file", info.Mode())
	}
}

func TestWriteRefusesNames(t *testing.T) {
	d := open(t, t.TempDir())
	for _, name := range []string{"", ".", "..", "a/b", "/a", "../a", "a/", "a\x00b"} {
		if err := WriteAt(d, name, nil, 0o644, true); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("name %q: error %v, want fs.ErrInvalid", name, err)
		}
	}
}

func TestWriteErrors(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "no", "file")
	if err := Write(missing, nil, 0o644); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing directory: %v, want fs.ErrNotExist naming the path", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "taken"), []byte("x"), 0o644); err == nil {
		t.Error("replaced a directory")
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("directory holds %q, want no temporary file", got)
	}
}

func TestReadersSeeWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*977%20000) }
	if err := Write(path, content(0), 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 300 {
			if err := WriteAt(open(t, filepath.Dir(path)), "f", content(i), 0o644, false); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || len(bytes.Trim(got, string(got[:1]))) != 0 {
			t.Fatalf("read a mixture or nothing: %d bytes", len(got))
		}
	}
	wg.Wait()
}

// faulty is a real folder in which one operation fails.
type faulty struct {
	folder
	at    string
	err   error
	calls *[]string
}

func (f faulty) note(op string) error {
	*f.calls = append(*f.calls, op)
	if op == f.at {
		return f.err
	}
	return nil
}

func (f faulty) create(name string, perm fs.FileMode) (file, error) {
	if err := f.note("create"); err != nil {
		return nil, err
	}
	inner, err := f.folder.create(name, perm)
	return faultyFile{inner, f}, err
}

func (f faulty) rename(from, to string) error {
	if err := f.note("rename"); err != nil {
		return err
	}
	return f.folder.rename(from, to)
}

func (f faulty) remove(name string) error { f.note("remove"); return f.folder.remove(name) }

func (f faulty) sync() error {
	if err := f.note("sync directory"); err != nil {
		return err
	}
	return f.folder.sync()
}

type faultyFile struct {
	file
	in faulty
}

func (f faultyFile) Write(b []byte) (int, error) {
	if err := f.in.note("write"); err != nil {
		n, _ := f.file.Write(b[:len(b)/2])
		if err == io.ErrShortWrite {
			err = nil
		}
		return n, err
	}
	return f.file.Write(b)
}

func (f faultyFile) Sync() error {
	if err := f.in.note("sync"); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f faultyFile) Close() error {
	err := f.in.note("close")
	return errors.Join(err, f.file.Close())
}

func TestFaults(t *testing.T) {
	tests := []struct {
		at    string
		err   error
		stays string
	}{
		{"create", syscall.EACCES, "old"},
		{"write", syscall.ENOSPC, "old"},
		{"write", io.ErrShortWrite, "old"},
		{"sync", syscall.EIO, "old"},
		{"close", syscall.EDQUOT, "old"},
		{"rename", syscall.EACCES, "old"},
		{"sync directory", syscall.EIO, "new"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.at, " ", tt.err), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			var calls []string
			d := faulty{openFolder(open(t, dir)), tt.at, tt.err, &calls}
			if err := replace(d, "f", whole([]byte("new")), 0o644, true); !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v in its chain", err, tt.err)
			}
			wantContent(t, filepath.Join(dir, "f"), tt.stays)
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("directory holds %q, want the file alone", got)
			}
		})
	}
}

func TestOrderOfOperations(t *testing.T) {
	for _, tt := range []struct {
		sync bool
		want string
	}{
		{true, "create write sync close rename sync directory"},
		{false, "create write close rename"},
	} {
		var calls []string
		d := faulty{openFolder(open(t, t.TempDir())), "", nil, &calls}
		if err := replace(d, "f", whole([]byte("x")), 0o644, tt.sync); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(calls, " "); got != tt.want {
			t.Errorf("sync %v: %s; want %s", tt.sync, got, tt.want)
		}
	}
}

func TestTempNameTaken(t *testing.T) {
	var calls []string
	d := faulty{openFolder(open(t, t.TempDir())), "create", fs.ErrExist, &calls}
	if err := replace(d, "f", whole(nil), 0o644, true); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want fs.ErrExist", err)
	}
	if len(calls) < 2 || len(calls) > 20 {
		t.Errorf("tried %d names, want some and not for ever", len(calls))
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	temp := tempPrefix + "0123456789abcdef" + tempSuffix
	fresh := tempPrefix + "fedcba9876543210" + tempSuffix
	keep := []string{fresh, "input.txt", ".hidden", tempPrefix + "x" + tempSuffix, tempPrefix + "0123456789abcdeX" + tempSuffix}
	for _, name := range append(keep, temp) {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if name != fresh {
			if err := os.Chtimes(p, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := open(t, dir)
	for range 2 { // the handle's position must not matter
		if err := SweepAt(d); err != nil {
			t.Fatal(err)
		}
	}
	got := names(t, dir)
	if len(got) != len(keep) {
		t.Errorf("left %q, want %q", got, keep)
	}
	for _, name := range got {
		if name == temp {
			t.Errorf("%s is still there", temp)
		}
	}
}

func TestSyncDir(t *testing.T) {
	dir := t.TempDir()
	if err := SyncDir(dir); err != nil {
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v, want fs.ErrNotExist", err)
	}
}

func TestTempNamesAreHiddenAndKnown(t *testing.T) {
	f, name, err := createTemp(openFolder(open(t, t.TempDir())), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if !strings.HasPrefix(name, ".") || !IsTemp(name) {
		t.Errorf("temporary name %q is not hidden or not known to the sweep", name)
	}
}

func BenchmarkWriteAtWithoutSync(b *testing.B) {
	d, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	data := bytes.Repeat([]byte("x"), 2000)
	b.ReportAllocs()
	for b.Loop() {
		if err := WriteAt(d, "status.json", data, 0o644, false); err != nil {
			b.Fatal(err)
		}
	}
}
