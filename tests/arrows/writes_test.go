package arrows

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOnlyWritersWriteToTheAPIServer type-checks the rooms and finds calls of the writing methods of controller-runtime's
// client, whatever the variable is called.
func TestOnlyWritersWriteToTheAPIServer(t *testing.T) {
	exports := map[string]string{}
	var check []listed
	for _, p := range list(t, "-deps", "-export", "./...") {
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && !beginsWith(p.dir(), "tests") && !slices.ContainsFunc(writers(), func(w string) bool { return beginsWith(p.dir(), w) }) {
			check = append(check, p)
		}
	}
	fset := token.NewFileSet()
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range check {
		for _, finding := range writesIn(t, fset, from, p) {
			t.Errorf("%s writes to the API server; only %v may", finding, writers())
		}
	}
}

func writesIn(t *testing.T, fset *token.FileSet, from types.Importer, p listed) []string {
	t.Helper()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(root, p.dir(), name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	if _, err := (&types.Config{Importer: from}).Check(p.ImportPath, fset, files, info); err != nil {
		t.Fatalf("type-check %s: %v", p.dir(), err)
	}
	var found []string
	for expression, selection := range info.Selections {
		method, ok := selection.Obj().(*types.Func)
		if !ok || method.Pkg() == nil || method.Pkg().Path() != "sigs.k8s.io/controller-runtime/pkg/client" {
			continue
		}
		if slices.Contains([]string{"Create", "Update", "Patch", "Apply", "Delete", "DeleteAllOf"}, method.Name()) {
			at := fset.Position(expression.Pos())
			found = append(found, strings.TrimPrefix(at.String(), root+"/")+": "+method.Name())
		}
	}
	slices.Sort(found)
	return found
}
