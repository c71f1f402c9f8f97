package arrows

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// root of the module, from this package.
const root = "../.."

// listed is what this package asks of `go list`.
type listed struct {
	ImportPath string
	Standard   bool
	Export     string
	Imports    []string
	GoFiles    []string
	DepOnly    bool
}

// dir of the package below the module's root.
func (p listed) dir() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// ours are the module's own packages.
func ours(t *testing.T) []listed {
	t.Helper()
	packages := list(t, "./...")
	if len(packages) == 0 {
		t.Fatal("go list finds no package of this module")
	}
	return packages
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Standard,Export,Imports,GoFiles,DepOnly"}, args...)...)
	cmd.Dir = root
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	var packages []listed
	for decoder := json.NewDecoder(&stdout); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
