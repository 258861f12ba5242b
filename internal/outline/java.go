package outline

// head returns the index of the { or ; that ends the declaration which begins at i,
// or hi; of its first ( and of its first =, -1 where it has none.
func (o *outliner) head(i, hi int) (end, paren, equals int) {
	paren, equals = -1, -1
	for j := i; j < hi; j = o.skip(j) {
		switch {
		case o.is(j, "{"), o.is(j, ";"):
			return j, paren, equals
		case o.is(j, "(") && paren < 0:
			paren = j
		case o.is(j, "=") && equals < 0:
			equals = j
		}
	}
	return hi, paren, equals
}

// java reads the members of a type named class, or a file's types.
func (o *outliner) java(lo, hi, depth int, class string) {
	for i := lo; i < hi; {
		if o.is(i, "@") && !o.is(i+1, "interface") {
			i = o.annotation(i, hi)
			continue
		}
		end, paren, equals := o.head(i, hi)
		body := o.is(end, "{") && end < hi
		next := end + 1
		if body {
			next = o.skip(end)
		}
		if name := o.javaType(i, end, paren); name > 0 {
			o.add(i, end, depth)
			if body {
				o.java(end+1, min(o.match[end], hi), depth+1, o.text(o.tokens[name]))
			}
		} else if paren > i && o.isWord(paren-1) && (equals < 0 || equals > paren) {
			typed := paren-1 > i && (o.isWord(paren-2) || o.is(paren-2, ">") || o.is(paren-2, "]"))
			if typed || body && o.is(paren-1, class) {
				o.add(i, end, depth)
			}
		}
		i = next
	}
}

// javaType returns the index of the name of the type that is declared, or 0.
func (o *outliner) javaType(i, end, paren int) int {
	for j := i; j < end && (paren < 0 || j < paren); j++ {
		switch {
		case o.among(j, " class interface enum ") && o.isWord(j+1):
			return j + 1
		case o.is(j, "record") && o.isWord(j+1) && (o.is(j+2, "(") || o.is(j+2, "<")):
			return j + 1
		}
	}
	return 0
}

// annotation returns the index behind @a.b.C(...).
func (o *outliner) annotation(i, hi int) int {
	for i++; i < hi && (o.isWord(i) || o.is(i, ".")); i++ {
		if o.isWord(i) && !o.is(i+1, ".") {
			i++
			break
		}
	}
	if i < hi && o.is(i, "(") {
		i = o.skip(i)
	}
	return i
}
