package api

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// kubectl runs the real one and returns what it prints, errors and all.
func kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary, err := cluster.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), binary, args...)
	run.Env = append(os.Environ(), "KUBECONFIG="+shared.kubeconfig, "HOME="+t.TempDir())
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	err = run.Run()
	return out.String(), err
}

func manifest(t *testing.T, doc map[string]any) string {
	t.Helper()
	raw, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "database.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestApplyOfTheSameManifestChangesNothing(t *testing.T) {
	ns := namespace(t, map[string]string{v1.LabelRegion: "eu-north"})
	for _, version := range versions() {
		for _, how := range [][]string{{"apply"}, {"apply", "--server-side"}} {
			for sentence, doc := range map[string]map[string]any{
				"the smallest": document(version, ns, fresh()).Object, "with every field": everything(version, ns, fresh()),
			} {
				t.Run(version+"/"+strings.Join(how, " ")+"/"+sentence, func(t *testing.T) {
					path := manifest(t, doc)
					name := doc["metadata"].(map[string]any)["name"].(string)
					if out, err := kubectl(t, append(how, "-f", path)...); err != nil {
						t.Fatal(out)
					}
					before := read(t, "v1", ns, name)["metadata"].(map[string]any)["resourceVersion"]
					for range 2 {
						out, err := kubectl(t, append(how, "-f", path)...)
						if err != nil {
							t.Fatal(out)
						}
						if after := read(t, "v1", ns, name)["metadata"].(map[string]any)["resourceVersion"]; after != before {
							t.Errorf("resourceVersion went from %v to %v: %s", before, after, out)
						}
					}
				})
			}
		}
	}
}

// TestATypedClientWritesBackWhatItRead holds that our Go types add nothing to a document that they do not know of, such as empty
// parts, beside writing quantities their own way.
func TestATypedClientWritesBackWhatItRead(t *testing.T) {
	ns := namespace(t, nil)
	d := document("v1", ns, fresh())
	if err := shared.client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	typed := &v1.Database{}
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(d), typed); err != nil {
		t.Fatal(err)
	}
	before := typed.ResourceVersion
	if err := shared.client.Update(t.Context(), typed); err != nil {
		t.Fatal(err)
	}
	if typed.ResourceVersion != before {
		t.Errorf("resourceVersion went from %s to %s", before, typed.ResourceVersion)
	}
	if diff := cmp.Diff(d.Object["spec"], read(t, "v1", ns, d.GetName())["spec"]); diff != "" {
		t.Error(diff)
	}
}

func TestServerSideApplyConflictsAreReported(t *testing.T) {
	ns := namespace(t, nil)
	for _, version := range versions() {
		name := fresh()
		apply := func(manager string, edits ...edit) error {
			d := document(version, ns, name, edits...)
			return shared.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(d), client.FieldOwner(manager))
		}
		if err := apply("gitops", set("spec.replicas", int64(3))); err != nil {
			t.Fatal(err)
		}
		err := apply("script", set("spec.replicas", int64(5)))
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `"gitops"`) || !strings.Contains(err.Error(), ".spec.replicas") {
			t.Errorf("%s: got %v, want a conflict that names the owner gitops and the field .spec.replicas", version, err)
		}
		// Who owns the field no longer is out of the autoscaler's way.
		if err := apply("gitops"); err != nil {
			t.Fatal(err)
		}
		if err := apply("script", set("spec.replicas", int64(5))); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		if err := apply("gitops"); err != nil {
			t.Fatal(err)
		}
		if got := read(t, "v1", ns, name)["spec"].(map[string]any)["replicas"]; got != int64(5) {
			t.Errorf("%s: replicas are %v after gitops applied without them, want 5", version, got)
		}
		// Lists keyed by name merge; two owners of different entries do not fight.
		if err := apply("one", set("spec.imagePullSecrets", []any{map[string]any{"name": "one"}})); err != nil {
			t.Fatal(err)
		}
		if err := apply("two", set("spec.imagePullSecrets", []any{map[string]any{"name": "two"}})); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		if got := read(t, "v1", ns, name)["spec"].(map[string]any)["imagePullSecrets"].([]any); len(got) != 2 {
			t.Errorf("%s: imagePullSecrets are %v, want both", version, got)
		}
	}
}

func TestScale(t *testing.T) {
	ns := namespace(t, nil)
	name := fresh()
	d := document("v1", ns, name, set("spec.maxReplicas", int64(5)))
	if err := shared.client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Object["status"] = map[string]any{"replicas": int64(3), "selector": "plimsoll.dev/database=" + name}
	if err := shared.client.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t, "-n", ns, "scale", "database", name, "--replicas=5"); err != nil {
		t.Fatal(out)
	}
	out, err := kubectl(t, "-n", ns, "get", "database", name, "--subresource=scale", "-o", "jsonpath={.spec.replicas} {.status.replicas} {.status.selector}")
	if want := "5 3 plimsoll.dev/database=" + name; err != nil || out != want {
		t.Errorf("scale is %q (%v), want %q", out, err, want)
	}
	out, err = kubectl(t, "-n", ns, "scale", "database", name, "--replicas=7")
	if want := "spec.replicas: Invalid value: more than maxReplicas, which is 5; lower replicas or raise maxReplicas"; err == nil || !strings.Contains(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestColumnsAndNames(t *testing.T) {
	ns := namespace(t, nil)
	d := document("v1", ns, "orders")
	if err := shared.client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Object["status"] = map[string]any{"version": "15.4", "ready": "3/3", "leader": "orders-1", "phase": "Running"}
	if err := shared.client.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pldb", "databases.plimsoll.dev", "database.v1alpha1.plimsoll.dev", "plimsoll", "all"} {
		out, err := kubectl(t, "-n", ns, "get", name)
		if err != nil {
			t.Fatal(out)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var heads, values string
		for i, line := range lines {
			if strings.HasPrefix(line, "NAME") && i+1 < len(lines) {
				heads, values = strings.Join(strings.Fields(line), " "), strings.Join(strings.Fields(lines[i+1])[:6], " ")
			}
		}
		if heads != "NAME ENGINE VERSION READY LEADER PHASE AGE" || !strings.HasSuffix(values, "orders postgres 15.4 3/3 orders-1 Running") && !strings.HasSuffix(values, "/orders postgres 15.4 3/3 orders-1 Running") {
			t.Errorf("get %s:\n%s", name, out)
		}
	}
}
