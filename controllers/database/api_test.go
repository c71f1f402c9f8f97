package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	agentclient "github.com/plimsoll-dev/plimsoll-operator/controllers/agent/client"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/policy"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/ssa"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
)

// shared is the API server of this package's tests, started by the first that needs it.
var shared struct { //nolint:gochecknoglobals // one API server for the package
	once       sync.Once
	config     *rest.Config
	kubeconfig string
	scheme     *runtime.Scheme
	stop       func()
	err        error
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	if code == 0 {
		if err := goleak.Find(
			goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
			// controller-runtime leaves these behind when a cache of given namespaces is stopped before it is filled.
			goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformer.func1"),
			goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1"),
			// A watch of metadata that is stopped while an event is on its way never ends in client-go. A manager stops its watches
			// only when it ends.
			goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func startShared(t *testing.T) {
	t.Helper()
	shared.once.Do(func() {
		dir, err := os.MkdirTemp("", "plimsoll-database")
		if err != nil {
			shared.err = err
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		api, err := cluster.StartAPI(ctx, dir)
		if err != nil {
			cancel()
			shared.err = err
			return
		}
		shared.stop = func() { api.Stop(); cancel(); _ = os.RemoveAll(dir) }
		shared.scheme, shared.kubeconfig = runtime.NewScheme(), api.Kubeconfig
		shared.config = &rest.Config{
			Host: api.Host, UserAgent: "plimsoll-test", QPS: -1,
			TLSClientConfig: rest.TLSClientConfig{CAData: api.CA, CertData: api.ClientCert, KeyData: api.ClientKey},
		}
		shared.err = errors.Join(clientgoscheme.AddToScheme(shared.scheme), v1.AddToScheme(shared.scheme), installCRD(ctx))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
}

func installCRD(ctx context.Context) error {
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "plimsoll.dev_databases.yaml"))
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &crd.Object); err != nil {
		return err
	}
	c, err := client.New(shared.config, client.Options{Scheme: shared.scheme})
	if err != nil {
		return err
	}
	if err := c.Create(ctx, crd); err != nil {
		return err
	}
	for {
		err := c.List(ctx, &v1.DatabaseList{})
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// world is a namespace with a manager, agents and a person in it.
type world struct {
	*testing.T
	namespace string
	person    client.Client
	fleet     *fleet
	registry  *prometheus.Registry
	health    *Health
	// ahead is how far the clock of health is before the others.
	ahead    atomic.Int64
	requests *requestLog
	reports  *Reports
	issued   *Issued
	stop     func()
}

// requestLog counts what the manager asks of the API server, watches apart, and notes of what it watches the metadata or the whole.
type requestLog struct {
	mu      sync.Mutex
	all     []string
	watches map[string]string
	// hold is called with each request before it is sent, and may keep it; slow does so with what a watch brings.
	hold func(*http.Request)
	slow func(*http.Request)
}

func (l *requestLog) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		l.note(r)
		l.mu.Lock()
		hold, slow := l.hold, l.slow
		l.mu.Unlock()
		if hold != nil {
			hold(r)
		}
		resp, err := next.RoundTrip(r)
		if err == nil && slow != nil {
			resp.Body = slowBody{resp.Body, func() { slow(r) }}
		}
		return resp, err
	})
}

// slowBody waits before each piece that is read of it.
type slowBody struct {
	io.ReadCloser
	wait func()
}

func (b slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.wait()
	return n, err
}

func (l *requestLog) note(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.URL.Query().Get("watch") != "true" {
		l.all = append(l.all, r.Method+" "+r.URL.Path)
		return
	}
	if l.watches == nil {
		l.watches = map[string]string{}
	}
	l.watches[path.Base(r.URL.Path)] = "whole"
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		l.watches[path.Base(r.URL.Path)] = "metadata"
	}
}

func (l *requestLog) count() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.all) }

func (l *requestLog) since(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all[n:])
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var worlds atomic.Int64 //nolint:gochecknoglobals // names of namespaces

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, &requestLog{})
}

