package watcher

import (
	"os"
	"testing"
)

// What a writer has not finished is no event, and a look comes at once when it has.
func TestWritersThatKeepAFileOpen(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	r.mkdir("t1")
	r.await("t1", Appeared)
	r.write("t1/reply.txt", "x")
	r.await("t1", Changed)
	r.quiet()
	f, err := os.OpenFile(r.path("t1/reply.txt"), os.O_WRONLY|os.O_APPEND, 0)
	r.check(err)
	defer f.Close()
	for range 10 {
		_, err := f.WriteString("more")
		r.check(err)
	}
	if looks := r.quiet(); len(looks) != 0 {
		t.Errorf("an open file brought %v", looks)
	}
	r.check(f.Close())
	r.await("t1", Changed)
}

// Some never finish, and some things are never written: they are looked at too.
func TestWhatIsNeverClosed(t *testing.T) {
	for what, do := range map[string]func(path string) error{
		"open file": func(path string) error {
			f, err := os.Create(path)
			if err == nil {
				t.Cleanup(func() { f.Close() })
			}
			return err
		},
		"link":      func(path string) error { return os.Symlink("elsewhere", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		t.Run(what, func(t *testing.T) {
			r := start(t, t.TempDir(), nil)
			r.mkdir("t1")
			r.await("t1", Appeared)
			r.quiet()
			r.check(do(r.path("t1/reply.txt")))
			r.await("t1", Changed)
			if looks := r.quiet(); len(looks) != 0 {
				t.Errorf("further looks: %v", looks)
			}
		})
	}
}

func BenchmarkEventOfOurs(b *testing.B) {
	n := &inotify{watches: map[int32]watched{1: {path: "/tmp/temp/t1", task: true}}, counts: counts}
	name := []byte("output.txt")
	b.ReportAllocs()
	for b.Loop() {
		n.handle(1, 0, name)
	}
}
