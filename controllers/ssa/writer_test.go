package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// server is the API server that every test of this package talks to; each has a namespace of its own.
type server struct {
	config *rest.Config
	scheme *runtime.Scheme
}

// shared is one API server for the package, made by TestMain.
var shared server

func TestMain(m *testing.M) {
	code := runAll(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "plimsoll-ssa")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	api, err := cluster.StartAPI(ctx, dir)
	if err != nil {
		panic(err)
	}
	defer api.Stop()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	shared = server{scheme: scheme, config: &rest.Config{
		Host: api.Host, UserAgent: "plimsoll-test", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: api.CA, CertData: api.ClientCert, KeyData: api.ClientKey},
	}}
	return m.Run()
}

// world is a namespace with a writer and a person in it.
type world struct {
	namespace string
	person    client.Client
	writer    *ssa.Writer
	registry  *prometheus.Registry
	// requests counts what the writer has sent to write.
	requests int
	// kinds are those that the writer reads the metadata of.
	kinds []client.Object
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newBlindWorld(t, nil)
}

// byMetadata are the kinds of which the manager's cache holds the metadata alone.
func byMetadata() []client.Object {
	return []client.Object{
		&corev1.Service{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}, &networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{},
	}
}

// newBlindWorld has a writer whose cache does not show what hide says, like a cache that is filtered by label, or behind.
func newBlindWorld(t *testing.T, hide func(client.Object) bool, kinds ...client.Object) *world {
	t.Helper()
	direct, err := client.NewWithWatch(shared.config, client.Options{Scheme: shared.scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{person: client.WithFieldOwner(direct, "person"), registry: prometheus.NewRegistry(), kinds: kinds}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := direct.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	w.namespace = namespace.Name
	watched := interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, obj, opts...); err != nil {
				return err
			}
			if hide != nil && hide(obj) {
				return apierrors.NewNotFound(corev1.Resource("hidden"), key.Name)
			}
			return nil
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			w.requests++
			return c.Apply(ctx, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			w.requests++
			return c.Create(ctx, obj, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			w.requests++
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		},
	})
	if w.writer, err = ssa.New(watched, direct, w.registry, kinds...); err != nil {
		t.Fatal(err)
	}
	return w
}

const ourUID = types.UID("11111111-1111-1111-1111-111111111111")

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: w.namespace,
		Labels: map[string]string{v1.LabelDatabase: "orders"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "plimsoll.dev/v1", Kind: "Database", Name: "orders", UID: ourUID,
			Controller: new(true), BlockOwnerDeletion: new(true),
		}},
	}
}

func (w *world) service() *corev1.Service {
	return &corev1.Service{ObjectMeta: w.meta("orders-ro"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{v1.LabelDatabase: "orders"},
		Ports: []corev1.ServicePort{{Name: "postgres", Port: 5432, TargetPort: intstr.FromInt32(5432), Protocol: corev1.ProtocolTCP}},
	}}
}

func (w *world) secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: w.meta("orders-app"), Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"username": []byte("app"), "password": []byte("one")},
	}
}

// everyKind is one object of each kind that the manager applies.
func (w *world) everyKind() map[string]client.Object {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: w.meta("orders-1"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		// 1024Mi is stored as 1Gi: a comparison of text would write for ever.
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1024Mi")}},
	}}
	selector := metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelDatabase: "orders"}}
	return map[string]client.Object{
		"Service": w.service(),
		"Secret":  w.secret(),
		"Claim":   claim,
		"ServiceAccount": &corev1.ServiceAccount{
			ObjectMeta: w.meta("orders-agent"), AutomountServiceAccountToken: new(false),
		},
		"Role": &rbacv1.Role{ObjectMeta: w.meta("orders-agent"), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"orders"}, Verbs: []string{"get", "update"},
		}}},
		"RoleBinding": &rbacv1.RoleBinding{
			ObjectMeta: w.meta("orders-agent"),
			RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "orders-agent"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "orders-agent", Namespace: w.namespace}},
		},
		"NetworkPolicy": &networkingv1.NetworkPolicy{ObjectMeta: w.meta("orders"), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: selector,
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{
				Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(5432)),
			}}}},
		}},
		"PodDisruptionBudget": &policyv1.PodDisruptionBudget{ObjectMeta: w.meta("orders"), Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(2)), Selector: &selector,
		}},
	}
}

func (w *world) apply(t *testing.T, obj client.Object) {
	t.Helper()
	if err := w.writer.Apply(t.Context(), obj); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func get[T client.Object](t *testing.T, w *world, obj T) T {
	t.Helper()
	if err := w.person.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatalf("get: %v", err)
	}
	return obj
}