func newWorldWith(t *testing.T, requests *requestLog) *world {
	t.Helper()
	startShared(t)
	w := &world{T: t, registry: prometheus.NewRegistry(), requests: requests, namespace: fmt.Sprintf("t-%d", worlds.Add(1))}
	var err error
	if w.person, err = client.New(shared.config, client.Options{Scheme: shared.scheme}); err != nil {
		t.Fatal(err)
	}
	w.person = client.WithFieldOwner(w.person, "person")
	if err := w.person.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}); err != nil {
		t.Fatal(err)
	}
	w.fleet = newFleet(t, w.person, w.namespace)
	w.startManager()
	return w
}

func (w *world) startManager() {
	w.Helper()
	config := rest.CopyConfig(shared.config)
	config.Wrap(ssa.UserAgent)
	config.Wrap(w.requests.wrap)
	cached, err := CacheOptions([]string{w.namespace})
	if err != nil {
		w.Fatal(err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: shared.scheme, Logger: w.logger(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
		Client:     ClientOptions(), Cache: cached,
	})
	if err != nil {
		w.Fatal(err)
	}
	writer, err := ssa.New(mgr.GetClient(), mgr.GetAPIReader(), w.registry, ByMetadata()...)
	if err != nil {
		w.Fatal(err)
	}
	vault := NewVault(mgr.GetAPIReader())
	lives := certificate.DefaultPolicy()
	lives.QuickOverlap = 2 * time.Second // so that a rotation on request takes no ten minutes
	dialer := NewDialer(vault, lives, time.Now, agentclient.WithPort(w.fleet.port))
	w.reports = NewReports(dialer, logr.Discard())
	counted, err := NewMetrics(w.registry, w.reports)
	if err != nil {
		w.Fatal(err)
	}
	openIssued := func(failed toolscache.WatchErrorHandlerWithContext) (cache.Cache, error) {
		own := cached
		own.DefaultWatchErrorHandler = failed
		own.Scheme, own.Mapper, own.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
		return cache.New(config, own)
	}
	w.issued = NewIssued(mgr.GetRESTMapper(), openIssued, vault, w.reports, logr.Discard())
	w.health = NewHealth(mgr.GetClient(), func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) })
	r := New(Options{
		Read: mgr.GetClient(), Live: mgr.GetAPIReader(), Writer: writer, Agents: dialer, Vault: vault, Reports: w.reports, Issued: w.issued, Metrics: counted,
		Health: w.health, Events: mgr.GetEventRecorder("plimsoll-manager"), Now: time.Now, Policy: lives,
		Surroundings: Surroundings{
			AgentImage: "registry.test/plimsoll:v1", OperatorNamespace: "plimsoll-system", Engines: policy.Engines{v1.EnginePostgres: postgres.New(postgres.Options{})},
		},
	})
	if err := r.SetupWithManager(mgr, 2); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				w.Errorf("the manager ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			w.Error("the manager did not drain within 30 s")
		}
		dialer.Close()
	})
	w.Cleanup(w.stop)
}

// logger writes to the test's log until its manager is stopped: that may say a last word after the test's own end.
func (w *world) logger() logr.Logger {
	var mu sync.RWMutex
	var over bool
	w.Cleanup(func() { mu.Lock(); defer mu.Unlock(); over = true })
	return funcr.New(func(prefix, args string) {
		mu.RLock()
		defer mu.RUnlock()
		if !over {
			w.Log(prefix, args)
		}
	}, funcr.Options{})
}

