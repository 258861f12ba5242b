// Package frontmatter reads Markdown files that may begin with a YAML block, as
// agent files and skills do:
//
//	---
//	name: explorer
//	tools: [read_file, search_files]
//	---
//	You explore.
//
// The block begins with a first line of three dashes and ends with the next line
// of three dashes. Both are also horizontal rules in Markdown, and people write
// prose with colons in it, so that a file can look as if it had a block. It has one
// where the lines between hold a YAML mapping. Where they do not, what decides is
// whether a line in there is one of the keys that the caller knows (Options.Known):
// then a block was meant and is broken, which is an error, since what it was to
// forbid must not be lost. Otherwise all of it is body.
//
// A byte order mark is no part of the text, and CRLF ends lines as LF does. The
// body is otherwise what stands in the file, byte for byte.
package frontmatter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The most that a file, a block and its nesting may have.
const (
	MaxFile   = 1 << 20
	MaxMatter = 64 << 10
	maxDepth  = 50
)

// Options say what the caller expects of a block.
type Options struct {
	// Known reports whether a key, in the form that Normal gives it, is one that
	// the caller reads. Nil: none is.
	Known func(key string) bool
	// Loose names keys, in normal form, whose value is a text for people. Where the
	// block is not YAML because such a text, without quotes, holds what YAML reads
	// as more than text, it is taken as the text that it plainly is.
	Loose []string
}

// Document is a file in its parts.
type Document struct {
	// Fields are the block's, in their order; nil where there is no block.
	Fields []Field
	// Matter is whether there is a block, maybe an empty one.
	Matter bool
	// Body is what follows the block, or the whole text.
	Body string
	// Notes say what was read other than as it is written.
	Notes []Note
}

// Note is a remark about a line, counted from 1.
type Note struct {
	Line int
	Text string
}

// Error is a file that cannot be read as it was meant.
type Error struct {
	// Line is counted from 1; 0 where it is the file as a whole.
	Line    int
	Problem string
	Hint    string
}

func (e *Error) Error() string {
	s := e.Problem
	if e.Line > 0 {
		s = fmt.Sprintf("line %d: %s", e.Line, s)
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Normal returns the form in which keys are compared: maxTurns, max_turns and
// max-turns are one key.
func Normal(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// Parse splits a file. It is pure. An error is an *Error.
func Parse(data []byte, o Options) (*Document, error) {
	text, err := plainText(data)
	if err != nil {
		return nil, err
	}
	whole := &Document{Body: text}
	block, body, closed := split(text)
	if block == nil {
		return whole, nil
	}
	meant := o.meant(*block, closed)
	switch {
	case !closed && meant:
		return nil, &Error{Line: 1, Problem: "the YAML block is not closed", Hint: "end it with a line of three dashes"}
	case !closed:
		return whole, nil
	case strings.TrimSpace(*block) == "":
		return &Document{Matter: true, Body: body}, nil
	case len(*block) > MaxMatter:
		if !meant {
			return whole, nil
		}
		return nil, &Error{Line: 1, Problem: fmt.Sprintf("the YAML block has more than %d KB", MaxMatter>>10)}
	}
	d := &Document{Matter: true, Body: body}
	d.Fields, err = fields(*block)
	if err != nil && meant {
		if repaired, notes := o.loosen(*block); len(notes) > 0 {
			if again, err2 := fields(repaired); err2 == nil {
				d.Fields, d.Notes, err = again, notes, nil
			}
		}
	}
	switch {
	case err != nil && meant:
		return nil, err
	case err != nil, !meant && slices.ContainsFunc(d.Fields, func(f Field) bool { return strings.ContainsAny(f.Key, " \t") }):
		return whole, nil
	}
	return d, nil
}

// ReadFile reads a file for Parse: a regular one, so that a pipe among others keeps
// nobody waiting, and a little more than MaxFile at most.
func ReadFile(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFile+1))
}

// plainText returns the text without a byte order mark, or what keeps it from
// being text.
func plainText(data []byte) (string, error) {
	switch {
	case len(data) > MaxFile:
		return "", &Error{Problem: fmt.Sprintf("the file has more than %d KB", MaxFile>>10)}
	case bytes.HasPrefix(data, []byte{0xFF, 0xFE}), bytes.HasPrefix(data, []byte{0xFE, 0xFF}):
		return "", &Error{Line: 1, Problem: "the file is UTF-16", Hint: "save it as UTF-8"}
	}
	data = bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 || r == 0 {
			return "", &Error{Line: 1 + bytes.Count(data[:i], []byte("\n")), Problem: fmt.Sprintf("the byte %#02x is no text", data[i]), Hint: "save the file as UTF-8"}
		}
		i += n
	}
	return string(data), nil
}

// split returns what stands between the first two lines of three dashes, with LF
// ends, and what follows them. Without a first such line block is nil; without a
// second it is all the rest.
func split(text string) (block *string, body string, closed bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if !isDashes(first) {
		return nil, text, false
	}
	var b strings.Builder
	for line := range strings.Lines(rest) {
		body = rest[b.Len()+len(line):]
		if isDashes(line) {
			closed = true
			break
		}
		b.WriteString(line)
	}
	s := strings.ReplaceAll(b.String(), "\r\n", "\n")
	return &s, body, closed
}

