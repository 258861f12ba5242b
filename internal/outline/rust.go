package outline

// rust reads the items of a file, a module, a trait or an impl.
func (o *outliner) rust(lo, hi, depth int) {
	for i := lo; i < hi; {
		if o.is(i, "#") {
			if i++; o.is(i, "!") {
				i++
			}
			if i < hi && o.is(i, "[") {
				i = o.skip(i)
			}
			continue
		}
		end, _, equals := o.head(i, hi)
		body := o.is(end, "{") && end < hi
		next := end + 1
		if body {
			next = o.skip(end)
		}
		inner := func(depth int) {
			if body {
				o.rust(end+1, min(o.match[end], hi), depth)
			}
		}
		switch k := o.rustKeyword(i, end); o.keyword(k) {
		case "fn", "struct", "enum", "union", "type", "macro_rules":
			o.add(i, end, depth)
		case "const", "static":
			if equals > 0 {
				o.add(i, equals, depth)
			} else {
				o.add(i, end, depth)
			}
		case "impl", "trait":
			o.add(i, end, depth)
			inner(depth + 1)
		case "mod":
			if body {
				o.add(i, end, depth)
				inner(depth + 1)
			}
		case "extern":
			inner(depth)
		}
		i = next
	}
}

func (o *outliner) keyword(i int) string {
	if i < 0 {
		return ""
	}
	return o.text(o.tokens[i])
}

// rustKeyword returns the index of the word that says what the item is, or -1.
func (o *outliner) rustKeyword(i, end int) int {
	for j := i; j < end; j = o.skip(j) {
		switch {
		case o.is(j, "const") && o.among(j+1, " fn unsafe async extern "),
			o.is(j, "extern") && j+2 < end && o.tokens[j+1].kind == literal,
			o.is(j, "extern") && o.among(j+1, " fn crate "),
			o.among(j, " pub unsafe async default auto crate "), o.is(j, "("),
			j > i && o.is(j-1, "extern") && o.tokens[j].kind == literal:
		case o.is(j, "union") && !o.isWord(j+1), o.is(j, "macro_rules") && !o.is(j+1, "!"):
			return -1
		case o.among(j, " fn struct enum union type const static impl trait mod extern macro_rules "):
			return j
		default:
			return -1
		}
	}
	return -1
}
