package houserules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gasupervisor/gasupervisor"

// file is a Go file of the module, for whatever system it is.
type file struct {
	name string // path in the module, with slashes
	test bool
	ast  *ast.File
}

func (f file) pkg() string {
	dir := path.Dir(f.name)
	if dir == "." {
		return ""
	}
	return dir
}

// among says whether the file, or its package, is in the list.
func (f file) among(list []string) bool {
	return slices.Contains(list, f.name) || slices.Contains(list, f.pkg())
}

func (f file) imports() []string {
	var paths []string
	for _, i := range f.ast.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// own returns the package of this module that an import path names.
func own(importPath string) (pkg string, ok bool) {
	rest, ok := strings.CutPrefix(importPath, module)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

// load parses all Go files of the module.
func load(t *testing.T) []file {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the module's root is not two directories up: %v", err)
	}
	var files []file
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			// What go list would not look into either, and the tasks of a daemon that runs here.
			if p != root && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "temp" || name == "state") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		tree, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files = append(files, file{name: filepath.ToSlash(rel), test: strings.HasSuffix(name, "_test.go"), ast: tree})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// parse makes a file of a text, for the tests of the rules themselves.
func parse(t *testing.T, name, text string) file {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file{name: name, test: strings.HasSuffix(name, "_test.go"), ast: tree}
}

func TestHouseRules(t *testing.T) {
	files := load(t)
	if len(files) < 50 {
		t.Fatalf("%d Go files found: this cannot be all", len(files))
	}
	for _, sentence := range slices.Concat(wrongImports(files), wrongWays(files), wrongModules(files), wrongUses(files), deadRows(files)) {
		t.Error(sentence)
	}
}

// wrongImports holds the module's own imports against the table.
func wrongImports(files []file) (found []string) {
	rows := map[string]row{}
	for _, r := range layers() {
		rows[r.pkg] = r
	}
	for _, f := range files {
		r, ok := rows[f.pkg()]
		switch {
		case f.pkg() == command:
			continue
		case !ok:
			found = append(found, fmt.Sprintf("%s: package %s stands in no row of layers(): say there what it may import and why", f.name, f.pkg()))
			continue
		}
		for _, p := range f.imports() {
			to, ok := own(p)
			switch {
			case !ok, to == f.pkg(), slices.Contains(r.may, to), f.test && (to == waiting || slices.Contains(r.tests, to)):
			case to == "internal/config":
				found = append(found, fmt.Sprintf("%s imports internal/config: only the command reads the configuration and hands out values", f.name))
			case f.test:
				found = append(found, fmt.Sprintf("%s imports %s, which tests of %s do not need so far: %s", f.name, to, r.pkg, r.why))
			default:
				found = append(found, fmt.Sprintf("%s imports %s; %s may import %s only: %s", f.name, to, r.pkg, listed(r.may), r.why))
			}
		}
	}
	return found
}

func listed(pkgs []string) string {
	if len(pkgs) == 0 {
		return "nothing of this module"
	}
	return strings.Join(pkgs, ", ")
}

// wrongWays looks for ways between packages that are to stay apart.
func wrongWays(files []file) (found []string) {
	graph := map[string]map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, p := range f.imports() {
			if to, ok := own(p); ok {
				if graph[f.pkg()] == nil {
					graph[f.pkg()] = map[string]bool{}
				}
				graph[f.pkg()][to] = true
			}
		}
	}
	for _, a := range apart() {
		if way := walk(graph, a[0], a[1], map[string]bool{}); way != nil {
			found = append(found, fmt.Sprintf("%s: %s must not reach %s: %s", strings.Join(way, " -> "), a[0], a[1], a[2]))
		}
	}
	return found
}

func walk(graph map[string]map[string]bool, from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	if seen[from] {
		return nil
	}
	seen[from] = true
	for _, next := range slices.Sorted(maps.Keys(graph[from])) {
		if way := walk(graph, next, to, seen); way != nil {
			return append([]string{from}, way...)
		}
	}
	return nil
}

// wrongModules holds imports of other modules against the table.
func wrongModules(files []file) (found []string) {
	for _, f := range files {
		for _, p := range f.imports() {
			first, _, _ := strings.Cut(p, "/")
			if _, ok := own(p); ok || !strings.Contains(first, ".") || strings.HasPrefix(p, "golang.org/x/sys/") {
				continue
			}
			i := slices.IndexFunc(outside(), func(u use) bool { return p == u.what || strings.HasPrefix(p, u.what+"/") })
			switch {
			case i < 0:
				found = append(found, fmt.Sprintf("%s imports %s, a dependency that stands in no row of outside(): say there who may use it and why", f.name, p))
			case !f.among(outside()[i].who) && !f.test:
				found = append(found, fmt.Sprintf("%s imports %s: %s", f.name, p, outside()[i].why))
			}
		}
	}
	return found
}

