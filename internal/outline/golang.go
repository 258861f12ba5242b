package outline

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// goDefinitions reads Go. The parser gives what it understood of a file with errors.
func goDefinitions(src string) []Definition {
	fset := token.NewFileSet()
	file, _ := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if file == nil {
		return nil
	}
	var found []Definition
	text := func(from, to token.Pos) string {
		f := fset.File(file.FileStart)
		if f == nil || !from.IsValid() || !to.IsValid() {
			return ""
		}
		lo, hi := f.Offset(from), f.Offset(to)
		if lo > hi || hi > len(src) {
			return ""
		}
		return src[lo:hi]
	}
	add := func(pos token.Pos, depth int, s string) {
		if len(found) < maxDefinitions {
			found = append(found, Definition{Line: fset.Position(pos).Line, Depth: depth, Text: oneLine(s)})
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Pos(), 0, text(d.Pos(), d.Type.End()))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					goType(spec, text, add)
				case *ast.ValueSpec:
					// Those that others can name; the rest is detail.
					for _, n := range spec.Names {
						if n.IsExported() {
							add(n.Pos(), 0, d.Tok.String()+" "+n.Name+" "+exprText(spec.Type, text))
						}
					}
				}
			}
		}
	}
	return found
}

// exprText is the text of an expression that may be missing.
func exprText(e ast.Expr, text func(from, to token.Pos) string) string {
	if e == nil {
		return ""
	}
	return text(e.Pos(), e.End())
}

// goType notes a type, and what an interface asks for.
func goType(spec *ast.TypeSpec, text func(from, to token.Pos) string, add func(token.Pos, int, string)) {
	head := "type " + text(spec.Name.Pos(), spec.Type.Pos())
	switch t := spec.Type.(type) {
	case *ast.StructType:
		add(spec.Pos(), 0, head+"struct")
	case *ast.InterfaceType:
		add(spec.Pos(), 0, head+"interface")
		if t.Methods == nil {
			return
		}
		for _, m := range t.Methods.List {
			if len(m.Names) > 0 {
				add(m.Pos(), 1, text(m.Pos(), m.End()))
			}
		}
	default:
		add(spec.Pos(), 0, strings.TrimSpace(head)+" "+exprText(spec.Type, text))
	}
}
