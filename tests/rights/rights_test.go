package rights

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
)

var update = flag.Bool("update", false, "write the reviewed list anew")

const (
	reviewedFile = "../../config/rbac/reviewed-rights.txt"
	manager      = "ClusterRole/plimsoll-manager"
	header       = "# Every right that Plimsoll's roles give, one line a resource: role, resource, names, verbs. A new line needs a reader who asks what\n" +
		"# for. After reading: go test ./tests/rights -args -update\n"
)

func TestRights(t *testing.T) {
	roles, agent := rendered(t), agents()
	all := slices.Concat(roles, agent)
	t.Run("are the reviewed ones", func(t *testing.T) { reviewed(t, all) })
	t.Run("none is forbidden", func(t *testing.T) { allowed(t, all) })
	t.Run("agents reach their two objects alone", func(t *testing.T) { confined(t, roles, agent) })
}

func reviewed(t *testing.T, have []Right) {
	t.Helper()
	if *update {
		if err := os.WriteFile(reviewedFile, []byte(header+Text(have)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(reviewedFile)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if grown := Missing(have, listed); grown != nil {
		t.Errorf("new rights, which nobody has reviewed:\n%s", Text(grown))
	}
	if gone := Missing(listed, have); gone != nil {
		t.Errorf("rights that no role gives any more; take them off the reviewed list:\n%s", Text(gone))
	}
}

func allowed(t *testing.T, all []Right) {
	t.Helper()
	for _, r := range all {
		if why := Forbidden(r); why != "" {
			t.Errorf("%s may %s %s: %s", r.Role, r.Verb, r.Resource, why)
		}
	}
}

func confined(t *testing.T, roles, agent []Right) {
	t.Helper()
	objects := []string{"coordination.k8s.io/leases", "discovery.k8s.io/endpointslices", "discovery.k8s.io/endpointslices/restricted"}
	holder := only(manager, roles)
	for _, r := range agent {
		if !slices.Contains(objects, r.Resource) || r.Names == "" {
			t.Errorf("an agent may %s %s (names %q); it writes one Lease and one EndpointSlice by name", r.Verb, r.Resource, r.Names)
		}
		if !Covers(holder, r) {
			t.Errorf("the manager may not %s %s, so the API server does not let it give that right to an agent", r.Verb, r.Resource)
		}
	}
}

func TestTheReviewBites(t *testing.T) {
	have := Of("ClusterRole/x", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"*"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"b", "a"}, Verbs: []string{"get"}},
	})
	back, err := Parse(header + Text(have))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Text(have), Text(back)); diff != "" {
		t.Errorf("written and read again:\n%s", diff)
	}
	want := []string{"", "Secrets are read by name", "a wildcard grows by itself", ""}
	var got []string
	for _, r := range have {
		got = append(got, Forbidden(r))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	reviewed, err := Parse("ClusterRole/x core/secrets (all) get\n")
	if err != nil {
		t.Fatal(err)
	}
	if grown := Text(Missing(have, reviewed)); !strings.Contains(grown, "core/secrets (all) list\n") || strings.Contains(grown, "get,list") {
		t.Errorf("the new rights are told as\n%s", grown)
	}
}

// rendered are the rights of all roles in config/default.
func rendered(t *testing.T) []Right {
	t.Helper()
	rights := rightsIn(t, slices.Concat(render(t, "config/default")...))
	if len(only(manager, rights)) == 0 {
		t.Fatalf("config/default renders no %s", manager)
	}
	return rights
}

func rightsIn(t *testing.T, objects []unstructured.Unstructured) []Right {
	t.Helper()
	var rights []Right
	for _, object := range objects {
		var role struct {
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		rights = append(rights, Of(object.GetKind()+"/"+object.GetName(), role.Rules)...)
	}
	return rights
}

// render gives the objects of each kustomization.
func render(t *testing.T, dirs ...string) [][]unstructured.Unstructured {
	t.Helper()
	kustomize := filepath.Join(t.TempDir(), "kustomize")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", kustomize, "sigs.k8s.io/kustomize/kustomize/v5")
	build.Dir = "../../tools/kustomize"
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false") // as the Makefile builds it, for the cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build kustomize: %v\n%s", err, out)
	}
	var all [][]unstructured.Unstructured
	for _, dir := range dirs {
		text, err := exec.CommandContext(t.Context(), kustomize, "build", "../../"+dir).Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = errors.New(string(exit.Stderr))
			}
			t.Fatalf("kustomize build %s: %v", dir, err)
		}
		all = append(all, decode(t, text))
	}
	return all
}

func decode(t *testing.T, text []byte) []unstructured.Unstructured {
	t.Helper()
	var objects []unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// agents are the rights of a Database's agents, on OpenShift too, where they have one more.
func agents() []Right {
	d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Name: "DATABASE", Namespace: "NAMESPACE"}}
	role := desired.Role(desired.Inputs{Database: d, OpenShift: true})
	return Of("Role/"+role.Name, role.Rules)
}

func only(role string, rights []Right) []Right {
	var kept []Right
	for _, r := range rights {
		if r.Role == role {
			kept = append(kept, r)
		}
	}
	return kept
}
