package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// askers answer in a probe's place: there is no kubelet here.
type asker func(*corev1.Pod) (v1.NodeStatus, error)

func (a asker) Ask(_ context.Context, pod *corev1.Pod) (v1.NodeStatus, error) { return a(pod) }

// world is an API server with the kind Probe, and a reconciler.
type world struct {
	*testing.T
	client.Client
	r *Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	api, err := cluster.StartAPI(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Stop)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(&rest.Config{
		Host: api.Host, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: api.CA, CertData: api.ClientCert, KeyData: api.ClientKey},
	}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../../config/crd/bases/plimsoll.dev_probes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &crd.Object); err != nil {
		t.Fatal(err)
	}
	writer, err := ssa.New(c, c, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, Client: c, r: New(Options{
		Read: c, Live: c, Writer: writer, Now: time.Now, Image: "registry.test/plimsoll:v1", OperatorNamespace: "plimsoll-system",
		Asker: asker(func(*corev1.Pod) (v1.NodeStatus, error) { return v1.NodeStatus{State: v1.NodeMeasures}, nil }),
	})}
	w.must(c.Create(t.Context(), crd))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := c.List(t.Context(), &v1.ProbeList{}); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pass reconciles once and says what is told of a condition.
func (w *world) pass(condition string) string {
	w.Helper()
	_, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: v1.ProbeName}})
	p := &v1.Probe{}
	w.must(w.Get(w.Context(), client.ObjectKey{Name: v1.ProbeName}, p))
	c := meta.FindStatusCondition(p.Status.Conditions, condition)
	if c == nil {
		w.Fatalf("no condition %s: %v", condition, err)
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

// versions of all that a Probe makes.
func (w *world) versions() map[string]string {
	w.Helper()
	out := map[string]string{}
	for kind, obj := range map[string]client.Object{
		"Namespace": &corev1.Namespace{}, "ServiceAccount": &corev1.ServiceAccount{}, "NetworkPolicy": &networkingv1.NetworkPolicy{}, "DaemonSet": &appsv1.DaemonSet{},
	} {
		key := client.ObjectKey{Namespace: v1.ProbeNamespace, Name: desired.ProbeName}
		if kind == "Namespace" {
			key = client.ObjectKey{Name: v1.ProbeNamespace}
		}
		w.must(w.Get(w.Context(), key, obj))
		out[kind] = obj.GetResourceVersion()
	}
	return out
}

func TestAProbeOnARealAPIServer(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	wrong := &v1.Probe{ObjectMeta: metav1.ObjectMeta{Name: "another"}}
	if err := w.Create(ctx, wrong); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "name it cluster") {
		t.Errorf("a second Probe: %v", err)
	}
	taken := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.ProbeNamespace}}
	w.must(w.Create(ctx, taken))
	w.must(w.Create(ctx, &v1.Probe{ObjectMeta: metav1.ObjectMeta{Name: v1.ProbeName}}))
	if got := w.pass(v1.ConditionStalled); !strings.HasPrefix(got, "True NameConflict") || !strings.Contains(got, "Namespace plimsoll-probe belongs to someone else") {
		t.Errorf("a namespace of that name was there: %s", got)
	}
	// Nobody removes a namespace here; as if it had been the Probe's from the beginning.
	p := &v1.Probe{}
	w.must(w.Get(ctx, client.ObjectKey{Name: v1.ProbeName}, p))
	taken.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, v1.GroupVersion.WithKind("Probe"))}
	w.must(w.Update(ctx, taken))

	w.must(w.Get(ctx, client.ObjectKey{Name: v1.ProbeName}, p))
	if p.Spec.Mode != v1.ProbeMeasure || p.Spec.Privileges != v1.ProbeCapabilities {
		t.Errorf("without a spec it is %+v", p.Spec)
	}
	if got := w.pass(v1.ConditionReady); got != "False NodesNotReady the probes are being made" {
		t.Errorf("at first: %s", got)
	}
	w.must(w.Get(ctx, client.ObjectKeyFromObject(taken), taken))
	if level := taken.Labels["pod-security.kubernetes.io/enforce"]; level != "privileged" {
		t.Errorf("the namespace admits pods of level %q", level)
	}
	before := w.versions()
	w.pass(v1.ConditionReady)
	if d := cmp.Diff(before, w.versions()); d != "" {
		t.Errorf("a pass with nothing to do writes:\n%s", d)
	}

	d := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: v1.ProbeNamespace, Name: desired.ProbeName}
	w.must(w.Get(ctx, key, d))
	d.Spec.Template.Spec.Containers[0].Image = "registry.test/somebody:else"
	d.Spec.Template.Spec.HostPID = true
	w.must(w.Update(ctx, d))
	w.pass(v1.ConditionReady)
	w.must(w.Get(ctx, key, d))
	if got := d.Spec.Template.Spec.Containers[0].Image; got != "registry.test/plimsoll:v1" {
		t.Errorf("the image that somebody changed is %s", got)
	}

	d.Status = appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1}
	w.must(w.Status().Update(ctx, d))
	one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1.ProbeNamespace, Name: "one", Labels: d.Spec.Template.Labels}, Spec: *d.Spec.Template.Spec.DeepCopy()}
	one.Spec.NodeName, one.Spec.ServiceAccountName = "n1", ""
	w.must(w.Create(ctx, one))
	one.Status = corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	w.must(w.Status().Update(ctx, one))
	if got := w.pass(v1.ConditionReady); got != "True AllReady all instances of 1 nodes are measured" {
		t.Errorf("all are ready: %s", got)
	}

	w.must(w.Get(ctx, client.ObjectKey{Name: v1.ProbeName}, p))
	p.Spec.Mode = v1.ProbeOff
	w.must(w.Update(ctx, p))
	w.pass(v1.ConditionReady)
	if err := w.Get(ctx, key, d); !apierrors.IsNotFound(err) {
		t.Errorf("off, the DaemonSet is there (%v)", err)
	}
	if got := w.pass(v1.ConditionReconciling); got != "False Settled nothing is being changed" {
		t.Errorf("off: %s", got)
	}
}

