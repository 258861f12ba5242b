package frontmatter

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Field is one key of a block and its value.
type Field struct {
	// Key as it is written.
	Key string
	// Line in the file, counted from 1.
	Line int
	node ast.Node
}

// Wrong returns an error about the field.
func (f Field) Wrong(hint, format string, args ...any) *Error {
	return &Error{Line: f.Line, Problem: fmt.Sprintf("%s: %s", f.Key, fmt.Sprintf(format, args...)), Hint: hint}
}

// Empty reports whether the key has no value, or null.
func (f Field) Empty() bool {
	_, null := f.node.(*ast.NullNode)
	return null || f.node == nil
}

// Text returns the value as text: a number or a truth value as it is written, ""
// for none. Lists and mappings are an error.
func (f Field) Text() (string, error) {
	s, ok := text(f.node)
	if !ok {
		return "", f.Wrong("", "want a text")
	}
	return s, nil
}

// Items returns the value's parts: those of a list, or the text alone. No value is
// no part.
func (f Field) Items() ([]string, error) {
	if f.Empty() {
		return nil, nil
	}
	list, ok := f.node.(*ast.SequenceNode)
	if !ok {
		s, ok := text(f.node)
		if !ok {
			return nil, f.Wrong("", "want a list of names")
		}
		return []string{s}, nil
	}
	items := make([]string, 0, len(list.Values))
	for _, v := range list.Values {
		s, ok := text(v)
		if !ok {
			return nil, f.Wrong("", "want names in the list and nothing else")
		}
		items = append(items, s)
	}
	return items, nil
}

// text returns what a scalar says. Anchors, aliases and tags are none: nothing that
// is read here needs them.
func text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case nil:
		return "", true
	case *ast.NullNode:
		return "", true
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return "", false
	case ast.ScalarNode:
		return scalar(n), true
	}
	return "", false
}

// scalar returns a scalar as it is written, without quotes.
func scalar(n ast.ScalarNode) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	}
	if t := n.GetToken(); t != nil {
		return strings.TrimSpace(t.Value)
	}
	return n.String()
}
