// Package outline lists what a source file defines: types, functions, methods and
// the like, each with its line and the head of its declaration. It is for finding
// one's way in code that one has not read, not for compiling it.
//
// Go is read by the standard library's parser. For the other languages there is no
// parser without C that knows them all, so that they are read by a lexer which knows
// where text and comments end and which brackets belong together, and by rules for
// what the heads of declarations look like. Bodies of functions are passed over.
// Code that is half written, or uses the preprocessor in ways that break its
// brackets, gives what can be made out; nothing gives an error.
package outline

import (
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Definition is one thing that a file defines.
type Definition struct {
	// Line is counted from 1.
	Line int
	// Depth is how many definitions it lies in: a method of a class has 1.
	Depth int
	// Text is the declaration without its body, on one line.
	Text string
}

// maxText bounds Definition.Text, in characters.
const maxText = 200

// maxDefinitions bounds what is listed of one file.
const maxDefinitions = 10_000

// language is a way to read files.
type language int

const (
	none language = iota
	golang
	python
	script // JavaScript and TypeScript
	java
	rust
	clang // C and C++
)

// languageOf tells by a file's name.
func languageOf(path string) language {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".go":
		return golang
	case ".py", ".pyi":
		return python
	case ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts":
		return script
	case ".java":
		return java
	case ".rs":
		return rust
	case ".c", ".h", ".cc", ".cpp", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".ipp", ".inl":
		return clang
	}
	return none
}

// Knows reports whether files of that name can be read.
func Knows(path string) bool { return languageOf(path) != none }

// Languages names what can be read, for messages.
const Languages = "Go, Python, JavaScript, TypeScript, Java, Rust, C and C++"

// Definitions lists what a file defines, in its order; path tells the language. It
// is pure. What it does not know, and what defines nothing, gives nothing.
func Definitions(path string, src []byte) []Definition {
	text := strings.ToValidUTF8(strings.TrimPrefix(string(src), "\ufeff"), "\ufffd")
	lang := languageOf(path)
	switch lang {
	case golang:
		return goDefinitions(text)
	case python:
		return pythonDefinitions(text)
	case script, java, rust, clang:
		o := &outliner{src: text, lang: lang}
		o.tokens = lex(text, lang)
		o.matchBrackets()
		switch lang {
		case script:
			o.script(0, len(o.tokens), 0)
		case java:
			o.java(0, len(o.tokens), 0, "")
		case rust:
			o.rust(0, len(o.tokens), 0)
		case clang:
			o.clang(0, len(o.tokens), 0, "")
		}
		return o.found
	}
	return nil
}

// outliner gathers the definitions of one file. Its methods work on the tokens from
// lo up to hi, which lie between two brackets that belong together.
type outliner struct {
	src    string
	lang   language
	tokens []piece
	// match is, for each opening bracket, the index of the one that closes it, or of
	// the last token where none does; for others 0.
	match []int
	found []Definition
}

// add notes the declaration that begins at token i and ends before token end.
func (o *outliner) add(i, end, depth int) {
	if i >= end || len(o.found) >= maxDefinitions {
		return
	}
	var b strings.Builder
	for n, t := range o.tokens[i:end] {
		if n > 0 && t.at > o.tokens[i+n-1].end {
			b.WriteByte(' ')
		}
		b.WriteString(o.text(t))
		if b.Len() > 4*maxText {
			break
		}
	}
	o.found = append(o.found, Definition{Line: o.tokens[i].line, Depth: depth, Text: oneLine(b.String())})
}

func (o *outliner) text(t piece) string { return o.src[t.at:t.end] }

// is reports whether token i is there and says that.
func (o *outliner) is(i int, text string) bool {
	return i >= 0 && i < len(o.tokens) && o.text(o.tokens[i]) == text
}

// among reports whether token i is one of those words, which stand between spaces.
func (o *outliner) among(i int, words string) bool {
	if i < 0 || i >= len(o.tokens) || o.tokens[i].kind != word {
		return false
	}
	return strings.Contains(words, " "+o.text(o.tokens[i])+" ")
}

// isWord reports whether token i is there and is a word.
func (o *outliner) isWord(i int) bool {
	return i >= 0 && i < len(o.tokens) && o.tokens[i].kind == word
}

// matchBrackets finds which brackets belong together. A closing one that fits no
// open one is passed over; an open one that is not closed ends with what it is in.
func (o *outliner) matchBrackets() {
	o.match = make([]int, len(o.tokens))
	var open []int
	var count [256]int // of the open ones, by what they are
	for i, t := range o.tokens {
		if t.kind != mark {
			continue
		}
		switch c := o.src[t.at]; c {
		case '(', '[', '{':
			open = append(open, i)
			count[c]++
		case ')', ']', '}':
			opener := openerOf(c)
			for count[opener] > 0 {
				last := open[len(open)-1]
				open = open[:len(open)-1]
				what := o.src[o.tokens[last].at]
				count[what]--
				if what == opener {
					o.match[last] = i
					break
				}
				o.match[last] = i - 1
			}
		}
	}
	for _, lost := range open {
		o.match[lost] = len(o.tokens) - 1
	}
}

func openerOf(c byte) byte {
	switch c {
	case ')':
		return '('
	case ']':
		return '['
	}
	return '{'
}

// far is how many tokens are looked at for something that should be near.
const far = 1000

// angles returns the index behind the > that closes the < at i, or i where there is
// none near: then it compares.
func (o *outliner) angles(i, hi int) int {
	depth := 0
	for j := i; j < min(hi, i+far); {
		switch {
		case o.is(j, "<"):
			depth++
		case o.is(j, ">") && !o.arrow(j-1):
			if depth--; depth == 0 {
				return j + 1
			}
		case o.is(j, ";"):
			return i
		}
		j = o.skip(j)
	}
	return i
}

// arrow reports whether = and > stand together from token i on, or - and >.
func (o *outliner) arrow(i int) bool {
	return (o.is(i, "=") || o.is(i, "-")) && o.is(i+1, ">") && o.tokens[i].end == o.tokens[i+1].at
}

// skip returns the index behind token i, and behind the bracket that closes it.
func (o *outliner) skip(i int) int { return max(o.match[i], i) + 1 }

// oneLine puts a declaration on one line of bounded length.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > maxText {
		s = string([]rune(s)[:maxText-1]) + "…"
	}
	return s
}
