package houserules

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestProtocolIsDocumented holds docs/protocol.md against the code: what users read
// and write there has to be in it.
func TestProtocolIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	files := load(t)
	for what, words := range map[string][]string{
		"key of status.json":        jsonTags(files, "internal/taskdir/status.go"),
		"key of context.json":       mapKeys(files, "internal/round/parsesettings.go", "settingKeys"),
		"reason":                    constants(files, "internal/round/round.go", "Reason"),
		"kind of failed request":    constants(files, "internal/llm/error.go", "ErrorKind"),
		"kind of failure":           failureKinds(files),
		"tool":                      toolNames(),
		"file name of the protocol": protocolNames(files),
		"event":                     eventNames(files),
	} {
		if len(words) < 3 {
			t.Errorf("%d found of what is a %s: this test reads the code wrongly", len(words), what)
		}
		for _, w := range words {
			if !strings.Contains(string(doc), "`"+w+"`") && !strings.Contains(string(doc), "`"+w+"/") {
				t.Errorf("%q is a %s and not in docs/protocol.md", w, what)
			}
		}
	}
}

// in returns the file of that name.
func in(files []file, name string) *ast.File {
	for _, f := range files {
		if f.name == name {
			return f.ast
		}
	}
	return &ast.File{}
}

func text(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			return s
		}
	}
	return ""
}

func jsonTags(files []file, name string) (tags []string) {
	ast.Inspect(in(files, name), func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			tag, _, _ := strings.Cut(reflect.StructTag(text(f.Tag)).Get("json"), ",")
			tags = append(tags, tag)
		}
		return true
	})
	return tags
}

func mapKeys(files []file, name, variable string) (keys []string) {
	ast.Inspect(in(files, name), func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || v.Names[0].Name != variable || len(v.Values) != 1 {
			return true
		}
		if lit, ok := v.Values[0].(*ast.CompositeLit); ok {
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					keys = append(keys, text(kv.Key))
				}
			}
		}
		return false
	})
	return keys
}

// constants returns the texts of a file's constants of a type; "" is no type.
func constants(files []file, name, typeName string) (values []string) {
	for _, d := range in(files, name).Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			of, _ := v.Type.(*ast.Ident)
			if (of == nil) != (typeName == "") || of != nil && of.Name != typeName {
				continue
			}
			for _, e := range v.Values {
				if s := text(e); s != "" {
					values = append(values, s)
				}
			}
		}
	}
	return values
}

// failureKinds are the texts that a round.Failure is made with.
func failureKinds(files []file) (kinds []string) {
	add := func(e ast.Expr) {
		if s := text(e); s != "" && !slices.Contains(kinds, s) {
			kinds = append(kinds, s)
		}
	}
	for _, f := range files {
		if f.test || f.pkg() != "session" && f.pkg() != "internal/agent" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Kind" {
					add(n.Value)
				}
			case *ast.CallExpr:
				if fun, ok := n.Fun.(*ast.Ident); ok && fun.Name == "fail" && f.pkg() == "internal/agent" {
					add(n.Args[0])
				}
			}
			return true
		})
	}
	return kinds
}

// toolNames are those of the files that describe tools to models.
func toolNames() (names []string) {
	for _, pattern := range []string{"../tool/builtin/descriptions/*.md", "../tool/skill/*.md"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			names = append(names, strings.TrimSuffix(filepath.Base(p), ".md"))
		}
	}
	return names
}

func protocolNames(files []file) (found []string) {
	for _, s := range constants(files, "internal/taskdir/names.go", "") {
		if s[0] != '.' && regexp.MustCompile(`^[a-z_]+(\.[a-z]+)?$`).MatchString(s) {
			found = append(found, s)
		}
	}
	return found
}

// eventNames returns what session calls the events of events.jsonl.
func eventNames(files []file) (found []string) {
	for _, f := range files {
		if f.pkg() != "session" || f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if fun, ok := call.Fun.(*ast.SelectorExpr); ok && (fun.Sel.Name == "event" || fun.Sel.Name == "appendEvent") {
				if s := text(call.Args[0]); s != "" && !slices.Contains(found, s) {
					found = append(found, s)
				}
			}
			return true
		})
	}
	return found
}

// TestMapIsWhole wants every package in the map that docs/architecture.md draws.
func TestMapIsWhole(t *testing.T) {
	doc, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chart, _ := strings.Cut(string(doc), "\n## Packages\n")
	chart, _, _ = strings.Cut(chart, "\n## ")
	seen := map[string]bool{}
	for _, f := range load(t) {
		if pkg := f.pkg(); pkg != "" && !seen[pkg] {
			seen[pkg] = true
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(path.Base(pkg)) + `\b`).MatchString(chart) {
				t.Errorf("package %s is not in the map of docs/architecture.md", pkg)
			}
		}
	}
}

// TestLinks looks for links in the docs that lead to no file.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	if docs = append(docs, top...); len(docs) < 5 {
		t.Fatalf("%d documents found: this cannot be all", len(docs))
	}
	for _, doc := range docs {
		data, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: the link %s leads nowhere", filepath.Base(doc), m[1])
			}
		}
	}
}
