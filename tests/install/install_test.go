package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

const (
	root    = "../.."
	manager = "system:serviceaccount:" + Namespace + ":plimsoll-manager"
)

// TestManifestsOnAnAPIServer applies what people install to a real API server and asks it what the manager then may do.
func TestManifestsOnAnAPIServer(t *testing.T) {
	k, _ := apiServer(t)
	manifests, err := Manifests(t.Context(), t.Output(), root, "ghcr.io/plimsoll-dev/plimsoll-operator@sha256:"+strings.Repeat("0", 64), Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(manifests), ":latest") {
		t.Error("the manifests still name the image that stands for the chosen one")
	}
	must := func(stdin []byte, args ...string) string {
		t.Helper()
		out, err := k.Run(t.Context(), stdin, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	must(manifests, "apply", "--server-side", "-f", "-")
	if err := k.Established(t.Context(), "databases.plimsoll.dev"); err != nil {
		t.Fatal(err)
	}

	t.Run("the manager's pod passes the restricted standard", func(t *testing.T) {
		must(managerPod(t, manifests), "create", "--dry-run=server", "-f", "-")
	})
	t.Run("the manager may give agents their rights", func(t *testing.T) {
		d := &v1.Database{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "default", UID: "1"}}
		role := desired.Role(desired.Inputs{Database: d, OpenShift: true})
		must(encode(t, role), "--as", manager, "apply", "--server-side", "-f", "-")
		must(encode(t, desired.RoleBinding(desired.Inputs{Database: d})), "--as", manager, "apply", "--server-side", "-f", "-")
	})
	t.Run("the manager may not", func(t *testing.T) {
		for _, row := range [][]string{
			{"list", "secrets", "-A"},
			{"watch", "secrets", "-A"},
			{"patch", "databases", "-A"},
			{"create", "clusterroles"},
			{"create", "pods", "--subresource=exec", "-A"},
			{"update", "customresourcedefinitions"},
			{"delete", "namespaces"},
			{"patch", "nodes"},
		} {
			out, err := k.Run(t.Context(), nil, append([]string{"--as", manager, "auth", "can-i"}, row...)...)
			if strings.TrimSpace(out) != "no" {
				t.Errorf("%v: the API server says %q (%v)", row, out, err)
			}
		}
	})
	t.Run("the manager's Lease is served before other requests", func(t *testing.T) { elects(t, k) })
	t.Run("an editor may make the samples", func(t *testing.T) {
		// The webhooks' Service has no pod here, and a conversion is asked for none of these: v1 is the stored version.
		samples, err := filepath.Glob(root + "/config/samples/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, sample := range samples {
			if strings.HasSuffix(sample, "kustomization.yaml") {
				continue
			}
			text, err := os.ReadFile(sample)
			if err != nil {
				t.Fatal(err)
			}
			must(text, "-n", "default", "apply", "-f", "-")
		}
	})
}

// elects makes the requests of the leader election with the manager's own token, and wants the API server to say by which FlowSchema each
// was served.
func elects(t *testing.T, k Kubectl) {
	t.Helper()
	must := func(args ...string) string {
		t.Helper()
		out, err := k.Run(t.Context(), nil, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	config, err := clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = must("-n", Namespace, "create", "token", "plimsoll-manager")
	served := ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			w, err := next.RoundTrip(r)
			if err == nil {
				served = w.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
			}
			return w, err
		})
	})
	all, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	leases, ctx := all.CoordinationV1().Leases(Namespace), t.Context()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-manager"}}
	want := must("get", "flowschema", "plimsoll-manager-election", "-o", "jsonpath={.metadata.uid}")
	await(t, "the FlowSchema to be followed", func() error {
		if _, err := leases.Get(ctx, lease.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("there is a Lease already: %w", err)
		}
		if served != want {
			return fmt.Errorf("reading the Lease was served by %s, not %s", served, want)
		}
		return nil
	})
	lease, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	if err != nil || served != want {
		t.Errorf("making the Lease was served by %s, not %s (%v)", served, want, err)
	}
	if _, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil || served != want {
		t.Errorf("writing the Lease was served by %s, not %s (%v)", served, want, err)
	}
	if _, err = all.CoordinationV1().Leases("default").Get(ctx, "orders", metav1.GetOptions{}); !apierrors.IsNotFound(err) || served == want || served == "" {
		t.Errorf("Leases of Databases were served by %s, too (%v)", served, err)
	}
	if _, err = all.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1}); err != nil || served == want || served == "" {
		t.Errorf("all else was served by %s, too (%v)", served, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// apiServer starts one, and ends it with the test or by stop.
func apiServer(t *testing.T) (k Kubectl, stop func()) {
	t.Helper()
	api, err := cluster.StartAPI(t.Context(), t.TempDir())
	if errors.Is(err, cluster.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Stop)
	kubectl, err := cluster.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return Kubectl{Path: kubectl, Kubeconfig: api.Kubeconfig, Log: io.Discard}, api.Stop
}

func TestFlagsGoIntoTheManifests(t *testing.T) {
	const manifests = "      containers:\n      - args:\n        - manager\n        env: []\n"
	for sentence, row := range map[string]struct{ manifests, want, problem string }{
		"after the command":       {manifests: manifests, want: "      containers:\n      - args:\n        - manager\n        - --a=1\n        env: []\n"},
		"not where there is none": {manifests: "args: []", problem: "set [--a=1]: the manifests have the manager's command 0 times, not once"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := withFlags([]byte(row.manifests), []string{"--a=1"})
			if row.problem != "" {
				if err == nil || err.Error() != row.problem {
					t.Errorf("got error %v, want %s", err, row.problem)
				}
				return
			}
			if string(got) != row.want {
				t.Errorf("got %q (%v), want %q", got, err, row.want)
			}
		})
	}
}

// managerPod is the pod that the manager's Deployment would make.
func managerPod(t *testing.T, manifests []byte) []byte {
	t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(manifests)), 4096); ; {
		var deployment struct {
			Kind string `json:"kind"`
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		if err := decoder.Decode(&deployment); err != nil {
			t.Fatalf("find the manager's Deployment: %v", err)
		}
		if deployment.Kind != "Deployment" {
			continue
		}
		pod := corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "manager", Namespace: Namespace, Labels: deployment.Spec.Template.Labels},
			Spec:       deployment.Spec.Template.Spec,
		}
		return encode(t, pod)
	}
}

func encode(t *testing.T, obj any) []byte {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
