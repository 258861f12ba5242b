package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestCapture(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  int
		writes []string
		want   Output
	}{
		{"nothing", 10, nil, Output{}},
		{"fits", 10, []string{"abc\n", "def"}, Output{Head: []byte("abc\ndef"), Bytes: 7, Lines: 2}},
		{"exactly", 10, []string{"0123456789"}, Output{Head: []byte("0123456789"), Bytes: 10, Lines: 1}},
		{"one too many", 10, []string{"0123456789a"}, Output{Head: []byte("01234"), Tail: []byte("6789a"), Cut: 1, Bytes: 11, Lines: 1}},
		{"a little at a time", 4, []string{"a", "b", "c", "d", "e", "f", "g"}, Output{Head: []byte("ab"), Tail: []byte("fg"), Cut: 3, Bytes: 7, Lines: 1}},
		{"much at once", 4, []string{"abc", strings.Repeat("x", 100) + "yz\n"}, Output{Head: []byte("ab"), Tail: []byte("z\n"), Cut: 102, Bytes: 106, Lines: 1}},
		{"much, then a little", 6, []string{strings.Repeat("x", 100), "y"}, Output{Head: []byte("xxx"), Tail: []byte("xxy"), Cut: 95, Bytes: 101, Lines: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCapture(c.limit)
			for _, w := range c.writes {
				if n, err := k.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("wrote %d, %v", n, err)
				}
			}
			got := k.output()
			if !bytes.Equal(got.Head, c.want.Head) || !bytes.Equal(got.Tail, c.want.Tail) || got.Cut != c.want.Cut || got.Bytes != c.want.Bytes || got.Lines != c.want.Lines {
				t.Errorf("got %q %q %+v", got.Head, got.Tail, got)
			}
		})
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("hello\nworld"), 4, 3)
	f.Add([]byte(""), 1, 1)
	f.Fuzz(func(t *testing.T, text []byte, limit, step int) {
		limit, step = 1+abs(limit)%64, 1+abs(step)%32
		k := newCapture(limit)
		for chunk := range slices.Chunk(text, step) {
			k.Write(chunk)
		}
		got := k.output()
		if len(got.Head)+len(got.Tail) > limit || !bytes.HasPrefix(text, got.Head) || !bytes.HasSuffix(text, got.Tail) {
			t.Errorf("got %q %q", got.Head, got.Tail)
		}
		if int64(len(got.Head)+len(got.Tail))+got.Cut != int64(len(text)) || (got.Cut > 0) != (len(text) > limit) {
			t.Errorf("cut %d of %d", got.Cut, len(text))
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func TestEnviron(t *testing.T) {
	environ := []string{
		"PATH=/bin", "HOME=/home/u", "LC_ALL=C.UTF-8", "OPENAI_API_KEY=sk-secret", "AWS_SECRET_ACCESS_KEY=x",
		"TERM=xterm", "GOFLAGS=-mod=mod", "LD_PRELOAD=/x.so", "MY_KEY=sk-2", Mark + "=outer", "=odd", "noequals",
	}
	got := strings.Join(Environ(environ, []string{"GOFLAGS", "EXTRA=1", "MY_KEY", "HOME=/other", "ABSENT"}, []string{"MY_KEY"}), " ") + " "
	for _, want := range []string{"PATH=/bin ", "HOME=/other ", "LC_ALL=C.UTF-8 ", "TERM=dumb ", "GOFLAGS=-mod=mod ", "EXTRA=1 ", "GIT_TERMINAL_PROMPT=0 "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	for _, never := range []string{"sk-", "AWS", "xterm", "LD_PRELOAD", Mark, "ABSENT", "/home/u", "odd"} {
		if strings.Contains(got, never) {
			t.Errorf("%q is in %s", never, got)
		}
	}
}

// Many megabytes of output take no more memory than the cap.
func BenchmarkCapture(b *testing.B) {
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 2048)
	k := newCapture(DefaultOutputCap)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		k.Write(chunk)
	}
}
