package outline

// script reads the statements of a module or a namespace.
func (o *outliner) script(lo, hi, depth int) {
	for i := lo; i < hi; {
		if o.is(i, "@") {
			i = o.annotation(i, hi)
			continue
		}
		i = max(o.statement(i, hi, depth), i+1)
	}
}

// statement reads one statement and returns the index behind it.
func (o *outliner) statement(i, hi, depth int) int {
	k := i
	for o.among(k, " export default declare abstract ") && k+1 < hi || o.is(k, "async") && o.is(k+1, "function") {
		k++
	}
	exported := o.is(i, "export")
	switch {
	case o.is(k, "function"):
		return o.function(i, k+1, hi, depth)
	case o.is(k, "class"):
		return o.class(i, k+1, hi, depth)
	case o.among(k, " interface enum ") && o.isWord(k+1), o.is(k, "const") && o.is(k+1, "enum"):
		end := o.brace(k+1, hi)
		if end >= hi {
			return o.statementEnd(i, hi)
		}
		o.add(i, end, depth)
		return o.skip(end)
	case o.among(k, " namespace module ") && (o.isWord(k+1) || k+1 < hi && o.tokens[k+1].kind == literal) && !o.tokens[k+1].first,
		o.is(k, "global") && o.is(k+1, "{"):
		end := o.brace(k+1, hi)
		if end >= hi {
			return o.statementEnd(i, hi)
		}
		o.add(i, end, depth)
		o.script(end+1, min(o.match[end], hi), depth+1)
		return o.skip(end)
	case o.is(k, "type") && o.isWord(k+1) && !o.tokens[k+1].first:
		end := o.equals(k, hi)
		o.add(i, end, depth)
		return o.statementEnd(end, hi)
	case o.among(k, " const let var "):
		equals := o.equals(k, hi)
		if equals < hi {
			if next := o.value(i, equals+1, hi, depth); next > 0 {
				return next
			}
		}
		if exported {
			o.add(i, equals, depth)
		}
	case o.isWord(k) && o.is(k+1, "."):
		// exports.f = function ..., T.prototype.m = ...
		j := k
		for o.isWord(j) && o.is(j+1, ".") {
			j += 2
		}
		if o.isWord(j) && o.is(j+1, "=") && !o.is(j+2, "=") && !o.arrow(j+1) {
			if next := o.value(i, j+2, hi, depth); next > 0 {
				return next
			}
		}
	}
	return o.statementEnd(i, hi)
}

// equals returns the index of the = that gives the name declared at i its value, or
// of the statement's end.
func (o *outliner) equals(i, hi int) int {
	end := o.statementEnd(i, hi)
	for j := i; j < end; j = o.skip(j) {
		if o.is(j, "=") && !o.arrow(j) {
			return j
		}
	}
	return end
}

// value notes a declaration from i on whose value, from v on, is a function or a
// class, and returns the index behind it; 0 where the value is something else.
func (o *outliner) value(i, v, hi, depth int) int {
	j := v
	if o.is(j, "async") && j+1 < hi && !o.tokens[j+1].first {
		j++
	}
	switch {
	case o.is(j, "function"):
		return o.statementEnd(max(o.function(i, j+1, hi, depth)-1, i), hi)
	case o.is(j, "class"):
		return o.statementEnd(max(o.class(i, j+1, hi, depth)-1, i), hi)
	case o.isWord(j) && o.arrow(j+1):
		j++
	default:
		if o.is(j, "<") {
			j = o.angles(j, hi)
		}
		if !o.is(j, "(") {
			return 0
		}
		if j = o.skip(j); o.is(j, ":") {
			for from := j; j < min(hi, from+far) && !o.arrow(j) && !o.is(j, ";"); {
				j = o.skip(j)
			}
		}
		if j >= hi || !o.arrow(j) {
			return 0
		}
	}
	o.add(i, j+2, depth)
	return o.statementEnd(j+1, hi)
}

// function notes the function whose declaration begins at i, and its parameters'
// parenthesis after j, and returns the index behind its body.
func (o *outliner) function(i, j, hi, depth int) int {
	for j < hi && !o.is(j, "(") {
		switch {
		case o.is(j, "<") && o.angles(j, hi) > j:
			j = o.angles(j, hi)
		case o.is(j, "*"), o.isWord(j):
			j++
		default:
			return j + 1
		}
	}
	if j >= hi {
		return hi
	}
	end := o.bodyStart(o.skip(j), hi)
	o.add(i, end, depth)
	if end < hi && o.is(end, "{") {
		return o.skip(end)
	}
	return max(end, i+1)
}