// bothWays runs a test with a cache of whole objects and with one of metadata.
func bothWays(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("of whole objects", func(t *testing.T) { test(t, newWorld(t)) })
	t.Run("of metadata", func(t *testing.T) { test(t, newBlindWorld(t, nil, byMetadata()...)) })
}

func TestTheSecondApplyOfAnyKindSendsNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world) {
		for name, obj := range w.everyKind() {
			t.Run(name, func(t *testing.T) {
				w.apply(t, obj)
				before := get(t, w, obj.DeepCopyObject().(client.Object)).GetResourceVersion()
				sent := w.requests
				w.apply(t, obj)
				// A new process remembers nothing and must see it from the object alone.
				fresh := newWriterLike(t, w)
				if err := fresh.Apply(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
				if w.requests != sent {
					t.Errorf("sent %d more writes, want none", w.requests-sent)
				}
				if after := get(t, w, obj.DeepCopyObject().(client.Object)).GetResourceVersion(); after != before {
					t.Errorf("resourceVersion went from %s to %s, want no change", before, after)
				}
			})
		}
	})
}

func TestApplyPutsRightWhatOthersChangedAndKeepsWhatTheyAdded(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world) {
		w.apply(t, w.service())
		live := get(t, w, w.service())
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, "team", "shop")
		live.Spec.Ports[0].TargetPort = intstr.FromInt32(1)
		live.Spec.Ports = append(live.Spec.Ports, corev1.ServicePort{Name: "metrics", Port: 9187, Protocol: corev1.ProtocolTCP})
		if err := w.person.Update(t.Context(), live); err != nil {
			t.Fatal(err)
		}
		w.apply(t, w.service())
		got := get(t, w, w.service())
		if got.Annotations["team"] != "shop" || len(got.Spec.Ports) != 2 {
			t.Errorf("foreign fields are gone: annotations %v, ports %v", got.Annotations, got.Spec.Ports)
		}
		if port := got.Spec.Ports[0].TargetPort.IntValue(); port != 5432 {
			t.Errorf("target port is %d, want 5432 again", port)
		}
		sent := w.requests
		w.apply(t, w.service())
		if w.requests != sent {
			t.Error("foreign fields make the writer write again and again")
		}
	})
}

