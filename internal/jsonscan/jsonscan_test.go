package jsonscan

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// tree reads any value in the way that a caller reads a known one.
func tree(s *Scanner, depth int) any {
	s.space()
	if s.i >= len(s.b) || depth > 100 {
		s.Fail()
		return nil
	}
	switch s.b[s.i] {
	case '{':
		m := map[string]any{}
		s.Object(func(name string) { m[name] = tree(s, depth+1) })
		return m
	case '[':
		l := []any{}
		s.Array(func() { l = append(l, tree(s, depth+1)) })
		return l
	case '"':
		return s.Text()
	}
	if s.Null() {
		return nil
	}
	var v any
	if raw := s.Raw(); !s.bad {
		if err := json.Unmarshal(raw, &v); err != nil {
			s.Fail()
		}
	}
	return v
}

func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"a":"plain","b":[1,2.5e-3,true,null,"\u00e9\ud83d\ude00"]}`, ` { "a" : [ ] , "b" : { } } `, "\"\xff\"", "\"\x01\"", `"\ud83d"`, `"\udc00\ud83d"`, `"\q"`,
		`{"a":1,"a":2}`, `{"a":1,}`, `[1,]`, `tru`, `nul`, `"a`, `{"a"`, `{"a":`, `[`, `]`, ``, `1 2`, `-`, `[1}`, `{"x":"}]"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := New(b)
		got := tree(s, 0)
		if !s.Done() {
			return
		}
		var want any
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("%q was read as %v, want error %v", b, got, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q was read as %v, want %v", b, got, want)
		}
		s = New(b)
		if skipped := s.Skip(); !s.Done() || string(skipped) != strings.Trim(string(b), " \t\r\n") {
			t.Fatalf("%q was skipped as %q", b, skipped)
		}
	})
}

func TestCommonFormsAreRead(t *testing.T) {
	for _, text := range []string{
		`{"a":"x\n\"\\\/\t\b\f\ré\u00e9\ud83d\ude00","b":[1,{"c":null}],"d":{},"e":[],"f":-1.5e3,"g":false}`,
		" [ 1 , 2 ] ",
		`"plain"`,
	} {
		s := New([]byte(text))
		if tree(s, 0); !s.Done() {
			t.Errorf("%s was not read", text)
		}
	}
}

func TestWhatIsLeftToOthers(t *testing.T) {
	for _, text := range []string{`{"a":1,"a":2}`, `"\ud83d"`, "\"\xff\"", `{"a":1} x`, ``} {
		s := New([]byte(text))
		if tree(s, 0); s.Done() {
			t.Errorf("%q was read", text)
		}
	}
}