// bodyStart returns the index of the { that begins a function's body after the
// parameters, which may have a type between; of the end of the declaration where
// there is no body.
func (o *outliner) bodyStart(j, hi int) int {
	for from := j; j < hi; {
		switch {
		case o.is(j, "{"):
			// In a type, an object stands where a name could.
			if j == from || !(o.is(j-1, ":") || o.is(j-1, "|") || o.is(j-1, "&") || o.is(j-1, "<") || o.is(j-1, ",") || o.arrow(j-2)) {
				return j
			}
		case o.is(j, ";"), j > from && o.tokens[j].first && o.isWord(j) && !o.continues(j), j == from && !o.is(j, ":"):
			return j
		}
		j = o.skip(j)
	}
	return hi
}

// class notes the class whose declaration begins at i, and its members.
func (o *outliner) class(i, j, hi, depth int) int {
	end := o.brace(j, hi)
	if end >= hi {
		return o.statementEnd(i, hi)
	}
	o.add(i, end, depth)
	o.members(end+1, min(o.match[end], hi), depth+1)
	return o.skip(end)
}

// brace returns the index of the { that begins a body; those in type arguments are
// none.
func (o *outliner) brace(j, hi int) int {
	for from := j; j < hi && !o.is(j, "{"); {
		if o.is(j, ";") || j > from+far {
			return hi
		}
		if o.is(j, "<") && o.angles(j, hi) > j {
			j = o.angles(j, hi)
			continue
		}
		j = o.skip(j)
	}
	return min(j, hi)
}

const modifiers = " static async public private protected readonly abstract override declare get set accessor "

// members reads a class.
func (o *outliner) members(lo, hi, depth int) {
	for i := lo; i < hi; {
		switch {
		case o.is(i, ";"), o.is(i, ","):
			i++
			continue
		case o.is(i, "@"):
			i = o.annotation(i, hi)
			continue
		}
		start := i
		for o.among(i, modifiers) && i+1 < hi && (o.isWord(i+1) || o.tokens[i+1].kind == literal || o.is(i+1, "[") || o.is(i+1, "*") || o.is(i+1, "{")) {
			i++
		}
		if o.is(i, "*") {
			i++
		}
		if i < hi && o.is(i, "{") {
			// static { ... }
			i = o.skip(i)
			continue
		}
		if i >= hi {
			return
		}
		i = o.skip(i) // the name
		if o.is(i, "?") || o.is(i, "!") {
			i++
		}
		if o.is(i, "<") {
			i = o.angles(i, hi)
		}
		if i < hi && o.is(i, "(") {
			end := o.bodyStart(o.skip(i), hi)
			o.add(start, end, depth)
			if end < hi && o.is(end, "{") {
				end = o.skip(end)
			}
			i = max(end, i+1)
			continue
		}
		if equals := o.equals(i-1, hi); equals < hi && o.is(equals, "=") {
			if next := o.value(start, equals+1, hi, depth); next > 0 {
				i = max(next, i)
				continue
			}
		}
		i = max(o.statementEnd(i-1, hi), start+1)
	}
}

// statementEnd returns the index behind the statement in which token i is: behind
// its semicolon, or where a line begins with something that does not go on with it.
func (o *outliner) statementEnd(i, hi int) int {
	for j := i; j < hi; {
		if o.is(j, ";") {
			return j + 1
		}
		j = o.skip(j)
		if j < hi && o.tokens[j].first && (o.isWord(j) || o.is(j, "@") || o.is(j, "[") || o.tokens[j].kind == literal) && !o.continues(j) {
			return j
		}
	}
	return hi
}

// continues reports whether the word at i, the first on its line, goes on with what
// stands before it.
func (o *outliner) continues(i int) bool {
	if o.among(i, " extends implements else catch finally in of instanceof as satisfies ") {
		return true
	}
	if i == 0 || o.tokens[i-1].kind == literal {
		return false
	}
	switch before := o.text(o.tokens[i-1]); before {
	case ")", "]", "}", ";", "*":
		return false
	case ">":
		return o.arrow(i - 2)
	default:
		return o.tokens[i-1].kind == mark || o.among(i-1, " extends implements return typeof new await export default const let var type function class interface async in of instanceof as ")
	}
}