func TestApplyTakesBackWhatIsNoLongerSaid(t *testing.T) {
	w := newWorld(t)
	w.apply(t, w.secret())
	less := w.secret()
	delete(less.Data, "username")
	fresh := newWriterLike(t, w)
	if err := fresh.Apply(t.Context(), less); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{"password": []byte("one")}
	if diff := cmp.Diff(want, get(t, w, w.secret()).Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestApplyRestoresAFieldThatSomeoneRemoved(t *testing.T) {
	w := newWorld(t)
	w.apply(t, w.secret())
	live := get(t, w, w.secret())
	delete(live.Data, "password")
	if err := w.person.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	w.apply(t, w.secret())
	if got := string(get(t, w, w.secret()).Data["password"]); got != "one" {
		t.Errorf("password is %q, want it back", got)
	}
}

func TestWhatBelongsToSomeoneElseIsLeftAlone(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "plimsoll.dev/v1", Kind: "Database", Name: "bills", UID: "2222", Controller: new(true)}
	for name, row := range map[string]struct {
		change func(*corev1.Secret)
		hidden bool
		holder string
	}{
		"a person's, that the cache does not show": {
			change: func(s *corev1.Secret) { s.Labels, s.OwnerReferences = nil, nil }, hidden: true,
			holder: "someone else: it has no owner and no label plimsoll.dev/database of this Database",
		},
		"a person's, that the cache shows": {
			change: func(s *corev1.Secret) { s.Labels, s.OwnerReferences = nil, nil },
			holder: "someone else: it has no owner and no label plimsoll.dev/database of this Database",
		},
		"that of another Database": {
			change: func(s *corev1.Secret) { s.OwnerReferences = []metav1.OwnerReference{other} },
			holder: "Database bills (uid 2222)",
		},
		"retained from an earlier Database": {
			change: func(s *corev1.Secret) {
				s.OwnerReferences, s.Annotations = nil, map[string]string{v1.AnnotationDatabaseUID: "3333"}
			},
			holder: "an earlier Database orders (uid 3333)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBlindWorld(t, func(client.Object) bool { return row.hidden })
			theirs := w.secret()
			theirs.Data = map[string][]byte{"password": []byte("theirs")}
			row.change(theirs)
			if err := w.person.Create(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			want := &ssa.ForeignError{Kind: "Secret", Namespace: w.namespace, Name: "orders-app", Holder: row.holder}
			for verb, write := range map[string]func(context.Context, client.Object) error{"apply": w.writer.Apply, "create": w.writer.Create} {
				err := write(t.Context(), w.secret())
				var got *ssa.ForeignError
				if !errors.As(err, &got) {
					t.Fatalf("%s: error is %v, want a ForeignError", verb, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", verb, diff)
				}
			}
			if diff := cmp.Diff(theirs.Data, get(t, w, w.secret()).Data); diff != "" {
				t.Errorf("their data changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAStrangerWhoComesFirstKeepsTheName lets a person make the Secret between the writer's last look and its write.
func TestAStrangerWhoComesFirstKeepsTheName(t *testing.T) {
	w := newWorld(t)
	direct, err := client.NewWithWatch(shared.config, client.Options{Scheme: shared.scheme})
	if err != nil {
		t.Fatal(err)
	}
	theirs := w.secret()
	theirs.Labels, theirs.OwnerReferences = nil, nil
	theirs.Data["password"] = []byte("theirs")
	racing := interceptor.NewClient(direct, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := w.person.Create(ctx, theirs.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Error(err)
			}
			return c.Apply(ctx, obj, opts...)
		},
	})
	registry := prometheus.NewRegistry()
	writer, err := ssa.New(racing, direct, registry)
	if err != nil {
		t.Fatal(err)
	}
	var stranger *ssa.ForeignError
	if err := writer.Apply(t.Context(), w.secret()); !errors.As(err, &stranger) {
		t.Fatalf("error is %v, want a ForeignError", err)
	}
	if diff := cmp.Diff(theirs.Data, get(t, w, w.secret()).Data); diff != "" {
		t.Errorf("their data changed (-want +got):\n%s", diff)
	}
}

func TestARetainedClaimOfThisDatabaseIsItsOwn(t *testing.T) {
	w := newWorld(t)
	claim := w.everyKind()["Claim"].(*corev1.PersistentVolumeClaim)
	claim.OwnerReferences = nil
	claim.Annotations = map[string]string{v1.AnnotationDatabaseUID: string(ourUID)}
	w.apply(t, claim)
	sent := w.requests
	w.apply(t, claim)
	if w.requests != sent {
		t.Error("the second apply sent a write")
	}
	// deletionPolicy becomes Delete: the owner comes.
	owned := claim.DeepCopy()
	owned.OwnerReferences = w.meta("").OwnerReferences
	w.apply(t, owned)
	if got := get(t, w, claim.DeepCopy()).OwnerReferences; len(got) != 1 {
		t.Errorf("owners are %v, want one", got)
	}
	// And back to Retain: the owner goes, or the volumes would be deleted with the Database.
	w.apply(t, claim)
	if got := get(t, w, claim.DeepCopy()).OwnerReferences; len(got) != 0 {
		t.Errorf("owners are %v, want none", got)
	}
}

func TestACacheThatIsBehindDoesNotMakeTrouble(t *testing.T) {
	w := newBlindWorld(t, func(client.Object) bool { return true })
	w.apply(t, w.service())
	before := get(t, w, w.service()).ResourceVersion
	w.apply(t, w.service())
	if err := w.writer.Create(t.Context(), w.service()); err != nil {
		t.Errorf("create of our own: %v", err)
	}
	if after := get(t, w, w.service()).ResourceVersion; after != before {
		t.Errorf("resourceVersion went from %s to %s", before, after)
	}
}

func TestCreateNeverChangesWhatIsThere(t *testing.T) {
	w := newWorld(t)
	if err := w.writer.Create(t.Context(), w.secret()); err != nil {
		t.Fatal(err)
	}
	other := w.secret()
	other.Data["password"] = []byte("two")
	if err := w.writer.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := string(get(t, w, w.secret()).Data["password"]); got != "one" {
		t.Errorf("password is %q, want the first", got)
	}
	if w.requests != 1 {
		t.Errorf("sent %d writes, want 1", w.requests)
	}
}

func TestAPodsRoleIsAppliedBesideItsSpec(t *testing.T) {
	w := newWorld(t)
	account := &corev1.ServiceAccount{ObjectMeta: w.meta("default")}
	if err := w.writer.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: w.meta("orders-1"), Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "database", Image: "example.com/postgres:17"}},
	}}
	if err := w.writer.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	role := func(r string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: w.meta("orders-1")}
		if r != "" {
			p.Labels[v1.LabelRole] = r
		}
		return p
	}
	for _, r := range []string{"replica", "primary", ""} {
		w.apply(t, role(r))
		sent := w.requests
		w.apply(t, role(r))
		if w.requests != sent {
			t.Errorf("the second apply of role %q sent a write", r)
		}
		live := get(t, w, &corev1.Pod{ObjectMeta: w.meta("orders-1")})
		if got := live.Labels[v1.LabelRole]; got != r {
			t.Errorf("role is %q, want %q", got, r)
		}
		if live.Spec.Containers[0].Image != "example.com/postgres:17" {
			t.Error("the spec changed")
		}
	}
}

func TestDeleteRemovesOnlyWhatWasRead(t *testing.T) {
	w := newWorld(t)
	w.apply(t, w.secret())
	old := get(t, w, w.secret())
	if err := w.person.Delete(t.Context(), old.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	w.apply(t, w.secret())
	if err := w.writer.Delete(t.Context(), old); err != nil {
		t.Errorf("delete of what another has replaced: %v", err)
	}
	now := get(t, w, w.secret())
	if err := w.writer.Delete(t.Context(), now); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := w.person.Get(t.Context(), client.ObjectKeyFromObject(now), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after delete: %v, want not found", err)
	}
	if err := w.writer.Delete(t.Context(), now); err != nil {
		t.Errorf("delete of what is gone: %v", err)
	}
	if err := w.writer.Delete(t.Context(), w.secret()); err == nil {
		t.Error("delete of an object that was never read succeeded, want an error")
	}
}

func TestWritesAreCountedAndSkippedOnesAreNot(t *testing.T) {
	w := newWorld(t)
	w.apply(t, w.secret())
	w.apply(t, w.secret())
	bad := w.service()
	bad.Spec.Ports[0].Port = -1
	if err := w.writer.Apply(t.Context(), bad); !apierrors.IsInvalid(err) {
		t.Fatalf("error is %v, want invalid", err)
	}
	counted, err := testutil.GatherAndCount(w.registry, "plimsoll_api_writes_total")
	if err != nil || counted != 2 {
		t.Errorf("%d series (%v), want 2", counted, err)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		key := ""
		for _, l := range m.GetLabel() {
			key += l.GetValue() + " "
		}
		got[key] = m.GetCounter().GetValue()
	}
	want := map[string]float64{"Secret ok apply ": 1, "Service invalid apply ": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	problems, err := testutil.GatherAndLint(w.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
}

func TestACallThatHangsEnds(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if err := w.writer.Apply(ctx, w.secret()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want the deadline", err)
	}
}

func TestTheOperationStandsInTheUserAgent(t *testing.T) {
	var agents []string
	config := rest.CopyConfig(shared.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return ssa.UserAgent(roundTrip(func(r *http.Request) (*http.Response, error) {
			agents = append(agents, r.UserAgent())
			return next.RoundTrip(r)
		}))
	})
	w := newWorld(t)
	c, err := client.New(config, client.Options{Scheme: shared.scheme})
	if err != nil {
		t.Fatal(err)
	}
	writer, err := ssa.New(c, c, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Apply(ssa.WithOperation(t.Context(), "abc123"), w.secret()); err != nil {
		t.Fatal(err)
	}
	if last := agents[len(agents)-1]; last != "plimsoll-test operation/abc123" {
		t.Errorf("user agent is %q", last)
	}
}

// client-go asks each round tripper for the one below, and complains in the log of one that does not answer.
func TestTheUserAgentCanBeLookedThrough(t *testing.T) {
	below := &http.Transport{}
	wrapper, ok := ssa.UserAgent(below).(utilnet.RoundTripperWrapper)
	if !ok || wrapper.WrappedRoundTripper() != http.RoundTripper(below) {
		t.Errorf("what is below %v cannot be seen", wrapper)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newWriterLike is a second writer in the same world, as after a restart; its writes are counted in the world, too.
func newWriterLike(t *testing.T, w *world) *ssa.Writer {
	t.Helper()
	direct, err := client.NewWithWatch(shared.config, client.Options{Scheme: shared.scheme})
	if err != nil {
		t.Fatal(err)
	}
	counted := interceptor.NewClient(direct, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			w.requests++
			return c.Apply(ctx, obj, opts...)
		},
	})
	writer, err := ssa.New(counted, direct, prometheus.NewRegistry(), w.kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return writer
}
