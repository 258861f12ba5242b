package builtin

import (
	"fmt"
	"regexp"
	"strings"
)

// globRegexp translates a glob over slash-separated paths: * and ? stay within
// one element, ** does not, [ab] and [!ab] are classes and {a,b} alternatives.
func globRegexp(glob string) (string, error) {
	var b strings.Builder
	depth := 0
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '*':
			switch {
			case strings.HasPrefix(glob[i:], "**/"):
				b.WriteString("(?:.*/)?")
				i += 2
			case strings.HasPrefix(glob[i:], "**"):
				b.WriteString(".*")
				i++
			default:
				b.WriteString("[^/]*")
			}
		case '?':
			b.WriteString("[^/]")
		case '[':
			end := strings.IndexByte(glob[i+1:], ']')
			if end <= 0 {
				b.WriteString(`\[`)
				continue
			}
			class := glob[i+1 : i+1+end]
			if class[0] == '!' {
				class = "^" + class[1:]
			}
			b.WriteString("[" + strings.ReplaceAll(class, `[`, `\[`) + "]")
			i += end + 1
		case '{':
			depth++
			b.WriteString("(?:")
		case '}':
			if depth == 0 {
				b.WriteString(`\}`)
				continue
			}
			depth--
			b.WriteByte(')')
		case ',':
			if depth == 0 {
				b.WriteByte(',')
				continue
			}
			b.WriteByte('|')
		case '\\':
			if i+1 < len(glob) {
				i++
			}
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		default:
			if c < 0x80 {
				b.WriteString(regexp.QuoteMeta(string(c)))
			} else {
				b.WriteByte(c)
			}
		}
	}
	if depth > 0 {
		return "", fmt.Errorf("a { is not closed in %q", glob)
	}
	return b.String(), nil
}

// compileGlob returns what matches a file's path below the searched directory: a
// glob with a slash is for the whole of that path, one without for the name.
func compileGlob(glob string) (*regexp.Regexp, error) {
	re, err := globRegexp(strings.TrimPrefix(glob, "./"))
	if err != nil {
		return nil, err
	}
	if !strings.Contains(glob, "/") {
		re = "(?:.*/)?" + re
	}
	return regexp.Compile("(?s)^" + re + "$")
}

// ignore is the rules of one .gitignore and of those above it.
type ignore struct {
	above *ignore
	base  string // the directory's path below the listed one, "" or ending in a slash
	// prefix is the listed directory's path below this one, where it is above it.
	prefix string
	rules  []ignoreRule
}

type ignoreRule struct {
	re      *regexp.Regexp
	keep    bool // the rule began with !
	dirOnly bool
}

// parseIgnore reads a .gitignore. Lines that make no sense are left out.
func parseIgnore(above *ignore, base, text string) *ignore {
	ig := &ignore{above: above, base: base}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		r := ignoreRule{}
		line, r.keep = strings.CutPrefix(line, "!")
		line, r.dirOnly = strings.CutSuffix(line, "/")
		anchored := strings.Contains(line, "/")
		// Braces mean nothing to git.
		re, err := globRegexp(strings.NewReplacer("{", `\{`, "}", `\}`).Replace(strings.TrimPrefix(line, "/")))
		if err != nil || line == "" {
			continue
		}
		if !anchored {
			re = "(?:.*/)?" + re
		}
		if r.re, err = regexp.Compile("(?s)^" + re + "$"); err == nil {
			ig.rules = append(ig.rules, r)
		}
	}
	return ig
}

// ignores reports whether the rules leave path out; path is relative to the
// listed directory. The last rule that matches decides, the nearest file first.
func (ig *ignore) ignores(path string, dir bool) bool {
	for ; ig != nil; ig = ig.above {
		rel, ok := strings.CutPrefix(path, ig.base)
		if !ok {
			continue
		}
		rel = ig.prefix + rel
		for i := len(ig.rules) - 1; i >= 0; i-- {
			r := ig.rules[i]
			if (dir || !r.dirOnly) && r.re.MatchString(rel) {
				return !r.keep
			}
		}
	}
	return false
}