func (w *world) database(name string, change ...func(*v1.Database)) *v1.Database {
	w.Helper()
	d := &v1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1.DatabaseSpec{
			Engine: v1.EnginePostgres, Version: "15", Replicas: new(int32(3)), Storage: v1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
	for _, c := range change {
		c(d)
	}
	if err := w.person.Create(w.Context(), d); err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) get(name string) *v1.Database {
	w.Helper()
	d := &v1.Database{}
	if err := w.person.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, d); err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) edit(name string, change func(*v1.Database)) {
	w.Helper()
	before := w.get(name)
	after := before.DeepCopy()
	change(after)
	if err := w.person.Patch(w.Context(), after, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// until waits for a Database to be as wanted, and shows how it is if it does not become so.
func (w *world) until(name, what string, is func(*v1.Database) bool) *v1.Database {
	w.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for time.Now().Before(deadline) {
		if d := w.get(name); is(d) {
			return d
		}
		time.Sleep(50 * time.Millisecond)
	}
	raw, _ := yaml.Marshal(w.get(name).Status)
	w.Fatalf("waited for %s; the status is\n%s", what, raw)
	return nil
}

func running(d *v1.Database) bool {
	return d.Status.Phase == v1.PhaseRunning && d.Status.ObservedGeneration == d.Generation
}

// objects are the versions of all that there is in the namespace, by kind and name.
func (w *world) objects() map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1.DatabaseList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &corev1.ServiceAccountList{},
		&coordinationv1.LeaseList{}, &discoveryv1.EndpointSliceList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &networkingv1.NetworkPolicyList{},
		&policyv1.PodDisruptionBudgetList{},
	} {
		if err := w.person.List(w.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.Fatal(err)
		}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
		if err != nil {
			w.Fatal(err)
		}
		kind := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), "List")
		items, _ := raw["items"].([]any) // null if there are none
		for _, item := range items {
			u := unstructured.Unstructured{Object: item.(map[string]any)}
			out[kind+"/"+u.GetName()] = u.GetResourceVersion()
		}
	}
	return out
}

func names(m map[string]string) []string { return sortedKeys(m) }

func TestDatabaseOnAPIServer(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	w.database("orders")
	d := w.until("orders", "three running instances", running)
	t.Logf("ready after %s", time.Since(began))

	t.Run("makes every object", func(t *testing.T) {
		want := []string{
			"Database/orders", "EndpointSlice/orders-rw", "Lease/orders", "NetworkPolicy/orders",
			"PersistentVolumeClaim/orders-1", "PersistentVolumeClaim/orders-2", "PersistentVolumeClaim/orders-3", "Pod/orders-1", "Pod/orders-2", "Pod/orders-3",
			"PodDisruptionBudget/orders", "Role/orders-agent", "RoleBinding/orders-agent",
			"Secret/orders-1-member", "Secret/orders-2-member", "Secret/orders-3-member", "Secret/orders-app", "Secret/orders-ca", "Secret/orders-server",
			"Service/orders-members", "Service/orders-r", "Service/orders-ro", "Service/orders-rw", "ServiceAccount/orders-agent",
		}
		if diff := cmp.Diff(want, names(w.objects())); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("tells how it is", func(t *testing.T) {
		got := map[string]any{"leader": d.Status.Leader, "epoch": d.Status.Epoch, "voters": d.Status.Voters, "ready": d.Status.Ready, "version": d.Status.Version}
		want := map[string]any{"leader": "orders-1", "epoch": int64(1), "voters": []string{"orders-1", "orders-2", "orders-3"}, "ready": "3/3", "version": "15.18"}
		if diff := cmp.Diff(want, got); diff != "" {
			raw, _ := yaml.Marshal(d.Status)
			t.Errorf("%s\n%s", diff, raw)
		}
		if len(d.Status.Certificates) != 3 {
			t.Errorf("certificates: %v", d.Status.Certificates)
		}
	})

	t.Run("labels the roles", func(t *testing.T) {
		w.until("orders", "labels", func(*v1.Database) bool {
			got := map[string]string{}
			var pods corev1.PodList
			if err := w.person.List(t.Context(), &pods, client.InNamespace(w.namespace)); err != nil {
				t.Fatal(err)
			}
			for _, p := range pods.Items {
				got[p.Name] = p.Labels[v1.LabelRole]
			}
			return cmp.Equal(got, map[string]string{"orders-1": "primary", "orders-2": "replica", "orders-3": "replica"})
		})
	})

	t.Run("asks nothing of the API server while idle", func(t *testing.T) {
		time.Sleep(2 * time.Second) // what the last change caused settles
		before, asked := w.objects(), w.requests.count()
		time.Sleep(11 * time.Second)
		if diff := cmp.Diff(before, w.objects()); diff != "" {
			t.Errorf("an idle Database was written to:\n%s", diff)
		}
		if got := w.requests.since(asked); len(got) > 0 {
			t.Errorf("an idle Database caused requests: %v", got)
		}
	})
}

func TestANewManagerChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.database("orders")
	w.until("orders", "three running instances", running)
	time.Sleep(time.Second)
	w.stop()
	before := w.objects()
	w.registry = prometheus.NewRegistry()
	w.startManager()
	time.Sleep(4 * time.Second)
	if diff := cmp.Diff(before, w.objects()); diff != "" {
		t.Errorf("a restart of the manager was written down:\n%s", diff)
	}
	if open, _, _, relayed := w.reports.counts(); open != 1 || relayed != 2 {
		t.Errorf("the new manager has %d streams and hears of %d instances by the leader, want 1 and 2", open, relayed)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	var p corev1.Pod
	if err := w.person.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, &p); err != nil {
		w.Fatal(err)
	}
	return &p
}

func (w *world) secret(name string) *corev1.Secret {
	w.Helper()
	var s corev1.Secret
	if err := w.person.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, &s); err != nil {
		w.Fatal(err)
	}
	return &s
}

