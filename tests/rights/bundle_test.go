package rights

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestTheBundleLeavesOutWhatOLMBrings: OLM makes the namespace and the webhooks' certificate. A role to keep one would give the
// operator rights on webhook configurations that are not its own, a NetworkPolicy is refused by a catalog, and a FlowSchema by OLM.
func TestTheBundleLeavesOutWhatOLMBrings(t *testing.T) {
	rendered := render(t, "config/manifests", "config/default")
	var got []string
	for _, object := range rendered[0] {
		got = append(got, object.GetKind()+"/"+object.GetName())
		if object.GetKind() == "Database" && object.GetNamespace() != "" {
			t.Errorf("the example %s would be made in namespace %s", object.GetName(), object.GetNamespace())
		}
	}
	slices.Sort(got)
	want := []string{
		"ClusterRole/plimsoll-database-editor", "ClusterRole/plimsoll-database-viewer", "ClusterRole/plimsoll-manager",
		"ClusterRole/plimsoll-metrics-reader", "ClusterRole/plimsoll-probe", "ClusterRoleBinding/plimsoll-manager", "ClusterRoleBinding/plimsoll-probe",
		"CustomResourceDefinition/databases.plimsoll.dev", "CustomResourceDefinition/probes.plimsoll.dev",
		"Database/orders", "Deployment/plimsoll-manager", "MutatingWebhookConfiguration/plimsoll-mutating", "PodDisruptionBudget/plimsoll-manager",
		"PriorityClass/plimsoll-manager", "Probe/cluster", "Role/plimsoll-manager-election", "RoleBinding/plimsoll-manager-election", "Service/plimsoll-manager-metrics",
		"Service/plimsoll-webhook", "ServiceAccount/plimsoll-manager", "ValidatingWebhookConfiguration/plimsoll-validating",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config/manifests (-want +got):\n%s", diff)
	}
	bundle, all := rightsIn(t, rendered[0]), rightsIn(t, rendered[1])
	if more := Missing(bundle, all); more != nil {
		t.Errorf("rights that only the bundle gives:\n%s", Text(more))
	}
	var less []string
	for _, right := range Missing(all, bundle) {
		less = append(less, right.Resource+" "+right.Verb)
	}
	want = []string{
		"admissionregistration.k8s.io/mutatingwebhookconfigurations get", "admissionregistration.k8s.io/mutatingwebhookconfigurations patch",
		"admissionregistration.k8s.io/validatingwebhookconfigurations get", "admissionregistration.k8s.io/validatingwebhookconfigurations patch",
		"apiextensions.k8s.io/customresourcedefinitions get", "apiextensions.k8s.io/customresourcedefinitions patch",
	}
	slices.Sort(less)
	if diff := cmp.Diff(want, less); diff != "" {
		t.Errorf("rights that the bundle leaves out (-want +got):\n%s", diff)
	}
}

// TestEveryFileNamesItsNamespace : kustomize is not asked to, since it gives one to kinds that have none and that it does not know.
func TestEveryFileNamesItsNamespace(t *testing.T) {
	cluster := []string{
		"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "FlowSchema", "MutatingWebhookConfiguration", "Namespace", "PriorityClass", "Probe",
		"ValidatingWebhookConfiguration",
	}
	for n, objects := range render(t, "config/default", "config/default-certmanager") {
		for _, object := range objects {
			want := "plimsoll-system"
			if slices.Contains(cluster, object.GetKind()) {
				want = ""
			}
			if got := object.GetNamespace(); got != want {
				t.Errorf("rendering %d: %s %s is in namespace %q, want %q", n, object.GetKind(), object.GetName(), got, want)
			}
		}
	}
}

// sdk stands for operator-sdk, which no module proxy serves: it writes what it is given into a bundle, as that does with a CRD.
const sdk = `#!/bin/sh
case "$*" in
*"generate bundle"*) mkdir -p bundle/manifests && cat > bundle/manifests/plimsoll.dev_databases.yaml && cp bundle/manifests/plimsoll.dev_databases.yaml "$SDK_GIVEN" ;;
esac
`

// TestTheBundlesDefinitionHasNoConversion runs `make bundle` on a copy of what it reads: the conversion reaches operator-sdk, which
// needs it for the ClusterServiceVersion, and does not stay in the bundle's CRD.
func TestTheBundlesDefinitionHasNoConversion(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"Makefile", "config", "api", "controllers", "tools", "go.mod", "go.sum", "PROJECT"} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", "../../"+name, dir).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %s", name, out)
		}
	}
	fake, given := filepath.Join(dir, "operator-sdk"), filepath.Join(dir, "given.yaml")
	if err := os.WriteFile(fake, []byte(sdk), 0o700); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "make", "-C", dir, "bundle", "OPERATOR_SDK="+fake)
	run.Env = append(os.Environ(), "SDK_GIVEN="+given)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("make bundle: %v\n%s", err, out)
	}
	text, err := os.ReadFile(given)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "path: /convert") {
		t.Error("operator-sdk is not given the conversion webhook")
	}
	text, err = os.ReadFile(filepath.Join(dir, "bundle", "manifests", "plimsoll.dev_databases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		t.Fatal(err)
	}
	if crd.GetKind() != "CustomResourceDefinition" || crd.GetName() != "databases.plimsoll.dev" {
		t.Errorf("the bundle's CRD is %s %s", crd.GetKind(), crd.GetName())
	}
	if conversion, there, err := unstructured.NestedMap(crd.Object, "spec", "conversion"); there || err != nil {
		t.Errorf("the bundle's CRD has the conversion %v (%v)", conversion, err)
	}
}