// TestWhatASpecMayNotSay is refused by the API server, or said in the status.
func TestWhatASpecMayNotSay(t *testing.T) {
	w := newWorld(t)
	for sentence, row := range map[string]struct {
		spec map[string]any
		want string
	}{
		"an unknown mode":     {map[string]any{"mode": "On"}, "spec.mode"},
		"no series":           {map[string]any{"statements": map[string]any{"series": 0}}, "spec.statements.series"},
		"too many series":     {map[string]any{"statements": map[string]any{"series": 9000}}, "spec.statements.series"},
		"a nameless secret":   {map[string]any{"imagePullSecrets": []any{map[string]any{"name": ""}}}, "name a Secret"},
		"no endpoint":         {map[string]any{"otlp": map[string]any{"endpoint": "collector:4318"}}, "spec.otlp.endpoint"},
		"a password":          {map[string]any{"otlp": map[string]any{"endpoint": "http://me:secret@collector:4318"}}, "spec.otlp.endpoint"},
		"no duration":         {map[string]any{"statements": map[string]any{"slow": "1 second"}}, "spec.statements.slow"},
		"unknown clients":     {map[string]any{"clients": map[string]any{"by": "IP"}}, "spec.clients.by"},
		"unknown privileges":  {map[string]any{"privileges": "Root"}, "spec.privileges"},
		"a name without room": {map[string]any{"priorityClassName": strings.Repeat("x", 300)}, "spec.priorityClassName"},
	} {
		t.Run(sentence, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": row.spec}}
			u.SetGroupVersionKind(v1.GroupVersion.WithKind("Probe"))
			u.SetName(v1.ProbeName)
			if err := w.Create(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want words about %s", err, row.want)
			}
		})
	}
}