func (w *world) exists(obj client.Object, name string) bool {
	w.Helper()
	err := w.person.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, obj)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return err == nil
}

func stalledBy(reason, text string) func(*v1.Database) bool {
	return func(d *v1.Database) bool {
		c := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionStalled)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reason && strings.Contains(c.Message, text)
	}
}

func TestScaleUpAndDown(t *testing.T) {
	w := newWorld(t)
	w.database("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)); d.Spec.DeletionPolicy = v1.DeletionDelete })
	w.until("orders", "one instance", running)
	w.edit("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(3)) })
	w.until("orders", "three instances", func(d *v1.Database) bool { return running(d) && d.Status.Ready == "3/3" })
	w.edit("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(2)) })
	w.until("orders", "two instances", func(d *v1.Database) bool {
		return running(d) && d.Status.Ready == "2/2" && slices.Equal(d.Status.Voters, []string{"orders-1", "orders-2"})
	})
	if w.exists(&corev1.Pod{}, "orders-3") {
		t.Error("the pod of orders-3 is still there")
	}
	w.until("orders", "the volume of orders-3 to be deleted", func(*v1.Database) bool {
		var c corev1.PersistentVolumeClaim
		return !w.exists(&c, "orders-3") || c.DeletionTimestamp != nil
	})
}

func TestScaleDownKeepsRetainedVolumes(t *testing.T) {
	w := newWorld(t)
	w.database("orders", func(d *v1.Database) { d.Spec.DeletionPolicy = v1.DeletionRetain })
	w.until("orders", "three instances", running)
	w.edit("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
	w.until("orders", "one instance", func(d *v1.Database) bool { return running(d) && d.Status.Ready == "1/1" })
	for _, name := range []string{"orders-1", "orders-2", "orders-3"} {
		var c corev1.PersistentVolumeClaim
		if !w.exists(&c, name) || c.DeletionTimestamp != nil {
			t.Errorf("the volume %s is gone", name)
		}
	}
}

func request1(id, target string, expires time.Time) string {
	return fmt.Sprintf(`{"id":%q,"target":%q,"expires":%q}`, id, target, expires.UTC().Format(time.RFC3339))
}

func (w *world) annotate(name, key, value string) {
	w.Helper()
	w.edit(name, func(d *v1.Database) {
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[key] = value
	})
}

func TestRequests(t *testing.T) {
	w := newWorld(t)
	w.database("orders")
	w.until("orders", "three instances", running)
	is := func(id string, state v1.RequestState) func(*v1.Database) bool {
		return func(d *v1.Database) bool {
			return slices.ContainsFunc(d.Status.Requests, func(r v1.RequestStatus) bool { return r.ID == id && r.State == state })
		}
	}
	w.annotate("orders", v1.AnnotationSwitchover, request1("s1", "orders-2", time.Now().Add(time.Minute)))
	d := w.until("orders", "the switchover", func(d *v1.Database) bool {
		return is("s1", v1.RequestDone)(d) && running(d) && d.Status.Leader == "orders-2"
	})
	if len(d.Status.HandOvers) != 2 || d.Status.HandOvers[0].Cause != "switchover" || d.Status.HandOvers[0].From != "orders-1" {
		t.Errorf("hand-overs: %+v", d.Status.HandOvers)
	}
	w.annotate("orders", v1.AnnotationSwitchover, request1("s2", "orders-9", time.Now().Add(time.Minute)))
	w.until("orders", "a refusal", is("s2", v1.RequestFailed))
	w.annotate("orders", v1.AnnotationSwitchover, request1("s3", "orders-1", time.Now().Add(-time.Minute)))
	w.until("orders", "an expired one", is("s3", v1.RequestExpired))
	w.annotate("orders", v1.AnnotationSwitchover, `{"id":`)
	w.until("orders", "a malformed one", is("malformed-switchover", v1.RequestFailed))
	if d := w.get("orders"); d.Status.Leader != "orders-2" || d.Status.Epoch != 2 {
		t.Errorf("leader %s, epoch %d: refused requests moved it", d.Status.Leader, d.Status.Epoch)
	}
	w.annotate("orders", v1.AnnotationRestart, request1("r1", "", time.Now().Add(time.Minute)))
	w.until("orders", "the restart of all", func(d *v1.Database) bool { return is("r1", v1.RequestDone)(d) && running(d) })
	for _, name := range []string{"orders-1", "orders-2", "orders-3"} {
		w.fleet.with(func() {})
		if got := w.fleet.of(name).restarts; !slices.Equal(got, []string{"request-r1"}) {
			t.Errorf("%s was restarted by %v", name, got)
		}
	}
}

func TestParameterRestartGoesRoundOnce(t *testing.T) {
	w := newWorld(t)
	w.database("orders")
	w.until("orders", "three instances", running)
	w.fleet.with(func() { w.fleet.restarts = true })
	w.edit("orders", func(d *v1.Database) { d.Spec.Parameters = v1.Parameters{"shared_buffers": "64MB"} })
	w.until("orders", "one hand-over and no pending restart", func(d *v1.Database) bool {
		return running(d) && d.Status.Epoch == 2 && !slices.ContainsFunc(d.Status.Instances, func(i v1.InstanceStatus) bool { return i.RestartPending })
	})
	for _, name := range []string{"orders-1", "orders-2", "orders-3"} {
		if got := w.fleet.of(name).restarts; len(got) != 1 {
			t.Errorf("%s was restarted by %v", name, got)
		}
	}
}

func TestRollOfAnImage(t *testing.T) {
	w := newWorld(t)
	w.fleet.refuse = "registry.test/none:15"
	w.database("orders")
	w.until("orders", "three instances", running)
	before := map[string]types.UID{}
	for _, name := range []string{"orders-1", "orders-2", "orders-3"} {
		before[name] = w.pod(name).UID
	}
	w.edit("orders", func(d *v1.Database) { d.Spec.Image = "registry.test/none:15" })
	w.until("orders", "the bad image to be told", stalledBy(v1.ReasonImagePull, "not found"))
	changed := 0
	for name, uid := range before {
		if w.pod(name).UID != uid {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d pods were replaced by ones that cannot start", changed)
	}
	w.edit("orders", func(d *v1.Database) { d.Spec.Image = "registry.test/postgres:15" })
	w.until("orders", "the good image everywhere", func(d *v1.Database) bool {
		if !running(d) {
			return false
		}
		for name := range before {
			if databaseImage(w.pod(name)) != "registry.test/postgres:15" {
				return false
			}
		}
		return true
	})
	if d := w.get("orders"); d.Status.Epoch != 2 || d.Status.HandOvers[0].Cause != "switchover" {
		t.Errorf("want one planned hand-over, got %+v", d.Status.HandOvers)
	}
}

func TestAWrongImageIsToldAndCorrected(t *testing.T) {
	for image, reason := range map[string]string{"registry.test/none:15": v1.ReasonImagePull, "registry.test/nginx:1": v1.ReasonContainerFailed} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t)
			w.fleet.refuse, w.fleet.crash = "registry.test/none:15", "registry.test/nginx:1"
			w.database("orders", func(d *v1.Database) { d.Spec.Image = image })
			d := w.until("orders", "the wrong image to be told", stalledBy(reason, "orders-1: "))
			if d.Status.Instances[0].Message == "" {
				t.Errorf("orders-1 does not say what is wrong: %+v", d.Status.Instances)
			}
			w.edit("orders", func(d *v1.Database) { d.Spec.Image = "registry.test/postgres:15" })
			w.until("orders", "three instances of the good image", running)
		})
	}
}

// TestAWrongVersionIsToldAndCorrected: nothing is of the wrong version yet, so it need not be deleted to be put right.
func TestAWrongVersionIsToldAndCorrected(t *testing.T) {
	w := newWorld(t)
	w.fleet.refuse = postgres.New(postgres.Options{}).Parts(&v1.Database{Spec: v1.DatabaseSpec{Version: "16"}}).Image
	w.database("orders", func(d *v1.Database) { d.Spec.Version = "16" })
	w.until("orders", "an image that there is not to be told", stalledBy(v1.ReasonImagePull, "orders-1: "))
	w.edit("orders", func(d *v1.Database) { d.Spec.Version = "15" })
	w.until("orders", "three instances of the right version", running)
	d := w.get("orders")
	d.Spec.Version = "16"
	if err := w.person.Update(t.Context(), d); err == nil || !strings.Contains(err.Error(), "the major number cannot change from 15 to 16") {
		t.Errorf("now that it runs, another major version is answered with %v", err)
	}
}

func TestPasswordIsAdoptedAfterARefusal(t *testing.T) {
	w := newWorld(t)
	w.database("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
	d := w.until("orders", "one instance", running)
	s := w.secret("orders-app")
	s.Data["password"] = []byte("a new one: Ünïcode")
	if err := w.person.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want, err := scramVerifier(string(d.UID), "app", "a new one: Ünïcode")
	if err != nil {
		t.Fatal(err)
	}
	agent := w.fleet.of("orders-1")
	began := time.Now()
	w.fleet.with(func() { agent.failures++ })
	w.until("orders", "the aim with the new password", func(*v1.Database) bool {
		w.fleet.mu.Lock()
		defer w.fleet.mu.Unlock()
		return cmp.Equal(agent.aim.Accounts, []engine.Account{{Name: "app", Verifier: want}})
	})
	t.Logf("adopted after %s", time.Since(began))
	w.until("orders", "the address with the new password", func(*v1.Database) bool {
		return strings.Contains(string(w.secret("orders-app").Data["uri"]), "a%20new%20one")
	})
}

func TestAProblemThatIsOverIsToldNoMore(t *testing.T) {
	w := newWorld(t)
	w.database("orders")
	w.until("orders", "three instances", running)
	says := func(text string) func(*v1.Database) bool {
		return func(d *v1.Database) bool { return d.Status.Instances[2].Message == text }
	}
	agent := w.fleet.of("orders-3")
	w.fleet.with(func() { agent.problem = "become replica: out of memory" })
	w.until("orders", "the problem", says("become replica: out of memory"))
	w.fleet.with(func() { agent.problem = "" })
	began := time.Now()
	w.until("orders", "its end", func(d *v1.Database) bool { return says("")(d) && running(d) })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the end of a problem was told %s late", took)
	}
}

func TestMaintenance(t *testing.T) {
	w := newWorld(t)
	w.database("orders")
	w.until("orders", "three instances", running)

	w.annotate("orders", v1.AnnotationFence, "orders-3")
	w.until("orders", "the fence", func(d *v1.Database) bool {
		return slices.ContainsFunc(d.Status.Instances, func(i v1.InstanceStatus) bool { return i.Name == "orders-3" && i.State == "fenced" })
	})
	w.annotate("orders", v1.AnnotationFence, "")
	w.until("orders", "the end of the fence", running)

	w.edit("orders", func(d *v1.Database) { d.Spec.Maintenance.Paused = true })
	w.until("orders", "the pause", func(d *v1.Database) bool {
		c := meta.FindStatusCondition(d.Status.Conditions, v1.ConditionReconciling)
		return c != nil && c.Reason == v1.ReasonPaused
	})
	if err := w.person.Delete(t.Context(), w.pod("orders-3")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if w.exists(&corev1.Pod{}, "orders-3") {
		t.Error("a pod was made for a paused Database")
	}
	w.edit("orders", func(d *v1.Database) { d.Spec.Maintenance.Paused = false })
	w.until("orders", "the lost pod", running)

	w.edit("orders", func(d *v1.Database) { d.Spec.Maintenance.Hibernated = true })
	w.until("orders", "the sleep", func(d *v1.Database) bool { return d.Status.Phase == v1.PhaseHibernated })
	if !w.exists(&corev1.PersistentVolumeClaim{}, "orders-1") {
		t.Error("the volume of a hibernated Database is gone")
	}
	w.edit("orders", func(d *v1.Database) { d.Spec.Maintenance.Hibernated = false })
	w.until("orders", "three instances again", running)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	w := newWorld(t)
	w.database("orders", func(d *v1.Database) { d.Spec.TLS.ServerSecret = "orders-tls" })
	w.until("orders", "the missing Secret", stalledBy(v1.ReasonSecretMissing, "Secret orders-tls of spec.tls.serverSecret does not exist"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "billing-app"}, StringData: map[string]string{"password": "x"}}
	if err := w.person.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.database("billing")
	w.until("billing", "the conflict", stalledBy(v1.ReasonSecretConflict, "Secret billing-app exists"))
	if w.exists(&corev1.Pod{}, "billing-1") || w.exists(&corev1.Pod{}, "orders-1") {
		t.Error("a pod was made that cannot start")
	}
	if err := w.person.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.until("billing", "three instances once the Secret is gone", running)
}

// TestTwoDatabasesAndOneSecret: whoever has it keeps it, the other says whose it is, and neither writes it again and again.
func TestTwoDatabasesAndOneSecret(t *testing.T) {
	w := newWorld(t)
	orders := w.database("orders")
	w.until("orders", "three instances", running)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: "billing-ca", Labels: map[string]string{v1.LabelDatabase: "orders"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "plimsoll.dev/v1", Kind: "Database", Name: "orders", UID: orders.UID, Controller: new(true)}},
	}}
	if err := w.person.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.database("billing")
	w.until("billing", "the conflict", stalledBy(v1.ReasonSecretConflict, "Secret billing-ca exists and belongs to Database orders; delete it, or choose another name for the Database"))
	time.Sleep(time.Second) // what was under way ends
	before := w.objects()
	time.Sleep(3 * time.Second)
	if diff := cmp.Diff(before, w.objects()); diff != "" {
		t.Errorf("two Databases go on about one Secret:\n%s", diff)
	}
	if !running(w.get("orders")) {
		t.Error("the Database that has the Secret suffers")
	}
	if w.exists(&corev1.Pod{}, "billing-1") {
		t.Error("a pod was made without its certificates")
	}
}

