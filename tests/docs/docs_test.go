// Package docs checks that the documentation names what exists.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

func TestLinksLeadSomewhere(t *testing.T) {
	code := regexp.MustCompile("`[^`]*`")
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	for _, page := range find(t, ".md") {
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
			target := match[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", strings.TrimPrefix(page, root+"/"), target)
			}
		}
	}
}

func TestEveryReasonIsExplained(t *testing.T) {
	page := read(t, root+"/docs/reference/conditions.md")
	for name, value := range constants(t, root+"/api/v1") {
		if (strings.HasPrefix(name, "Reason") || strings.HasPrefix(name, "Condition")) && !strings.Contains(page, "`"+value+"`") {
			t.Errorf("docs/reference/conditions.md does not explain %s (%s)", value, name)
		}
	}
}

func TestEveryLabelAndAnnotationIsNamed(t *testing.T) {
	page := read(t, root+"/docs/reference/names.md")
	for _, dir := range []string{"/api/v1", "/controllers/agent/lease"} {
		for name, value := range constants(t, root+dir) {
			if (strings.HasPrefix(name, "Label") || strings.HasPrefix(name, "Annotation")) && !strings.Contains(page, "`"+value+"`") {
				t.Errorf("docs/reference/names.md does not name %s (%s)", value, name)
			}
		}
	}
}

// TestEveryReasonOfAnInstanceIsExplained : agents and drivers give them, beside those of the API.
func TestEveryReasonOfAnInstanceIsExplained(t *testing.T) {
	page := read(t, root+"/docs/reference/conditions.md")
	literal := regexp.MustCompile(`(?:trouble\{|out\.Reason, out\.Problem = |Problem\{Reason: |WaitFor += |\breason[A-Z]\w* += )"([A-Z][A-Za-z]+)"`)
	found := map[string]bool{}
	for _, file := range find(t, ".go") {
		inside := strings.HasPrefix(file, root+"/controllers/agent/") || strings.HasPrefix(file, root+"/controllers/engine/")
		if !inside || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range literal.FindAllStringSubmatch(read(t, file), -1) {
			found[match[1]] = true
			if !strings.Contains(page, "`"+match[1]+"`") {
				t.Errorf("docs/reference/conditions.md does not explain %s (%s)", match[1], strings.TrimPrefix(file, root+"/"))
			}
		}
	}
	for _, must := range []string{"APIServerAway", "DataLost", "ServerFrozen", "NoPrimary", "LogRemoved"} {
		if !found[must] {
			t.Errorf("found no %s in the code: this test looks for the wrong thing", must)
		}
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	page := read(t, root+"/docs/reference/metrics.md")
	literal := regexp.MustCompile(`(?:Name: |NewDesc\(|plain\(|desc[{(]|instanceDesc\()"([a-z0-9_]+[a-z0-9])"`)
	var names []string
	for _, file := range find(t, ".go") {
		product := strings.HasPrefix(file, root+"/controllers/") || strings.HasPrefix(file, root+"/bpf/")
		if strings.HasSuffix(file, "_test.go") || !product {
			continue
		}
		for _, match := range literal.FindAllStringSubmatch(read(t, file), -1) {
			if strings.HasPrefix(match[0], "instanceDesc(") {
				match[1] = "plimsoll_instance_" + match[1]
			}
			if strings.HasPrefix(match[1], "plimsoll_") {
				names = append(names, match[1])
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("found no metric: this test looks for the wrong thing")
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/reference/metrics.md does not name %s", name)
		}
	}
}

// constants are the untyped string constants of a package by name.
func constants(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type != nil {
				return true
			}
			for i, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if found[spec.Names[i].Name], err = strconv.Unquote(literal.Value); err != nil {
						t.Fatal(err)
					}
				}
			}
			return true
		})
	}
	if len(found) == 0 {
		t.Fatalf("%s has no constants", dir)
	}
	return found
}

func find(t *testing.T, suffix string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == ".git" {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, suffix) {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("look for %s: %d found, %v", suffix, len(found), err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