func isDashes(line string) bool { return strings.TrimRight(line, " \t\r\n") == "---" }

var keyLine = regexp.MustCompile(`^\s*[{,]?\s*["']?([A-Za-z][A-Za-z0-9_-]*)["']?\s*:(?:\s|$)`)

// known reports whether a line begins with a key that the caller reads.
func (o Options) known(line string) bool {
	m := keyLine.FindStringSubmatch(line)
	return m != nil && o.Known != nil && o.Known(Normal(m[1]))
}

// meant reports whether what may be a block was meant as one. Of a block that is
// not closed only the first paragraph counts.
func (o Options) meant(block string, closed bool) bool {
	some := false
	for line := range strings.Lines(block) {
		if strings.TrimSpace(line) == "" {
			if some && !closed {
				return false
			}
			continue
		}
		some = true
		if o.known(line) {
			return true
		}
	}
	return false
}

// fields reads the block's mapping. Its first line is the file's second. The error
// is an *Error.
func fields(block string) (list []Field, err error) {
	if deep(block) {
		return nil, &Error{Line: 2, Problem: "the YAML block is nested too deeply"}
	}
	defer func() {
		// The parser is fed with what people write; its faults are not the daemon's.
		if p := recover(); p != nil {
			list, err = nil, &Error{Line: 2, Problem: fmt.Sprintf("the YAML block cannot be read: %v", p)}
		}
	}()
	file, perr := parser.ParseBytes([]byte(block), 0)
	if perr != nil {
		var at interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(perr, &at) {
			return nil, &Error{Line: line(at.GetToken()), Problem: "no valid YAML: " + at.GetMessage(),
				Hint: "texts with a colon or other marks in them need quotes"}
		}
		return nil, &Error{Line: 2, Problem: "no valid YAML: " + perr.Error()}
	}
	var docs []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			docs = append(docs, d.Body)
		}
	}
	notMapping := &Error{Line: 2, Problem: "the YAML block is no list of \"key: value\" lines"}
	if len(docs) != 1 {
		return nil, notMapping
	}
	var values []*ast.MappingValueNode
	switch n := docs[0].(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, notMapping
	}
	for _, v := range values {
		key, ok := v.Key.(ast.ScalarNode)
		if _, merge := v.Key.(*ast.MergeKeyNode); merge || !ok {
			return nil, &Error{Line: line(v.Key.GetToken()), Problem: "a key is no plain word"}
		}
		list = append(list, Field{Key: scalar(key), Line: line(v.Key.GetToken()), node: v.Value})
	}
	return list, nil
}

// deep reports whether brackets open too many levels for a parser that recurses.
func deep(block string) bool {
	depth := 0
	for i := range len(block) {
		switch block[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		}
		if depth > maxDepth {
			return true
		}
	}
	// Block lists and mappings nest by columns, several on one line in "- - -".
	for l := range strings.Lines(block) {
		if len(l)-len(strings.TrimLeft(l, " -?:")) > 4*maxDepth {
			return true
		}
	}
	return false
}

// line is a token's line in the file.
func line(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 2
	}
	return t.Position.Line + 1
}

var looseLine = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]*)[ \t]*:[ \t]+([^ \t\n].*)$`)

// loosen puts the texts of loose keys into quotes, with the indented lines that go
// on with them, and keeps the number of lines. It leaves a text alone that YAML
// has a form for already, and one that would swallow a key.
func (o Options) loosen(block string) (string, []Note) {
	lines := strings.Split(block, "\n")
	var notes []Note
	for i := 0; i < len(lines); i++ {
		m := looseLine.FindStringSubmatch(lines[i])
		if m == nil || !slices.Contains(o.Loose, Normal(m[1])) || strings.ContainsAny(m[2][:1], "|>[{&*!") {
			continue
		}
		text, end := []string{strings.TrimSpace(m[2])}, i+1
		for ; end < len(lines); end++ {
			l := lines[end]
			if strings.TrimSpace(l) != "" && !strings.HasPrefix(l, " ") && !strings.HasPrefix(l, "\t") {
				break
			}
			if o.known(l) {
				return block, nil
			}
			text = append(text, strings.TrimSpace(l))
		}
		whole := strings.TrimSpace(strings.Join(text, "\n"))
		if n := len(whole); n > 1 && (whole[0] == '"' || whole[0] == '\'') && whole[n-1] == whole[0] {
			continue
		}
		// YAML's double quotes take all of JSON's escapes; Go's for other characters
		// are not among them, so only the ASCII ones are used.
		lines[i] = m[1] + ": " + quote(whole)
		for j := i + 1; j < end; j++ {
			lines[j] = ""
		}
		notes = append(notes, Note{Line: i + 2, Text: fmt.Sprintf("the text of %s is not valid YAML without quotes, and was taken as it stands; put it in quotes", m[1])})
		i = end - 1
	}
	return strings.Join(lines, "\n"), notes
}

// quote writes a text in YAML's double quotes, on one line.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			b.WriteString(`\x` + strconv.FormatInt(int64(r)+0x100, 16)[1:])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
