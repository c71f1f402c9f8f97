// Package arrows holds the house to the rules of docs/architecture.md: who may import whom, what is pure, who may write.
package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestEveryPackageHasARoom(t *testing.T) {
	for _, p := range ours(t) {
		if _, ok := roomOf(p.dir()); !ok {
			t.Errorf("%s is in no room: choose one, or add it to rooms() here and to docs/architecture.md", p.dir())
		}
		for _, word := range strings.Split(p.dir(), "/") {
			if slices.Contains(notNames(), word) {
				t.Errorf("%s: %q says nothing; name the noun, or move it to its caller", p.dir(), word)
			}
		}
	}
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range ours(t) {
		from, ok := roomOf(p.dir())
		if !ok {
			continue
		}
		for _, imported := range p.Imports {
			dir, mine := strings.CutPrefix(imported, module+"/")
			if !mine {
				continue
			}
			if to, ok := roomOf(dir); ok && !allowed(from, to) {
				t.Errorf("%s imports %s: %s may import only %v", p.dir(), dir, from.path, from.may)
			}
		}
	}
}

func TestPureRoomsReachNothingOutside(t *testing.T) {
	for _, p := range ours(t) {
		r, ok := roomOf(p.dir())
		for _, file := range p.GoFiles {
			name := path.Join(p.dir(), file)
			if ok && r.pure || slices.ContainsFunc(pureFiles(), func(glob string) bool { return matches(glob, name) }) {
				for _, finding := range impure(t, filepath.Join(root, name)) {
					t.Errorf("%s is pure: %s", name, finding)
				}
			}
		}
	}
}

func TestBinariesStaySmall(t *testing.T) {
	for _, b := range binaries() {
		if !slices.ContainsFunc(ours(t), func(p listed) bool { return p.dir() == b.path }) {
			t.Errorf("%s does not exist", b.path)
			continue
		}
		for _, dep := range list(t, "-deps", "./"+b.path) {
			for _, never := range b.never {
				if beginsWith(dep.ImportPath, never) {
					t.Errorf("%s holds %s: %s", b.path, dep.ImportPath, b.why)
				}
			}
		}
	}
}

// impure names what one file imports or calls that reaches out of a pure room.
func impure(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	names := map[string]string{} // as the file calls it -> import path
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		for _, never := range notForPure() {
			if beginsWith(imported, never) && typesForPure()[imported] == nil {
				found = append(found, "it imports "+imported)
			}
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		imported, name := names[x.Name], selector.Sel.Name
		if slices.Contains(notInPure()[imported], name) {
			found = append(found, "it uses "+imported+"."+name+": take the answer as a value")
		}
		if allowed, some := typesForPure()[imported]; some && !slices.Contains(allowed, name) {
			found = append(found, "it uses "+imported+"."+name)
		}
		return true
	})
	return found
}

// roomOf is the longest room that a directory lies in.
func roomOf(dir string) (room, bool) {
	var best room
	for _, r := range rooms() {
		if beginsWith(dir, r.path) && len(r.path) > len(best.path) {
			best = r
		}
	}
	// The engine's folder is a room; a folder in it is a new engine, which the table must name.
	if best.path == "controllers/engine" && dir != best.path {
		return room{}, false
	}
	return best, best.path != ""
}

func allowed(from, to room) bool {
	if from.path == to.path || slices.Contains(from.may, to.path) {
		return true
	}
	return slices.Contains(from.may, "*") && !slices.Contains([]string{"tests", "cmd"}, to.path)
}

func matches(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return err == nil && ok
}

func beginsWith(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix+"/")
}

// The rules above pass on a tidy house; these rows show that they would not on an untidy one.
func TestTheRulesBite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decide.go")
	text := "package database\n\nimport (\n\tclock \"time\"\n\n\t\"k8s.io/client-go/rest\"\n\t\"sigs.k8s.io/controller-runtime/pkg/client\"\n)\n\n" +
		"var _, _ = clock.Now(), rest.Config{}\n\nvar _ client.Object\n\nvar _ client.Client\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"it imports k8s.io/client-go/rest", "it uses time.Now: take the answer as a value", "it uses sigs.k8s.io/controller-runtime/pkg/client.Client"}
	if got := impure(t, file); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	for _, row := range []struct {
		from, to string
		want     bool
	}{
		{"controllers/database", "controllers/desired", true},
		{"controllers/database", "controllers/admission", false},
		{"controllers/database", "controllers/engine/postgres", false},
		{"controllers/desired", "controllers/policy", false},
		{"controllers/policy", "api/v1", true},
		{"api/v1", "controllers/engine", false},
		{"cmd/plimsoll-agent", "controllers/agent", true},
		{"bpf/query", "controllers/engine", false},
		{"controllers/database", "bpf/query", false},
		{"cmd", "tests/cluster", false},
		{"tests/e2e", "tests/cluster", true},
	} {
		from, _ := roomOf(row.from)
		to, _ := roomOf(row.to)
		if allowed(from, to) != row.want {
			t.Errorf("%s may import %s: want %v", row.from, row.to, row.want)
		}
	}
	for _, dir := range []string{"controllers/backup", "controllers/engine/redis", "hack"} {
		if r, ok := roomOf(dir); ok {
			t.Errorf("%s is taken for a part of %s", dir, r.path)
		}
	}
}
