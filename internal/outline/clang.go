package outline

import "strings"

// clang reads the declarations of a file or a namespace, or the members of a type
// named class.
func (o *outliner) clang(lo, hi, depth int, class string) {
	for i := lo; i < hi; {
		switch {
		case o.tokens[i].kind == macro:
			o.define(i, depth)
			i++
			continue
		case o.accessSpecifier(i) > 0:
			i = o.accessSpecifier(i)
			continue
		}
		start := i
		for o.is(i, "template") && o.is(i+1, "<") && o.angles(i+1, hi) > i+1 {
			i = o.angles(i+1, hi)
		}
		d := o.clangHead(i, hi)
		body := o.is(d.end, "{") && d.end < hi
		next := d.end + 1
		if body {
			next = o.skip(d.end)
		}
		inner := func(depth int, class string) { o.clang(d.end+1, min(o.match[d.end], hi), depth, class) }
		switch what := o.keyword(d.keyword); {
		case what == "namespace" && body:
			if d.keyword+1 == d.end {
				inner(depth, "")
				break
			}
			o.add(start, d.end, depth)
			inner(depth+1, "")
		case what == "extern" && body && d.end == d.keyword+2:
			inner(depth, "")
		case what == "using" && d.equals > 0, what == "typedef" && !body, what == "concept":
			o.add(start, d.end, depth)
		case (what == "class" || what == "struct" || what == "union" || what == "enum" || what == "typedef") && body && d.paren < 0 && d.equals < 0:
			o.add(start, d.end, depth)
			if o.is(start, "typedef") {
				next = o.typedefName(next, hi)
			}
			if !o.among(d.keyword, " enum ") && !(d.keyword+1 < d.end && o.is(d.keyword+1, "enum")) {
				inner(depth+1, o.typeName(d))
			}
		case what == "using" || what == "typedef" || what == "friend" || what == "static_assert":
		case o.clangFunction(i, d, body, class):
			o.add(start, d.text, depth)
		}
		i = max(next, i+1)
	}
}

// declaration is where the parts of a C declaration are; -1 where it has none.
type declaration struct {
	// end is the { or ; that ends it, text where what is worth showing ends.
	end, text int
	// keyword says what it is, paren is the ( of the parameters, equals the first =.
	keyword, paren, equals int
}

const clangKeywords = " class struct union enum namespace typedef using extern friend static_assert concept "

// notNames stand before parentheses that hold no parameters.
const notNames = " __attribute__ __attribute __declspec alignas decltype noexcept throw __asm__ asm requires __extension__ explicit "

// clangHead takes the declaration apart that begins at i.
func (o *outliner) clangHead(i, hi int) declaration {
	d := declaration{end: hi, text: hi, keyword: -1, paren: -1, equals: -1}
	colon := -1
	operator := false
	for j := i; j < hi; {
		switch {
		case o.tokens[j].kind == macro && j > i:
			// A condition in the middle of a declaration: it is passed over.
		case o.is(j, ";"), o.is(j, "{") && !(colon > 0 && o.memberInit(j)):
			d.end, d.text = j, j
			if colon > 0 {
				d.text = colon
			}
			return d
		case o.is(j, "operator"):
			operator = true
			if o.is(j+1, "(") && o.is(j+2, ")") {
				j += 2
			}
		case o.is(j, "(") && d.paren < 0 && !o.among(j-1, notNames):
			d.paren = j
		case o.is(j, "=") && d.equals < 0 && !(operator && d.paren < 0):
			d.equals = j
		case o.is(j, ":") && d.paren > 0 && colon < 0 && !o.is(j-1, ":") && !o.is(j+1, ":"):
			colon = j
		case o.is(j, "<") && d.paren < 0 && !operator:
			if end := o.angles(j, hi); end > j {
				j = end
				continue
			}
		case d.keyword < 0 && d.paren < 0 && o.among(j, clangKeywords):
			d.keyword = j
		}
		j = o.skip(j)
	}
	return d
}

// memberInit reports whether the { at i initialises a member, in a constructor's
// list, and is not the body.
func (o *outliner) memberInit(i int) bool {
	after := o.skip(i)
	return (o.isWord(i-1) || o.is(i-1, ">")) && (o.is(after, ",") || o.is(after, "{"))
}

// clangFunction reports whether a declaration is a function's.
func (o *outliner) clangFunction(i int, d declaration, body bool, class string) bool {
	name := d.paren - 1
	if d.paren < 0 || d.end >= len(o.tokens) || name < i || d.equals >= 0 && d.equals < d.paren {
		return false
	}
	for j := i; j < d.paren; j++ {
		if o.is(j, "operator") {
			return true
		}
	}
	if body && o.is(name, ">") {
		return true // a template's special case
	}
	if !o.isWord(name) || o.among(name, " if for while switch catch return else do sizeof ") || o.among(i, " return else goto throw delete new case ") {
		return false
	}
	if body {
		return true
	}
	// What ends with ; can be a call of a macro, or a variable.
	return name > i && (o.isWord(name-1) || o.is(name-1, "*") || o.is(name-1, "&") || o.is(name-1, ">") || o.is(name-1, ":") || o.is(name-1, "~")) ||
		class != "" && o.is(name, class)
}

// accessSpecifier returns the index behind "public:" and the like, or 0.
func (o *outliner) accessSpecifier(i int) int {
	if !o.among(i, " public private protected signals Q_SIGNALS ") {
		return 0
	}
	if o.isWord(i + 1) {
		i++
	}
	if o.is(i+1, ":") && !o.is(i+2, ":") {
		return i + 2
	}
	return 0
}

// typeName returns the name of the type that is declared; "" for none.
func (o *outliner) typeName(d declaration) string {
	name := ""
	for j := d.keyword + 1; j < d.end && !o.is(j, ":"); j = o.skip(j) {
		if o.isWord(j) && !o.among(j, " final class struct union "+notNames) {
			name = o.text(o.tokens[j])
		}
	}
	return name
}

// typedefName adds the name behind a typedef's body to what was just noted, and
// returns the index behind it.
func (o *outliner) typedefName(i, hi int) int {
	end, _, _ := o.head(i, hi)
	if end < hi && len(o.found) > 0 && end > i {
		last := &o.found[len(o.found)-1]
		last.Text = oneLine(last.Text + " " + o.src[o.tokens[i].at:o.tokens[end-1].end])
	}
	return end
}

// define notes a macro with parameters.
func (o *outliner) define(i, depth int) {
	text := o.text(o.tokens[i])
	rest, ok := strings.CutPrefix(strings.TrimLeft(text[1:], " \t"), "define")
	if !ok {
		return
	}
	rest = strings.TrimLeft(rest, " \t")
	n := strings.IndexFunc(rest, func(r rune) bool { return !isWordRune(r, clang) })
	if n <= 0 || rest[n] != '(' {
		return
	}
	if end := strings.IndexByte(rest, ')'); end > 0 && len(o.found) < maxDefinitions {
		o.found = append(o.found, Definition{Line: o.tokens[i].line, Depth: depth, Text: oneLine("#define " + rest[:end+1])})
	}
}