func TestDeletionInEveryPhase(t *testing.T) {
	for phase, reach := range map[string]func(w *world){
		"before anything exists": func(w *world) { w.database("orders") },
		"stalled": func(w *world) {
			w.database("orders", func(d *v1.Database) { d.Spec.TLS.ServerSecret = "none" })
			w.until("orders", "it to stall", stalledBy(v1.ReasonSecretMissing, "none"))
		},
		"creating": func(w *world) {
			w.fleet.mu.Lock() // no agent answers, so that it goes no further
			w.Cleanup(w.fleet.mu.Unlock)
			w.database("orders")
			w.until("orders", "the first pod", func(*v1.Database) bool { return w.exists(&corev1.Pod{}, "orders-1") })
		},
		"running": func(w *world) { w.database("orders"); w.until("orders", "three instances", running) },
		"changing": func(w *world) {
			w.database("orders")
			w.until("orders", "three instances", running)
			w.edit("orders", func(d *v1.Database) { d.Spec.Image = "registry.test/postgres:15" })
		},
		"degraded": func(w *world) {
			w.database("orders")
			w.until("orders", "three instances", running)
			replica := w.fleet.of("orders-3")
			w.fleet.with(func() { replica.problem = "out of memory" })
			w.until("orders", "a replica to fail", func(d *v1.Database) bool { return d.Status.Phase == v1.PhaseDegraded })
		},
		"down": func(w *world) {
			w.database("orders")
			w.until("orders", "three instances", running)
			leader := w.fleet.of("orders-1")
			w.fleet.with(func() { leader.problem = "out of memory" })
			w.until("orders", "the primary to fail", func(d *v1.Database) bool { return d.Status.Phase == v1.PhaseDown })
		},
		"paused": func(w *world) {
			w.database("orders")
			w.until("orders", "three instances", running)
			w.edit("orders", func(d *v1.Database) { d.Spec.Maintenance.Paused = true })
			w.until("orders", "the pause", running)
		},
		"rotating its certificates": func(w *world) {
			w.database("orders")
			w.until("orders", "three instances", running)
			w.annotate("orders", v1.AnnotationRotate, request1("c", "", time.Now().Add(time.Minute)))
			w.until("orders", "the rotation to begin", func(d *v1.Database) bool { return len(d.Status.Requests) > 0 })
		},
		"hibernated": func(w *world) {
			w.database("orders", func(d *v1.Database) { d.Spec.Replicas = new(int32(1)) })
			w.until("orders", "one instance", running)
			w.edit("orders", func(d *v1.Database) { d.Spec.Maintenance.Hibernated = true })
			w.until("orders", "the sleep", func(d *v1.Database) bool { return d.Status.Phase == v1.PhaseHibernated })
		},
	} {
		t.Run(phase, func(t *testing.T) {
			w := newWorld(t)
			reach(w)
			uid := string(w.get("orders").UID)
			if err := w.person.Delete(t.Context(), w.get("orders")); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(5 * time.Second)
			for w.exists(&v1.Database{}, "orders") {
				if time.Now().After(deadline) {
					t.Fatal("the Database does not go: something holds it back")
				}
				time.Sleep(50 * time.Millisecond)
			}
			time.Sleep(1500 * time.Millisecond) // what was under way ends
			before := w.objects()
			time.Sleep(2 * time.Second)
			if diff := cmp.Diff(before, w.objects()); diff != "" {
				t.Errorf("the manager goes on for a Database that is gone:\n%s", diff)
			}
			w.onlyOwned(uid)
			if open, _, _, _ := w.reports.counts(); open != 0 {
				t.Errorf("%d streams are still open", open)
			}
			w.noSeries()
		})
	}
}

// onlyOwned checks that the garbage collector will find everything but volumes that are kept. (No collector runs here.)
func (w *world) onlyOwned(uid string) {
	w.Helper()
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &coordinationv1.LeaseList{}, &rbacv1.RoleList{}} {
		if err := w.person.List(w.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.Fatal(err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if !ownedBy(o.(client.Object).GetOwnerReferences(), types.UID(uid)) {
				w.Errorf("%T %s is not owned by the Database", o, o.(client.Object).GetName())
			}
			return nil
		})
	}
	var claims corev1.PersistentVolumeClaimList
	if err := w.person.List(w.Context(), &claims, client.InNamespace(w.namespace)); err != nil {
		w.Fatal(err)
	}
	for _, c := range claims.Items {
		if len(c.OwnerReferences) > 0 {
			w.Errorf("volume %s would go with its Database, though it is to be kept", c.Name)
		}
	}
}

// noSeries checks that no metric names the Database any more.
func (w *world) noSeries() {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "database" {
					w.Errorf("%s still has a series of Database %s", f.GetName(), l.GetValue())
				}
			}
		}
	}
}