// wrongUses looks for calls and texts that have their places, and for init functions.
func wrongUses(files []file) (found []string) {
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					found = append(found, misused(f, "func init")...)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					found = append(found, misused(f, x.Name+"."+n.Sel.Name)...)
				}
			case *ast.CallExpr:
				fun, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					break
				}
				if x, ok := fun.X.(*ast.Ident); !ok || x.Name != "os" { // seen above
					found = append(found, misused(f, "."+fun.Sel.Name)...)
				}
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if n.Kind != token.STRING || err != nil || f.pkg() == "internal/taskdir" {
					break
				}
				for _, u := range names() {
					if text == u.what && !f.among(u.who) {
						found = append(found, fmt.Sprintf("%s names %q: %s", f.name, text, u.why))
					}
				}
			}
			return true
		})
	}
	return found
}

// misused says why a file may not use a function, named with its package, or a
// method, named with a dot alone.
func misused(f file, name string) (found []string) {
	for _, c := range calls() {
		if name == c.what && !f.among(c.who) {
			found = append(found, fmt.Sprintf("%s uses %s: %s", f.name, strings.TrimPrefix(name, "."), c.why))
		}
	}
	return found
}

// deadRows looks for rows of packages that are gone.
func deadRows(files []file) (found []string) {
	for _, r := range layers() {
		if !slices.ContainsFunc(files, func(f file) bool { return f.pkg() == r.pkg }) {
			found = append(found, fmt.Sprintf("layers() has a row for %s, which is not there", r.pkg))
		}
	}
	return found
}

// TestTheRulesBite makes sure that each rule finds what it is there for.
func TestTheRulesBite(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		check      func([]file) []string
		says       []string
	}{
		{"plan/x.go", `package plan; import _ "` + module + `/internal/llm"`, wrongImports, []string{"plan may import nothing of this module only"}},
		{"session/x.go", `package session; import _ "` + module + `/internal/config"`, wrongImports, []string{"only the command reads"}},
		{"session/x_test.go", `package session; import _ "` + module + `/internal/agent"`, wrongImports, []string{"tests of session"}},
		{"util/x.go", `package util`, wrongImports, []string{"in no row"}},
		{"session/x.go", `package session; import _ "` + module + `/internal/agent"`, wrongWays, []string{"session -> internal/agent: session must not reach"}},
		{"session/x.go", `package session; import _ "github.com/fsnotify/fsnotify"`, wrongModules, []string{"turns events into looks"}},
		{"plan/x.go", `package plan; import _ "example.org/y"`, wrongModules, []string{"in no row"}},
		{"plan/x.go", `package plan; import "os"; func f() { os.Exit(1) }`, wrongUses, []string{"uses os.Exit"}},
		{command + "/ls.go", `package main; import "os"; func f() { os.Exit(1) }`, wrongUses, []string{"uses os.Exit"}},
		{"plan/x.go", `package plan; import "os"; var f = os.Rename`, wrongUses, []string{"uses os.Rename"}},
		{"plan/x.go", `package plan; func f(r interface{ Rename() }) { r.Rename() }`, wrongUses, []string{"uses Rename"}},
		{"plan/x.go", `package plan; import "other"; const x = other.Rename`, wrongUses, nil},
		{"plan/x.go", `package plan; func init() {}`, wrongUses, []string{"uses func init"}},
		{"plan/x.go", `package plan; const x = "input.txt"`, wrongUses, []string{`names "input.txt"`}},
		{"plan/x.go", `package plan; type t int; func (t) init() {}; const x = "the input.txt"`, wrongUses, nil},
		{"internal/taskdir/x.go", `package taskdir; const x = "input.txt"`, wrongUses, nil},
		{command + "/main.go", `package main; import "os"; func main() { os.Exit(1) }`, wrongUses, nil},
	} {
		found := tc.check([]file{parse(t, tc.name, tc.text)})
		if len(found) != len(tc.says) {
			t.Errorf("%s, %s: found %q, want %d", tc.name, tc.text, found, len(tc.says))
			continue
		}
		for i, s := range tc.says {
			if !strings.Contains(found[i], s) {
				t.Errorf("%s, %s: %q does not say %q", tc.name, tc.text, found[i], s)
			}
		}
	}
}
