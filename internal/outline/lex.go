package outline

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is what a token is.
type kind uint8

const (
	word    kind = iota // a name or a keyword
	literal             // a text, a character, a number, a regular expression
	mark                // one character of anything else
	macro               // a preprocessor line
)

// piece is a part of the text that is neither blank nor comment.
type piece struct {
	kind    kind
	at, end int
	line    int
	// first is whether it is the first on its line.
	first bool
}

// lexer takes a text of one of the languages with braces apart.
type lexer struct {
	src    string
	lang   language
	i      int
	line   int
	first  bool
	tokens []piece
	// templates are, in JavaScript, the depths of braces at which a template's
	// text goes on.
	templates []int
	depth     int
}

func lex(src string, lang language) []piece {
	l := &lexer{src: src, lang: lang, line: 1, first: true}
	for l.i < len(l.src) {
		l.next()
	}
	return l.tokens
}

func (l *lexer) has(s string) bool { return strings.HasPrefix(l.src[l.i:], s) }

// emit makes a token of what lies between from and l.i. Lines are counted here and
// in skipTo.
func (l *lexer) emit(k kind, from int) {
	l.tokens = append(l.tokens, piece{kind: k, at: from, end: l.i, line: l.line, first: l.first})
	l.first = false
	l.line += strings.Count(l.src[from:l.i], "\n")
}

// skipTo passes over what is no token.
func (l *lexer) skipTo(end int) {
	end = min(max(end, l.i), len(l.src))
	if n := strings.Count(l.src[l.i:end], "\n"); n > 0 {
		l.line += n
		l.first = true
	}
	l.i = end
}

func (l *lexer) next() {
	c := l.src[l.i]
	from := l.i
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
		l.skipTo(l.i + 1)
	case l.has("//"):
		l.skipTo(l.lineEnd())
	case l.has("/*"):
		l.skipTo(l.commentEnd())
	case c == '#' && l.lang == clang && l.first:
		l.i = l.lineEnd()
		l.emit(macro, from)
	case c == '"' && l.lang == java && l.has(`"""`):
		l.i = l.find(l.i+3, `"""`)
		l.emit(literal, from)
	case c == '"':
		l.i = l.stringEnd(l.i+1, '"', l.lang == rust)
		l.emit(literal, from)
	case c == '\'' && l.lang == rust:
		l.i = l.rustQuote()
		l.emit(literal, from)
	case c == '\'':
		l.i = l.stringEnd(l.i+1, '\'', false)
		l.emit(literal, from)
	case c == '`' && l.lang == script:
		l.i++
		l.template(from)
	case c == '}' && l.lang == script && len(l.templates) > 0 && l.templates[len(l.templates)-1] == l.depth:
		// The end of an expression in a template: its text goes on.
		l.templates = l.templates[:len(l.templates)-1]
		l.i++
		l.template(from)
	case c == '/' && l.lang == script && l.regexMayStart():
		if end := l.regexEnd(); end > 0 {
			l.i = end
			l.emit(literal, from)
			return
		}
		l.i++
		l.emit(mark, from)
	case isWordStart(l.src[l.i:], l.lang):
		l.word(from)
	case c >= '0' && c <= '9':
		for l.i < len(l.src) && (isNumber(l.src[l.i]) || l.src[l.i] == '\'' && l.lang == clang) {
			l.i++
		}
		l.emit(literal, from)
	default:
		switch c {
		case '{':
			l.depth++
		case '}':
			l.depth = max(l.depth-1, 0)
		}
		_, n := utf8.DecodeRuneInString(l.src[l.i:])
		l.i += n
		l.emit(mark, from)
	}
}

// word reads a name, or a text that begins as one.
func (l *lexer) word(from int) {
	for l.i < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[l.i:])
		if !isWordRune(r, l.lang) && !(l.i == from && r == '#') {
			break
		}
		l.i += n
	}
	name := l.src[from:l.i]
	switch {
	case l.lang == clang && l.has(`"`) && (name == "R" || name == "LR" || name == "uR" || name == "UR" || name == "u8R"):
		// R"x( ... )x"
		open := strings.IndexByte(l.src[l.i:min(len(l.src), l.i+20)], '(')
		if open > 0 {
			l.i = l.find(l.i+open, ")"+l.src[l.i+1:l.i+open]+`"`)
			l.emit(literal, from)
			return
		}
	case l.lang == rust && (name == "r" || name == "br" || name == "cr") && (l.has(`"`) || l.has("#")):
		hashes := 0
		for l.i+hashes < len(l.src) && l.src[l.i+hashes] == '#' {
			hashes++
		}
		if l.i+hashes < len(l.src) && l.src[l.i+hashes] == '"' {
			l.i = l.find(l.i+hashes+1, `"`+strings.Repeat("#", hashes))
			l.emit(literal, from)
			return
		}
	}
	l.emit(word, from)
}

// lineEnd is where a comment or a preprocessor line ends; both go on over a
// backslash in C.
func (l *lexer) lineEnd() int {
	for i := l.i; ; {
		n := strings.IndexByte(l.src[i:], '\n')
		if n < 0 {
			return len(l.src)
		}
		end := i + n
		if l.lang != clang || !strings.HasSuffix(strings.TrimSuffix(l.src[l.i:end], "\r"), `\`) {
			return end
		}
		i = end + 1
	}
}

// commentEnd is where a comment with asterisks ends. In Rust they nest.
func (l *lexer) commentEnd() int {
	if l.lang != rust {
		return l.find(l.i+2, "*/")
	}
	depth := 0
	for i := l.i; i+1 < len(l.src); {
		switch l.src[i : i+2] {
		case "/*":
			depth++
			i += 2
		case "*/":
			i += 2
			if depth--; depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(l.src)
}

// find returns the index behind the next end from i on.
func (l *lexer) find(i int, end string) int {
	if i >= len(l.src) {
		return len(l.src)
	}
	n := strings.Index(l.src[i:], end)
	if n < 0 {
		return len(l.src)
	}
	return i + n + len(end)
}

// stringEnd returns the index behind the quote that ends a text. One that may not
// go on over the end of a line ends there: it was an apostrophe.
func (l *lexer) stringEnd(i int, quote byte, lines bool) int {
	for ; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		case '\n':
			if !lines {
				return i
			}
		}
	}
	return len(l.src)
}

// rustQuote tells a character from a lifetime.
func (l *lexer) rustQuote() int {
	rest := l.src[l.i+1:]
	if strings.HasPrefix(rest, `\`) {
		return l.stringEnd(l.i+1, '\'', false)
	}
	_, n := utf8.DecodeRuneInString(rest)
	if n > 0 && strings.HasPrefix(rest[n:], "'") {
		return l.i + 1 + n + 1
	}
	end := l.i + 1
	for end < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[end:])
		if !isWordRune(r, rust) {
			break
		}
		end += n
	}
	return end
}

// template reads a template's text up to its end, or to an expression in it.
func (l *lexer) template(from int) {
	for l.i < len(l.src) {
		switch {
		case l.src[l.i] == '\\':
			l.i++
		case l.src[l.i] == '`':
			l.i++
			l.emit(literal, from)
			return
		case l.has("${"):
			l.i += 2
			l.emit(literal, from)
			l.templates = append(l.templates, l.depth)
			return
		}
		if l.i < len(l.src) {
			l.i++
		}
	}
	l.i = min(l.i, len(l.src))
	l.emit(literal, from)
}

// regexMayStart tells by what stands before a slash whether it divides.
func (l *lexer) regexMayStart() bool {
	if len(l.tokens) == 0 {
		return true
	}
	t := l.tokens[len(l.tokens)-1]
	text := l.src[t.at:t.end]
	switch t.kind {
	case literal:
		return strings.HasSuffix(text, "${")
	case word:
		return strings.Contains(" return typeof case in of do else void delete instanceof new throw yield await ", " "+text+" ")
	}
	return text != ")" && text != "]" && text != "}" && text != "<" // </tag>
}

// regexEnd returns the index behind a regular expression and its flags; 0 where
// there is none that ends on this line.
func (l *lexer) regexEnd() int {
	class := false
	for i := l.i + 1; i < len(l.src); i++ {
		switch c := l.src[i]; {
		case c == '\n':
			return 0
		case c == '\\':
			i++
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			for i++; i < len(l.src) && (l.src[i] >= 'a' && l.src[i] <= 'z'); i++ {
			}
			return i
		}
	}
	return 0
}

func isWordStart(s string, lang language) bool {
	r, n := utf8.DecodeRuneInString(s)
	if r == '#' && lang == script {
		// A private member.
		next, _ := utf8.DecodeRuneInString(s[n:])
		return unicode.IsLetter(next) || next == '_' || next == '$'
	}
	return isWordRune(r, lang) && !unicode.IsDigit(r)
}

func isWordRune(r rune, lang language) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '$' && (lang == script || lang == java)
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.'
}
